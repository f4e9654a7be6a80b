//! The fake cluster checks a plugin's description before it calls it, which is the component's.

use pilothouse_plugin::testing::{FakeCluster, describe};
use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Defaulter, Failure, FieldError, Finalization, Finalizer, Kind, Manifest,
    NoConfig, Outcome, Plugin, Request, Resource, Review, Touch, Validator, export,
};
use serde_json::{Value, json};

const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap");

#[derive(serde::Deserialize)]
struct Web {}

#[derive(serde::Deserialize)]
struct Stream {}

impl Resource for Web {
    const KIND: Kind = Kind::new("example.com", "v1", "Web");
}

impl Resource for Stream {
    const KIND: Kind = Kind::new("example.com", "v1", "Stream");
}

/// A CRD as people write it, with this status.
fn crd(status: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: webs.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {{kind: Web, plural: webs}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {{type: object, properties: {{size: {{type: integer}}}}}}
          status: {status}
"
    )
}

const OPEN: &str = "{type: object, x-kubernetes-preserve-unknown-fields: true}";

fn web() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "w", "namespace": "a"}})
}

/// A plugin that exports nothing but its reconciler, with this manifest.
macro_rules! plugin {
    ($plugin:ident, $manifest:expr) => {
        struct $plugin;

        impl Plugin for $plugin {
            type Config = NoConfig;
            type Controllers = Self;

            fn manifest(_: &NoConfig) -> Manifest {
                let with: fn(ControllerManifest) -> Manifest = $manifest;
                with(ControllerManifest::of::<Web>("web"))
            }
        }

        impl Controller for $plugin {
            type Config = NoConfig;
            type Object = Web;

            fn reconcile(_: Request<Web>, _: &Cluster) -> Result<Outcome, Failure> {
                Ok(Outcome::new())
            }
        }
    };
}

fn manifest() -> Manifest {
    Manifest::new("webs", "0.1.0", "Webs.")
}

plugin!(Fitting, |web| manifest()
    .controller(web.fields([".spec.size"]))
    .crd(crd(OPEN)));
export!(Fitting);

plugin!(Tight, |web| manifest()
    .controller(web)
    .crd(crd("{type: object, properties: {}}")));
export!(Tight);

plugin!(Misspelt, |web| manifest()
    .controller(web.fields([".spec.sise"]))
    .crd(crd(OPEN)));
export!(Misspelt);

plugin!(Unexported, |web| manifest()
    .controller(web.finalizer("example.com/web")));
export!(Unexported);

plugin!(Clustered, |web| manifest().controller(web.touches(
    Touch::new(Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRole")).owned()
)));
export!(Clustered);

plugin!(NoYaml, |web| manifest().controller(web).crd("a: b: c"));
export!(NoYaml);

#[test]
fn a_description_that_agrees_with_itself_passes() {
    assert_eq!(FakeCluster::new().reconcile::<Fitting>(web()).unwrap().status, None);
}

#[test]
#[should_panic(
    expected = "the CRD of Web does not take .status.conditions, .status.observedGeneration as the host writes it"
)]
fn a_status_without_the_hosts_fields_fails_the_test() {
    let _ = FakeCluster::new().reconcile::<Tight>(web());
}

#[test]
#[should_panic(expected = ".spec has no sise; is size meant?")]
fn a_field_that_the_crd_does_not_have_fails_the_test() {
    let _ = FakeCluster::new().reconcile::<Misspelt>(web());
}

#[test]
#[should_panic(expected = "names a finalizer, but the component does not export the interface finalizer")]
fn a_finalizer_that_is_not_exported_fails_the_test() {
    let _ = FakeCluster::new().reconcile::<Unexported>(web());
}

#[test]
#[should_panic(expected = "in the namespace of its primaries, but ClusterRole is cluster-scoped")]
fn a_cluster_scoped_kind_in_a_namespace_fails_the_test() {
    let _ = FakeCluster::new().reconcile::<Clustered>(web());
}

#[test]
#[should_panic(expected = "crds[0] of the manifest is not YAML")]
fn a_crd_that_is_no_yaml_fails_the_test() {
    let _ = FakeCluster::new().reconcile::<NoYaml>(web());
}

#[test]
fn a_test_accepts_warnings_by_name() {
    let accepting = FakeCluster::new().accepting(["status-fields", "no-fields"]);
    assert!(accepting.reconcile::<Tight>(web()).is_ok());
}

#[test]
#[should_panic(expected = "warning (status-fields): the CRD of Web does not take")]
fn a_warning_says_the_name_by_which_it_is_accepted() {
    let _ = FakeCluster::new().reconcile::<Tight>(web());
}

#[test]
#[should_panic(expected = "warning (unknown-field): controller web looks at .spec.sise")]
fn other_warnings_than_those_that_are_accepted_fail_the_test() {
    let _ = FakeCluster::new()
        .accepting(["status-fields"])
        .reconcile::<Misspelt>(web());
}

#[test]
#[should_panic(expected = "names \"status-fields\", and the plugin's description has no such warning")]
fn accepting_a_warning_that_is_not_there_fails_the_test() {
    let _ = FakeCluster::new()
        .accepting(["status-fields"])
        .reconcile::<Fitting>(web());
}

#[test]
#[should_panic(expected = "error (finalizer-missing): controller web names a finalizer")]
fn an_error_cannot_be_accepted() {
    let _ = FakeCluster::new()
        .accepting(["finalizer-missing"])
        .reconcile::<Unexported>(web());
}

#[test]
fn a_test_can_leave_the_check_out() {
    assert!(FakeCluster::new().unchecked().reconcile::<Tight>(web()).is_ok());
}

/// Two kinds, of which one has a finalizer, another a defaulter, and both a validator.
struct Sites;
struct Webs;
struct Streams;

impl Plugin for Sites {
    type Config = NoConfig;
    type Controllers = (Webs, Streams);

    fn manifest(_: &NoConfig) -> Manifest {
        manifest()
            .controller(ControllerManifest::of::<Web>("web"))
            .controller(ControllerManifest::of::<Stream>("stream").finalizer("example.com/stream"))
    }
}

macro_rules! parts {
    ($part:ident, $object:ident) => {
        impl Controller for $part {
            type Config = NoConfig;
            type Object = $object;

            fn reconcile(_: Request<$object>, _: &Cluster) -> Result<Outcome, Failure> {
                Ok(Outcome::new())
            }
        }

        impl Validator for $part {
            type Config = NoConfig;
            type Object = $object;

            fn validate(_: Review<$object>, _: &Cluster) -> Result<Vec<String>, Vec<FieldError>> {
                Ok(Vec::new())
            }
        }

        impl Finalizer for $part {
            type Config = NoConfig;
            type Object = $object;

            fn finalize(_: Request<$object>, _: &Cluster) -> Result<Finalization, Failure> {
                Ok(Finalization::Done)
            }
        }
    };
}

parts!(Webs, Web);
parts!(Streams, Stream);

impl Defaulter for Webs {
    type Config = NoConfig;
    const KIND: Kind = Web::KIND;

    fn apply_defaults(review: Review<Value>, _: &Cluster) -> Result<Value, Vec<FieldError>> {
        Ok(review.object)
    }
}

export!(Sites, finalizer: Streams, defaulter: Webs, validator: (Webs, Streams));

#[test]
fn the_manifest_lists_kinds_with_a_defaulter_and_a_validator() {
    let manifest = describe::<Sites>(None).unwrap();
    let said = |index: usize| {
        let controller = &manifest["controllers"][index];
        (controller["defaulter"].clone(), controller["validator"].clone())
    };
    assert_eq!(
        (said(0), said(1)),
        ((json!(true), json!(true)), (json!(false), json!(true)))
    );
    let without = describe::<Fitting>(None).unwrap();
    let controller = without["controllers"][0].as_object().unwrap();
    assert!(
        !controller.contains_key("defaulter") && !controller.contains_key("validator"),
        "{controller:?}"
    );
}

/// The same, and its finalizer is for the other kind.
struct Forgetful;

impl Plugin for Forgetful {
    type Config = NoConfig;
    type Controllers = (Webs, Streams);

    fn manifest(_: &NoConfig) -> Manifest {
        Sites::manifest(&NoConfig {})
    }
}

export!(Forgetful, finalizer: Webs);

#[test]
fn a_finalizer_that_no_type_answers_for_is_no_description() {
    let refused = describe::<Forgetful>(None).unwrap_err();
    assert!(
        refused.contains("the controller of example.com/v1 Stream names a finalizer, and none of the types"),
        "{refused}"
    );
}

#[test]
fn kinds_that_are_touched_are_checked_against_the_crds_as_well() {
    plugin!(Looking, |web| manifest()
        .controller(
            web.touches(Touch::new(CONFIG_MAP).read([".data"]))
                .touches(Touch::of::<Stream>().read([".spec.size.x"])),
        )
        .crd(crd(OPEN))
        .crd(crd(OPEN).replace("Web", "Stream").replace("webs", "streams")));
    export!(Looking);
    let caught = std::panic::catch_unwind(|| FakeCluster::new().reconcile::<Looking>(web())).unwrap_err();
    let said = caught.downcast_ref::<String>().unwrap();
    assert!(
        said.contains("looks at .spec.size.x of Stream, which its CRD does not declare"),
        "{said}"
    );
}
