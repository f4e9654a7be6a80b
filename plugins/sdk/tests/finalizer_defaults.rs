//! A finalizer of a kind with a defaulter sees the defaults, as the reconciler does.

use pilothouse_plugin::testing::{FakeCluster, Finalized};
use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Defaulter, Failure, FieldError, Fields, Finalization, Finalizer, Kind,
    Manifest, NoConfig, ObjectMeta, Outcome, Plugin, Request, Resource, Review, json,
};
use serde_json::Value;

#[derive(serde::Deserialize, Resource)]
#[resource(group = "example.com", version = "v1", kind = "Volume")]
struct Volume {
    metadata: ObjectMeta,
    spec: VolumeSpec,
}

#[derive(serde::Deserialize, Fields)]
struct VolumeSpec {
    policy: Option<String>,
}

struct Volumes;

impl Plugin for Volumes {
    type Config = NoConfig;
    type Controllers = Self;

    fn manifest(_: &NoConfig) -> Manifest {
        let controller = ControllerManifest::of::<Volume>("volume").finalizer("example.com/volume");
        Manifest::new("volumes", "0.1.0", "Volumes.").controller(controller)
    }
}

impl Controller for Volumes {
    type Config = NoConfig;
    type Object = Volume;

    fn reconcile(_: Request<Volume>, _: &Cluster) -> Result<Outcome, Failure> {
        Ok(Outcome::new())
    }
}

impl Defaulter for Volumes {
    type Config = NoConfig;
    const KIND: Kind = Volume::KIND;

    fn apply_defaults(review: Review<Value>, _: &Cluster) -> Result<Value, Vec<FieldError>> {
        let mut object = review.object;
        if object["spec"]["policy"] == "Refused" {
            return Err(vec![FieldError::invalid("spec.policy", "is none")]);
        }
        if object["spec"]["policy"].is_null() {
            object["spec"]["policy"] = "Delete".into();
        }
        Ok(object)
    }
}

impl Finalizer for Volumes {
    type Config = NoConfig;
    type Object = Volume;

    fn finalize(request: Request<Volume>, _: &Cluster) -> Result<Finalization, Failure> {
        let Volume { metadata, spec } = request.object;
        match spec.policy.as_deref() {
            Some("Delete") => Ok(Finalization::Done),
            policy => Err(Failure::permanent(format!(
                "{} has the policy {policy:?}",
                metadata.name
            ))),
        }
    }
}

pilothouse_plugin::export!(Volumes, finalizer: Volumes, defaulter: Volumes);

fn volume(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Volume", "metadata": {"name": "v", "namespace": "a"}, "spec": spec})
}

#[test]
fn the_defaults_are_filled_in_before_an_object_is_finalized() {
    let finalize = |spec| FakeCluster::new().finalize_with_defaults::<Volumes>(volume(&spec));
    assert_eq!(finalize(json!({})), Ok(Finalized::Done));
    let as_it_is = FakeCluster::new().finalize::<Volumes>(volume(&json!({})));
    assert!(as_it_is.is_err(), "without them it would be another answer");
}

#[test]
fn what_the_defaulter_refuses_is_finalized_as_it_is() {
    let refused = FakeCluster::new().finalize_with_defaults::<Volumes>(volume(&json!({"policy": "Refused"})));
    assert_eq!(refused, Err(Failure::permanent("v has the policy Some(\"Refused\")")));
}
