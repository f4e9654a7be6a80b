//! Tests of the host's watches on its own resources and on CRDs, on a simulated cluster: a server that goes silent,
//! forbids the watch, does not serve the kind, or sends unreadable objects.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use pilothouse_cluster::resources::host_resources::{HostResourceApi, HostResources};
use pilothouse_cluster::watch::definitions;
use pilothouse_cluster::watch::definitions::DefinitionEvent;
use pilothouse_core::Kind;
use pilothouse_simulator::{Fault, Options, Rule, Simulator};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Time limit of a wait, by the test's clock.
const WITHIN: Duration = Duration::from_mins(20);

/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_hours(24);

/// Follows Namespaces in place of a kind of the host's own, on a cluster with this fault, until one is known.
async fn follow_until_known(name: &str, fault: Fault, verb: &str) -> Vec<String> {
    let simulator = Simulator::new(Options::default());
    simulator.faults().add(Rule::new(fault).verbs(&[verb]).times(1));
    let client = Client::new(simulator.service(), "default");
    let kind = HostResourceApi::new(client.clone(), Kind::new("", "v1", "Namespace"), "namespaces");
    let (sender, mut known) = watch::channel::<HostResources>(None);
    let troubles = Arc::<Mutex<Vec<String>>>::default();
    let told = troubles.clone();
    let following = tokio::spawn(async move {
        let tell = move |trouble: Option<&str>| told.lock().extend(trouble.map(str::to_owned));
        kind.follow(sender, tell).await;
    });
    if verb == "watch" {
        let listed = timeout(WITHIN, known.wait_for(Option::is_some)).await;
        listed.unwrap().unwrap();
        let request = http::Request::post("/api/v1/namespaces").body(Body::from(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
                .to_string()
                .into_bytes(),
        ));
        client.send(request.unwrap()).await.unwrap();
    }
    let is_known = |known: &HostResources| known.as_ref().is_some_and(|known| known.contains_key(name));
    let seen = timeout(WITHIN, known.wait_for(is_known)).await;
    seen.expect("it is asked again").unwrap();
    following.abort();
    std::mem::take(&mut *troubles.lock())
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_list_of_host_resources_is_repeated() {
    let troubles = follow_until_known("default", Fault::Delay(FOR_EVER), "list").await;
    assert!(troubles[0].contains("gave no answer within 30 s"), "{troubles:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unopened_watch_of_host_resources_is_repeated() {
    let troubles = follow_until_known("new", Fault::Delay(FOR_EVER), "watch").await;
    assert!(troubles[0].contains("gave no answer within 30 s"), "{troubles:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_of_host_resources_is_reopened() {
    let troubles = follow_until_known("new", Fault::SilentWatch, "watch").await;
    assert!(troubles[0].contains("gave no answer within 150 s"), "{troubles:?}");
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    json!({
        "metadata": {"name": "things.test.dev"},
        "spec": {
            "group": "test.dev", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
            "versions": [version],
        },
    })
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) {
    let request = http::Request::builder().method(method).uri(path);
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let response = client.send(request).await.unwrap();
    assert!(response.status().is_success(), "{method} {path}: {}", response.status());
}

/// Returns the requests, as `list things`.
fn asked(simulator: &Simulator) -> Vec<String> {
    let log = simulator.requests().all().into_iter();
    log.map(|record| format!("{} {}", record.verb, record.resource))
        .collect()
}

/// Kind that is followed in the background, with all reported errors.
struct Followed {
    known: watch::Receiver<HostResources>,
    troubles: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Followed {
    fn things(client: Client) -> Self {
        let kind = HostResourceApi::new(client, Kind::new("test.dev", "v1", "Thing"), "things");
        let (sender, known) = watch::channel::<HostResources>(None);
        let troubles = Arc::<Mutex<Vec<String>>>::default();
        let told = troubles.clone();
        let task = tokio::spawn(async move {
            let tell = move |trouble: Option<&str>| told.lock().push(trouble.unwrap_or("works").to_owned());
            kind.follow(sender, tell).await;
        });
        Self { known, troubles, task }
    }

    async fn until(&mut self, names: &[&str]) {
        let are_known = |known: &HostResources| {
            let known = known.as_ref();
            known.is_some_and(|known| known.keys().map(|name| &**name).eq(names.iter().copied()))
        };
        let seen = timeout(WITHIN, self.known.wait_for(are_known)).await;
        assert!(seen.is_ok(), "troubles: {:?}", self.troubles.lock());
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_yet_is_found_when_it_is() {
    let simulator = Simulator::new(Options::default());
    let client = Client::new(simulator.service(), "default");
    let mut followed = Followed::things(client.clone());
    tokio::time::sleep(Duration::from_mins(5)).await;
    let troubles = followed.troubles.lock().clone();
    let words = "the cluster does not serve test.dev/v1 Thing; install its CRD";
    assert!(troubles[1..].iter().all(|it| it.contains(words)), "{troubles:?}");
    assert!(asked(&simulator).len() < 20, "{:?}", asked(&simulator));
    send(&client, "POST", DEFINITIONS, &definition()).await;
    followed.until(&[]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(followed.troubles.lock().last().unwrap(), "works");
    let thing = json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": "x"}});
    send(&client, "POST", "/apis/test.dev/v1/things", &thing).await;
    followed.until(&["x"]).await;
    send(&client, "DELETE", "/apis/test.dev/v1/things/x", &json!({})).await;
    followed.until(&[]).await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_resource_is_skipped_and_keeps_its_last_state() {
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    let thing = |name: &str, more: &str| format!(r#"{{"metadata":{{"name":"{name}","uid":"u"{more}}}}}"#);
    let odd = thing("odd", r#","ownerReferences":"none""#);
    let list = |items: &[String]| {
        format!(
            r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{}]}}"#,
            items.join(",")
        )
    };
    let deep = format!(r#"{{"metadata":{{"name":"deep","uid":"u"}},"spec":{deep}}}"#);
    let first = list(&[thing("odd", ""), thing("gone", ""), deep]);
    let second = list(&[odd.clone(), thing("later", "")]);
    let event = |kind: &str, object: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
    let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
    let mut answers = [
        first,
        [
            event("MODIFIED", &odd),
            event("ADDED", &thing("new", "")),
            expired.to_owned(),
        ]
        .join("\n")
            + "\n",
        second,
        String::new(),
    ]
    .into_iter();
    let resource =
        |name: &str| json!({"name": name, "kind": "Thing", "singularName": "", "namespaced": false, "verbs": []});
    let resources = [resource("things"), resource("things/status")];
    let discovery = json!({"groupVersion": "test.dev/v1", "resources": resources}).to_string();
    let client = tower::service_fn(move |request: http::Request<Body>| {
        let is_discovery = request.uri().query().is_none();
        // Once what there is to say is said, nothing comes any more.
        let answer = if is_discovery {
            Some(discovery.clone())
        } else {
            answers.next()
        };
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            match answer {
                Some(answer) => Ok::<_, Infallible>(http::Response::new(Body::from(answer.into_bytes()))),
                None => std::future::pending().await,
            }
        }
    });
    let mut followed = Followed::things(Client::new(client, "default"));
    followed.until(&["deep", "gone", "odd"]).await;
    let known = followed.known.borrow().clone().unwrap();
    assert!(known["deep"].is_too_deep && !known["odd"].is_too_deep);
    followed.until(&["deep", "gone", "new", "odd"]).await;
    followed.until(&["later", "odd"]).await;
}

#[tokio::test(start_paused = true)]
async fn without_rights_to_crds_they_are_listed_every_ten_minutes() {
    let simulator = Simulator::new(Options::default());
    let client = Client::new(simulator.service(), "default");
    let forbidden = Fault::Status {
        code: 403,
        retry_after: None,
    };
    simulator
        .faults()
        .add(Rule::new(forbidden).verbs(&["list", "watch"]).times(3));
    let (sender, mut events) = mpsc::unbounded_channel();
    let begun = Instant::now();
    let following = tokio::spawn(definitions::follow(client.clone(), move |event| {
        let _ = sender.send((begun.elapsed().as_secs() / 60, event));
    }));
    let mut next = async || timeout(WITHIN, events.recv()).await.unwrap().unwrap();
    for minutes in [0, 10, 20] {
        assert!(matches!(next().await, (at, DefinitionEvent::Forbidden(_)) if at == minutes));
    }
    assert_eq!(next().await, (30, DefinitionEvent::Listed));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        asked(&simulator),
        ["list customresourcedefinitions"; 4]
            .into_iter()
            .chain(["watch customresourcedefinitions"])
            .collect::<Vec<_>>()
    );
    send(&client, "POST", DEFINITIONS, &definition()).await;
    let name = || "things.test.dev".to_owned();
    assert_eq!(next().await.1, DefinitionEvent::Changed(name()));
    send(&client, "DELETE", &format!("{DEFINITIONS}/{}", name()), &json!({})).await;
    let gone = async { while next().await.1 != DefinitionEvent::Gone(name()) {} };
    timeout(WITHIN, gone).await.unwrap();
    following.abort();
}
