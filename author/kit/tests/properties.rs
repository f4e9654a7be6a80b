//! Tests that each broken property is found, that its object is shrunk, and that a case can be repeated.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pilothouse_testkit::documents::parse;
use pilothouse_testkit::isolation::{Isolated, sandbox};
use pilothouse_testkit::properties::property::Property;
use pilothouse_testkit::properties::{CheckError, Options, Report, Violation, check};
use serde_json::{Value, json};

/// Builds the components once for all tests of this file.
fn component(name: &'static str) -> PathBuf {
    static BUILT: OnceLock<Vec<xtask::plugins::Built>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let only = ["app-service", "hostile", "reader", "wisher"]
            .map(str::to_owned)
            .to_vec();
        let options = xtask::plugins::PluginsOptions {
            only,
            ..xtask::plugins::PluginsOptions::default()
        };
        xtask::plugins::build(&options).expect("the plugins build")
    });
    let named = built.iter().find(|built| built.name == name);
    named.expect("it was built").path.clone()
}

/// Options with this sample, and with the sample alone unless more cases are wanted.
fn options(sample: &Value, cases: u32) -> Options {
    Options {
        cases,
        samples: parse(sample.to_string().as_bytes(), Path::new("sample.json")).expect("it is an object"),
        ..Options::default()
    }
}

fn hostile(behaviour: &str) -> Value {
    json!({
        "apiVersion": "hostile.test.dev/v1",
        "kind": "Hostile",
        "metadata": {"name": "h", "labels": {"a": "b"}},
        "spec": {"behaviour": behaviour, "text": "some words", "count": 3, "notes": ["one", "other"]}
    })
}

/// The properties that a Hostile breaks, and how.
fn broken(plugin: &Isolated, behaviour: &str) -> Report {
    check(plugin, &options(&hostile(behaviour), 1)).expect("the sample can be stored")
}

fn only(report: &Report, property: Property) -> &Violation {
    let names: Vec<Property> = report.violations.iter().map(|violation| violation.property).collect();
    assert_eq!(names, [property], "{:?}", report.violations);
    &report.violations[0]
}

mod isolated {
    use super::*;

    #[test]
    fn a_plugin_that_behaves_breaks_nothing() {
        let plugin = Isolated::load(component("hostile")).unwrap();
        let report = broken(&plugin, "config-map");
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        assert_eq!(report.untried, [Property::Deletion], "it has no finalizer");
        assert_eq!((report.judged, report.discarded), (1, 0));
    }

    #[test]
    fn each_property_is_noticed_where_it_is_broken() {
        let plugin = Isolated::load(component("hostile")).unwrap();
        for (behaviour, property, words) in [
            ("differs-by-attempt", Property::Equal, "the number of failures"),
            ("differs-by-read", Property::FixedPoint, "ConfigMap default/h"),
            ("undeclared-read", Property::Declared, "Secret"),
            ("undeclared-kind", Property::Declared, "Secret"),
            ("unknown-field", Property::Valid, "nonsense"),
            ("wrong-type", Property::Valid, "ConfigMap default/h"),
            ("invalid-value", Property::Valid, "spec.replicas"),
            ("status-wrong-type", Property::Valid, "status"),
            ("differs-by-order", Property::Order, "the order of a map's members"),
            (
                "differs-by-list-order",
                Property::Order,
                "the order of a list whose order has no meaning",
            ),
            ("panic", Property::NoTrap, "panicked"),
            ("status-broken", Property::NoTrap, "status"),
            ("recursion", Property::NoTrap, "trapped"),
        ] {
            let report = broken(&plugin, behaviour);
            let violation = only(&report, property);
            assert!(violation.problem.contains(words), "{behaviour}: {}", violation.problem);
            assert_eq!(
                violation.object["spec"]["behaviour"], behaviour,
                "{behaviour} is what breaks it"
            );
        }
    }

    #[test]
    fn undeclared_fields_matter_only_to_a_plugin_that_reads_them() {
        let config = json!({"describe": "sees-status"});
        let plugin = Isolated::load(component("hostile")).unwrap();
        // Without this configuration the manifest does not declare the status that the plugin looks at.
        let report = check(&plugin, &options(&hostile("count-in-status"), 1)).unwrap();
        let violation = only(&report, Property::Declared);
        assert!(violation.problem.contains("does not declare"), "{}", violation.problem);
        let report = check(
            &plugin.configured(config).unwrap(),
            &options(&hostile("count-in-status"), 1),
        )
        .unwrap();
        only(&report, Property::FixedPoint);
    }

    #[test]
    fn a_finalizer_that_never_lets_go_is_noticed() {
        let plugin = Isolated::load(component("wisher")).unwrap();
        let promise = |holds: bool| {
            json!({
                "apiVersion": "wishes.test.dev/v1", "kind": "Promise", "metadata": {"name": "p"},
                "spec": {"holds": holds, "owns": [{"lasting": true, "object": {
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"a": "b"}
                }}]}
            })
        };
        let report = check(&plugin, &options(&promise(false), 1)).unwrap();
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        assert!(report.untried.is_empty(), "{:?}", report.untried);
        let report = check(&plugin, &options(&promise(true), 1)).unwrap();
        let violation = only(&report, Property::Deletion);
        assert!(violation.problem.contains("10 rounds"), "{}", violation.problem);
        assert_eq!(
            violation.object["spec"],
            json!({"holds": true}),
            "what does not matter is gone"
        );
    }

    #[test]
    fn what_a_finalizer_leaves_behind_is_noticed() {
        let plugin = Isolated::load(component("wisher")).unwrap();
        let promise = |finalizers: Value| {
            json!({
                "apiVersion": "wishes.test.dev/v1", "kind": "Promise", "metadata": {"name": "p"},
                "spec": {"owns": [{"object": {
                    "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "left", "finalizers": finalizers}
                }}]}
            })
        };
        let report = check(&plugin, &options(&promise(json!([])), 1)).unwrap();
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        let report = check(&plugin, &options(&promise(json!(["example.com/nobody"])), 1)).unwrap();
        let violation = only(&report, Property::Deletion);
        // The name is made small, too.
        let words = "the object is gone and leaves ConfigMap default/";
        assert!(violation.problem.starts_with(words), "{}", violation.problem);
    }

    #[test]
    fn what_goes_wrong_only_when_a_time_has_come_is_found() {
        let now = Options::default().now;
        let (hour, day) = (3_600_000, 86_400_000);
        let file = component("reader");
        let configuration = json!({"objects": "reads=things", "touches": []});
        let loaded = sandbox().unwrap().load(&file).unwrap();
        let plugin = Isolated::of(file, loaded, Some(configuration)).unwrap();
        let traps = |reads: Value, again: Option<u64>| {
            let mut annotations = json!({"reader.test.dev/reads": reads.to_string()});
            if let Some(again) = again {
                annotations["reader.test.dev/again"] = json!(again.to_string());
            }
            let sample = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
                "name": "looker", "namespace": "default", "labels": {"reads": "things"}, "annotations": annotations,
            }});
            let report = check(&plugin, &options(&sample, 1)).unwrap();
            report
                .violations
                .iter()
                .any(|broken| broken.property == Property::NoTrap)
        };
        assert!(!traps(json!([{"reached": now + hour}]), Some(day)), "it never traps");
        assert!(
            traps(json!([{"trapAfter": now + hour}]), None),
            "a reading of the clock is another then"
        );
        let soon_and_later = json!([{"reached": now + 1}, {"trapAfter": now + day}]);
        assert!(
            traps(soon_and_later.clone(), Some(day)),
            "the plugin asks for that time"
        );
        assert!(traps(soon_and_later, Some(1)), "and so does the clock");
        assert!(traps(json!([{"trapAfter": u64::MAX}]), None), "however late");
    }

    #[test]
    fn a_plugin_that_traps_only_at_its_schema_limits_is_found() {
        let plugin = Isolated::load(component("hostile")).unwrap();
        let found = Options {
            properties: vec![Property::NoTrap],
            ..options(&hostile("trap-at-limits"), 1200)
        };
        let report = check(&plugin, &found).unwrap();
        let violation = only(&report, Property::NoTrap);
        let notes = violation.object["spec"]["notes"].as_array().unwrap();
        assert_eq!(notes.len(), 50);
        assert!(
            notes
                .iter()
                .any(|note| note.as_str().unwrap().chars().count() == 10_000)
        );
    }

    #[test]
    fn a_failing_object_is_made_small_and_its_case_can_be_repeated() {
        let plugin = Isolated::load(component("wisher")).unwrap();
        let wish = json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "w", "annotations": {"a": "b"}},
            "spec": {"traps": false, "owns": []}
        });
        let found = |options: &Options| {
            let report = check(&plugin, options).unwrap();
            let violation = report.violations.into_iter().find(|it| it.property == Property::NoTrap);
            violation.expect("one of the objects traps")
        };
        let properties = vec![Property::NoTrap];
        let first = found(&Options {
            properties: properties.clone(),
            ..options(&wish, 200)
        });
        assert!(first.case > 0, "the sample itself does not trap");
        assert_eq!(first.object["spec"], json!({"traps": true}));
        let again = found(&Options {
            only_case: Some(first.case),
            properties,
            ..options(&wish, 200)
        });
        assert_eq!(
            (again.case, again.object, again.problem),
            (first.case, first.object, first.problem)
        );
    }

    #[test]
    fn objects_are_made_by_the_schema_alone() {
        let plugin = Isolated::load(component("app-service")).unwrap();
        let options = Options {
            cases: 30,
            ..Options::default()
        };
        let report = check(&plugin, &options).unwrap();
        assert!(report.violations.is_empty(), "{:?}", report.violations);
        assert!(report.judged > 15, "{report:?}");
    }

    #[test]
    fn samples_that_cannot_be_used_are_named() {
        let plugin = Isolated::load(component("hostile")).unwrap();
        let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        let error = check(&plugin, &options(&other, 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sample.json, document 1, line 1, column 1: the plugin does not reconcile v1 Secret, only hostile.test.dev/v1 Hostile; \
             give other objects as the state of the cluster"
        );
        let mut unstorable = hostile("config-map");
        unstorable["spec"]["count"] = json!(-1);
        let error = check(&plugin, &options(&unstorable, 1)).unwrap_err();
        assert!(
            matches!(error, CheckError::Sample { .. }) && error.to_string().contains("spec.count"),
            "{error}"
        );
    }
}
