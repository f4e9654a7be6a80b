//! Previews of a version with another CRD that owns a kind less.

use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use pilothouse_end_to_end::program::{Folder, Process, component};
use serde_json::{Value, json};

use super::Installed;
use super::going_back::wishes;
use crate::support::{command, until};

/// A list of children, whose ConfigMaps get this value where they do not say one.
pub fn owns(added: Option<&str>) -> Value {
    let kept = |properties: Value| json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties});
    let data = match added {
        Some(value) => kept(json!({"added": {"type": "string", "default": value}})),
        None => kept(json!({})),
    };
    json!({"type": "array", "items": kept(json!({"object": kept(json!({"data": data}))}))})
}

pub fn wish(name: &str) -> Value {
    let child = |api_version: &str, kind: &str, more: Value| {
        let mut object = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": format!("{name}-{}", kind.to_lowercase()), "namespace": "default"},
        });
        object
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"object": object})
    };
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    json!({
        "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": name, "namespace": "default"},
        "spec": {"owns": [
            child("v1", "ConfigMap", json!({"data": {"given": "1"}})),
            child("v1", "Secret", json!({"data": {"token": "c2VjcmV0"}})),
            child("v1", "PersistentVolumeClaim", claim),
        ]},
    })
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one host goes through all of it")]
async fn a_preview_shows_objects_as_the_new_crd_does_and_names_deletions() {
    let installed = Installed::bare().await;
    let folder = Folder::new();
    let bytes = std::fs::read(component("wisher")).unwrap();
    let old_file = folder.file("old.wasm", &bytes);
    let new_file = folder.file("new.wasm", [&bytes[..], &[0, 3, 1, b'm', 1]].concat());
    let config = |name: &str, kinds: Value, owns: Value| {
        let crd = wishes(&[("owns", owns)]);
        let config = json!({"steers": ["Wish"], "owns": kinds, "crds": [crd.to_string()]});
        folder.file(name, config.to_string())
    };
    let old_config = config(
        "old.json",
        json!(["ConfigMap", "Secret", "PersistentVolumeClaim"]),
        owns(None),
    );
    let new_config = config("new.json", json!(["ConfigMap"]), owns(Some("x")));
    let run = async |verb: &str, file: &str, config: &str, more: &[&str]| {
        let plugin = format!("it={file}");
        command(
            &[&[verb, &plugin, "--config", config][..], more].concat(),
            &installed.kubeconfig,
        )
        .await
    };
    let (code, _, said) = run("install", &old_file, &old_config, &["--yes", "--wait=false"]).await;
    assert_eq!(code, 0, "{said}");
    let host = Process::start(&[
        "run",
        "--kubeconfig",
        &installed.kubeconfig,
        "--plugin-dir",
        &folder.path(""),
        "--api-address=off",
    ]);
    for name in ["one", "two"] {
        installed.create(&wish(name)).await;
    }
    let count = async |kind: &str| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
        let objects: Api<DynamicObject> = Api::namespaced_with(installed.client.clone(), "default", &resource);
        let found = objects.list(&ListParams::default()).await.unwrap();
        let is_child = |name: String| name.starts_with("one-") || name.starts_with("two-");
        found.iter().filter(|object| is_child(object.name_any())).count()
    };
    let counts = async || {
        [
            count("ConfigMap").await,
            count("Secret").await,
            count("PersistentVolumeClaim").await,
        ]
    };
    until(
        "the old version has made its objects",
        async || counts().await == [2, 2, 2],
        || host.log(),
    )
    .await;

    // Its own version changes nothing.
    let (code, printed, said) = run("upgrade", &old_file, &old_config, &["--dry-run"]).await;
    assert_eq!(code, 0, "{printed}{said}");
    assert!(
        printed.contains("Of its 2 objects, 0 would change something"),
        "{printed}"
    );

    let deletions = "Objects that it would delete: 4
  PersistentVolumeClaim default/one-persistentvolumeclaim
  PersistentVolumeClaim default/two-persistentvolumeclaim
  Secret default/one-secret
  Secret default/two-secret
";
    for (more, code, words) in [
        (&["--dry-run"][..], 4, "--accept deletes=4"),
        (&["--yes"], 4, "which --yes alone does not accept"),
        (&["--yes", "--accept", "deletes=3"], 4, "--accept deletes=4"),
        (&["--yes", "--accept", "deletes=5"], 4, "--accept deletes=4"),
        (&["--dry-run", "--accept", "deletes=4"], 3, "this was a dry run"),
    ] {
        let (got, printed, said) = run("upgrade", &new_file, &new_config, more).await;
        assert_eq!(got, code, "{more:?}: {printed}{said}");
        assert!(said.contains(words), "{more:?}: {said}");
        assert!(printed.contains(deletions), "{more:?}: {printed}");
        assert!(
            printed.contains("Of its 2 objects, 2 would change something"),
            "{printed}"
        );
        assert!(
            printed.contains("Update ConfigMap default/one-configmap; .data.added: nothing becomes \"x\"\n"),
            "{printed}"
        );
        assert_eq!(counts().await, [2, 2, 2]);
    }

    // Objects that change all the time are looked at, too.
    let wishes_of =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("wishes.test.dev", "v1", "Wish"), "wishes");
    let edited: Api<DynamicObject> = Api::namespaced_with(installed.client.clone(), "default", &wishes_of);
    let editor = tokio::spawn(async move {
        for edit in 0.. {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"edit": edit.to_string()}}}));
            let patched = edited.patch("one", &PatchParams::default(), &patch).await;
            assert!(patched.is_ok(), "{patched:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    let (code, printed, said) = run("upgrade", &new_file, &new_config, &["--dry-run"]).await;
    assert!(!editor.is_finished());
    editor.abort();
    assert_eq!(code, 4, "{printed}{said}");
    assert!(printed.contains(deletions), "{printed}");

    let accepted = ["--yes", "--accept", "deletes=4"];
    let (code, printed, said) = run("upgrade", &new_file, &new_config, &accepted).await;
    assert_eq!(code, 0, "{printed}{said}{}", host.log());
    until(
        "what was announced is deleted",
        async || counts().await == [2, 0, 0],
        || host.log(),
    )
    .await;
    let plugins = ApiResource::from_gvk(&GroupVersionKind::gvk("pilothouse.dev", "v1alpha1", "Plugin"));
    let plugins: Api<DynamicObject> = Api::all_with(installed.client.clone(), &plugins);
    let own = plugins.get("it").await.unwrap();
    assert_eq!(
        own.metadata.annotations.unwrap_or_default()["pilothouse.dev/accept"],
        "deletes=4"
    );

    // Back to the old version: nothing is deleted, and objects return.
    let (code, printed, said) = run("upgrade", &old_file, &old_config, &["--dry-run", "--crds", "apply"]).await;
    assert_eq!(code, 3, "{printed}{said}");
    for words in [
        "Create Secret default/one-secret",
        "Create PersistentVolumeClaim default/two-persistentvolumeclaim",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}
