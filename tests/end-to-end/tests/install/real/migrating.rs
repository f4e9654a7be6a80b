//! `pilothouse migrate-storage` with accounts that lack a right, which the message names.

use serde_json::json;

use super::{control_plane, named};
use crate::simulated::migrating::definition;
use crate::support::{Bench, command, until};

const SYSTEM: &str = "migrating-system";

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_and_nothing_is_trimmed() {
    let control_plane = control_plane().await;
    let bench = Bench::new(control_plane).await;
    let crd = named("CustomResourceDefinition", None, "sites.migrated.dev");
    bench.apply(&[definition("v1")]).await;
    let site =
        json!({"apiVersion": "migrated.dev/v1", "kind": "Site", "metadata": {"name": "a", "namespace": "default"}});
    let sites = bench.api(&site);
    until(
        "Sites are served",
        async || sites.get_opt("a").await.is_ok(),
        String::new,
    )
    .await;
    bench.apply(&[site, definition("v2")]).await;

    let group = "apiextensions.k8s.io";
    let definitions =
        json!({"apiGroups": [group], "resources": ["customresourcedefinitions"], "verbs": ["get", "list"]});
    let listed = json!({"apiGroups": ["migrated.dev"], "resources": ["sites"], "verbs": ["list"]});
    let patched = json!({"apiGroups": ["migrated.dev"], "resources": ["sites"], "verbs": ["list", "patch"]});
    for (name, rules, right) in [
        ("none", json!([]), "list customresourcedefinitions.apiextensions.k8s.io"),
        ("definitions", json!([definitions]), "list sites.migrated.dev"),
        ("listed", json!([definitions, listed]), "patch sites.migrated.dev"),
        (
            "patched",
            json!([definitions, patched]),
            "patch customresourcedefinitions/status",
        ),
    ] {
        let kubeconfig = bench.account(SYSTEM, name, &rules).await;
        let words = format!("ask for the right to {right}");
        let mut said = String::new();
        // The server learns of a new role a moment later.
        let mut names_it = async || {
            let (code, printed, error) = command(&["migrate-storage", "sites.migrated.dev"], &kubeconfig).await;
            said = format!("{code} {printed}{error}");
            code == 1 && said.contains(&words)
        };
        let began = std::time::Instant::now();
        while !names_it().await {
            assert!(began.elapsed() < crate::support::WITHIN, "{name}");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        let found = bench.find(&crd).await.unwrap();
        assert_eq!(found["status"]["storedVersions"], json!(["v1", "v2"]), "{said}");
    }
    let (code, printed, said) = command(&["migrate-storage", "sites.migrated.dev"], &bench.admin).await;
    assert_eq!(code, 0, "{printed}{said}");
    let found = bench.find(&crd).await.unwrap();
    assert_eq!(found["status"]["storedVersions"], json!(["v2"]));
}
