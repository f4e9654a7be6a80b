//! A plugin that owns what its resources say, as they are, with every exception to the life of an object.
//!
//! A `Wish` goes when it is deleted. A `Promise` has a finalizer: while its `holds` is true, what is `lasting` should still
//! exist. At one with `traps` each call traps. The configuration says which kinds the plugin owns, as if that were another
//! version of it.

#![forbid(unsafe_code)]

use pilothouse_plugin::{
    Adopt, Cluster, Controller, ControllerManifest, Failure, Fields, Finalization, Finalizer, Kind, Lifecycle,
    Manifest, Outcome, Plugin, Predecessor, Propagation, Request, Resource, Touch, json,
};
use serde::Deserialize;
use serde_json::Value;

const CRD: &str = include_str!("../crds/wishes.wishes.test.dev.yaml");
const FINALIZER: &str = "wishes.test.dev/promise";

/// The kinds that it may own, by what the configuration calls them; without one all but what has to be asked for.
const OWNABLE: [(&str, Kind); 15] = [
    ("ConfigMap", Kind::new("", "v1", "ConfigMap")),
    ("Namespace", Kind::new("", "v1", "Namespace")),
    ("Service", Kind::new("", "v1", "Service")),
    ("Deployment", Kind::new("apps", "v1", "Deployment")),
    ("Secret", Kind::new("", "v1", "Secret")),
    ("StatefulSet", Kind::new("apps", "v1", "StatefulSet")),
    ("DaemonSet", Kind::new("apps", "v1", "DaemonSet")),
    ("Job", Kind::new("batch", "v1", "Job")),
    ("PersistentVolumeClaim", Kind::new("", "v1", "PersistentVolumeClaim")),
    ("Ingress", Kind::new("networking.k8s.io", "v1", "Ingress")),
    ("NetworkPolicy", Kind::new("networking.k8s.io", "v1", "NetworkPolicy")),
    (
        "HorizontalPodAutoscaler",
        Kind::new("autoscaling", "v2", "HorizontalPodAutoscaler"),
    ),
    ("Pod", Kind::new("", "v1", "Pod")),
    ("Trinket", Kind::new("trinkets.test.dev", "v1alpha1", "Trinket")),
    ("NewTrinket", Kind::new("trinkets.test.dev", "v1", "Trinket")),
];

/// Count of the owned kinds without a configuration.
const USUAL: usize = 4;

/// The plugin.
#[derive(Debug)]
pub struct Wisher;

/// The configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The kinds that are owned; what a resource asks for besides is passed over.
    owns: Option<Vec<String>>,
    /// Those of them that the cluster need not serve.
    optional: Vec<String>,
    /// The namespaces in which they are; none means all.
    places: Vec<String>,
    /// The kinds of its primaries; both without it.
    steers: Option<Vec<String>>,
    /// The definitions that it brings, instead of its own.
    crds: Option<Vec<String>>,
    /// The status that it gives each of its primaries.
    status: Option<Value>,
    /// Set if it reads the status of Promises.
    remembers: bool,
    /// The annotations of which its primaries have one.
    annotations: Vec<String>,
    /// The kinds of its primaries that it does not bring and that the cluster need not serve.
    awaits: Vec<String>,
    /// The finalizer of Promises, if it is another one, or none if the name is empty.
    finalizer: Option<String>,
}

/// Goes when it is deleted.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "wishes.test.dev", version = "v1", kind = "Wish")]
pub struct Wish {
    #[serde(default)]
    #[resource(whole)]
    spec: Spec,
}

/// Has a finalizer.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "wishes.test.dev", version = "v1", kind = "Promise")]
pub struct Promise {
    #[serde(default)]
    #[resource(whole)]
    spec: Spec,
    /// What was said last, if the configuration says that it is looked at.
    status: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    owns: Vec<Owned>,
    holds: bool,
    /// What the status has to say before the resource goes.
    last_words: Option<String>,
    /// Set if every call for the resource traps.
    traps: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the contract")]
struct Owned {
    object: Value,
    #[serde(default)]
    create_only: bool,
    #[serde(default)]
    keep: bool,
    #[serde(default)]
    replace: bool,
    /// Set if it is recreated where the desired object differs.
    #[serde(default)]
    anew: bool,
    /// Set if it is to stay while a Promise holds.
    #[serde(default)]
    lasting: bool,
    #[serde(default)]
    propagation: Option<String>,
    #[serde(default)]
    adopt: bool,
    #[serde(default)]
    yields: Vec<String>,
    #[serde(default)]
    after: Vec<Predecessor>,
    #[serde(default)]
    once: Option<String>,
}

impl Plugin for Wisher {
    type Config = Config;
    type Controllers = (Wishes, Promises);

    fn manifest(config: &Config) -> Manifest {
        let manifest = Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .controller_if(config.steers("Wish"), config.controller::<Wish>("wish"))
        .controller_if(
            config.steers("Promise"),
            config.promises().fields(config.remembers.then_some(".status")),
        )
        .configuration_schema(json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "owns": {"type": "array", "items": {"enum": OWNABLE.map(|(name, _)| name)}},
                "optional": {"type": "array", "items": {"type": "string"}},
                "places": {"type": "array", "items": {"type": "string"}},
                "steers": {"type": "array", "items": {"enum": ["Wish", "Promise"]}},
                "crds": {"type": "array", "items": {"type": "string"}},
                "status": {"type": "object"},
                "remembers": {"type": "boolean"},
                "annotations": {"type": "array", "items": {"type": "string"}},
                "awaits": {"type": "array", "items": {"enum": ["Wish", "Promise"]}},
                "finalizer": {"type": "string"},
            },
        }));
        config.crds().into_iter().fold(manifest, Manifest::crd)
    }
}

pilothouse_plugin::export!(Wisher, finalizer: Promises);

/// The controller of Wishes.
#[derive(Debug)]
pub struct Wishes;

impl Controller for Wishes {
    type Config = Config;
    type Object = Wish;

    fn reconcile(request: Request<Wish, Config>, _: &Cluster) -> Result<Outcome, Failure> {
        Ok(fulfilled(request.object.spec, &request.configuration))
    }
}

/// The controller of Promises.
#[derive(Debug)]
pub struct Promises;

impl Controller for Promises {
    type Config = Config;
    type Object = Promise;

    fn reconcile(request: Request<Promise, Config>, _: &Cluster) -> Result<Outcome, Failure> {
        Ok(fulfilled(request.object.spec, &request.configuration))
    }
}

impl Finalizer for Promises {
    type Config = Config;
    type Object = Promise;

    fn finalize(request: Request<Promise, Config>, _: &Cluster) -> Result<Finalization, Failure> {
        let spec = request.object.spec;
        spec.trap_if_asked();
        if let (false, Some(words)) = (spec.holds, &spec.last_words) {
            let outcome = Outcome::new().status(json!({"words": words}));
            return Ok(Finalization::done_after(outcome, request.object.status.as_ref()));
        }
        if !spec.holds {
            return Ok(Finalization::Done);
        }
        let lasting = spec.owns.into_iter().filter(|owned| owned.lasting);
        Ok(Finalization::Pending(lasting.fold(Outcome::new(), Owned::add_to)))
    }
}

fn fulfilled(spec: Spec, config: &Config) -> Outcome {
    spec.trap_if_asked();
    let owned = spec.owns.into_iter().filter(|owned| config.owns(&owned.object));
    owned.fold(Outcome::new(), Owned::add_to).status(&config.status)
}

impl Spec {
    fn trap_if_asked(&self) {
        assert!(!self.traps, "the resource asks for a trap");
    }
}

impl Owned {
    fn add_to(outcome: Outcome, owned: Self) -> Outcome {
        let Self {
            object,
            create_only,
            keep,
            replace: recreate,
            anew: replace,
            lasting: _,
            propagation,
            adopt,
            yields,
            after,
            once,
        } = owned;
        let lifecycle = Lifecycle {
            create_only,
            keep,
            recreate,
            replace,
            propagation: propagation.map(|policy| match policy.as_str() {
                "Foreground" => Propagation::Foreground,
                "Orphan" => Propagation::Orphan,
                _ => Propagation::Background,
            }),
            adopt: if adopt { Adopt::IfUnowned } else { Adopt::Never },
            yields,
            after,
            once,
        };
        outcome.owned_with(object, lifecycle)
    }
}

impl Config {
    fn owns(&self, object: &Value) -> bool {
        let place = &object["metadata"]["namespace"];
        let is_of = |(_, kind): (_, Kind)| object["apiVersion"] == kind.api_version() && object["kind"] == kind.kind;
        self.owned().any(is_of) && (self.places.is_empty() || self.places.iter().any(|it| place == it))
    }

    fn steers(&self, kind: &str) -> bool {
        let steers = self.steers.as_ref();
        steers.is_none_or(|kinds| kinds.iter().any(|it| it == kind))
    }

    fn awaits(&self, kind: &str) -> bool {
        self.awaits.iter().any(|it| it == kind)
    }

    fn promises(&self) -> ControllerManifest {
        let controller = self.controller::<Promise>("promise");
        match self.finalizer.as_deref() {
            Some("") => controller,
            finalizer => controller.finalizer(finalizer.unwrap_or(FINALIZER)),
        }
    }

    fn crds(&self) -> Vec<String> {
        if let Some(crds) = &self.crds {
            return crds.clone();
        }
        let of_promises = CRD
            .replace("wishes.wishes", "promises.wishes")
            .replace("plural: wishes", "plural: promises")
            .replace("singular: wish", "singular: promise")
            .replace("Wish", "Promise");
        let all = [("Wish", CRD.to_owned()), ("Promise", of_promises)];
        let steered = all
            .into_iter()
            .filter(|(kind, _)| self.steers(kind) && !self.awaits(kind));
        steered.map(|(_, crd)| crd).collect()
    }

    fn owned(&self) -> impl Iterator<Item = (&'static str, Kind)> {
        let is_owned = |index: usize, name: &str| match &self.owns {
            Some(owned) => owned.iter().any(|it| it == name),
            None => index < USUAL,
        };
        let kinds = OWNABLE.into_iter().enumerate();
        kinds.filter_map(move |(index, (name, kind))| is_owned(index, name).then_some((name, kind)))
    }

    fn controller<Primary: Resource + Fields>(&self, name: &str) -> ControllerManifest {
        let touches = self.owned().map(|(name, kind)| {
            let touch = Touch::new(kind).owned().anywhere().in_namespaces(&self.places);
            let is_optional = self.optional.iter().any(|it| it == name);
            if is_optional { touch.optional() } else { touch }
        });
        let controller = ControllerManifest::of::<Primary>(name)
            .options(["replace", "propagation", "adopt", "yield", "after", "once"])
            .with_any_annotation(self.annotations.clone());
        let is_awaited = self.awaits(Primary::KIND.kind);
        let controller = if is_awaited { controller.optional() } else { controller };
        touches.fold(controller, ControllerManifest::touches)
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_plugin::testing::{FakeCluster, Finalized, describe};

    use super::*;

    fn promise(spec: &Value) -> Value {
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Promise", "metadata": {"name": "it", "namespace": "here"},
            "spec": spec,
        })
    }

    fn config_map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
    }

    #[test]
    fn a_primary_with_one_of_the_annotations_is_selected() {
        let cluster = FakeCluster::new().configuration(json!({"annotations": ["a", "b"]}));
        let mut promise = promise(&json!({"owns": [{"object": config_map("x")}]}));
        promise["metadata"]["annotations"] = json!({"b": ""});
        let answer = cluster.reconcile::<Wisher>(promise).unwrap();
        assert_eq!(answer.desired.len(), 1);
    }

    #[test]
    #[should_panic(expected = "the manifest's filter asks for one of the annotations a, b")]
    fn a_primary_with_none_of_the_annotations_is_refused() {
        let cluster = FakeCluster::new().configuration(json!({"annotations": ["a", "b"]}));
        let _ = cluster.reconcile::<Wisher>(promise(&json!({})));
    }

    fn service(namespace: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "it", "namespace": namespace}})
    }

    #[test]
    fn what_is_asked_for_is_owned_as_it_is() {
        let spec = json!({"owns": [
            {"object": service("here"), "keep": true}, {"object": config_map("a"), "replace": true},
            {"object": config_map("b"), "anew": true},
        ]});
        let desired = FakeCluster::new().reconcile::<Wisher>(promise(&spec)).unwrap().desired;
        assert_eq!(desired.len(), 3);
        assert_eq!(
            (&desired[0].object, &desired[1].object),
            (&service("here"), &config_map("a"))
        );
        let none = Lifecycle::default;
        assert_eq!(desired[0].lifecycle, Lifecycle { keep: true, ..none() });
        assert_eq!(
            desired[1].lifecycle,
            Lifecycle {
                recreate: true,
                ..none()
            }
        );
        assert_eq!(
            desired[2].lifecycle,
            Lifecycle {
                replace: true,
                ..none()
            }
        );
    }

    #[test]
    fn what_lasts_should_exist_while_the_promise_holds() {
        let mut spec =
            json!({"holds": true, "owns": [{"object": config_map("a")}, {"object": config_map("b"), "lasting": true}]});
        let finalize = |spec: &Value| FakeCluster::new().finalize::<Wisher>(promise(spec)).unwrap();
        let Finalized::Pending(answer) = finalize(&spec) else {
            panic!("it holds")
        };
        assert_eq!(answer.objects(), ["ConfigMap b"]);
        spec["holds"] = json!(false);
        assert_eq!(finalize(&spec), Finalized::Done);
    }

    #[test]
    fn another_configuration_owns_other_kinds() {
        let config = json!({"owns": ["Service", "Trinket"], "places": ["here"]});
        let manifest = describe::<Wisher>(Some(&config)).unwrap();
        let touches = manifest["controllers"][0]["touches"].as_array().unwrap();
        let kinds: Vec<_> = touches.iter().map(|touch| touch["kind"]["kind"].clone()).collect();
        assert_eq!(
            (kinds, &touches[0]["namespaces"]),
            (vec![json!("Service"), json!("Trinket")], &json!(["here"]))
        );
        let objects = [config_map("a"), service("here"), service("there")];
        let spec = json!({"owns": objects.map(|object| json!({"object": object}))});
        let cluster = FakeCluster::new().configuration(config);
        let desired = cluster.reconcile::<Wisher>(promise(&spec)).unwrap().desired;
        assert_eq!(desired.len(), 1);
        assert_eq!(desired[0].object, service("here"));
    }

    #[test]
    fn each_kind_has_a_definition_and_one_has_a_finalizer() {
        let manifest = describe::<Wisher>(None).unwrap();
        assert_eq!(manifest["controllers"][0]["finalizer"], Value::Null);
        assert_eq!(manifest["controllers"][1]["finalizer"], FINALIZER);
        let crd = manifest["crds"][1].as_str().unwrap();
        assert!(crd.contains("name: promises.wishes.test.dev") && !crd.contains("Wish"));
    }

    #[test]
    fn the_configuration_switches_controllers_off() {
        let manifest = describe::<Wisher>(Some(&json!({"steers": ["Wish"]}))).unwrap();
        assert_eq!(manifest["controllers"].as_array().unwrap().len(), 1);
        assert_eq!(manifest["controllers"][0]["name"], "wish");
        assert_eq!(manifest["crds"].as_array().unwrap().len(), 1);
    }
}
