//! Projects for kinds whose CRD exists already: the files, what is refused, and the whole way to a component.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{call, checkout, ended};

/// A CRD as others publish it.
const BACKUPS: &str = include_str!("backups.yaml");

fn made(arguments: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("crd.yaml"), BACKUPS).unwrap();
    call(
        folder.path(),
        &[&["new", "site", "--crd", "crd.yaml"], arguments].concat(),
    )
    .ok();
    let project = folder.path().join("site");
    (folder, project)
}

fn text(project: &Path, name: &str) -> String {
    fs::read_to_string(project.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn a_published_crd_is_kept_and_its_types_are_written() {
    let (_folder, project) = made(&[]);
    assert_eq!(text(&project, "crds/backups.store.example.org.yaml"), BACKUPS);
    let kind = text(&project, "src/backup.rs");
    for part in [
        "#[resource(group = \"store.example.org\", version = \"v1\", kind = \"Backup\")]",
        "/// Backup is a copy of a volume.",
        "pub spec: Option<BackupSpec>,",
        "pub claim_name: String,",
        "pub keep: Option<i32>,",
        "pub labels: Option<BTreeMap<String, String>>,",
        "#[serde(rename = \"podIP\")]\n    pub pod_ip: Option<String>,",
        "pub port: Option<Value>,",
        "pub target: Option<Value>,",
        "pub type_: Option<String>,",
        "pub note: Option<String>,",
        "phase: \"Pending\".to_owned(),",
        "copies: 0,",
        "include_str!(\"../crds/backups.store.example.org.yaml\")",
    ] {
        assert!(kind.contains(part), "{part}: {kind}");
    }
    assert!(
        !kind.contains("generated_") && !kind.contains("JsonSchema") && !kind.contains("{{"),
        "{kind}"
    );
    assert!(!text(&project, "Cargo.toml").contains("schemars"));
    let sample: Value = serde_saphyr::from_str(&text(&project, "sample.yaml")).unwrap();
    let schedule = sample["spec"]["schedule"].as_str().unwrap();
    assert!(schedule.ends_with('h') && schedule.len() > 1, "{sample}");
    assert_eq!(sample["spec"].as_object().unwrap().len(), 2, "{sample}");
    let accepted: Value = serde_saphyr::from_str(&text(&project, "accepted-findings.yaml")).unwrap();
    assert_eq!(accepted[0]["finding"], "status-fields");
    assert!(
        accepted[0]["reason"].as_str().unwrap().contains(".status.conditions"),
        "{accepted}"
    );
    // The sample is one that admission can be added for.
    let added = call(&project, &["new", "admission", "Backup"]).ok();
    assert!(added.contains("src/backup_admission.rs"), "{added}");
    assert!(text(&project, "src/backup_admission.rs").contains(&format!("\"schedule\": \"{schedule}\"")));
}

#[test]
fn a_published_crd_is_kept_in_other_languages() {
    for (language, file, words) in [
        ("js", "kinds/backup.js", "status: {\"copies\":0,\"phase\":\"Pending\"}"),
        ("python", "kinds/backup.py", "claimName: str = \"\""),
        ("go", "kinds/backup/backup.go", "object.Spec[\"claimName\"].(string)"),
    ] {
        let (_folder, project) = made(&["--lang", language]);
        assert_eq!(
            text(&project, "crds/backups.store.example.org.yaml"),
            BACKUPS,
            "{language}"
        );
        let kind = text(&project, file);
        assert!(
            kind.contains(words) && kind.contains("store.example.org") && !kind.contains("{{"),
            "{kind}"
        );
        assert!(text(&project, "sample.yaml").contains("kind: Backup"));
        assert!(text(&project, "README.md").contains("the CRD as it was published"));
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("crd.yaml"), BACKUPS).unwrap();
    let c = call(folder.path(), &["new", "site", "--crd", "crd.yaml", "--lang", "c"]).failed(1);
    assert!(c.contains("there is no template in c for a CRD that exists"), "{c}");
}

#[test]
fn several_crds_make_one_project_and_a_cluster_scoped_one_fits() {
    let folder = tempfile::tempdir().unwrap();
    let other = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "stores.storage.k8s.io"},
        "spec": {
            "group": "storage.k8s.io", "scope": "Cluster", "names": {"kind": "Store", "plural": "stores"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "required": ["driver"], "properties": {"driver": {"type": "string"}, "maxSize": {"type": "integer"}},
            }}}],
        },
    });
    fs::write(folder.path().join("a.yaml"), BACKUPS).unwrap();
    fs::write(folder.path().join("b.yaml"), other.to_string()).unwrap();
    let new = ["new", "site", "--crd", "a.yaml", "--crd", "b.yaml"];
    call(
        folder.path(),
        &[&new[..], &["--kind", "storage.k8s.io/v1/Store"]].concat(),
    )
    .ok();
    let project = folder.path().join("site");
    let plugin = text(&project, "src/lib.rs");
    assert!(
        plugin.contains(".crd(backup::CRD)") && plugin.contains(".crd(store::CRD)"),
        "{plugin}"
    );
    let store = text(&project, "src/store.rs");
    assert!(
        store.contains("pub driver: String,") && store.contains("pub max_size: Option<i64>,"),
        "{store}"
    );
    assert!(store.contains("touch.anywhere()"), "{store}");
    let samples: Vec<Value> = serde_saphyr::from_multiple(&text(&project, "sample.yaml")).unwrap();
    assert_eq!(samples[1]["driver"], "example");
    let accepted: Value = serde_saphyr::from_str(&text(&project, "accepted-findings.yaml")).unwrap();
    assert!(accepted.to_string().contains("no-status-subresource"), "{accepted}");
}

#[test]
fn a_wrong_file_or_kind_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |crd: &str, arguments: &[&str]| {
        fs::write(folder.path().join("crd.yaml"), crd).unwrap();
        let ended = call(
            folder.path(),
            &[&["new", "site", "--crd", "crd.yaml"], arguments].concat(),
        );
        assert!(!folder.path().join("site").exists());
        (ended.code, ended.err)
    };
    for (crd, arguments, code, words) in [
        ("", &[][..], 1, "--crd crd.yaml has no CRD"),
        (
            BACKUPS,
            &["--kind", "store.example.org/v2/Backup"],
            1,
            "serves no version v2; it serves v1",
        ),
        (
            BACKUPS,
            &["--kind", "store.example.org/v1/Other"],
            1,
            "the CRD is of store.example.org/v1/Backup",
        ),
        (BACKUPS, &["--finalizer"], 2, "cannot be used with"),
        (
            BACKUPS,
            &["--decorates", "v1/Service", "--annotation", "x"],
            2,
            "cannot be used with",
        ),
    ] {
        let (found, error) = refused(crd, arguments);
        assert!(found == code && error.contains(words), "{arguments:?}: {error}");
    }
    let missing = call(folder.path(), &["new", "site", "--crd", "no.yaml"]).failed(1);
    assert!(missing.contains("--crd no.yaml"), "{missing}");
    // Without a CRD that exists a kind is one's own, as before.
    let protected = call(folder.path(), &["new", "site", "--kind", "apps.k8s.io/v1/Website"]).failed(2);
    assert!(
        protected.contains("is an API group of Kubernetes itself"),
        "{protected}"
    );
}

mod isolated {
    use super::*;

    /// The whole way with a CRD of which something is to be accepted: nobody speaks of it once it is.
    #[test]
    fn a_project_for_a_published_crd_passes_everything() {
        // It stays, so that it is compiled once and not for each run.
        let folder = checkout().join("target/new-project");
        let (project, kept) = (folder.join("backups"), folder.join("kept-backups"));
        fs::create_dir_all(&folder).unwrap();
        let _ = fs::rename(project.join("target"), &kept);
        let _ = fs::remove_dir_all(&project);
        fs::write(folder.join("crd.yaml"), BACKUPS).unwrap();
        let sdk = checkout().display().to_string();
        call(&folder, &["new", "backups", "--crd", "crd.yaml", "--sdk", &sdk]).ok();
        let _ = fs::rename(&kept, project.join("target"));
        for arguments in [
            &["test", "--offline"][..],
            &["fmt", "--check"],
            &["clippy", "--offline", "--all-targets", "--", "--deny", "warnings"],
        ] {
            let checked = ended(Command::new("cargo").args(arguments).current_dir(&project));
            assert_eq!(checked.code, 0, "cargo {arguments:?}: {}{}", checked.out, checked.err);
        }
        let component = "target/plugins/backups.wasm";
        let build = ["build", "--", "--offline"];
        let check = ["check", component, "-f", "sample.yaml", "--cases", "60"];
        let render = ["render", component, "-f", "sample.yaml"];
        let bench = ["bench", component, "-f", "sample.yaml", "--calls", "20"];
        let all = [&build[..], &["test"], &check, &render, &["inspect", component], &bench];
        for command in all {
            let done = call(&project, command);
            assert!(!done.err.contains("status-fields"), "{command:?}: {}", done.err);
            let printed = done.ok();
            assert!(!printed.contains("status-fields"), "{command:?}: {printed}");
        }
        // Without the list each says it by its name.
        fs::remove_file(project.join("accepted-findings.yaml")).unwrap();
        for command in all {
            let done = call(&project, command);
            let said = format!("{}{}", done.out, done.err);
            assert!(
                said.contains("warning (status-fields): the CRD of Backup does not take"),
                "{command:?}: {said}"
            );
        }
        let tests = ended(Command::new("cargo").args(["test", "--offline"]).current_dir(&project));
        assert!(
            tests.code != 0 && tests.out.contains("accepted-findings.yaml beside Cargo.toml"),
            "{}",
            tests.out
        );
        fs::write(project.join("accepted-findings.yaml"), "- {finding: status-fields}\n").unwrap();
        let error = call(&project, &check).failed(1);
        assert!(
            error.contains("accepted-findings.yaml: entry 1: reason is empty"),
            "{error}"
        );
    }
}
