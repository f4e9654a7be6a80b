//! Tests that isolation shows a plugin the same objects as the host, and refuses the same answers.

use std::{path::PathBuf, sync::OnceLock};

use pilothouse_core::reads::dependencies::read::Read;
use pilothouse_core::{Blame, Kind, Name};
use pilothouse_testkit::isolation::{Admission, Isolated, Shown};
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
        assert!(error.starts_with("apiVersion is missing in Pod"), "{error}");
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

    #[test]
    fn a_component_loads_from_memory_and_reads_many_objects() {
        let bytes = std::fs::read(component("app-service")).unwrap();
        let plugin = Isolated::from_bytes("mine", &bytes).unwrap();
        let plugin = plugin.with_all([deployment("1")]).unwrap();
        let object = app(&json!({"size": 2, "image": "web:1"}));
        assert_eq!(plugin.reconcile(&object).unwrap().status().unwrap()["replicas"], 2);
        assert_eq!(plugin.emptied().reconcile(&object).unwrap().status(), None);
        let error = Isolated::from_bytes("mine", b"text").err().unwrap().to_string();
        assert!(error.contains("mine"), "{error}");
    }

    #[test]
    fn an_object_that_is_not_there_is_told_with_those_that_are() {
        let plugin = Isolated::load(component("app-service")).unwrap();
        let reconciled = plugin.reconcile(&app(&json!({"size": 2, "image": "web:1"}))).unwrap();
        let missing = reconciled.desired("Deployment", "db").unwrap_err().to_string();
        assert!(
            missing.starts_with("no Deployment \"db\"; there are: Deployment shop/web"),
            "{missing}"
        );
        reconciled.assert_matches("Deployment", "web", &json!({"spec": {"replicas": 2}}));
        let panic = std::panic::catch_unwind(|| {
            reconciled.assert_matches("Deployment", "web", &json!({"spec": {"replicas": 3}}));
        });
        let words = *panic.unwrap_err().downcast::<String>().unwrap();
        assert!(
            words.starts_with("Deployment \"web\" is not as expected at .spec.replicas:"),
            "{words}"
        );
        assert!(
            words.contains("-   replicas: 3") && words.contains("+   replicas: 2"),
            "{words}"
        );
    }

    #[test]
    fn an_interface_that_the_plugin_lacks_is_named() {
        let plugin = Isolated::load(component("app-service")).unwrap();
        let object = app(&json!({"size": 2, "image": "web:1"}));
        let refused = plugin
            .validate(&object, &Admission::update(&object))
            .unwrap_err()
            .to_string();
        assert!(refused.contains("has no validator"), "{refused}");
        let mut deleted = object.clone();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let refused = plugin.run(&deleted).unwrap_err().to_string();
        assert!(refused.contains("has no finalizer"), "{refused}");
        let run = plugin.run(&object).unwrap();
        assert_eq!((run.finalizer, run.reconciled.titles().len()), (None, 1));
    }

    #[test]
    fn what_is_shown_can_be_the_whole_object_or_in_another_order() {
        let plugin = Isolated::load(component("hostile")).unwrap();
        let object = hostile("differs-by-order");
        let data = |plugin: &Isolated| plugin.reconcile(&object).unwrap().snapshot();
        assert_ne!(data(&plugin), data(&plugin.clone().showing(Shown::Shuffled(1))));
        let mut told = hostile("count-in-status");
        told["status"] = json!({"text": "7"});
        let text = |plugin: &Isolated| plugin.reconcile(&told).unwrap().status().unwrap()["text"].clone();
        assert_eq!(
            (text(&plugin), text(&plugin.clone().showing(Shown::Whole))),
            (json!("1"), json!("8"))
        );
    }
}
