//! The optional interfaces: each call goes to the type for the object's kind, with the author's types.

use pilothouse_plugin::testing::{FakeCluster, Finalized};
use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Converter, Defaulter, Failure, FieldError, Finalization, Finalizer, Kind,
    Manifest, ObjectMeta, Outcome, Phase, Plugin, Request, Resource, Review, Touch, Validator,
};
use serde_json::{Value, json};

const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap");

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    limit: u32,
}

#[derive(serde::Deserialize)]
struct Web {
    metadata: ObjectMeta,
    spec: WebSpec,
}

#[derive(serde::Deserialize)]
struct WebSpec {
    size: u32,
}

#[derive(serde::Deserialize)]
struct Stream {
    metadata: ObjectMeta,
}

impl Resource for Web {
    const KIND: Kind = Kind::new("example.com", "v1", "Web");
}

impl Resource for Stream {
    const KIND: Kind = Kind::new("example.com", "v1", "Stream");
}

/// The CRD of Web, in the two versions that the converter knows.
fn crd() -> Value {
    let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "subresources": {"status": {}}, "schema": open});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "webs.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Web", "plural": "webs"},
            "versions": [version("v1"), version("v2")]},
    })
}

struct Sites;
struct Webs;
struct Streams;

impl Plugin for Sites {
    type Config = Settings;
    type Controllers = (Webs, Streams);

    fn manifest(_: &Settings) -> Manifest {
        Manifest::new("sites", "0.1.0", "Sites.")
            .controller(ControllerManifest::of::<Web>("web").fields([".spec"]))
            .controller(
                ControllerManifest::of::<Stream>("stream")
                    .finalizer("example.com/stream")
                    .touches(Touch::new(CONFIG_MAP).owned().read([".data"])),
            )
            .crd(crd().to_string())
    }
}

impl Controller for Webs {
    type Config = Settings;
    type Object = Web;

    fn reconcile(_: Request<Web, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
        Ok(Outcome::new())
    }
}

impl Controller for Streams {
    type Config = Settings;
    type Object = Stream;

    fn reconcile(_: Request<Stream, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
        Ok(Outcome::new())
    }
}

impl Finalizer for Streams {
    type Config = Settings;
    type Object = Stream;

    fn finalize(request: Request<Stream, Settings>, cluster: &Cluster) -> Result<Finalization, Failure> {
        let ObjectMeta { name, namespace, .. } = request.object.metadata;
        let Some(namespace) = namespace else {
            return Err(Failure::permanent(format!("Stream {name} has no namespace")));
        };
        if cluster.get_json(&CONFIG_MAP, namespace.as_str(), "busy")?.is_none() {
            return Ok(Finalization::Done);
        }
        let ticket =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}});
        Ok(Finalization::Pending(Outcome::new().owned(ticket)))
    }
}

impl Defaulter for Webs {
    type Config = Settings;
    const KIND: Kind = Web::KIND;

    fn apply_defaults(review: Review<Value, Settings>, _: &Cluster) -> Result<Value, Vec<FieldError>> {
        let mut object = review.object;
        if !object["spec"].is_object() {
            return Err(vec![FieldError::invalid("spec", "there is nothing to complete")]);
        }
        if object["spec"]["size"].is_null() {
            object["spec"]["size"] = review.configuration.limit.into();
        }
        Ok(object)
    }
}

impl Validator for Webs {
    type Config = Settings;
    type Object = Web;

    fn validate(review: Review<Web, Settings>, _: &Cluster) -> Result<Vec<String>, Vec<FieldError>> {
        let Review {
            object,
            old_object: old,
            configuration: config,
            phase,
            user_info,
            ..
        } = review;
        assert_eq!(phase == Phase::Update, old.is_some());
        assert_eq!(phase == Phase::Reconcile, user_info.is_none());
        if object.spec.size > config.limit {
            return Err(vec![FieldError::invalid(
                "spec.size",
                format!("is over {}", config.limit),
            )]);
        }
        let shrinks = old.is_some_and(|old| old.spec.size > object.spec.size);
        let name = object.metadata.name;
        Ok(shrinks.then(|| format!("{name} shrinks")).into_iter().collect())
    }
}

impl Converter for Webs {
    const KIND: Kind = Web::KIND;

    fn convert(mut object: Value, api_version: &str) -> Result<Value, String> {
        if api_version != "example.com/v2" {
            return Err(format!("there is no {api_version}"));
        }
        object["apiVersion"] = api_version.into();
        Ok(object)
    }
}

pilothouse_plugin::export!(
    Sites,
    finalizer: Streams,
    defaulter: Webs,
    validator: (Webs,),
    converter: Webs,
);

fn cluster() -> FakeCluster {
    FakeCluster::new().configuration(json!({"limit": 5}))
}

fn web(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "w", "namespace": "a"}, "spec": spec})
}

fn stream(namespace: Option<&str>) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Stream", "metadata": {"name": "s", "namespace": namespace}})
}

#[test]
fn a_finalizer_says_done_or_what_should_still_exist() {
    assert_eq!(cluster().finalize::<Sites>(stream(Some("a"))), Ok(Finalized::Done));
    let busy = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "busy", "namespace": "a"}});
    match cluster().with(busy).finalize::<Sites>(stream(Some("a"))) {
        Ok(Finalized::Pending(answer)) => assert_eq!(answer.objects(), ["ConfigMap s"]),
        other => panic!("it is busy, and the answer was {other:?}"),
    }
    let failure = cluster().finalize::<Sites>(stream(None)).unwrap_err();
    assert_eq!(failure, Failure::permanent("Stream s has no namespace"));
}

#[test]
#[should_panic(expected = "the manifest names no finalizer")]
fn a_finalizer_that_the_manifest_does_not_name_fails_the_test() {
    let _ = cluster().finalize::<Sites>(web(&json!({"size": 1})));
}

#[test]
fn a_defaulter_completes_objects_of_its_kind_and_leaves_others() {
    let completed = cluster().apply_defaults::<Sites>(web(&json!({"other": true}))).unwrap();
    assert_eq!(completed, web(&json!({"other": true, "size": 5})));
    assert_eq!(cluster().apply_defaults::<Sites>(stream(None)), Ok(stream(None)));
    let errors = cluster().apply_defaults::<Sites>(web(&json!(7))).unwrap_err();
    assert_eq!(errors, [FieldError::invalid("spec", "there is nothing to complete")]);
}

#[test]
fn a_validator_warns_or_refuses_by_field() {
    let validate = |spec| cluster().validate::<Sites>(web(&spec));
    assert_eq!(validate(json!({"size": 5})), Ok(Vec::new()));
    assert_eq!(
        validate(json!({"size": 6})),
        Err(vec![FieldError::invalid("spec.size", "is over 5")])
    );
    let refused = validate(json!({"size": "large"})).unwrap_err();
    assert_eq!(
        refused,
        [FieldError::invalid(
            "spec.size",
            "invalid type: string \"large\", expected u32"
        )]
    );
    assert_eq!(
        validate(json!({})).unwrap_err(),
        [FieldError::required("spec.size", "")]
    );
    assert_eq!(cluster().validate::<Sites>(stream(None)), Ok(Vec::new()));
}

#[test]
fn a_validator_knows_that_it_is_called_before_a_reconcile() {
    let validate = |size| cluster().validate_before_reconcile::<Sites>(web(&json!({"size": size})));
    assert_eq!(validate(5), Ok(Vec::new()));
    assert_eq!(
        validate(6).unwrap_err()[0].to_string(),
        "spec.size: Invalid value: is over 5"
    );
}

#[test]
fn a_validator_sees_what_was_there_before_if_it_can_be_read() {
    let update = |old: Value| cluster().validate_update::<Sites>(web(&old), web(&json!({"size": 2})));
    assert_eq!(update(json!({"size": 3})), Ok(vec!["w shrinks".to_owned()]));
    assert_eq!(update(json!({"size": 1})), Ok(Vec::new()));
}

#[test]
fn a_converter_is_asked_for_its_kind_in_any_version() {
    let convert = |object, to| cluster().convert::<Sites>(object, to);
    let converted = convert(web(&json!({})), "example.com/v2").unwrap();
    assert_eq!(converted["apiVersion"], "example.com/v2");
    assert_eq!(
        convert(converted, "example.com/v3"),
        Err("there is no example.com/v3".to_owned())
    );
    let refused = convert(stream(None), "example.com/v2").unwrap_err();
    assert!(refused.contains("has no converter"), "{refused}");
}
