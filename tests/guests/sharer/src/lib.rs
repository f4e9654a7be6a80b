//! A plugin that contributes to other people's objects, and owns some: what, each of its resources says as it is.
//!
//! Its kind is `Share`, or `Loan` where the configuration says so: two plugins that are the same but for their names.

#![forbid(unsafe_code)]

use pilothouse_plugin::raw::RawPlugin;
use pilothouse_plugin::raw::types::{Desired, Failure, Lifecycle, Outcome, Ownership, Request};
use pilothouse_plugin::{ControllerManifest, Kind, Manifest, Touch};
use serde::Deserialize;
use serde_json::{Value, json};

const CRD: &str = include_str!("../crds/shares.sharing.test.dev.yaml");

/// The kinds that it contributes to, besides its own.
const CONTRIBUTED: [&str; 2] = ["ConfigMap", "Service"];

/// The plugin.
#[derive(Debug)]
pub struct Sharer;

/// The configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    kind: PrimaryKind,
    /// The kinds that it contributes to, besides its own; all without it. What a resource asks for besides is passed over.
    contributes: Option<Vec<String>>,
}

impl Config {
    fn read(given: Option<&str>) -> Result<Self, String> {
        match given {
            None | Some("" | "null") => Ok(Self::default()),
            Some(given) => serde_json::from_str(given).map_err(|error| format!("configuration: {error}")),
        }
    }

    fn contributes(&self, kind: &str) -> bool {
        let kinds = self.contributes.as_ref();
        kinds.is_none_or(|kinds| kinds.iter().any(|it| it == kind))
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum PrimaryKind {
    #[default]
    Share,
    Loan,
}

impl PrimaryKind {
    fn kind(self) -> Kind {
        match self {
            Self::Share => Kind::new("sharing.test.dev", "v1", "Share"),
            Self::Loan => Kind::new("sharing.test.dev", "v1", "Loan"),
        }
    }

    fn crd(self) -> String {
        match self {
            Self::Share => CRD.to_owned(),
            Self::Loan => CRD
                .replace("shares", "loans")
                .replace("singular: share", "singular: loan")
                .replace("Share", "Loan"),
        }
    }
}

#[derive(Deserialize)]
struct Share {
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    contributes: Vec<Value>,
    owns: Vec<Value>,
    fails: Option<String>,
}

impl RawPlugin for Sharer {
    fn describe(config: Option<String>) -> Result<String, String> {
        Ok(manifest(&Config::read(config.as_deref())?))
    }

    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        let Share { spec } = serde_json::from_str(&request.object)
            .map_err(|error| Failure::Permanent(format!("the resource cannot be read: {error}; correct the field")))?;
        if let Some(words) = spec.fails {
            return Err(Failure::Transient(words));
        }
        let config = Config::read(Some(&request.configuration)).map_err(Failure::Permanent)?;
        let is_declared = |object: &&Value| {
            let kind = object["kind"].as_str().unwrap_or_default();
            !CONTRIBUTED.contains(&kind) || config.contributes(kind)
        };
        let contributed = spec
            .contributes
            .iter()
            .filter(is_declared)
            .map(|object| (object, Ownership::Contributed));
        let owned = spec.owns.iter().map(|object| (object, Ownership::Owned));
        let desired = contributed.chain(owned).map(|(object, ownership)| Desired {
            object: object.to_string(),
            ownership,
            lifecycle: Lifecycle::empty(),
            options: "{}".to_owned(),
        });
        Ok(Outcome {
            desired: desired.collect(),
            status: None,
            conditions: Vec::new(),
            events: Vec::new(),
            requeue_after: None,
            extensions: None,
        })
    }
}

pilothouse_plugin::export_raw!(Sharer);

fn manifest(config: &Config) -> String {
    let primary = config.kind;
    let mut config_maps = Touch::new(Kind::new("", "v1", "ConfigMap")).owned().anywhere();
    if config.contributes("ConfigMap") {
        config_maps = config_maps.contributed();
    }
    let mut controller = ControllerManifest::new("sharer", primary.kind())
        .fields([".spec"])
        // Whoever wears this label is left alone.
        .with_labels("off!=yes")
        .touches(config_maps)
        .touches(Touch::new(primary.kind()).contributed().anywhere());
    if config.contributes("Service") {
        controller = controller.touches(Touch::new(Kind::new("", "v1", "Service")).contributed().anywhere());
    }
    let manifest = Manifest::new(
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_DESCRIPTION"),
    )
    .controller(controller)
    .crd(primary.crd())
    .configuration_schema(json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "kind": {"enum": ["Share", "Loan"]},
            "contributes": {"type": "array", "items": {"enum": CONTRIBUTED}},
        },
    }));
    serde_json::to_string(&manifest).expect("a manifest has only text for keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reconcile(spec: &Value) -> Result<Outcome, Failure> {
        let object = json!({
            "apiVersion": "sharing.test.dev/v1", "kind": "Share", "metadata": {"name": "it", "namespace": "here"},
            "spec": spec,
        });
        Sharer::reconcile(Request {
            object: object.to_string(),
            configuration: "{}".to_owned(),
            attempt: 0,
            extensions: "{}".to_owned(),
        })
    }

    #[test]
    fn what_is_asked_for_is_desired_as_it_is() {
        let outcome = reconcile(&json!({"contributes": [{"kind": "A"}], "owns": [{"kind": "B"}]})).unwrap();
        let desired: Vec<_> = outcome
            .desired
            .iter()
            .map(|desired| (desired.object.as_str(), desired.ownership))
            .collect();
        assert_eq!(
            desired,
            [
                (r#"{"kind":"A"}"#, Ownership::Contributed),
                (r#"{"kind":"B"}"#, Ownership::Owned)
            ]
        );
        assert!(matches!(reconcile(&json!({"fails": "no"})), Err(Failure::Transient(words)) if words == "no"));
    }

    #[test]
    fn the_other_kind_has_a_definition_of_its_own() {
        let manifest = Sharer::describe(Some(json!({"kind": "Loan"}).to_string())).unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        assert_eq!(manifest["controllers"][0]["kind"]["kind"], "Loan");
        let crd = manifest["crds"][0].as_str().unwrap();
        assert!(crd.contains("name: loans.sharing.test.dev") && !crd.contains("Share"));
        assert!(Sharer::describe(Some("nonsense".to_owned())).is_err());
    }
}
