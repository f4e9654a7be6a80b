//! Act of stream-ingress: a port is opened on a shared ingress-nginx and closed while its upstream is missing. Entries
//! that a person has written there by hand stay.

use serde_json::{Value, json};

use crate::act::{Act, Place, Step, expect};
use crate::kind::{Kind, reason};
use crate::sample::Sample;
use crate::scene::Scene;

/// Namespace of the ingress-nginx.
const NAMESPACE: &str = "ingress-nginx";
/// Its ConfigMap of TCP ports.
const CONFIG_MAP: &str = "tcp-services";
/// Its Service.
const CONTROLLER: &str = "ingress-nginx-controller";
/// Service behind the sample's port.
const UPSTREAM: &str = "postgres";

/// The act.
pub fn act() -> Act {
    Act {
        plugin: "stream-ingress",
        sample: "stream-ingress.yaml",
        about: "a StreamIngress opens a port on the ingress-nginx that all share",
        kind: Kind::StreamIngress,
        seeds,
        steps,
        contributed,
    }
}

fn seeds() -> Vec<(Kind, Value)> {
    let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    let config_map = |name: &str, data: Value| json!({"metadata": metadata(name), "data": data});
    let controller = json!({"metadata": metadata(CONTROLLER), "spec": {"ports": [{"name": "http", "port": 80}]}});
    vec![
        (Kind::Namespace, json!({"metadata": {"name": NAMESPACE}})),
        (Kind::ConfigMap, config_map(CONFIG_MAP, json!({"9": "by/hand:9"}))),
        (Kind::ConfigMap, config_map("udp-services", json!({}))),
        (Kind::Service, controller),
        (Kind::Service, upstream()),
    ]
}

fn upstream() -> Value {
    json!({"metadata": {"name": UPSTREAM, "namespace": "default"}, "spec": {"ports": [{"port": 5432}]}})
}

fn steps(_: &Sample) -> Vec<Step> {
    vec![
        Step::Apply,
        Step::Until {
            what: "the port to be open",
            holds: open,
        },
        Step::Delete {
            text: format!("delete Service {UPSTREAM}, to which it leads"),
            object: Place {
                kind: Kind::Service,
                namespace: Some("default".to_owned()),
                name: UPSTREAM.to_owned(),
            },
        },
        Step::Until {
            what: "the port to be closed",
            holds: closed,
        },
        Step::Create {
            text: format!("make Service {UPSTREAM} again"),
            kind: Kind::Service,
            body: upstream(),
        },
        Step::Until {
            what: "the port to be open again",
            holds: open,
        },
    ]
}

/// The entry and the port are there, and what was there before.
fn open(scene: &Scene, sample: &Sample) -> Result<(), String> {
    let (entry, port) = entries(scene, sample)?;
    let wanted = format!("{}/{UPSTREAM}:5432", sample.namespace());
    expect("the entry", &entry, &Some(wanted.as_str()))?;
    expect("whether the Service has the port", &port.is_some(), &true)?;
    accepted(scene, sample, "Accepted")
}

/// Checks that neither is there, but the entries from before are.
fn closed(scene: &Scene, sample: &Sample) -> Result<(), String> {
    let (entry, port) = entries(scene, sample)?;
    expect("the entry", &entry, &None)?;
    expect("whether the Service has the port", &port.is_some(), &false)?;
    accepted(scene, sample, "UpstreamNotFound")
}

fn accepted(scene: &Scene, sample: &Sample, wanted: &str) -> Result<(), String> {
    let stream = scene.get(Kind::StreamIngress, sample.namespace(), &sample.name);
    let why = stream.and_then(|stream| reason(stream, "Accepted"));
    expect("the reason of the condition Accepted", &why, &Some(wanted))
}

/// The entry of the ConfigMap and the port of the Service that are the sample's.
fn entries<'scene>(
    scene: &'scene Scene,
    sample: &Sample,
) -> Result<(Option<&'scene str>, Option<&'scene Value>), String> {
    let listen = &sample.body["spec"]["listen"];
    let map = scene.get(Kind::ConfigMap, NAMESPACE, CONFIG_MAP);
    let data = &map.ok_or("the shared ConfigMap is gone")?["data"];
    expect("the entry by hand", &data["9"].as_str(), &Some("by/hand:9"))?;
    let service = scene.get(Kind::Service, NAMESPACE, CONTROLLER);
    let ports = service.ok_or("the shared Service is gone")?["spec"]["ports"].as_array();
    let port = ports.into_iter().flatten().find(|port| port["port"] == *listen);
    Ok((data[listen.to_string()].as_str(), port))
}

fn contributed(scene: &Scene, sample: &Sample) -> Vec<[String; 2]> {
    let Ok((Some(entry), Some(port))) = entries(scene, sample) else {
        return Vec::new();
    };
    let listen = &sample.body["spec"]["listen"];
    vec![
        [
            format!("entry {listen} of ConfigMap {NAMESPACE}/{CONFIG_MAP}"),
            entry.to_owned(),
        ],
        [
            format!("port {listen} of Service {NAMESPACE}/{CONTROLLER}"),
            port["name"].as_str().unwrap_or("no name").to_owned(),
        ],
    ]
}
