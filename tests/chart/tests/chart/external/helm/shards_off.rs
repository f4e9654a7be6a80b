//! `helm upgrade` that switches shards off: the Role changes before the pods, so replicas with shards hand over by the rights of the
//! new one, and nothing of theirs is left.

use std::time::{Duration, Instant};

use kube::api::ListParams;
use pilothouse_end_to_end::scrape::{Scrape, get};
use serde_json::json;

use super::bench::{Bench, NAMESPACE, RELEASE, Running, app_service, named, until};

const SHARDS: usize = 6;

/// The names of all Leases, with their holders.
async fn leases(bench: &Bench) -> Vec<(String, String)> {
    let leases = bench.api(&named("coordination.k8s.io/v1", "Lease", Some(NAMESPACE), ""));
    let leases = leases.list(&ListParams::default()).await.unwrap();
    let both = leases.into_iter().map(|lease| {
        let holder = lease.data["spec"]["holderIdentity"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        (lease.metadata.name.unwrap_or_default(), holder)
    });
    both.collect()
}

fn leads(replica: &Running) -> bool {
    let scraped = get(replica.metrics, "/metrics").map(|(_, body)| Scrape(body));
    scraped.is_ok_and(|scrape| scrape.count("pilothouse_leader", &[]) == Some(1))
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_switched_off_without_an_outage_and_leave_nothing() {
    let bench = Bench::new().await;
    let times = |shards: usize| json!({"leaderElection": {"shards": shards, "leaseDuration": 4, "renewDeadline": 3, "retryPeriod": 1}, "host": {"logFormat": "text"}});
    bench.helm().install(&times(SHARDS)).unwrap();
    bench.install_plugin("app-service").await;
    let token = bench.token("host-token").await;
    let kubeconfig = bench.kubeconfig("host.yaml", &json!({"token": token}));
    let mut before = Vec::new();
    for pod in ["one", "two"] {
        before.push(bench.start_on(pod, &kubeconfig).await);
    }
    let log = |replicas: &[Running]| replicas.iter().map(|replica| replica.process.log()).collect::<String>();
    let is_shared = async || {
        let held = leases(&bench).await;
        held.iter()
            .filter(|(name, holder)| name.contains("-shard-") && !holder.is_empty())
            .count()
            == SHARDS
    };
    until("all shards are held", is_shared, || log(&before)).await;
    // Another release in the namespace, which nobody runs now.
    let other = named(
        "coordination.k8s.io/v1",
        "Lease",
        Some(NAMESPACE),
        "pilothouse-two-shard-0",
    );
    bench.apply(&other).await;

    bench.helm().upgrade(&times(0)).unwrap();
    let mut after = Vec::new();
    for (pod, ends) in [("three", before.remove(0)), ("four", before.remove(0))] {
        after.push(bench.start_on(pod, &kubeconfig).await);
        let log = ends.process.log();
        ends.stop().await;
        assert!(!log.contains("forbidden"), "{log}");
    }
    let begun = Instant::now();
    until(
        "one of the new replicas leads",
        async || after.iter().any(leads),
        || log(&after),
    )
    .await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}: {}", log(&after));
    bench.apply(&app_service("web")).await;
    bench.is_reconciled(&app_service("web"), &after[0]).await;
    let plan = named("v1", "ConfigMap", Some(NAMESPACE), "pilothouse-shards");
    let is_tidy = async || {
        let mut names: Vec<String> = leases(&bench).await.into_iter().map(|(name, _)| name).collect();
        names.sort();
        names == [RELEASE, "pilothouse-two-shard-0"] && bench.find(&plan).await.is_none()
    };
    until("nothing of the shards is left", is_tidy, || log(&after)).await;
    for replica in after {
        replica.stop().await;
    }
}
