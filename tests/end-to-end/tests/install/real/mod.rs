//! Installations on a real API server, which is the judge of rights.

mod asked;
mod audit;
mod brought_crds;
mod delivery;
mod first;
mod forwarding;
mod going_back;
mod host;
mod installing;
mod migrating;
mod plugin_policy;
mod upgrading;

use pilothouse_end_to_end::components::root;
use pilothouse_testkit::controlplane::{ControlPlane, Options};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::{Bench, until};

fn named(kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let api_version = match kind {
        "ServiceAccount" | "ConfigMap" | "Service" | "Node" => "v1",
        "Ingress" => "networking.k8s.io/v1",
        "EcsBinding" => "hopegi.com/v1",
        "AppService" => "kosmos.io/v1",
        "Deployment" => "apps/v1",
        "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
        "Plugin" => "pilothouse.dev/v1alpha1",
        _ => "rbac.authorization.k8s.io/v1",
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

async fn plugin_kind(bench: &Bench<'_>) {
    let text = std::fs::read_to_string(root().join("crds/yaml/plugins.pilothouse.dev.yaml")).unwrap();
    let definition: Value = serde_saphyr::from_str(&text).unwrap();
    bench.apply(&[definition]).await;
    let plugins = bench.api(&named("Plugin", None, "any"));
    until(
        "Plugins are served",
        async || plugins.get_opt("any").await.is_ok(),
        String::new,
    )
    .await;
}

/// The one control plane of these tests. It checks who may set owner references, which not every cluster does.
async fn control_plane() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    let options = Options {
        apiserver_arguments: vec!["--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned()],
        ..Options::default()
    };
    SHARED
        .get_or_init(async || ControlPlane::start(options).await.unwrap())
        .await
}
