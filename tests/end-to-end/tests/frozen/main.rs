//! The frozen contracts in `tests/frozen`: the WIT package still has each of them, and the host still runs the components that
//! were built against them. If a test fails here, what has changed in the host or in `wit/` is wrong, and never the frozen file.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod contract;

use std::path::PathBuf;

use pilothouse_end_to_end::components;

/// The folder of a frozen contract.
fn folder(version: &str) -> PathBuf {
    components::root().join("tests/frozen").join(version)
}

/// The digest of the component that was built against 0.1.0.
const RELIC: &str = "c93f3ee0fa08c2cf820bebc4fb7fa1ae2d41dadaf7404bc44f39e1ea9ffa3a16";

mod isolated {
    use pilothouse_core::plugin::contract::{FieldErrorKind, LogLevel};
    use pilothouse_core::{Blame, Retry};
    use pilothouse_sandbox::Optional;
    use pilothouse_testkit::isolation::{Admission, Finalized, Isolated};
    use serde_json::{Value, json};

    use super::{RELIC, folder};

    fn relic() -> Isolated {
        Isolated::load(folder("0.1.0").join("relic.wasm")).unwrap()
    }

    fn vase(spec: &Value) -> Value {
        json!({"apiVersion": "frozen.test.dev/v1", "kind": "Relic", "metadata": {"name": "vase", "namespace": "a"}, "spec": spec})
    }

    fn config_map(name: &str, labels: &Value, data: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a", "labels": labels}, "data": data})
    }

    #[test]
    fn the_component_of_0_1_is_the_frozen_one_and_loads() {
        let relic = relic();
        let plugin = relic.plugin();
        assert_eq!(plugin.digest(), RELIC, "the file is never built again; restore it");
        assert_eq!(plugin.contract_version(), "0.1.0");
        let all = Optional {
            finalizer: true,
            defaulter: true,
            validator: true,
            converter: true,
        };
        assert_eq!(plugin.optional(), all);
    }

    #[test]
    fn it_describes_itself_with_every_member_that_0_1_0_had() {
        let relic = relic();
        let controller = &relic.manifest().manifest.controllers[0];
        assert_eq!(controller.finalizer.as_deref(), Some("frozen.test.dev/relic"));
        assert_eq!(controller.touches.len(), 3);
        assert_eq!(controller.admission.as_ref().unwrap().timeout_seconds, 3);
        assert_eq!(relic.manifest().crds[0].name, "relics.frozen.test.dev");
        let refused = relic.configured(json!({"suffix": 1})).err().unwrap().to_string();
        assert!(refused.contains("suffix: must be a text"), "{refused}");
    }

    #[test]
    fn its_reconcile_reads_logs_and_answers_as_it_did() {
        let listed = json!({"relic": "perhaps"});
        let relic = relic()
            .configured(json!({"suffix": "!"}))
            .unwrap()
            .with_all([
                config_map("vase-source", &json!({}), &json!({"text": "copied"})),
                config_map("c", &listed, &json!({"kind": "listed"})),
                config_map("b", &listed, &json!({"kind": "listed"})),
                config_map("d", &listed, &json!({"kind": "listed"})),
                config_map("a", &listed, &json!({"kind": "other"})),
                config_map("aa", &json!({}), &json!({"kind": "listed"})),
            ])
            .unwrap()
            .at(150_000);
        let answer = relic
            .reconcile(&vase(&json!({"size": 3, "until": 150_001, "shared": "web"})))
            .unwrap();
        answer.assert_matches(
            "ConfigMap",
            "vase",
            &json!({"data": {"text": "copied!", "listed": "b,c"}}),
        );
        assert_eq!(
            answer.titles(),
            ["ConfigMap a/vase", "ConfigMap a/vase-once", "ConfigMap a/vase-anew"]
        );
        let once = &answer.answer.owned[1].lifecycle;
        assert!(once.create_only && once.keep && !once.recreate, "{once:?}");
        assert!(answer.answer.owned[2].lifecycle.recreate);
        let shared = answer.contribution("Service", "web").unwrap();
        assert_eq!(shared["metadata"]["annotations"]["frozen.test.dev/relic"], "vase");
        assert_eq!(
            Value::Object(answer.status().unwrap().clone()),
            json!({"minute": 2, "listed": ["b", "c"], "nowhere": true})
        );
        assert_eq!(answer.condition("Come").unwrap().status.as_str(), "False");
        assert_eq!(answer.condition("Known").unwrap().status.as_str(), "Unknown");
        let events: Vec<_> = answer.answer.events.iter().map(|event| event.reason.as_str()).collect();
        assert_eq!(events, ["Seen", "Old"]);
        assert_eq!(answer.answer.requeue_after, Some(3_600_000));
        assert_eq!(answer.reads.len(), 3, "{:?}", answer.reads);
        let levels: Vec<_> = answer.log.iter().map(|line| line.level).collect();
        let all = [
            LogLevel::Trace,
            LogLevel::Debug,
            LogLevel::Info,
            LogLevel::Warn,
            LogLevel::Error,
        ];
        assert_eq!(levels, all);
        assert_eq!(answer.log[2].message, "vase at level info");
        assert_eq!(answer.log[2].fields, [("size".to_owned(), "3".to_owned())]);
    }

    #[test]
    fn its_failures_are_told_as_they_were() {
        let relic = relic();
        let failed = |does: &str| {
            let failed = relic
                .clone()
                .after_failures(7)
                .reconcile(&vase(&json!({"does": does})))
                .unwrap_err();
            failed.failure
        };
        let transient = failed("fail-transiently");
        assert_eq!(
            (transient.message.as_str(), transient.retry),
            ("not yet, attempt 7", Retry::Backoff)
        );
        let permanent = failed("fail-permanently");
        assert_eq!((permanent.message.as_str(), permanent.retry), ("never", Retry::Change));
        assert_eq!(failed("trap").blame, Blame::Guest);
    }

    #[test]
    fn its_finalizer_waits_and_lets_go() {
        let vase = vase(&json!({}));
        assert!(matches!(relic().finalize(&vase).unwrap(), Finalized::Done));
        let held = relic().with(config_map("vase-hold", &json!({}), &json!({}))).unwrap();
        let Finalized::Pending(pending) = held.finalize(&vase).unwrap() else {
            panic!("it is held");
        };
        pending.assert_matches("ConfigMap", "vase", &json!({"data": {"text": "goes"}}));
    }

    #[test]
    fn its_defaulter_and_its_validator_answer_as_they_did() {
        let relic = relic();
        let completed = relic
            .default(&vase(&json!({})), &Admission::create())
            .unwrap()
            .answer
            .unwrap();
        assert_eq!(completed["spec"]["size"], 1);
        let bare =
            json!({"apiVersion": "frozen.test.dev/v1", "kind": "Relic", "metadata": {"name": "v", "namespace": "a"}});
        let refused = relic.default(&bare, &Admission::create()).unwrap().answer.unwrap_err();
        assert_eq!(
            (refused[0].kind, refused[0].path.as_str()),
            (FieldErrorKind::Required, "spec")
        );

        let judged = |spec: Value, admission: &Admission| relic.validate(&vase(&spec), admission).unwrap().answer;
        assert_eq!(judged(json!({"size": 1}), &Admission::create()), Ok(Vec::new()));
        assert_eq!(
            judged(json!({"size": 11}), &Admission::reconcile()),
            Ok(vec!["more than 10 is much".to_owned()])
        );
        let old = vase(&json!({"size": 9}));
        let update = Admission::update(&old).by("jane", ["people"]);
        for (spec, admission, kind) in [
            (json!({"size": 101}), &Admission::create(), FieldErrorKind::Invalid),
            (json!({"size": 8}), &update, FieldErrorKind::Forbidden),
            (
                json!({"does": "duplicate"}),
                &Admission::create(),
                FieldErrorKind::Duplicate,
            ),
            (
                json!({"does": "get-lost"}),
                &Admission::create(),
                FieldErrorKind::NotFound,
            ),
        ] {
            let errors = judged(spec, admission).unwrap_err();
            assert_eq!(errors[0].kind, kind);
        }
        let errors = judged(json!({"size": 8}), &update).unwrap_err();
        assert_eq!(errors[0].message, "jane may not make it smaller");
    }

    #[test]
    fn its_converter_answers_as_it_did() {
        let relic = relic();
        let converted = relic
            .convert(&vase(&json!({"size": 1})), "frozen.test.dev/v2")
            .unwrap()
            .unwrap();
        assert_eq!(converted["apiVersion"], "frozen.test.dev/v2");
        let refused = relic
            .convert(&vase(&json!({"does": "stay"})), "frozen.test.dev/v2")
            .unwrap();
        assert_eq!(refused.unwrap_err(), "it stays as it is");
    }
}

mod simulated {
    use std::path::PathBuf;

    use pilothouse_end_to_end::components;
    use pilothouse_runtime::HostOptions;
    use pilothouse_sandbox::{PluginComponent, Sandbox};
    use pilothouse_testhost::{Components, RuntimeHost, Tail, unhurried};
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::scenario::{self, Scenario};

    use super::folder;

    /// The frozen components of one version.
    struct Frozen(&'static str);

    impl Components for Frozen {
        fn sandbox(&self) -> Sandbox {
            components::sandbox().clone()
        }

        fn directory(&self) -> PathBuf {
            folder(self.0)
        }

        fn load(&self, name: &str) -> Result<PluginComponent, String> {
            let file = folder(self.0).join(format!("{name}.wasm"));
            components::sandbox().load(&file).map_err(|error| error.to_string())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_component_of_0_1_does_in_a_cluster_what_it_did() {
        let mut host = RuntimeHost::with(Frozen("0.1.0"), HostOptions::default(), unhurried(), Tail::default());
        let scenario = Scenario::read(&folder("0.1.0").join("scenario.yaml")).unwrap();
        let result = scenario::run(&scenario, &Cluster::simulated(), &mut host).await;
        result.unwrap_or_else(|error| panic!("{error}"));
    }
}
