//! Tests that a real API server's form of this repository's CRDs counts as no difference from the CRDs of plugins.

use kube::api::{Patch, PatchParams};
use pilothouse_cluster::resources::install::{CrdInCluster, compare_crd};
use pilothouse_core::plugin::manifest::BroughtCrd;
use pilothouse_end_to_end::components::root;
use serde_json::{Value, json};

use super::control_plane;
use crate::support::Bench;

/// API group of this test alone: other tests install the same CRDs under their own names.
const GROUP: &str = "brought.test.dev";

/// All definitions that plugins of this repository bring, in a group of this test.
fn brought() -> Vec<BroughtCrd> {
    let mut found = Vec::new();
    for folder in ["plugins", "tests/guests"] {
        for plugin in std::fs::read_dir(root().join(folder)).unwrap() {
            let Ok(files) = std::fs::read_dir(plugin.unwrap().path().join("crds")) else {
                continue;
            };
            for file in files {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                let mut definition: Value = serde_saphyr::from_str(&text).unwrap();
                let word = |value: &Value| value.as_str().unwrap().to_owned();
                let name = format!("{}.{GROUP}", word(&definition["spec"]["names"]["plural"]));
                definition["metadata"]["name"] = json!(name);
                definition["spec"]["group"] = json!(GROUP);
                let kind = word(&definition["spec"]["names"]["kind"]);
                found.push(BroughtCrd {
                    name,
                    group: GROUP.to_owned(),
                    kind,
                    definition,
                });
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crd_applied_by_others_counts_as_own_if_equal() {
    let bench = Bench::new(control_plane().await).await;
    let crds = brought();
    assert!(crds.len() >= 8, "{}", crds.len());
    for crd in &crds {
        assert_eq!(
            compare_crd(&bench.client, crd).await.unwrap(),
            CrdInCluster::Absent,
            "{}",
            crd.name
        );
        bench.apply(std::slice::from_ref(&crd.definition)).await;
        assert_eq!(
            compare_crd(&bench.client, crd).await.unwrap(),
            CrdInCluster::Same,
            "{}",
            crd.name
        );
    }

    // Somebody edits one: what it has in addition is no difference, and what it lacks is.
    let crd = crds.iter().find(|crd| crd.kind == "AppService").unwrap();
    let definitions = bench.api(&crd.definition);
    let edit = async |edit: fn(&mut Value)| {
        let mut versions = bench.find(&crd.definition).await.unwrap()["spec"]["versions"].take();
        edit(&mut versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]);
        let (by, patch) = (
            PatchParams::default(),
            Patch::Merge(json!({"spec": {"versions": versions}})),
        );
        let _ = definitions.patch(&crd.name, &by, &patch).await.unwrap();
        compare_crd(&bench.client, crd).await.unwrap()
    };
    let added = edit(|properties| properties["more"] = json!({"type": "string"})).await;
    assert_eq!(added, CrdInCluster::Same);
    let removed = edit(|properties| drop(properties.as_object_mut().unwrap().remove("image"))).await;
    let CrdInCluster::Differs(difference) = removed else {
        panic!("the field is missing");
    };
    assert!(
        difference.ends_with("properties.spec.properties.image is missing"),
        "{difference}"
    );
    for crd in &crds {
        let deleted = definitions.delete(&crd.name, &kube::api::DeleteParams::default()).await;
        assert!(deleted.is_ok(), "{}", crd.name);
    }
}
