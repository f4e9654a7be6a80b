//! Two versions of a plugin that make different objects.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use pilothouse_end_to_end::program::{Folder, Process, component, ended};
use serde_json::json;

use super::Installed;
use crate::support::{command, until};

/// The component with another text in it: a version that has nginx log in another form.
fn another_version(folder: &Folder) -> String {
    let mut bytes = std::fs::read(component("reverse-proxy")).unwrap();
    let (before, after) = (b"$remote_user [$time_local] ", b"$remote_user ($time_local) ");
    let found: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(before)).collect();
    let [at] = found[..] else {
        panic!("{} texts of the component could be meant", found.len());
    };
    bytes[at..at + after.len()].copy_from_slice(after);
    folder.file("reverse-proxy.wasm", bytes)
}

/// Count of announced updates of a kind.
fn updates(printed: &str, kind: &str) -> usize {
    printed.matches(&format!("\n    Update {kind} default/")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_renders_all_objects_with_both_versions() {
    let installed = Installed::bare().await;
    let old = format!("proxy={}", component("reverse-proxy"));
    let (code, _, said) = command(&["install", &old, "--yes", "--wait=false"], &installed.kubeconfig).await;
    assert_eq!(code, 0, "{said}");
    for name in ["one", "two"] {
        let proxy = json!({
            "apiVersion": "nginx.lin2ur.cn/v1", "kind": "ReverseProxy", "metadata": {"name": name, "namespace": "default"},
            "spec": {"proxyPass": "https://example.com"},
        });
        installed.create(&proxy).await;
    }
    let host = Process::start(&["run", "--kubeconfig", &installed.kubeconfig, "--plugin", &old]);
    let (deployments, services): (Api<Deployment>, Api<Service>) = (
        Api::namespaced(installed.client.clone(), "default"),
        Api::namespaced(installed.client.clone(), "default"),
    );
    let all = ListParams::default();
    let are_made = async || {
        let (deployments, services) = (deployments.list(&all).await, services.list(&all).await);
        deployments.unwrap().items.len() == 2 && services.unwrap().items.len() == 2
    };
    until("the old version has made its objects", are_made, || host.log()).await;
    drop(host);
    // Somebody has changed something that both versions would set back.
    let found = services.list(&all).await.unwrap();
    let service = found.iter().find(|service| service.name_any().contains("two")).unwrap();
    let patch = Patch::Merge(json!({"spec": {"type": "LoadBalancer"}}));
    let patched = services
        .patch(&service.name_any(), &PatchParams::default(), &patch)
        .await;
    assert!(patched.is_ok(), "{patched:?}");

    let folder = Folder::new();
    let new = format!("proxy={}", another_version(&folder));
    let upgrade = async |more: &[&str]| {
        let arguments = [&["upgrade", &new, "--dry-run"][..], more].concat();
        let (code, printed, said) = command(&arguments, &installed.kubeconfig).await;
        let is_unchanged = printed.contains(" 0 would change something");
        assert_eq!(code, if is_unchanged { 0 } else { 3 }, "{said}");
        printed
    };
    let kinds = ["ConfigMap", "Deployment", "Service"];
    let told = |printed: &str| kinds.map(|kind| updates(printed, kind));
    let two_objects = |basis: &str| format!("Of its 2 objects, 2 would change something, compared with {basis}\n");
    let live = upgrade(&[]).await;
    assert!(live.contains(&two_objects("the objects in the cluster")), "{live}");
    assert_eq!(told(&live), [2, 2, 1], "{live}");
    let both = upgrade(&["--from", &component("reverse-proxy")]).await;
    assert!(both.contains(&two_objects("the running version")), "{both}");
    assert_eq!(told(&both), [2, 2, 0], "{both}");
    // Without --from it is the artifact that the status names.
    let layout = format!("oci-layout:{}:old", folder.path("layout"));
    let (code, printed, said) = ended(&["push", &component("reverse-proxy"), &layout]);
    assert_eq!(code, 0, "{said}");
    let digest = printed.trim().rsplit_once('@').unwrap().1.to_owned();
    let runs = async |digest: &str| {
        let artifact = json!({"reference": layout, "digest": digest, "size": 1});
        let status = json!({"objects": 2, "failing": 0, "controllers": [], "conditions": [], "artifact": artifact});
        installed
            .patch("Plugin", "proxy", "status", json!({"status": status}))
            .await;
    };
    runs(&digest).await;
    let fetched = upgrade(&[]).await;
    assert!(fetched.contains(&two_objects("the running version")), "{fetched}");
    assert_eq!(told(&fetched), [2, 2, 0], "{fetched}");
    runs(&format!("sha256:{}", "0".repeat(64))).await;
    let lost = upgrade(&[]).await;
    assert!(lost.contains(&two_objects("the objects in the cluster")), "{lost}");
    // The new one in the old one's place: nothing of it is new.
    let neither = upgrade(&["--from", new.strip_prefix("proxy=").unwrap()]).await;
    assert!(
        neither.contains("Of its 2 objects, 0 would change something, compared with the running version\n"),
        "{neither}"
    );
}
