//! A plugin that contributes to other people's objects, and owns some: what, each of its resources says as it is.
//!
//! Its kind is `Share`, or `Loan` where the configuration says so: two plugins that are the same but for their names.

#![forbid(unsafe_code)]

use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Fields, Kind, Manifest, Outcome, Plugin, Request, Resource,
    Touch, json,
};
use serde::Deserialize;
use serde_json::Value;

const CRD: &str = include_str!("../crds/shares.sharing.test.dev.yaml");

/// The kinds that it contributes to, besides its own.
const CONTRIBUTED: [&str; 2] = ["ConfigMap", "Service"];

/// The plugin.
#[derive(Debug)]
pub struct Sharer;

/// The configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    kind: PrimaryKind,
    /// The kinds that it contributes to, besides its own; all without it. What a resource asks for besides is passed over.
    contributes: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum PrimaryKind {
    #[default]
    Share,
    Loan,
}

/// The default primary kind.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "sharing.test.dev", version = "v1", kind = "Share")]
pub struct Share {
    #[serde(default)]
    #[resource(whole)]
    spec: Spec,
}

/// The other primary kind.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "sharing.test.dev", version = "v1", kind = "Loan")]
pub struct Loan {
    #[serde(default)]
    #[resource(whole)]
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    contributes: Vec<Value>,
    owns: Vec<Value>,
    fails: Option<String>,
}

impl Plugin for Sharer {
    type Config = Config;
    type Controllers = (Shares, Loans);

    fn manifest(config: &Config) -> Manifest {
        Manifest::new(
            env!("CARGO_PKG_NAME"),
            env!("CARGO_PKG_VERSION"),
            env!("CARGO_PKG_DESCRIPTION"),
        )
        .controller_if(config.kind == PrimaryKind::Share, config.controller::<Share>())
        .controller_if(config.kind == PrimaryKind::Loan, config.controller::<Loan>())
        .crd(config.kind.crd())
        .configuration_schema(json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "kind": {"enum": ["Share", "Loan"]},
                "contributes": {"type": "array", "items": {"enum": CONTRIBUTED}},
            },
        }))
    }
}

pilothouse_plugin::export!(Sharer);

/// The controller of Shares.
#[derive(Debug)]
pub struct Shares;

impl Controller for Shares {
    type Config = Config;
    type Object = Share;

    fn reconcile(request: Request<Share, Config>, _: &Cluster) -> Result<Outcome, Failure> {
        share(request.object.spec, &request.configuration)
    }
}

/// The controller of Loans.
#[derive(Debug)]
pub struct Loans;

impl Controller for Loans {
    type Config = Config;
    type Object = Loan;

    fn reconcile(request: Request<Loan, Config>, _: &Cluster) -> Result<Outcome, Failure> {
        share(request.object.spec, &request.configuration)
    }
}

fn share(spec: Spec, config: &Config) -> Result<Outcome, Failure> {
    if let Some(words) = spec.fails {
        return Err(Failure::transient(words));
    }
    let contributed = spec.contributes.into_iter().filter(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        !CONTRIBUTED.contains(&kind) || config.contributes(kind)
    });
    let outcome = contributed.fold(Outcome::new(), Outcome::contributed);
    Ok(spec.owns.into_iter().fold(outcome, Outcome::owned))
}

impl Config {
    fn contributes(&self, kind: &str) -> bool {
        let kinds = self.contributes.as_ref();
        kinds.is_none_or(|kinds| kinds.iter().any(|it| it == kind))
    }

    fn controller<Primary: Resource + Fields>(&self) -> ControllerManifest {
        let mut config_maps = Touch::new(Kind::new("", "v1", "ConfigMap")).owned().anywhere();
        if self.contributes("ConfigMap") {
            config_maps = config_maps.contributed();
        }
        let controller = ControllerManifest::of::<Primary>("sharer")
            // Whoever wears this label is left alone.
            .with_labels("off!=yes")
            .touches(config_maps)
            .contributes_with::<Primary>(Touch::anywhere);
        if self.contributes("Service") {
            controller.touches(Touch::new(Kind::new("", "v1", "Service")).contributed().anywhere())
        } else {
            controller
        }
    }
}

impl PrimaryKind {
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

#[cfg(test)]
mod tests {
    use pilothouse_plugin::testing::{Answer, FakeCluster, Ownership, describe};

    use super::*;

    fn reconcile(kind: &str, spec: &Value) -> Result<Answer, Failure> {
        let object = json!({
            "apiVersion": "sharing.test.dev/v1", "kind": kind, "metadata": {"name": "it", "namespace": "here"},
            "spec": spec,
        });
        let cluster = FakeCluster::new().configuration(json!({"kind": kind}));
        cluster.reconcile::<Sharer>(object)
    }

    #[test]
    fn what_is_asked_for_is_desired_as_it_is() {
        let object = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}});
        let spec = json!({"contributes": [object("Service")], "owns": [object("ConfigMap")]});
        for kind in ["Share", "Loan"] {
            let answer = reconcile(kind, &spec).unwrap();
            let desired = answer
                .desired
                .into_iter()
                .map(|desired| (desired.object, desired.ownership));
            assert_eq!(
                desired.collect::<Vec<_>>(),
                [
                    (object("Service"), Ownership::Contributed),
                    (object("ConfigMap"), Ownership::Owned)
                ]
            );
            assert_eq!(
                reconcile(kind, &json!({"fails": "no"})).unwrap_err(),
                Failure::transient("no")
            );
        }
    }

    #[test]
    fn the_other_kind_has_a_definition_of_its_own() {
        let manifest = describe::<Sharer>(Some(&json!({"kind": "Loan"}))).unwrap();
        assert_eq!(manifest["controllers"].as_array().unwrap().len(), 1);
        assert_eq!(manifest["controllers"][0]["kind"]["kind"], "Loan");
        let crd = manifest["crds"][0].as_str().unwrap();
        assert!(crd.contains("name: loans.sharing.test.dev") && !crd.contains("Share"));
        assert!(describe::<Sharer>(Some(&json!("nonsense"))).is_err());
    }
}
