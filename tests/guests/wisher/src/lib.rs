//! A plugin that owns what its resources say, as they are, with every exception to the life of an object.
//!
//! A `Wish` goes when it is deleted. A `Promise` has a finalizer: while its `holds` is true, what is `lasting` should still
//! exist. At one with `traps` each call traps. The configuration says which kinds the plugin owns, as if that were another
//! version of it.

#![forbid(unsafe_code)]

use pilothouse_plugin::raw::types::{Desired, Failure, Lifecycle, Outcome, Ownership, Request};
use pilothouse_plugin::raw::{Finalization, RawFinalizer, RawPlugin};
use pilothouse_plugin::{ControllerManifest, Kind, Manifest, Touch};
use serde::Deserialize;
use serde_json::{Value, json};

const CRD: &str = include_str!("../crds/wishes.wishes.test.dev.yaml");
const FINALIZER: &str = "wishes.test.dev/promise";

/// The kinds that it may own, by what the configuration calls them; without one all but what has to be asked for.
const OWNABLE: [(&str, Kind); 6] = [
    ("ConfigMap", Kind::new("", "v1", "ConfigMap")),
    ("Namespace", Kind::new("", "v1", "Namespace")),
    ("Service", Kind::new("", "v1", "Service")),
    ("Deployment", Kind::new("apps", "v1", "Deployment")),
    ("Trinket", Kind::new("trinkets.test.dev", "v1alpha1", "Trinket")),
    ("NewTrinket", Kind::new("trinkets.test.dev", "v1", "Trinket")),
];

/// How many of them are owned without a configuration.
const USUAL: usize = 4;

/// The plugin.
#[derive(Debug)]
pub struct Wisher;

/// The configuration.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// The kinds that are owned; what a resource asks for besides is passed over.
    owns: Option<Vec<String>>,
    /// The namespaces in which they are; none means all.
    places: Vec<String>,
    /// The kinds of its primaries; both without it.
    steers: Option<Vec<String>>,
    /// The definitions that it brings, instead of its own.
    crds: Option<Vec<String>>,
    /// The status that it gives each of its primaries.
    status: Option<Value>,
}

impl Config {
    fn read(given: Option<&str>) -> Result<Self, String> {
        match given {
            None | Some("" | "null") => Ok(Self::default()),
            Some(given) => serde_json::from_str(given).map_err(|error| format!("configuration: {error}")),
        }
    }

    fn owns(&self, object: &Value) -> bool {
        let place = &object["metadata"]["namespace"];
        let is_of = |kind: Kind| object["apiVersion"] == kind.api_version() && object["kind"] == kind.kind;
        self.owned().any(is_of) && (self.places.is_empty() || self.places.iter().any(|it| place == it))
    }

    fn steers(&self, kind: &str) -> bool {
        let steers = self.steers.as_ref();
        steers.is_none_or(|kinds| kinds.iter().any(|it| it == kind))
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
        let steered = all.into_iter().filter(|(kind, _)| self.steers(kind));
        steered.map(|(_, crd)| crd).collect()
    }

    fn owned(&self) -> impl Iterator<Item = Kind> {
        let is_owned = |index: usize, name: &str| match &self.owns {
            Some(owned) => owned.iter().any(|it| it == name),
            None => index < USUAL,
        };
        let kinds = OWNABLE.into_iter().enumerate();
        kinds.filter_map(move |(index, (name, kind))| is_owned(index, name).then_some(kind))
    }
}

#[derive(Deserialize)]
struct Wish {
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    owns: Vec<Owned>,
    holds: bool,
    /// Whether every call for the resource traps.
    traps: bool,
}

#[derive(Deserialize)]
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
    /// Whether it should still exist while a Promise holds.
    #[serde(default)]
    lasting: bool,
}

impl RawPlugin for Wisher {
    fn describe(config: Option<String>) -> Result<String, String> {
        Ok(manifest(&Config::read(config.as_deref())?))
    }

    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        let Spec {
            mut owns,
            holds: _,
            traps: _,
        } = spec_of(&request)?;
        let config = Config::read(Some(&request.configuration)).map_err(Failure::Permanent)?;
        owns.retain(|owned| config.owns(&owned.object));
        Ok(Outcome {
            status: config.status.as_ref().map(Value::to_string),
            ..outcome(owns)
        })
    }
}

impl RawFinalizer for Wisher {
    fn finalize(request: Request) -> Result<Finalization, Failure> {
        let Spec {
            mut owns,
            holds,
            traps: _,
        } = spec_of(&request)?;
        if !holds {
            return Ok(Finalization::Done);
        }
        owns.retain(|owned| owned.lasting);
        Ok(Finalization::Pending(outcome(owns)))
    }
}

pilothouse_plugin::export_raw!(Wisher, finalizer);

fn spec_of(request: &Request) -> Result<Spec, Failure> {
    match serde_json::from_str(&request.object) {
        Ok(Wish { spec }) if spec.traps => panic!("the resource asks for a trap"),
        Ok(Wish { spec }) => Ok(spec),
        Err(error) => Err(Failure::Permanent(format!(
            "the resource cannot be read: {error}; correct the field"
        ))),
    }
}

fn outcome(owns: Vec<Owned>) -> Outcome {
    let desired = owns.into_iter().map(|owned| {
        let Owned {
            object,
            create_only,
            keep,
            replace,
            lasting: _,
        } = owned;
        let flags = [
            (create_only, Lifecycle::CREATE_ONLY),
            (keep, Lifecycle::KEEP),
            (replace, Lifecycle::RECREATE),
        ];
        let set = flags.into_iter().filter(|(set, _)| *set);
        Desired {
            object: object.to_string(),
            ownership: Ownership::Owned,
            lifecycle: set.fold(Lifecycle::empty(), |all, (_, flag)| all | flag),
            options: "{}".to_owned(),
        }
    });
    Outcome {
        desired: desired.collect(),
        status: None,
        conditions: Vec::new(),
        events: Vec::new(),
        requeue_after: None,
        extensions: None,
    }
}

fn manifest(config: &Config) -> String {
    let controller = |name, kind| {
        let controller = ControllerManifest::new(name, Kind::new("wishes.test.dev", "v1", kind)).fields([".spec"]);
        let touches = config
            .owned()
            .map(|kind| Touch::new(kind).owned().anywhere().in_namespaces(&config.places));
        touches.fold(controller, ControllerManifest::touches)
    };
    let mut manifest = Manifest::new(
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_DESCRIPTION"),
    );
    if config.steers("Wish") {
        manifest = manifest.controller(controller("wish", "Wish"));
    }
    if config.steers("Promise") {
        manifest = manifest.controller(controller("promise", "Promise").finalizer(FINALIZER));
    }
    for crd in config.crds() {
        manifest = manifest.crd(crd);
    }
    let manifest = manifest.configuration_schema(json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "owns": {"type": "array", "items": {"enum": OWNABLE.map(|(name, _)| name)}},
            "places": {"type": "array", "items": {"type": "string"}},
            "steers": {"type": "array", "items": {"enum": ["Wish", "Promise"]}},
            "crds": {"type": "array", "items": {"type": "string"}},
            "status": {"type": "object"},
        },
    }));
    serde_json::to_string(&manifest).expect("a manifest has only text for keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(spec: &Value) -> Request {
        let object = json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Promise", "metadata": {"name": "it", "namespace": "here"},
            "spec": spec,
        });
        Request {
            object: object.to_string(),
            configuration: "{}".to_owned(),
            attempt: 0,
            extensions: "{}".to_owned(),
        }
    }

    fn objects(outcome: &Outcome) -> Vec<&str> {
        outcome.desired.iter().map(|desired| desired.object.as_str()).collect()
    }

    #[test]
    fn what_is_asked_for_is_owned_as_it_is() {
        let object = |kind: &str| json!({"apiVersion": "v1", "kind": kind});
        let spec = json!({"owns": [{"object": object("Service"), "keep": true}, {"object": object("ConfigMap"), "replace": true}]});
        let outcome = Wisher::reconcile(request(&spec)).unwrap();
        assert_eq!(
            objects(&outcome),
            ["Service", "ConfigMap"].map(|kind| object(kind).to_string())
        );
        assert_eq!(outcome.desired[0].lifecycle, Lifecycle::KEEP);
        assert_eq!(outcome.desired[1].lifecycle, Lifecycle::RECREATE);
    }

    #[test]
    fn what_lasts_should_exist_while_the_promise_holds() {
        let mut spec =
            json!({"holds": true, "owns": [{"object": {"kind": "A"}}, {"object": {"kind": "B"}, "lasting": true}]});
        let Ok(Finalization::Pending(outcome)) = Wisher::finalize(request(&spec)) else {
            panic!("it holds")
        };
        assert_eq!(objects(&outcome), [r#"{"kind":"B"}"#]);
        spec["holds"] = json!(false);
        assert!(matches!(Wisher::finalize(request(&spec)), Ok(Finalization::Done)));
    }

    #[test]
    fn another_configuration_owns_other_kinds() {
        let config = json!({"owns": ["Service", "Trinket"], "places": ["here"]}).to_string();
        let manifest: Value = serde_json::from_str(&Wisher::describe(Some(config.clone())).unwrap()).unwrap();
        let touches = manifest["controllers"][0]["touches"].as_array().unwrap();
        let kinds: Vec<_> = touches.iter().map(|touch| touch["kind"]["kind"].clone()).collect();
        assert_eq!(
            (kinds, &touches[0]["namespaces"]),
            (vec![json!("Service"), json!("Trinket")], &json!(["here"]))
        );
        let service = |place: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": place}});
        let objects_of = [
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
            service("here"),
            service("there"),
        ];
        let spec = json!({"owns": objects_of.map(|object| json!({"object": object}))});
        let asked = Request {
            configuration: config,
            ..request(&spec)
        };
        assert_eq!(
            objects(&Wisher::reconcile(asked).unwrap()),
            [service("here").to_string()]
        );
    }

    #[test]
    fn each_kind_has_a_definition_and_one_has_a_finalizer() {
        let manifest: Value = serde_json::from_str(&Wisher::describe(None).unwrap()).unwrap();
        assert_eq!(manifest["controllers"][0]["finalizer"], Value::Null);
        assert_eq!(manifest["controllers"][1]["finalizer"], FINALIZER);
        let crd = manifest["crds"][1].as_str().unwrap();
        assert!(crd.contains("name: promises.wishes.test.dev") && !crd.contains("Wish"));
    }
}
