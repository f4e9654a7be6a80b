//! Answers of the fake cluster, and its refusals.

use serde_json::{Value, json};

use super::{FakeCluster, Read, describe};
use crate::{
    Cluster, Condition, Controller, ControllerManifest, Event, Failure, Kind, Lifecycle, ListOptions, Manifest, Moment,
    NoConfig, ObjectMeta, Outcome, Plugin, Request, Resource, Touch,
};
use std::time::Duration;

const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap");
const NODE: Kind = Kind::new("", "v1", "Node");

crate::export!(Sample);

/// Executes the commands of `spec.does`.
struct Sample;

#[derive(serde::Deserialize)]
struct SampleObject {
    metadata: ObjectMeta,
    spec: SampleSpec,
}

#[derive(serde::Deserialize)]
struct SampleSpec {
    does: String,
    hidden: Option<bool>,
}

#[derive(serde::Deserialize)]
struct Child {
    metadata: ObjectMeta,
}

impl Resource for Child {
    const KIND: Kind = CONFIG_MAP;
}

const LEASE: Kind = Kind::new("coordination.k8s.io", "v1", "Lease");

impl Resource for SampleObject {
    const KIND: Kind = Kind::new("example.com", "v1", "Sample");
}

impl Plugin for Sample {
    type Config = NoConfig;
    type Controllers = Self;

    fn manifest(_: &NoConfig) -> Manifest {
        Manifest::new("sample", "0.1.0", "A sample.").controller(
            ControllerManifest::of::<SampleObject>("sample")
                .fields([".spec.does"])
                .touches(
                    Touch::new(CONFIG_MAP)
                        .owned()
                        .read([".data[\"a.b/c\"]", ".items[].port"])
                        .named(["one", "two"]),
                )
                .touches(Touch::new(NODE).read([".spec"]).with_labels("zone=here").anywhere())
                .touches(Touch::new(LEASE).owned().contributed().with_labels("zone=here"))
                .with_labels("!frozen")
                .options(["replace"]),
        )
    }
}

impl Controller for Sample {
    type Config = NoConfig;
    type Object = SampleObject;

    fn reconcile(request: Request<SampleObject>, cluster: &Cluster) -> Result<Outcome, Failure> {
        let SampleObject { metadata, spec } = request.object;
        assert_eq!(spec.hidden, None, "it is not declared");
        let namespace = metadata.namespace.as_deref();
        let object =
            |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "one", "namespace": "a"}});
        let found = |query| cluster.list_json(&CONFIG_MAP, query).map(Value::Array);
        Ok(match spec.does.as_str() {
            "get" => Outcome::new().status(cluster.get_json(&CONFIG_MAP, namespace, "one")?),
            "get-other-name" => Outcome::new().status(cluster.get_json(&CONFIG_MAP, namespace, "three")?),
            "get-undeclared" => {
                Outcome::new().status(cluster.get_json(&Kind::new("", "v1", "Secret"), namespace, "one")?)
            }
            "get-elsewhere" => Outcome::new().status(cluster.get_json(&CONFIG_MAP, "b", "two")?),
            "list-everywhere" => Outcome::new().status(found(ListOptions::new())?),
            "own-elsewhere" => Outcome::new().owned(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "b"},
            })),
            "own-other-name" => Outcome::new().owned(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "three", "namespace": "a"},
            })),
            "own-labelled" => Outcome::new().owned(lease("here")),
            "own-other-labels" => Outcome::new().owned(lease("there")),
            "contribute-other-labels" => Outcome::new().contributed(lease("there")),
            "list-nodes" => Outcome::new().status(cluster.list_json(&NODE, ListOptions::new())?),
            "list-by-port" => {
                Outcome::new().status(found(ListOptions::new().namespace("a").field(".items[].port", 80))?)
            }
            "list-undeclared" => Outcome::new().status(found(ListOptions::new().namespace("a").field(".data.x", 80))?),
            "own" => Outcome::new().owned_with(
                object("ConfigMap"),
                Lifecycle {
                    keep: true,
                    ..Lifecycle::default()
                },
            ),
            "replace" => Outcome::new().owned_with(
                object("ConfigMap"),
                Lifecycle {
                    replace: true,
                    ..Lifecycle::default()
                },
            ),
            "children" => {
                let children: Vec<Child> = cluster.children(&metadata)?;
                let names: Vec<String> = children.into_iter().map(|child| child.metadata.name).collect();
                Outcome::new().status(json!({"names": names}))
            }
            "contribute" => Outcome::new().contributed(object("ConfigMap")),
            "say" => Outcome::new()
                .status(json!(null))
                .condition(Condition::unknown("Seen", "Nothing", "nothing to see"))
                .event(Event::warning("Look", "somebody should look"))
                .requeue_after(Duration::from_millis(1500)),
            other => return Err(Failure::permanent(format!("{other} is nothing to do"))),
        })
    }
}

#[test]
fn children_are_what_refers_to_the_owner_or_has_its_label() {
    let mut owner = sample("children");
    owner["metadata"]["uid"] = json!("u1");
    let child =
        |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "a"}});
    let mut labelled = child("two");
    labelled["metadata"]["labels"] = json!({"pilothouse.dev/owner": "u1"});
    let mut other = owner.clone();
    other["metadata"]["uid"] = json!("u2");
    let cluster = FakeCluster::new()
        .with_child(&owner, child("one"))
        .with_child(&other, child("others"))
        .with(labelled);
    // The manifest declares these two names.
    let answer = cluster.reconcile::<Sample>(owner).unwrap();
    assert_eq!(answer.status, Some(json!({"names": ["one", "two"]})));
    assert_eq!(
        cluster.reads().iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "list v1 ConfigMap in a with .metadata.ownerReferences[].uid=u1",
            "list v1 ConfigMap in a labelled pilothouse.dev/owner=u1",
        ]
    );
}

#[test]
#[should_panic(expected = "the manifest's filter asks for labels that match !frozen")]
fn asking_about_an_object_outside_the_filter_fails_the_test() {
    let mut frozen = sample("say");
    frozen["metadata"]["labels"] = json!({"frozen": ""});
    let _ = cluster().reconcile::<Sample>(frozen);
}

#[test]
fn replacing_is_an_option_that_the_manifest_lists() {
    let answer = cluster().reconcile::<Sample>(sample("replace")).unwrap();
    assert!(answer.desired[0].lifecycle.replace);
    let manifest = describe::<Sample>(None).unwrap();
    assert_eq!(manifest["controllers"][0]["options"], json!(["replace"]));
}

fn lease(zone: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "one", "labels": {"zone": zone}}})
}

fn sample(does: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Sample", "metadata": {"name": "s", "namespace": "a"},
        "spec": {"does": does, "hidden": true},
    })
}

fn cluster() -> FakeCluster {
    FakeCluster::new()
        .with(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "a", "resourceVersion": "7"},
            "data": {"a.b/c": "seen", "other": "hidden"},
            "items": [{"port": 80, "name": "hidden"}, {"port": 81}],
        }))
        .with(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two", "namespace": "b"}, "items": [{"port": 81}],
        }))
        .with(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "three", "namespace": "a"}}))
        .with(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"zone": "here"}}}))
        .with(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2", "labels": {"zone": "there"}}}))
}

#[test]
fn a_plugin_sees_the_fields_that_it_declared_and_metadata() {
    let cluster = cluster();
    let answer = cluster.reconcile::<Sample>(sample("get")).unwrap();
    let expected = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "a"},
        "data": {"a.b/c": "seen"}, "items": [{"port": 80}, {"port": 81}],
    });
    assert_eq!(answer.status, Some(expected));
    let read = Read::Get {
        kind: "v1 ConfigMap".into(),
        namespace: Some("a".into()),
        name: "one".into(),
    };
    assert_eq!(cluster.reads(), [read]);
}

#[test]
fn a_list_has_what_matches_within_the_declaration() {
    let names = |does| {
        let status = cluster().reconcile::<Sample>(sample(does)).unwrap().status.unwrap();
        status
            .as_array()
            .unwrap()
            .iter()
            .map(|object| object["metadata"]["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("list-nodes"), ["n1"]);
    assert_eq!(names("list-by-port"), ["one"]);
}

#[test]
#[should_panic(expected = "v1 Secret is read, and the manifest does not declare it")]
fn reading_an_undeclared_kind_fails_the_test() {
    let _ = cluster().reconcile::<Sample>(sample("get-undeclared"));
}

#[test]
#[should_panic(expected = "three is read, and the manifest declares only")]
fn reading_an_undeclared_name_fails_the_test() {
    let _ = cluster().reconcile::<Sample>(sample("get-other-name"));
}

#[test]
#[should_panic(expected = "v1 ConfigMap two is read in namespace Some(\"b\")")]
fn reading_outside_the_resources_namespace_fails_the_test() {
    let _ = cluster().reconcile::<Sample>(sample("get-elsewhere"));
}

#[test]
#[should_panic(expected = "v1 ConfigMap is listed in namespace None")]
fn listing_every_namespace_fails_the_test() {
    let _ = cluster().reconcile::<Sample>(sample("list-everywhere"));
}

#[test]
#[should_panic(expected = "add .anywhere()")]
fn owning_outside_the_resources_namespace_fails_the_test() {
    let _ = cluster().reconcile::<Sample>(sample("own-elsewhere"));
}

#[test]
#[should_panic(expected = "objects are found by .data.x, which the manifest does not declare")]
fn listing_by_an_undeclared_field_fails_the_test() {
    let _ = cluster().reconcile::<Sample>(sample("list-undeclared"));
}

#[test]
#[should_panic(expected = "the answer has this object as contributed, which the manifest does not declare")]
fn touching_a_kind_in_an_undeclared_way_fails_the_test() {
    let _ = cluster().reconcile::<Sample>(sample("contribute"));
}

#[test]
#[should_panic(expected = "the manifest declares only the names [\"one\", \"two\"]")]
fn owning_an_object_of_another_name_fails_the_test() {
    let _ = cluster().reconcile::<Sample>(sample("own-other-name"));
}

#[test]
#[should_panic(expected = "whose labels do not match zone=here")]
fn owning_an_object_without_the_declared_labels_fails_the_test() {
    let _ = cluster().reconcile::<Sample>(sample("own-other-labels"));
}

#[test]
fn declared_labels_are_asked_of_what_is_owned_alone() {
    for does in ["own-labelled", "contribute-other-labels"] {
        cluster().reconcile::<Sample>(sample(does)).unwrap();
    }
}

#[test]
fn an_answer_can_be_looked_at() {
    let owned = cluster().reconcile::<Sample>(sample("own")).unwrap();
    assert_eq!(owned.objects(), ["ConfigMap one"]);
    assert_eq!(owned.object("ConfigMap", "one")["metadata"]["namespace"], "a");
    assert_eq!(
        owned.desired[0].lifecycle,
        Lifecycle {
            keep: true,
            ..Lifecycle::default()
        }
    );

    let said = cluster().reconcile::<Sample>(sample("say")).unwrap();
    assert_eq!(said.status, None);
    assert_eq!(
        said.condition("Seen"),
        Some(&Condition::unknown("Seen", "Nothing", "nothing to see"))
    );
    assert_eq!(said.events, [Event::warning("Look", "somebody should look")]);
    assert_eq!(said.requeue_after, Some(Duration::from_millis(1500)));

    let failed = cluster().reconcile::<Sample>(sample("dance")).unwrap_err();
    assert_eq!(failed, Failure::Permanent("dance is nothing to do".to_owned()));
}

#[test]
fn a_malformed_object_is_a_permanent_failure_naming_the_field() {
    let mut object = sample("get");
    object["spec"]["does"] = json!(7);
    let failed = cluster().reconcile::<Sample>(object).unwrap_err();
    let message =
        "Sample a/s cannot be read: spec.does: invalid type: integer `7`, expected a string; correct the field";
    assert_eq!(failed, Failure::Permanent(message.to_owned()));
}

#[test]
fn a_configuration_that_nothing_reads_is_refused_by_name() {
    let refused = describe::<Sample>(Some(&json!({"colour": "red"}))).unwrap_err();
    assert!(refused.starts_with("unknown field `colour`"), "{refused}");
}

#[test]
fn a_controller_called_directly_sees_everything_at_a_set_time() {
    let fake = cluster().at(Moment::from_millis(12_345));
    let cluster = fake.cluster();
    let one = cluster.get_json(&CONFIG_MAP, "a", "one").unwrap().unwrap();
    assert_eq!(one["data"]["other"], "hidden");
    assert_eq!(cluster.now(Duration::from_secs(5)), Moment::from_millis(10_000));
    assert!(cluster.reached(Moment::from_millis(12_345)));
    assert!(!cluster.reached(Moment::from_millis(12_346)));
    let gone = fake.clone().without("v1", "ConfigMap", Some("a"), "one");
    assert_eq!(gone.cluster().get_json(&CONFIG_MAP, "a", "one").unwrap(), None);
    let reads: Vec<_> = fake.reads().iter().map(ToString::to_string).collect();
    let expected = [
        "get v1 ConfigMap a/one",
        "now to 5000 ms",
        "whether 1970-01-01T00:00:12.345Z has come",
        "whether 1970-01-01T00:00:12.346Z has come",
        "get v1 ConfigMap a/one",
    ];
    assert_eq!(reads, expected);
}
