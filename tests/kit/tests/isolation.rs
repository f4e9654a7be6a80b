//! Owns the proof that isolation shows a plugin what the host would show it, and refuses what the host would refuse.

use std::{path::PathBuf, sync::OnceLock};

use pilothouse_core::{Blame, Kind, Name, dependencies::Read};
use pilothouse_testkit::isolation::Isolated;
use serde_json::{Value, json};

/// Builds a component once for all tests of this file.
fn component(name: &'static str) -> PathBuf {
    static BUILT: OnceLock<Vec<xtask::plugins::Built>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let only = vec!["app-service".to_owned(), "hostile".to_owned()];
        let options = xtask::plugins::PluginsOptions {
            only,
            ..xtask::plugins::PluginsOptions::default()
        };
        xtask::plugins::build(&options).expect("the plugins build")
    });
    built
        .iter()
        .find(|built| built.name == name)
        .expect("it was built")
        .path
        .clone()
}

fn app(spec: &Value) -> Value {
    json!({
        "apiVersion": "kosmos.io/v1",
        "kind": "AppService",
        "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
        "spec": spec
    })
}

fn deployment(owner: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "ownerReferences": [{"apiVersion": "kosmos.io/v1", "kind": "AppService", "name": "web", "uid": owner, "controller": true}]
        },
        "spec": {"replicas": 2},
        "status": {"replicas": 2}
    })
}

mod isolated {
    use super::*;

    #[test]
    fn an_answer_is_given_as_the_host_takes_it() {
        let plugin = Isolated::load(component("app-service")).unwrap();
        let spec = json!({"size": 2, "image": "web:1", "ports": [{"port": 80}]});
        let reconciled = plugin.reconcile(&app(&spec)).unwrap();
        assert_eq!(reconciled.titles(), ["Deployment shop/web", "Service shop/web"]);
        assert_eq!(reconciled.object("Deployment", "web").unwrap()["spec"]["replicas"], 2);
        assert_eq!(reconciled.object("Service", "web").unwrap()["spec"]["type"], "NodePort");
        assert_eq!(reconciled.object("Service", "db"), None);
        assert_eq!(reconciled.snapshot(), plugin.reconcile(&app(&spec)).unwrap().snapshot());
        assert!(
            reconciled.snapshot().contains("replicas: 2"),
            "{}",
            reconciled.snapshot()
        );
    }

    #[test]
    fn what_is_in_the_cache_is_read_and_remembered() {
        let plugin = Isolated::load(component("app-service"))
            .unwrap()
            .with(deployment("1"))
            .unwrap();
        let reconciled = plugin.reconcile(&app(&json!({"size": 2, "image": "web:1"}))).unwrap();
        assert_eq!(reconciled.status().unwrap()["replicas"], 2);
        let kind = Kind::new("apps", "v1", "Deployment").into();
        assert!(
            reconciled
                .reads
                .contains(&Read::Get(kind, Name::new(Some("shop"), "web")))
        );
    }

    #[test]
    fn an_object_replaces_one_of_the_same_name() {
        let plugin = Isolated::load(component("app-service")).unwrap();
        let plugin = plugin.with(deployment("1")).unwrap().with(deployment("2")).unwrap();
        let reconciled = plugin.reconcile(&app(&json!({"size": 2, "image": "web:1"}))).unwrap();
        assert_eq!(reconciled.status(), None);
    }

    #[test]
    fn a_failure_says_whose_fault_it_is() {
        let plugin = Isolated::load(component("app-service")).unwrap();
        let failed = plugin.reconcile(&app(&json!({"image": "web:1"}))).unwrap_err();
        assert!(failed.to_string().contains("missing field `size`"), "{failed}");
    }

    #[test]
    fn what_is_no_object_and_what_has_no_controller_is_named() {
        let plugin = Isolated::load(component("app-service")).unwrap();
        let error = plugin.clone().with(json!({"kind": "Pod"})).err().unwrap().to_string();
        assert!(error.starts_with("an object has no apiVersion"), "{error}");
        let failed = plugin.reconcile(&deployment("1")).unwrap_err();
        assert_eq!(failed.failure.blame, Blame::User);
        assert!(
            failed.to_string().contains("only for kosmos.io/v1 AppService"),
            "{failed}"
        );
    }

    #[test]
    fn a_file_that_is_no_component_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.wasm");
        std::fs::write(&path, "text").unwrap();
        let error = Isolated::load(&path).err().unwrap().to_string();
        assert!(error.contains("text.wasm"), "{error}");
    }

    fn hostile(behaviour: &str) -> Value {
        json!({
            "apiVersion": "hostile.test.dev/v1",
            "kind": "Hostile",
            "metadata": {"name": "h", "namespace": "shop", "uid": "1"},
            "spec": {"behaviour": behaviour, "text": "words"}
        })
    }

    #[test]
    fn what_the_host_would_refuse_is_refused() {
        let plugin = Isolated::load(component("hostile")).unwrap();
        for (behaviour, words) in [
            ("undeclared-read", "Secret"),
            ("undeclared-kind", "Secret"),
            ("same-name-twice", "are both"),
            ("panic", "words"),
            ("permanent-failure", "words"),
        ] {
            let failed = plugin.reconcile(&hostile(behaviour)).unwrap_err();
            assert!(failed.to_string().contains(words), "{behaviour}: {failed}");
        }
    }

    #[test]
    fn the_clock_stands_where_it_was_set() {
        let plugin = Isolated::load(component("hostile")).unwrap();
        let snapshot = |now| {
            plugin
                .clone()
                .at(now)
                .reconcile(&hostile("differs-by-clock"))
                .unwrap()
                .snapshot()
        };
        assert_eq!(snapshot(5_000), snapshot(5_999));
        assert_ne!(snapshot(5_000), snapshot(6_000));
    }

    #[test]
    fn earlier_failures_are_told() {
        let plugin = Isolated::load(component("hostile")).unwrap();
        assert!(plugin.reconcile(&hostile("fail-at-first")).is_err());
        assert!(plugin.after_failures(2).reconcile(&hostile("fail-at-first")).is_ok());
    }
}
