//! Act of reverse-proxy's second kind: a TCPReverseProxy gets an nginx, and is deleted once that is gone.

use crate::act::{Act, Place, Step, expect, no_seeds, nothing_contributed};
use crate::kind::{Kind, condition};
use crate::sample::Sample;
use crate::scene::{Scene, uid};

/// The act.
pub fn act() -> Act {
    Act {
        plugin: "reverse-proxy",
        sample: "tcp-reverse-proxy.yaml",
        about: "so does a TCPReverseProxy, which goes once its children are gone",
        kind: Kind::TcpReverseProxy,
        seeds: no_seeds,
        steps,
        contributed: nothing_contributed,
    }
}

fn steps(sample: &Sample) -> Vec<Step> {
    let until_fulfilled = || Step::Until {
        what: "the nginx to be there",
        holds: fulfilled,
    };
    vec![
        Step::Apply,
        until_fulfilled(),
        Step::Delete {
            text: format!("delete TCPReverseProxy {}", sample.name),
            object: Place::like(sample, Kind::TcpReverseProxy),
        },
        Step::Until {
            what: "it to go after its children",
            holds: gone,
        },
        Step::Apply,
        until_fulfilled(),
    ]
}

/// The TCPReverseProxy has its three children, and says so.
fn fulfilled(scene: &Scene, sample: &Sample) -> Result<(), String> {
    let proxy = scene.get(sample.kind, sample.namespace(), &sample.name);
    let proxy = proxy.ok_or_else(|| format!("TCPReverseProxy {} is not there", sample.name))?;
    for kind in [Kind::ConfigMap, Kind::Deployment, Kind::Service] {
        let count = scene.children(uid(proxy), kind).len();
        expect(&format!("the number of {}s", kind.name()), &count, &1)?;
    }
    let reconciled = condition(proxy, "Reconciled");
    expect("the condition Reconciled", &reconciled, &Some("True"))
}

/// Checks that it is deleted, and before it its children.
fn gone(scene: &Scene, sample: &Sample) -> Result<(), String> {
    let child = format!("ngx-tcpproxy-{}", sample.name);
    for (kind, name) in [
        (Kind::ConfigMap, &child),
        (Kind::Deployment, &child),
        (Kind::Service, &child),
        (sample.kind, &sample.name),
    ] {
        let there = scene.get(kind, sample.namespace(), name).is_some();
        expect(&format!("whether {} {name} is there", kind.name()), &there, &false)?;
    }
    Ok(())
}
