//! The life of an installation on a real API server: installed by a tag, previewed, upgraded, refused, rolled back, and run
//! on while the registry is away.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use pilothouse_end_to_end::components::program;
use pilothouse_end_to_end::program::{Folder, Process, component, ended};
use pilothouse_end_to_end::scrape::get;
use pilothouse_test_registry::exchange::reply;
use pilothouse_test_registry::{REPOSITORY, Registry, plugin as put_plugin};
use serde_json::{Value, json};

use super::host::{rights_of_an_acting_host, rights_to_plugins};
use super::{control_plane, named, plugin_kind};
use crate::simulated::going_back::wishes;
use crate::simulated::previews::{owns, wish};
use crate::support::{Bench, command, own_address, until};

const SYSTEM: &str = "delivery-system";

/// A replica, and the address of its metrics and health.
struct Replica {
    process: Process,
    address: SocketAddr,
}

impl Replica {
    /// Starts a replica with a cache of its own or that of another one.
    fn start(kubeconfig: &str, registries: &str, cache: &str, name: &str, more: &[&str]) -> Self {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .unwrap()
            .local_addr()
            .unwrap();
        let mut run = Command::new(program());
        run.args([
            "run",
            "--kubeconfig",
            kubeconfig,
            "--registries",
            registries,
            "--cache-dir",
            cache,
        ])
        .args([
            "--plugin-selector",
            "pilothouse.dev/plugin=delivered",
            "--namespace",
            SYSTEM,
        ])
        .args(["--leader-election", "--metrics-address", &address.to_string()])
        .args(more)
        .env("HOSTNAME", name);
        Self {
            process: Process::spawn(run),
            address,
        }
    }

    fn is_ready(&self) -> bool {
        get(self.address, "/readyz").is_ok_and(|(code, _)| code == 200)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "it is one story")]
async fn a_version_is_previewed_upgraded_refused_and_rolled_back() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    plugin_kind(&bench).await;
    let mut rules = rights_of_an_acting_host();
    let rules_of = rules.as_array_mut().unwrap();
    rules_of.extend(rights_to_plugins());
    let verbs = json!(["get", "list", "watch", "create", "update", "patch"]);
    rules_of.push(json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}));
    // Of the API, by which another replica takes artifacts over.
    for (group, resource, verb) in [
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("pilothouse.dev", "plugins/artifact", "get"),
        ("", "services/proxy", "get"),
    ] {
        rules_of.push(json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]}));
    }
    let kubeconfig = bench.account(SYSTEM, "host", &rules).await;
    let api = own_address();
    bench.serve_in_pod(SYSTEM, "host", &[api]).await;

    let registry = Registry::start().await;
    let is_away = Arc::new(AtomicBool::new(false));
    let away = Arc::clone(&is_away);
    registry.hook(move |_, _| away.load(Ordering::SeqCst).then(|| reply(503, &[], "")));
    let bytes = std::fs::read(component("wisher")).unwrap();
    let marked = |mark: u8| [&bytes[..], &[0, 3, 1, b'm', mark]].concat();
    for (tag, mark) in [("0.1.0", 1), ("0.2.0", 2)] {
        drop(put_plugin(&registry, tag, &marked(mark)));
    }
    let broken = put_plugin(&registry, "0.3.0", b"\0asm no component").digest.to_string();
    let folder = Folder::new();
    let registries = folder.file("registries.yaml", registry.config().to_string());
    let config = |name: &str, kinds: Value, owns: Value| {
        let crd = wishes(&[("owns", owns)]);
        let config = json!({"steers": ["Wish"], "owns": kinds, "crds": [crd.to_string()]});
        folder.file(name, config.to_string())
    };
    let old = config(
        "old.json",
        json!(["ConfigMap", "Secret", "PersistentVolumeClaim"]),
        owns(None),
    );
    let new = config("new.json", json!(["ConfigMap"]), owns(Some("x")));
    let reference = |tag: &str| format!("delivered={}/{REPOSITORY}:{tag}", registry.host());
    let run = async |verb: &str, what: &str, config: &str, more: &[&str]| {
        let arguments = [verb, what, "--config", config, "--registries", &registries];
        let host = [
            "--host-namespace",
            SYSTEM,
            "--host-account",
            "host",
            "--identity",
            "impersonate",
        ];
        command(&[&arguments[..], &host, more].concat(), &bench.admin).await
    };
    let cache = folder.path("cache");
    let first = Replica::start(
        &kubeconfig,
        &registries,
        &cache,
        "first",
        &["--api-address", &api.to_string()],
    );
    let log = || first.process.log();

    let (code, printed, said) = run("install", &reference("0.1.0"), &old, &["--yes"]).await;
    assert_eq!(code, 0, "{printed}{said}{}", log());
    for name in ["one", "two"] {
        bench.apply(&[wish(name)]).await;
    }
    let count = async |kind: &str| {
        let any = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "any", "namespace": "default"}});
        let found = bench.api(&any).list(&ListParams::default()).await.unwrap();
        let names = found.items.iter().filter_map(|object| object.metadata.name.as_deref());
        names
            .filter(|name| name.starts_with("one-") || name.starts_with("two-"))
            .count()
    };
    let kinds = async || {
        [
            count("ConfigMap").await,
            count("Secret").await,
            count("PersistentVolumeClaim").await,
        ]
    };
    until("the first version works", async || kinds().await == [2, 2, 2], log).await;

    // A version with another CRD that owns two kinds less.
    let (code, printed, said) = run("upgrade", &reference("0.2.0"), &new, &["--dry-run"]).await;
    assert_eq!(code, 4, "{printed}{said}");
    for words in [
        "Objects that it would delete: 4\n  PersistentVolumeClaim default/one-persistentvolumeclaim\n",
        "  Secret default/two-secret\n",
        "Of its 2 objects, 2 would change something, compared with the running version",
        "Update ConfigMap default/two-configmap; .data.added: nothing becomes \"x\"",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let accepted = ["--accept", "deletes=4"];
    let (code, _, said) = run(
        "upgrade",
        &reference("0.2.0"),
        &new,
        &[&accepted[..], &["--dry-run"]].concat(),
    )
    .await;
    assert_eq!(code, 3, "{said}");
    assert_eq!(kinds().await, [2, 2, 2], "nothing was changed");
    let (code, printed, said) = run(
        "upgrade",
        &reference("0.2.0"),
        &new,
        &[&accepted[..], &["--yes"]].concat(),
    )
    .await;
    assert_eq!(code, 0, "{printed}{said}{}", log());
    // Claims have the protection of the storage controller, which kube-controller-manager takes off.
    until("what was named is deleted", async || kinds().await[..2] == [2, 0], log).await;

    // Somebody patches the Plugin to a version that is no component.
    let own = named("Plugin", None, "delivered");
    let patch =
        json!({"spec": {"source": {"oci": {"reference": format!("{}/{REPOSITORY}@{broken}", registry.host())}}}});
    let by = PatchParams {
        field_manager: Some("kubectl-patch".to_owned()),
        ..PatchParams::default()
    };
    let patched = bench.api(&own).patch("delivered", &by, &Patch::Merge(patch)).await;
    assert!(patched.is_ok(), "{patched:?}");
    until(
        "the version is refused",
        async || bench.has_true(&own, "Stalled").await,
        log,
    )
    .await;
    let live = bench.find(&own).await.unwrap();
    let (status, generation) = (&live["status"], live["metadata"]["generation"].as_i64().unwrap());
    assert_eq!(status["observedGeneration"], generation, "it is decided");
    assert_eq!(status["runningGeneration"], generation - 1);
    let conditions = status["conditions"].as_array().unwrap();
    let ready = conditions
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .unwrap();
    assert_eq!(
        (&ready["reason"], &ready["observedGeneration"]),
        (&json!("PreviousVersion"), &json!(generation - 1))
    );
    let (_, metrics) = get(first.address, "/metrics").unwrap();
    assert!(
        metrics.contains("pilothouse_plugin_stalled{plugin=\"delivered\"} 1"),
        "{metrics}"
    );

    let service = format!("{SYSTEM}/host");
    let check = async || {
        let (admin, service) = (bench.admin.clone(), service.clone());
        let run = move || ended(&["status", "--check", "--service", &service, "--kubeconfig", &admin]);
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let (code, printed, said) = check().await;
    assert_eq!(code, 3, "{printed}{said}");

    // The way back, over what somebody has patched.
    let (code, printed, said) = run("rollback", "delivered", &new, &["--yes", "--force-conflicts"]).await;
    assert_eq!(code, 0, "{printed}{said}{}", log());
    until("it is settled", async || !bench.has_true(&own, "Stalled").await, log).await;
    assert_eq!(kinds().await[..2], [2, 0]);
    let (code, printed, said) = check().await;
    assert_eq!(code, 0, "{printed}{said}");
    let nobody = format!("sha256:{}", "0".repeat(64));
    let (code, printed, said) = run("rollback", "delivered", &old, &["--yes", "--to", &nobody]).await;
    assert!(code == 1 && said.contains(&nobody), "{printed}{said}");
    let (code, printed, said) = run("rollback", "delivered", &old, &["--yes", "--to", "0.1.0"]).await;
    assert_eq!(code, 0, "{printed}{said}{}", log());
    until(
        "the first version has its objects",
        async || kinds().await == [2, 2, 2],
        log,
    )
    .await;

    // The registry is away, and the host is rolled: a replica that has nothing is not ready, unless it takes the artifact over
    // from one that has it.
    is_away.store(true, Ordering::SeqCst);
    let start = |name: &str, more: &[&str]| Replica::start(&kubeconfig, &registries, &folder.path(name), name, more);
    let alone = start("alone", &[]);
    let token = folder.file("token", bench.token(SYSTEM, "host", Some("pilothouse.dev")).await);
    let second = start("second", &["--replica-service", "host", "--replica-token", &token]);
    let asked = registry.count("GET");
    until(
        "the replica that takes the artifact over is ready",
        async || second.is_ready(),
        || second.process.log() + &log(),
    )
    .await;
    assert!(
        second
            .process
            .log()
            .contains("took the artifact over from another replica")
    );
    assert!(!alone.is_ready(), "{}", alone.process.log());
    drop(alone);
    drop(first);
    bench.apply(&[wish("two-more")]).await;
    until(
        "the new replica works",
        async || count("ConfigMap").await == 3,
        || second.process.log(),
    )
    .await;
    assert!(
        registry.count("GET") > asked,
        "a replica without others asks the registry"
    );

    let (code, _, said) = command(&["uninstall", "delivered", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    for name in ["one", "two", "two-more"] {
        let deleted = bench.api(&wish(name)).delete(name, &DeleteParams::default()).await;
        assert!(deleted.is_ok(), "{deleted:?}");
    }
    let crd = named("CustomResourceDefinition", None, "wishes.wishes.test.dev");
    let deleted = bench
        .api(&crd)
        .delete("wishes.wishes.test.dev", &DeleteParams::default())
        .await;
    assert!(deleted.is_ok(), "{deleted:?}");
}
