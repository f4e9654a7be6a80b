//! Going back over a CRD that has gained a field, with a host, on a real API server.

use kube::api::{Patch, PatchParams};
use pilothouse_core::rights::objects::account_name;
use pilothouse_end_to_end::program::{Folder, Process, component};
use serde_json::{Value, json};

use super::host::{rights_of_an_acting_host, rights_to_plugins};
use super::{control_plane, named, plugin_kind};
use crate::simulated::going_back::{configuration, wishes};
use crate::support::{Bench, command, until};

const SYSTEM: &str = "returning-system";

fn wish(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": name, "namespace": "returning-shop"}, "spec": spec,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_returns_over_a_field_that_the_next_one_has_added() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    plugin_kind(&bench).await;
    bench.namespace("returning-shop").await;
    let mut rules = rights_of_an_acting_host();
    rules.as_array_mut().unwrap().extend(rights_to_plugins());
    let kubeconfig = bench.account(SYSTEM, "host", &rules).await;
    let directory = Folder::new();
    let bytes = std::fs::read(component("wisher")).unwrap();
    let old_file = directory.file("wisher.wasm", &bytes);
    let new_file = directory.file("newer.wasm", [&bytes[..], &[0, 3, 1, b'm', 1]].concat());
    let list = json!({"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let fields = [("owns", list), ("size", json!({"type": "integer", "default": 3}))];
    let old_config = configuration(&directory, "old.json", &wishes(&fields[..1]));
    let new_config = configuration(&directory, "new.json", &wishes(&fields));
    let host = [
        "--host-namespace",
        SYSTEM,
        "--host-account",
        "host",
        "--identity",
        "impersonate",
    ];
    let run = async |verb: &str, file: &str, config: &str, more: &[&str]| {
        let plugin = match verb {
            "rollback" => "returning".to_owned(),
            _ => format!("returning={file}"),
        };
        let arguments = [&[verb, &plugin, "--config", config, "--yes"][..], &host, more].concat();
        command(&arguments, &bench.admin).await
    };
    let running = Process::start(&[
        "run",
        "--kubeconfig",
        &kubeconfig,
        "--plugin-dir",
        &directory.path(""),
        "--plugin-selector",
        "pilothouse.dev/plugin=returning",
        "--namespace",
        SYSTEM,
        "--api-address=off",
    ]);
    let (code, printed, said) = run("install", &old_file, &old_config, &[]).await;
    assert_eq!(code, 0, "{printed}{said}{}", running.log());
    let (code, printed, said) = run("upgrade", &new_file, &new_config, &["--no-objects"]).await;
    assert_eq!(code, 0, "{printed}{said}{}", running.log());
    for name in ["one", "two", "three"] {
        bench.apply(&[wish(name, json!({"owns": []}))]).await;
    }
    let found = bench.find(&wish("one", json!({}))).await.unwrap();
    assert_eq!(found["spec"]["size"], 3, "it has the default");
    let own = named("Plugin", None, "returning");
    let history = async || bench.find(&own).await.unwrap()["status"]["history"].clone();
    let remembered = async || history().await.as_array().is_some_and(|history| history.len() == 2);
    until("both versions are remembered", remembered, || running.log()).await;

    // In an emergency somebody patches the Plugin; a rollback says so, and changes nothing.
    let digest = format!("sha256:{}", "0".repeat(64));
    let by = PatchParams {
        field_manager: Some("kubectl-patch".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"spec": {"source": {"digest": digest}}}));
    let patched = bench.api(&own).patch("returning", &by, &patch).await;
    assert!(patched.is_ok(), "{patched:?}");
    let first = history().await[1]["digest"].as_str().unwrap().to_owned();
    let back = ["--file", &*old_file, "--to", &*first, "--no-objects"];
    let role = named("ClusterRole", None, &account_name("returning"));
    let before = bench.find(&role).await;
    let (code, printed, said) = run("rollback", &old_file, &old_config, &back).await;
    assert_eq!(code, 1, "{printed}");
    for words in [
        ".spec.source.digest (kubectl-patch)",
        "--force-conflicts",
        "nothing was changed",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(bench.find(&role).await, before);

    let (code, printed, said) = run(
        "rollback",
        &old_file,
        &old_config,
        &[&back[..], &["--force-conflicts"]].concat(),
    )
    .await;
    assert_eq!(code, 0, "{printed}{said}{}", running.log());
    assert!(printed.contains("stays as it is in the cluster"), "{printed}");
    assert!(printed.contains("Plugin returning runs: wisher"), "{printed}");
    let live = bench.find(&own).await.unwrap();
    assert_eq!(live["status"]["digest"], first);
    let returned = async || history().await[0]["reason"] == "RolledBack";
    until("the status remembers it", returned, || running.log()).await;
    let found = bench.find(&wish("one", json!({}))).await.unwrap();
    assert_eq!(found["spec"]["size"], 3, "the field is still there");

    // The CRD of the earlier version, in place of the superset: what has the default is no data.
    let crd = named("CustomResourceDefinition", None, "wishes.wishes.test.dev");
    bench.apply(&[wish("four", json!({"owns": [], "size": 4}))]).await;
    let again = ["--no-objects", "--crds", "apply"];
    let (code, printed, _) = run("upgrade", &old_file, &old_config, &again).await;
    assert!(
        code == 1 && printed.contains("does not accept 1 live objects: returning-shop/four: spec.size"),
        "{printed}"
    );
    bench.apply(&[wish("four", json!({"owns": [], "size": 3}))]).await;
    let (code, printed, said) = run("upgrade", &old_file, &old_config, &again).await;
    assert_eq!(code, 0, "{printed}{said}{}", running.log());
    let size = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
    assert!(bench.find(&crd).await.unwrap().pointer(size).is_none());

    let (code, _, said) = command(&["uninstall", "returning", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    assert!(bench.find(&crd).await.is_some(), "users' objects stay");
    let deleted = bench
        .api(&crd)
        .delete("wishes.wishes.test.dev", &kube::api::DeleteParams::default())
        .await;
    assert!(deleted.is_ok(), "{deleted:?}");
}
