//! The host's own resources followed on a simulated cluster that goes silent.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use pilothouse_cluster::host_resources::{HostResourceApi, HostResources};
use pilothouse_core::Kind;
use pilothouse_simulator::{Fault, Options, Rule, Simulator};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long, by the test's clock, what has to come may take.
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
        let tell = |trouble: Option<&str>| told.lock().extend(trouble.map(str::to_owned));
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
