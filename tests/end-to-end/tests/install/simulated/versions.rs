//! Two versions of a plugin that make different objects.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pilothouse_end_to_end::program::{Folder, Process, component};
use serde_json::json;

use super::Installed;
use crate::support::{command, until};

/// The component with another text in it: a version that makes other Deployments.
fn another_version(folder: &Folder) -> String {
    let mut bytes = std::fs::read(component("app-service")).unwrap();
    let (before, after) = (b"IfNotPresent", b"IfNotPresenT");
    let found: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(before)).collect();
    let [at] = found[..] else {
        panic!("{} texts of the component could be meant", found.len());
    };
    bytes[at..at + after.len()].copy_from_slice(after);
    folder.file("app-service.wasm", bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_renders_all_objects_with_both_versions() {
    let installed = Installed::new().await;
    let old = format!("shop={}", component("app-service"));
    let host = Process::start(&["run", "--kubeconfig", &installed.kubeconfig, "--plugin", &old]);
    let (deployments, services): (Api<Deployment>, Api<Service>) = (
        Api::namespaced(installed.client.clone(), "default"),
        Api::namespaced(installed.client.clone(), "default"),
    );
    for name in ["one", "two"] {
        let is_made = async || {
            let (deployment, service) = (deployments.get_opt(name).await, services.get_opt(name).await);
            deployment.unwrap().is_some() && service.unwrap().is_some()
        };
        until("the old version has made its objects", is_made, || host.log()).await;
    }
    drop(host);
    // Somebody has changed something that both versions would set back.
    let patch = Patch::Merge(json!({"spec": {"type": "LoadBalancer"}}));
    let patched = services.patch("two", &PatchParams::default(), &patch).await;
    assert!(patched.is_ok(), "{patched:?}");

    let folder = Folder::new();
    let new = format!("shop={}", another_version(&folder));
    let upgrade = async |more: &[&str]| {
        let arguments = [&["upgrade", &new, "--dry-run"][..], more].concat();
        let (code, printed, said) = command(&arguments, &installed.kubeconfig).await;
        assert_eq!(code, 0, "{said}");
        printed
    };
    let deployment = |name: &str| {
        format!(
            "    Update Deployment default/{name}; .spec.template.spec.containers[0].imagePullPolicy: \"IfNotPresent\" \
             becomes \"IfNotPresenT\"\n"
        )
    };
    let service = "    Update Service default/two; .spec.type: \"LoadBalancer\" becomes \"NodePort\"\n";
    let [one, two] = ["one", "two"].map(deployment);
    let total = "Of its 2 objects, 2 would change something\n";
    let live = upgrade(&[]).await;
    let expected = format!("{total}  app-service default/one\n{one}  app-service default/two\n{two}{service}");
    assert!(live.contains(&expected), "{expected}\n{live}");
    let both = upgrade(&["--from", &component("app-service")]).await;
    let expected = format!("{total}  app-service default/one\n{one}  app-service default/two\n{two}\n");
    assert!(both.contains(&expected), "{expected}\n{both}");
    // The new one in the old one's place: nothing of it is new.
    let neither = upgrade(&["--from", new.strip_prefix("shop=").unwrap()]).await;
    assert!(neither.contains("Of its 2 objects, 0 would change something\n"), "{neither}");
}
