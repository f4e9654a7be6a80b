//! Versions that bring other CRDs than the cluster has, CRDs of two plugins, fields that others have set, and going back.

use std::process::Command;

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_end_to_end::components::{program, root};
use pilothouse_end_to_end::program::{Folder, component, ended};
use serde_json::{Value, json};

use super::Installed;
use crate::support::command;

const CRD: &str = "wishes.wishes.test.dev";

/// A field of a Wish: its name and its schema.
type Field<'a> = (&'a str, Value);

/// The definition of Wishes with these fields.
pub fn wishes(fields: &[Field<'_>]) -> Value {
    let properties: serde_json::Map<String, Value> = fields
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": CRD},
        "spec": {
            "group": "wishes.test.dev", "scope": "Namespaced", "names": {"kind": "Wish", "plural": "wishes", "singular": "wish"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": properties},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}

/// The configuration of a version that brings this definition.
pub fn configuration(folder: &Folder, name: &str, crd: &Value) -> String {
    let config = json!({"steers": ["Wish"], "owns": ["ConfigMap"], "crds": [crd.to_string()]});
    folder.file(name, config.to_string())
}

pub fn string() -> Value {
    json!({"type": "string"})
}

/// Versions of a plugin, told apart by their CRDs.
struct Wishers {
    installed: Installed,
    folder: Folder,
}

impl Wishers {
    async fn new() -> Self {
        let installed = Installed::bare().await;
        let folder = Folder::new();
        Self { installed, folder }
    }

    /// Installs or upgrades a Plugin to the version with these fields.
    async fn run(&self, verb: &str, name: &str, fields: &[Field<'_>], more: &[&str]) -> (i32, String, String) {
        let config = configuration(&self.folder, "config.json", &wishes(fields));
        let plugin = format!("{name}={}", component("wisher"));
        let arguments = [verb, &plugin, "--config", &config, "--yes", "--wait=false"];
        let objects: &[&str] = if verb == "upgrade" { &["--no-objects"] } else { &[] };
        command(&[&arguments, objects, more].concat(), &self.installed.kubeconfig).await
    }

    /// The fields of a Wish that the cluster knows.
    async fn fields(&self) -> Vec<String> {
        let found = find(
            &self.installed,
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            CRD,
        )
        .await;
        let properties = found
            .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties")
            .unwrap();
        properties.as_object().unwrap().keys().cloned().collect()
    }
}

fn api(installed: &Installed, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::all_with(installed.client.clone(), &resource)
}

async fn find(installed: &Installed, group: &str, version: &str, kind: &str, name: &str) -> Value {
    let found = api(installed, group, version, kind).get(name).await.unwrap();
    serde_json::to_value(found).unwrap()
}

async fn plugin(installed: &Installed, name: &str) -> Value {
    find(installed, "pilothouse.dev", "v1alpha1", "Plugin", name).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_optional_field_stays_when_the_version_before_returns() {
    let wishers = Wishers::new().await;
    let old = [("color", string())];
    let new = [("color", string()), ("size", json!({"type": "integer", "default": 3}))];
    for (verb, fields) in [("install", &old[..]), ("upgrade", &new[..])] {
        let (code, printed, said) = wishers.run(verb, "it", fields, &[]).await;
        assert_eq!(code, 0, "{said}");
        assert!(
            printed.contains(&format!("CustomResourceDefinition {CRD} applied")),
            "{printed}"
        );
    }
    let wish = |name: &str, spec: Value| json!({"apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": name, "namespace": "default"}, "spec": spec});
    for name in ["one", "two"] {
        wishers.installed.create(&wish(name, json!({"color": "red"}))).await;
    }
    let (code, printed, said) = wishers.run("upgrade", "it", &old, &[]).await;
    assert_eq!(code, 0, "{printed}{said}");
    for words in [
        "CustomResourceDefinition wishes.wishes.test.dev stays as it is in the cluster, where it accepts all",
        "properties.spec.properties.size is missing",
        "--crds apply",
        "CustomResourceDefinition wishes.wishes.test.dev unchanged",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert_eq!(wishers.fields().await, ["color", "size"]);
    // What has the default is no data.
    wishers
        .installed
        .create(&wish("three", json!({"color": "red", "size": 4})))
        .await;
    let (code, printed, _) = wishers.run("upgrade", "it", &old, &["--crds", "apply"]).await;
    assert_eq!(code, 1, "{printed}");
    let words = "does not accept 1 live objects: default/three: spec.size: unknown field, which would be dropped";
    assert!(printed.contains(words), "{printed}");
    let wish = GroupVersionKind::gvk("wishes.test.dev", "v1", "Wish");
    let wishes: Api<DynamicObject> = Api::namespaced_with(
        wishers.installed.client.clone(),
        "default",
        &ApiResource::from_gvk_with_plural(&wish, "wishes"),
    );
    let deleted = wishes.delete("three", &kube::api::DeleteParams::default()).await;
    assert!(deleted.is_ok(), "{deleted:?}");
    let (code, printed, said) = wishers.run("upgrade", "it", &old, &["--crds", "apply"]).await;
    assert_eq!(code, 0, "{printed}{said}");
    assert_eq!(wishers.fields().await, ["color"]);
    // A field that somebody removes by hand returns.
    let emptied = wishes_patch(&[]);
    wishers
        .installed
        .patch("CustomResourceDefinition", CRD, "", emptied)
        .await;
    let (code, printed, said) = wishers.run("upgrade", "it", &old, &[]).await;
    assert_eq!(code, 0, "{printed}{said}");
    assert_eq!(wishers.fields().await, ["color"]);
}

fn wishes_patch(fields: &[Field<'_>]) -> Value {
    json!({"spec": {"versions": wishes(fields)["spec"]["versions"]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn two_plugins_share_a_crd_that_suits_both() {
    let wishers = Wishers::new().await;
    let (one, both) = ([("color", string())], [("color", string()), ("size", string())]);
    let (first, second) = (["--namespaces", "default"], ["--namespaces", "other"]);
    let (code, _, said) = wishers.run("install", "first", &one, &first).await;
    assert_eq!(code, 0, "{said}");
    // The same namespaces cannot have both.
    for namespaces in [&first[..], &[]] {
        let (code, _, said) = wishers.run("install", "second", &one, namespaces).await;
        let words = "is brought by Plugin first already, in namespaces in which Plugin second would act, too";
        assert!(code == 1 && said.contains(words), "{said}");
    }
    // Another CRD would break the first one, also where it is to be applied.
    for more in [&[][..], &["--crds", "apply"]] {
        let (code, _, said) = wishers
            .run(
                "install",
                "second",
                &[("size", string())],
                &[&second[..], more].concat(),
            )
            .await;
        assert_eq!(code, 1, "{said}");
        for words in [
            "Plugin second cannot bring its CRD",
            "is also brought by Plugin first",
            "properties.color is missing",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    assert_eq!(wishers.fields().await, ["color"]);
    let (code, printed, said) = wishers.run("install", "second", &one, &second).await;
    assert_eq!(code, 0, "{printed}{said}");
    let (code, printed, said) = wishers.run("upgrade", "second", &both, &[]).await;
    assert_eq!(code, 0, "{printed}{said}");
    assert_eq!(wishers.fields().await, ["color", "size"]);
    let (code, printed, said) = wishers.run("upgrade", "first", &one, &[]).await;
    assert_eq!(code, 0, "{printed}{said}");
    let (code, _, said) = wishers.run("upgrade", "first", &one, &["--crds", "apply"]).await;
    assert!(code == 1 && said.contains("is also brought by Plugin second"), "{said}");
    for name in ["second", "first"] {
        let (code, _, said) = command(&["uninstall", name, "--yes"], &wishers.installed.kubeconfig).await;
        assert_eq!(code, 0, "{said}");
        assert_eq!(
            wishers.fields().await,
            ["color", "size"],
            "{name} does not take it along"
        );
    }
    // Nobody needs it any more.
    let (code, printed, said) = wishers
        .run("install", "third", &[("size", string())], &["--crds", "apply"])
        .await;
    assert_eq!(code, 0, "{printed}{said}");
}

/// Patches a Plugin as a person with kubectl.
async fn kubectl_patch(installed: &Installed, name: &str, patch: Value) {
    let by = PatchParams {
        field_manager: Some("kubectl-patch".to_owned()),
        ..PatchParams::default()
    };
    let plugins = api(installed, "pilothouse.dev", "v1alpha1", "Plugin");
    let patched = plugins.patch(name, &by, &Patch::Merge(patch)).await;
    assert!(patched.is_ok(), "{patched:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_applied_if_one_write_would_fail() {
    let installed = Installed::new().await;
    let original = plugin(&installed, "shop").await["spec"]["source"].clone();
    let other = json!({"digest": format!("sha256:{}", "0".repeat(64))});
    kubectl_patch(
        &installed,
        "shop",
        json!({"spec": {"source": other, "mode": "Suspended"}}),
    )
    .await;
    // What would be written before the Plugin: a role, and the CRD.
    let rules = json!({"rules": []});
    installed
        .patch("ClusterRole", "pilothouse-plugin-shop", "", rules.clone())
        .await;
    let mut versions = installed.definition().await["spec"]["versions"].clone();
    let spec = "/0/schema/openAPIV3Schema/properties/spec/properties";
    versions
        .pointer_mut(spec)
        .unwrap()
        .as_object_mut()
        .unwrap()
        .remove("image");
    let definition = "appservices.kosmos.io";
    let patch = json!({"spec": {"versions": versions}});
    installed.patch("CustomResourceDefinition", definition, "", patch).await;
    for verb in ["upgrade", "install"] {
        let more: &[&str] = if verb == "upgrade" {
            &["--yes", "--no-objects"]
        } else {
            &["--yes"]
        };
        let (code, printed, said) = installed.run(verb, more).await;
        assert_eq!(code, 1, "{printed}");
        for words in [
            "nothing was changed, because the API server would refuse this",
            "Plugin shop exists, and others have set .spec.source.digest (kubectl-patch)",
            "--force-conflicts",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let role = find(
            &installed,
            "rbac.authorization.k8s.io",
            "v1",
            "ClusterRole",
            "pilothouse-plugin-shop",
        )
        .await;
        assert_eq!(role["rules"], rules["rules"]);
        let path = format!("/spec/versions{spec}/image");
        assert!(
            installed.definition().await.pointer(&path).is_none(),
            "the CRD is as it was"
        );
    }
    let forced = ["--yes", "--no-objects", "--force-conflicts"];
    let (code, printed, said) = installed.run("upgrade", &forced).await;
    assert_eq!(code, 0, "{printed}{said}");
    let live = plugin(&installed, "shop").await;
    assert_eq!(live["spec"]["source"], original);
    assert_eq!(live["spec"]["mode"], "Suspended", "what the command does not say stays");
    // They are the command's again.
    let (code, _, said) = installed.run("upgrade", &forced[..2]).await;
    assert_eq!(code, 0, "{said}");
    // Another form of source, of which the new one says nothing.
    let followed =
        json!({"reference": "registry.example/a", "updatePolicy": "SemVer", "range": "^1", "interval": "1m"});
    kubectl_patch(
        &installed,
        "shop",
        json!({"spec": {"source": {"file": null, "digest": null, "oci": followed}}}),
    )
    .await;
    let (code, _, said) = installed.run("upgrade", &forced[..2]).await;
    assert!(code == 1 && said.contains("others have set .spec.source"), "{said}");
    assert!(
        said.contains("give either file or oci") && said.contains("--force-conflicts"),
        "{said}"
    );
    let (code, printed, said) = installed.run("upgrade", &forced).await;
    assert_eq!(code, 0, "{printed}{said}");
    assert!(
        printed.contains("It no longer follows registry.example/a in the range ^1"),
        "{printed}"
    );
    let live = plugin(&installed, "shop").await;
    assert_eq!(
        (&live["spec"]["source"], &live["spec"]["mode"]),
        (&original, &json!("Suspended"))
    );
}

/// A version of app-service as an artifact of a layout in a folder: its reference, and the digest of its manifest.
fn pushed(folder: &Folder, mark: u8) -> (String, String) {
    let bytes = [
        &std::fs::read(component("app-service")).unwrap()[..],
        &[0, 3, 1, b'm', mark],
    ]
    .concat();
    let file = folder.file("version.wasm", bytes);
    let layout = folder.path("plugins");
    let (code, printed, said) = ended(&["push", &file, &format!("oci-layout:{layout}:{mark}")]);
    assert_eq!(code, 0, "{said}");
    let digest = printed.trim().rsplit_once('@').unwrap().1.to_owned();
    (format!("oci-layout:plugins:{mark}"), digest)
}

/// Runs a command in a folder, where the layout is as the host has it.
fn inside(folder: &Folder, kubeconfig: &str, arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(program())
        .args(arguments)
        .args(["--kubeconfig", kubeconfig, "--yes", "--wait=false"])
        .arg("--cache-dir")
        .arg(root().canonicalize().unwrap().join("target/test-code"))
        .current_dir(folder.path(""))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_goes_to_a_version_that_the_status_remembers() {
    let installed = Installed::bare().await;
    let folder = Folder::new();
    let kubeconfig = &installed.kubeconfig;
    let run = |arguments: &[&str]| {
        let (folder, kubeconfig) = (&folder, &**kubeconfig);
        tokio::task::block_in_place(|| inside(folder, kubeconfig, arguments))
    };
    let versions = [1, 2].map(|mark| pushed(&folder, mark));
    let follow = format!("shop={}", versions[1].0);
    let (worked, _, said) = run(&["install", &follow, "--follow"]);
    assert!(worked, "{said}");
    let source = plugin(&installed, "shop").await["spec"]["source"].clone();
    assert_eq!(source["oci"]["reference"], "oci-layout:plugins:2");
    assert_eq!(source["oci"]["updatePolicy"], "Tag");
    let (worked, _, said) = run(&["rollback", "shop", "--no-objects"]);
    assert!(
        !worked && said.contains("its status remembers no other version"),
        "{said}"
    );
    let entry = |index: usize| {
        let (reference, digest) = &versions[index];
        let component = format!("sha256:{}", (index + 1).to_string().repeat(64));
        json!({
            "version": format!("0.{}.0", index + 1), "digest": component, "since": "2026-01-01T00:00:00Z", "reason": "Changed",
            "artifact": {"reference": reference, "digest": digest},
        })
    };
    let runs = json!({"status": {
        "objects": 0, "failing": 0, "controllers": [], "conditions": [],
        "digest": entry(1)["digest"], "history": [entry(1), entry(0)],
        "artifact": {"reference": versions[1].0, "digest": versions[1].1, "size": 1},
    }});
    installed.patch("Plugin", "shop", "status", runs).await;
    let (worked, printed, said) = run(&["rollback", "shop", "--no-objects"]);
    assert!(worked, "{printed}{said}");
    let pinned = |index: usize| json!({"reference": format!("oci-layout:plugins@{}", versions[index].1), "interval": "10m", "updatePolicy": "Pinned"});
    assert_eq!(
        plugin(&installed, "shop").await["spec"]["source"],
        json!({"oci": pinned(0)})
    );
    for words in [
        "It no longer follows the tag oci-layout:plugins:2, and is pinned",
        "Plugin shop changed",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    // The one that it names does not run yet, and it is left again.
    let (worked, printed, said) = run(&["rollback", "shop", "--no-objects", "--to", "0.2.0"]);
    assert!(worked, "{printed}{said}");
    assert_eq!(
        plugin(&installed, "shop").await["spec"]["source"],
        json!({"oci": pinned(1)})
    );
    let nobody = format!("sha256:{}", "0".repeat(64));
    let (worked, _, said) = run(&["rollback", "shop", "--no-objects", "--to", &nobody]);
    assert!(!worked, "nobody has it");
    for words in [
        "Plugin shop is not rolled back, and nothing was changed",
        &*nobody,
        "cannot be fetched. Push it again",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (worked, _, said) = run(&["rollback", "shop", "--no-objects", "--to", "0.9.0"]);
    assert!(
        !worked && said.contains("does not remember 0.9.0; it remembers 0.2.0 (sha256:2"),
        "{said}"
    );
    let (worked, _, said) = run(&["rollback", "absent"]);
    assert!(!worked && said.contains("there is no Plugin absent"), "{said}");
    let (worked, printed, said) = run(&["upgrade", "shop=oci-layout:plugins", "--follow=^0.1", "--no-objects"]);
    assert!(
        !worked && said.contains("has no tag in the range ^0.1"),
        "{printed}{said}"
    );
}
