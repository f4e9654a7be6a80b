//! A cluster that has no host yet, and upgrades where none runs.

mod asking;
pub mod going_back;
mod host_rights;
pub mod migrating;
pub mod previews;
mod versions;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_end_to_end::components::root;
use pilothouse_end_to_end::program::component;
use pilothouse_testkit::cluster::Cluster;
use serde_json::{Value, json};

use crate::support::command;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_host_is_told_what_comes_first() {
    let cluster = Cluster::simulated_over_http().await.unwrap();
    let client = cluster.client().await.unwrap();
    let kubeconfig = cluster.host_kubeconfig().unwrap().display().to_string();
    let arguments = ["install", &component("app-service"), "--yes", "--wait=false"];
    let (code, _, said) = command(&arguments, &kubeconfig).await;
    assert_eq!(code, 1);
    assert!(
        said.contains("there is no namespace pilothouse-system; create it"),
        "{said}"
    );
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "pilothouse-system"}})).unwrap();
    let _ = namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let (code, _, said) = command(&arguments, &kubeconfig).await;
    assert_eq!(code, 1);
    let words =
        "does not serve pilothouse.dev/v1alpha1 Plugin; install the host's CRD first: run the host with --install-crds";
    assert!(said.contains(words), "{said}");
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let found = definitions.get_opt("appservices.kosmos.io").await.unwrap();
    assert!(found.is_none(), "nothing was applied");
    let (code, printed, said) = command(&["uninstall", "any", "--yes"], &kubeconfig).await;
    assert_eq!((code, printed.contains("there is no Plugin any")), (0, true), "{said}");
}

/// A cluster with Plugins, an installed app-service `shop`, and two AppServices.
struct Installed {
    client: kube::Client,
    kubeconfig: String,
    _cluster: Cluster,
}

impl Installed {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    /// The same with these options of the installation.
    async fn with(options: &[&str]) -> Self {
        let installed = Self::bare().await;
        let (code, _, said) = installed.run("install", &[options, &["--yes"]].concat()).await;
        assert_eq!(code, 0, "{said}");
        for name in ["one", "two"] {
            installed.create(&pilothouse_end_to_end::stage::app_service(name)).await;
        }
        installed
    }

    /// The cluster alone.
    async fn bare() -> Self {
        let cluster = Cluster::simulated_over_http().await.unwrap();
        let client = cluster.client().await.unwrap();
        let kubeconfig = cluster.host_kubeconfig().unwrap().display().to_string();
        let text = std::fs::read_to_string(root().join("crds/yaml/plugins.pilothouse.dev.yaml")).unwrap();
        let definition: Value = serde_saphyr::from_str(&text).unwrap();
        let installed = Self {
            client,
            kubeconfig,
            _cluster: cluster,
        };
        installed.create(&definition).await;
        for name in ["pilothouse-system", "other"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            installed.create(&namespace).await;
        }
        installed
    }

    async fn create(&self, object: &Value) {
        pilothouse_end_to_end::stage::create(self.client.clone(), object).await;
    }

    async fn run(&self, verb: &str, more: &[&str]) -> (i32, String, String) {
        let plugin = format!("shop={}", component("app-service"));
        // No host runs here.
        command(&[&[verb, &plugin, "--wait=false"][..], more].concat(), &self.kubeconfig).await
    }

    async fn patch(&self, kind: &str, name: &str, subresource: &str, patch: Value) {
        let (group, version) = match kind {
            "ClusterRole" => ("rbac.authorization.k8s.io", "v1"),
            "AppService" => ("kosmos.io", "v1"),
            "Plugin" => ("pilothouse.dev", "v1alpha1"),
            _ => ("apiextensions.k8s.io", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match kind {
            "AppService" => Api::namespaced_with(self.client.clone(), "default", &resource),
            _ => Api::all_with(self.client.clone(), &resource),
        };
        let (by, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = match subresource {
            "status" => api.patch_status(name, &by, &patch).await,
            _ => api.patch(name, &by, &patch).await,
        };
        assert!(patched.is_ok(), "{patched:?}");
    }

    /// All accounts, roles and bindings of the plugin, as they are stored.
    async fn granted(&self) -> Vec<Value> {
        let rbac = "rbac.authorization.k8s.io";
        let kinds = [
            ("", "ServiceAccount"),
            (rbac, "ClusterRole"),
            (rbac, "ClusterRoleBinding"),
            (rbac, "Role"),
            (rbac, "RoleBinding"),
        ];
        let mut granted = Vec::new();
        for (group, kind) in kinds {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            let found = api
                .list(&ListParams::default().labels("pilothouse.dev/plugin=shop"))
                .await;
            granted.extend(
                found
                    .unwrap()
                    .items
                    .iter()
                    .map(|it| json!({"kind": kind, "object": it})),
            );
        }
        granted
    }

    async fn definition(&self) -> Value {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let found = definitions.get("appservices.kosmos.io").await.unwrap();
        serde_json::to_value(found).unwrap()
    }

    async fn has_definition(&self) -> bool {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        definitions.get_opt("appservices.kosmos.io").await.unwrap().is_some()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_says_what_it_changes_before_it_does() {
    let installed = Installed::new().await;
    // As if the installed version needed ConfigMaps, and no Services.
    let rules = json!({"rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
        {"apiGroups": ["kosmos.io"], "resources": ["appservices"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["kosmos.io"], "resources": ["appservices/status"], "verbs": ["patch"]},
    ]});
    let role = "pilothouse-plugin-shop";
    installed.patch("ClusterRole", role, "", rules.clone()).await;
    let (code, printed, said) = installed.run("upgrade", &["--dry-run"]).await;
    assert_eq!(code, 3, "{said}");
    for words in [
        "Plugin shop: version (not known) becomes",
        "pilothouse-system/pilothouse-plugin-shop may, besides,\nin all namespaces, and with objects that are in none:\n  read, create, change, delete  services\n",
        "may no longer\nin all namespaces, and with objects that are in none:\n  read  configmaps\n",
        "CustomResourceDefinition appservices.kosmos.io keeps its versions and schemas",
        "Of its 2 objects, 2 would change something",
        "  AppService default/one\n    Create Deployment default/one\n    Create Service default/one\n",
    ] {
        assert!(printed.contains(words), "{words}: {printed}{said}");
    }
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(installed.client.clone());
    let live = serde_json::to_value(roles.get(role).await.unwrap()).unwrap();
    assert_eq!(live["rules"], rules["rules"], "a dry run changes nothing");
    let (code, printed, said) = installed
        .run("upgrade", &["--from", &component("app-service"), "--yes"])
        .await;
    assert_eq!(code, 0, "{said}");
    assert!(
        printed.contains("Of its 2 objects, 0 would change something"),
        "{printed}"
    );
    assert!(
        printed.contains("ClusterRole pilothouse-plugin-shop changed"),
        "{printed}"
    );
    let live = serde_json::to_value(roles.get(role).await.unwrap()).unwrap();
    let names: Vec<&Value> = live["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["resources"][0])
        .collect();
    assert!(
        names.contains(&&json!("services")) && !names.contains(&&json!("configmaps")),
        "{names:?}"
    );
    let (code, _, said) = command(&["upgrade", &component("app-service")], &installed.kubeconfig).await;
    assert!(code == 2 && said.contains("pilothouse upgrade NAME=FILE"), "{said}");
    // Another plugin's component, as a slip of the keyboard.
    let status = json!({"status": {"controllers": [{"name": "app-service", "objects": 2, "queued": 0, "failing": 0}]}});
    installed.patch("Plugin", "shop", "status", status).await;
    let other = format!("shop={}", component("ecs-binding"));
    let arguments = ["upgrade", &other, "--dry-run", "--no-objects"];
    let (code, printed, said) = command(&arguments, &installed.kubeconfig).await;
    assert_eq!(code, 1, "{printed}");
    assert!(
        said.contains("is another plugin than the one that runs as Plugin shop")
            && said.contains("--accept deletes=NUMBER"),
        "{said}"
    );
    let (code, _, said) = command(
        &[&arguments[..], &["--accept", "deletes=2"]].concat(),
        &installed.kubeconfig,
    )
    .await;
    assert_eq!(code, 3, "{said}");
    let absent = format!("absent={}", component("app-service"));
    let (code, _, said) = command(&["upgrade", &absent], &installed.kubeconfig).await;
    assert!(code == 1 && said.contains("there is no Plugin absent"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_loses_data_is_refused() {
    let installed = Installed::new().await;
    // As if the installed definition had a field more, and a version more in which objects were stored.
    let mut versions = installed.definition().await["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["note"] = json!({"type": "string"});
    let definition = "appservices.kosmos.io";
    let patch = json!({"spec": {"versions": versions}});
    installed.patch("CustomResourceDefinition", definition, "", patch).await;
    installed
        .patch("AppService", "one", "", json!({"spec": {"note": "of a user"}}))
        .await;
    let (code, printed, said) = installed.run("upgrade", &["--yes", "--crds", "apply"]).await;
    assert_eq!(code, 1);
    let words = "does not accept 1 live objects: default/one: spec.note: unknown field, which would be dropped; change \
        these objects, or the schema";
    assert!(printed.contains(words), "{printed}");
    assert!(
        said.contains("would lose data or make live objects invalid, and is refused; nothing was changed"),
        "{said}"
    );
    installed
        .patch("AppService", "one", "", json!({"spec": {"note": null}}))
        .await;
    let mut old = versions[0].clone();
    old["name"] = json!("v0");
    old["storage"] = json!(false);
    let all = json!({"spec": {"versions": [versions[0], old]}});
    installed.patch("CustomResourceDefinition", definition, "", all).await;
    let (code, printed, said) = installed
        .run("upgrade", &["--dry-run", "--no-objects", "--crds", "apply"])
        .await;
    assert_eq!(code, 3, "{printed}{said}");
    assert!(
        printed.contains("appservices.kosmos.io loses v0, changes the schema of v1"),
        "{printed}"
    );
    let stored = json!({"status": {"storedVersions": ["v0", "v1"]}});
    installed
        .patch("CustomResourceDefinition", definition, "status", stored)
        .await;
    let (code, printed, _) = installed.run("upgrade", &["--yes", "--crds", "apply"]).await;
    assert_eq!(code, 1);
    let words = "drops v0, in which objects are or were stored; keep the version until another one is the storage version and \
                 `pilothouse migrate-storage appservices.kosmos.io` has rewritten the objects";
    assert!(printed.contains(words), "{printed}");
    let live = installed.definition().await;
    assert_eq!(
        live["spec"]["versions"].as_array().unwrap().len(),
        2,
        "nothing was changed"
    );

    let (code, printed, said) = installed.run("upgrade", &["--yes", "--no-objects"]).await;
    assert_eq!(code, 0, "{printed}{said}");
    let words = "objects of appservices.kosmos.io may be stored in v0; when the plugin runs, `pilothouse migrate-storage \
                 appservices.kosmos.io` rewrites them in v1";
    assert!(printed.contains(words), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_narrower_schema_that_live_objects_violate_is_refused() {
    let installed = Installed::new().await;
    // As if the installed definition took any name of a port, and two of one name.
    let mut live = installed.definition().await;
    let (path, name) = (
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/ports",
        "/items/properties/name",
    );
    let narrow = live.pointer(path).unwrap().clone();
    let ports = live.pointer_mut(path).unwrap();
    ports.as_object_mut().unwrap().remove("x-kubernetes-validations");
    assert!(
        ports
            .pointer_mut(name)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove("pattern")
            .is_some()
    );
    let patch = json!({"spec": {"versions": live["spec"]["versions"]}});
    installed
        .patch("CustomResourceDefinition", "appservices.kosmos.io", "", patch)
        .await;
    let ports = json!({"spec": {"ports": [{"name": "Web", "port": 80}]}});
    installed.patch("AppService", "one", "", ports).await;
    let ports = json!({"spec": {"ports": [{"name": "web", "port": 80}, {"name": "web", "port": 81}]}});
    installed.patch("AppService", "two", "", ports).await;
    for (verb, what) in [("upgrade", "upgrade"), ("install", "installation")] {
        let (code, printed, said) = installed.run(verb, &["--yes", "--crds", "apply"]).await;
        assert_eq!(code, 1, "{printed}");
        for words in [
            "refused: the new schema of CustomResourceDefinition appservices.kosmos.io does not accept 2 live objects: ",
            "default/one: spec.ports[0].name: Invalid value: \"Web\": spec.ports[0].name in body should match",
            "default/two: spec.ports: Invalid value: give each port a name of its own",
        ] {
            assert!(printed.contains(words), "{words}: {printed}");
        }
        assert!(
            said.contains(&format!(
                "the {what} would lose data or make live objects invalid, and is refused"
            )),
            "{said}"
        );
    }
    let patch = json!({"spec": {"ports": [{"name": "web", "port": 80}]}});
    installed.patch("AppService", "two", "", patch.clone()).await;
    installed.patch("AppService", "one", "", patch).await;
    let (code, printed, said) = installed.run("install", &["--yes", "--crds", "apply"]).await;
    assert_eq!(code, 0, "{printed}{said}");
    assert!(
        printed.contains("CustomResourceDefinition appservices.kosmos.io applied"),
        "{printed}"
    );
    assert_eq!(installed.definition().await.pointer(path), Some(&narrow));
}
