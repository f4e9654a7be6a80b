//! Accepted and refused answers, and the messages of the refusals.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::kubernetes::key::Name;
use crate::plugin::contract::{ConditionStatus, Desired, EventType, Propagation};
use crate::plugin::manifest::OPTIONS;
use crate::status::failure::Retry;
use crate::text::printable::shorten;

fn check_outcome(outcome: Outcome) -> Result<CheckedAnswer, Failure> {
    let grants = Grants::new(
        &serde_json::from_value(json!({
            "name": "c", "kind": {"group": "x.dev", "version": "v1", "kind": "X"}, "options": OPTIONS,
            "touches": [
                {"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["owned"], "scope": "Any"},
                {"kind": {"group": "x.dev", "version": "v1", "kind": "X"}, "access": ["owned"]},
                {"kind": {"group": "", "version": "v1", "kind": "Namespace"}, "access": ["owned", "contributed"], "scope": "Any"},
                {"kind": {"group": "", "version": "v1", "kind": "Node"}, "access": ["contributed"], "scope": "Any",
                 "names": ["n"], "labelSelector": "app=mine"},
                {"kind": {"group": "", "version": "v1", "kind": "Pod"}, "access": ["contributed"], "scope": "Any"},
                {"kind": {"group": "y.dev", "version": "v1", "kind": "Unserved"}, "access": ["owned"]},
                {"kind": {"group": "z.dev", "version": "v1", "kind": "Unserved"}, "access": ["owned", "contributed"], "optional": true},
                {"kind": {"group": "", "version": "v1", "kind": "Service"}, "access": ["owned"],
                 "names": ["only"], "labelSelector": "app=mine"},
                {"kind": {"group": "", "version": "v1", "kind": "Endpoints"}, "access": ["owned"], "scope": "Any",
                 "namespaces": ["elsewhere"]},
                {"kind": {"group": "", "version": "v1", "kind": "Narrow"}, "access": ["owned", "contributed"]},
                {"kind": {"group": "", "version": "v1", "kind": "NarrowCluster"}, "access": ["owned"]},
                {"kind": {"group": "", "version": "v1", "kind": "Secret"}, "access": ["read"]},
                {"kind": {"group": "", "version": "v2", "kind": "Secret"}, "access": ["owned", "contributed"]}
            ]
        }))
        .unwrap(),
    );
    let name = Name::new(Some("home"), "x");
    let kind = Kind::new("x.dev", "v1", "X");
    let limits = Limits {
        output_objects: 3,
        ..Limits::default()
    };
    check(
        outcome,
        &PrimaryName {
            kind: &kind,
            name: &name,
        },
        &grants,
        &limits,
        |kind| {
            let cluster_scoped = matches!(kind.kind.as_str(), "Namespace" | "Node" | "NarrowCluster");
            (kind.kind != "Unserved").then(|| ServedKind {
                short_names: Vec::new(),
                kind: Arc::new(kind.clone()),
                plural: format!("{}s", kind.kind.to_lowercase()),
                facts: KindFacts {
                    namespaced: !cluster_scoped,
                    has_status: cluster_scoped,
                },
            })
        },
    )
}

fn desiring(objects: &[&str]) -> Outcome {
    let desired = objects
        .iter()
        .map(|object| Desired {
            object: (*object).to_owned(),
            ownership: Ownership::Owned,
            lifecycle: Lifecycle::default(),
            options: "{}".to_owned(),
        })
        .collect();
    Outcome {
        desired,
        ..Outcome::default()
    }
}

const CONFIG_MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#;

#[test]
fn an_object_without_a_namespace_gets_that_of_its_owner() {
    let answer = check_outcome(desiring(&[CONFIG_MAP])).unwrap();
    assert_eq!(answer.owned[0].name, Name::new(Some("home"), "a"));
    assert_eq!(answer.owned[0].body["metadata"]["namespace"], "home");
}

#[test]
fn an_object_may_stand_elsewhere() {
    let elsewhere = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}"#;
    let of_the_cluster = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","namespace":"b"}}"#;
    let answer = check_outcome(desiring(&[elsewhere, of_the_cluster])).unwrap();
    assert_eq!(answer.owned[0].name, Name::new(Some("b"), "a"));
    assert_eq!(answer.owned[1].name, Name::new(None, "a"));
    assert!(answer.owned[1].body["metadata"].get("namespace").is_none());
}

#[test]
fn each_unusable_object_is_named_with_its_fault() {
    let message = |objects: &[&str]| check_outcome(desiring(objects)).unwrap_err().message;
    assert!(message(&["{"]).contains("desired object 0 is not a JSON object"));
    assert!(message(&["[]"]).contains("not a JSON object"));
    assert!(message(&[CONFIG_MAP, r#"{"kind":"ConfigMap"}"#]).contains("desired object 1 lacks apiVersion"));
    assert!(message(&[r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}"#]).contains("no metadata.name"));
    assert!(
        message(&[r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a/b"}}"#]).contains("unusable name")
    );
    assert!(message(&[CONFIG_MAP, CONFIG_MAP]).contains("0 and 1 are both ConfigMap home/a"));
    assert!(
        message(&[r#"{"apiVersion":"v1","kind":"Lease","metadata":{"name":"a"}}"#])
            .contains("does not declare the kind")
    );
    assert!(
        message(&[r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#]).contains("without access owned")
    );
    assert!(message(&[r#"{"apiVersion":"x.dev/v1","kind":"X","metadata":{"name":"x"}}"#]).contains("own itself"));
    assert!(
        message(&[r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b/c"}}"#])
            .contains("unusable namespace \"b/c\"")
    );
    let unserved = check_outcome(desiring(&[
        r#"{"apiVersion":"y.dev/v1","kind":"Unserved","metadata":{"name":"x"}}"#,
    ]));
    assert_eq!(unserved.unwrap_err().reason, Reason::NotSynced);
}

fn contributing(object: &str) -> Outcome {
    let mut outcome = desiring(&[object]);
    outcome.desired[0].ownership = Ownership::Contributed;
    outcome
}

#[test]
fn an_object_outside_the_primarys_namespace_needs_the_scope_any() {
    let secret = r#"{"apiVersion":"v1","kind":"Narrow","metadata":{"name":"a","namespace":"b"}}"#;
    for outcome in [desiring(&[secret]), contributing(secret)] {
        let message = check_outcome(outcome).unwrap_err().message;
        assert!(
            message.contains("in namespace b, outside the primary's own namespace home"),
            "{message}"
        );
        assert!(message.ends_with("with scope \"Any\""), "{message}");
    }
    let clusterwide = r#"{"apiVersion":"v1","kind":"NarrowCluster","metadata":{"name":"a"}}"#;
    let message = check_outcome(desiring(&[clusterwide])).unwrap_err().message;
    assert!(
        message.contains("it is cluster-scoped, outside the primary's own namespace home"),
        "{message}"
    );
    for within in [
        secret.replace("\"b\"", "\"home\""),
        secret.replace(",\"namespace\":\"b\"", ""),
    ] {
        assert!(check_outcome(desiring(&[&within])).is_ok());
    }
}

#[test]
fn an_unknown_option_is_refused_by_its_name() {
    let with = |options: &str| {
        let mut outcome = desiring(&[CONFIG_MAP]);
        options.clone_into(&mut outcome.desired[0].options);
        check_outcome(outcome).map_err(|failure| failure.message)
    };
    assert!(with("{}").is_ok() && with(" { } ").is_ok());
    let unknown = with(r#"{"force":true}"#).unwrap_err();
    assert!(
        unknown.starts_with("controller c: desired object 0, ConfigMap home/a, has the option \"force\""),
        "{unknown}"
    );
    for broken in ["", "[]", "{"] {
        assert!(with(broken).unwrap_err().contains("options that are not a JSON object"));
    }
}

#[test]
fn option_replace_is_read_and_refused_where_meaningless() {
    let with = |options: &str, change: &dyn Fn(&mut Desired)| {
        let mut outcome = desiring(&[CONFIG_MAP]);
        options.clone_into(&mut outcome.desired[0].options);
        change(&mut outcome.desired[0]);
        check_outcome(outcome).map(|mut answer| answer.owned.remove(0).lifecycle)
    };
    let replace = |options: &str| with(options, &|_| {}).unwrap().replace;
    assert!(replace(r#"{"replace":true}"#) && !replace(r#"{"replace":false}"#) && !replace("{}"));
    for (options, words) in [
        (r#"{"replace":"yes"}"#, "with \"yes\"; it is true or false"),
        (r#"{"replace":null}"#, "with null; it is true or false"),
        (
            r#"{"replace":true,"Replace":true}"#,
            "has the option \"Replace\", which this host does not know",
        ),
    ] {
        let message = with(options, &|_| {}).unwrap_err().message;
        assert!(message.contains(words), "{message}");
    }
    let once = with(r#"{"replace":true}"#, &|desired| desired.lifecycle.create_only = true);
    assert!(
        once.unwrap_err()
            .message
            .contains("never changed; leave one of the two out")
    );
    let mut theirs = contributing(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#);
    r#"{"replace":true}"#.clone_into(&mut theirs.desired[0].options);
    let message = check_outcome(theirs).unwrap_err().message;
    assert!(message.contains("which only owned objects have"), "{message}");
}

#[test]
fn propagation_adopt_and_yield_are_read() {
    let mut outcome = desiring(&[CONFIG_MAP]);
    let options = r#"{"propagation":"Foreground","adopt":"IfUnowned","yield":[".data.k"]}"#;
    options.clone_into(&mut outcome.desired[0].options);
    let object = check_outcome(outcome).unwrap().owned.remove(0);
    assert_eq!(object.lifecycle.propagation, Some(Propagation::Foreground));
    assert!(object.lifecycle.adopt);
    assert_eq!(
        object.yields.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [".data.k"]
    );
}

fn named(name: &str, after: &Value) -> Desired {
    Desired {
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}).to_string(),
        ownership: Ownership::Owned,
        lifecycle: Lifecycle::default(),
        options: json!({"after": after}).to_string(),
    }
}

fn check_desired(desired: Vec<Desired>) -> Result<CheckedAnswer, Failure> {
    check_outcome(Outcome {
        desired,
        ..Outcome::default()
    })
}

#[test]
fn an_object_comes_after_others_of_the_answer() {
    let of = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
    let space = json!({"apiVersion": "v2", "kind": "Namespace", "name": "space", "namespace": "any"});
    let namespace = Desired {
        object: json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "space"}}).to_string(),
        ..named("", &json!([]))
    };
    let web = named("web", &json!([of("db"), space, of("db")]));
    let answer = check_desired(vec![web, namespace, named("db", &json!([]))]).unwrap();
    let after: Vec<_> = answer.owned[0].after.iter().map(ToString::to_string).collect();
    assert_eq!(
        after,
        ["Namespace space", "ConfigMap home/db"],
        "in the order of the answer, each once"
    );
    assert!(answer.owned[1..].iter().all(|object| object.after.is_empty()));
    let optional = json!([{"apiVersion": "z.dev/v1", "kind": "Unserved", "name": "x"}]);
    let answer = check_desired(vec![
        named("web", &optional),
        unserved(r#"{"name":"x"}"#, Ownership::Owned),
    ])
    .unwrap();
    assert_eq!(answer.owned[0].after[0].to_string(), "Unserved home/x");
}

#[test]
fn an_order_that_cannot_be_kept_is_refused_with_its_objects() {
    let of = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
    let message = |desired: Vec<Desired>| check_desired(desired).unwrap_err().message;
    let circle = message(vec![
        named("a", &json!([of("b")])),
        named("b", &json!([of("c")])),
        named("c", &json!([of("b")])),
    ]);
    assert_eq!(
        circle,
        "controller c: objects come after each other in a circle by their option \"after\": ConfigMap home/b after ConfigMap home/c \
         after ConfigMap home/b; fix the plugin"
    );
    assert_eq!(
        message(vec![named("a", &json!([of("a")]))]),
        "controller c: desired object 0, ConfigMap home/a, has the option \"after\" with ConfigMap a, which is the object itself; leave \
         it out; fix the plugin"
    );
    let mut elsewhere = of("b");
    elsewhere["namespace"] = json!("elsewhere");
    for missing in [
        of("c"),
        elsewhere,
        json!({"apiVersion": "x.dev/v1", "kind": "ConfigMap", "name": "b"}),
    ] {
        let message = message(vec![named("a", &json!([missing])), named("b", &json!([]))]);
        assert!(
            message.contains("desired object 0, ConfigMap home/a, has the option"),
            "{message}"
        );
        assert!(
            message.contains("is not among the owned objects of the answer"),
            "{message}"
        );
    }
    let mut theirs = unserved(r#"{"name":"b"}"#, Ownership::Contributed);
    let of_theirs = json!([{"apiVersion": "z.dev/v1", "kind": "Unserved", "name": "b"}]);
    let contributed = message(vec![named("a", &of_theirs), theirs.clone()]);
    assert!(contributed.contains("is not among the owned objects"), "{contributed}");
    theirs.options = json!({"after": of_theirs}).to_string();
    assert!(message(vec![theirs]).contains("which only owned objects have"));
}

#[test]
fn an_object_is_made_once_for_a_token() {
    let with = |options: Value| Desired {
        options: options.to_string(),
        ..named("a", &json!([]))
    };
    let answer = check_desired(vec![with(json!({"once": "v1"}))]).unwrap();
    assert_eq!(answer.owned[0].once.as_deref(), Some("v1"));
    for wrong in [json!(""), json!(1), json!(null), json!("a\nb"), json!("x".repeat(129))] {
        let message = check_desired(vec![with(json!({"once": wrong}))]).unwrap_err().message;
        assert!(message.contains("has the option \"once\" with"), "{message}");
        assert!(message.contains("a text of 1 to 128 bytes"), "{message}");
    }
    let mut never_changed = with(json!({"once": "v1"}));
    never_changed.lifecycle.create_only = true;
    let message = check_desired(vec![never_changed]).unwrap_err().message;
    assert!(message.contains("\"once\" and the lifecycle create-only"), "{message}");
}

#[test]
fn an_order_is_a_list_of_objects() {
    let of = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
    let more = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"});
    let many = json!(vec![of("a"); 33]);
    for wrong in [
        json!("a"),
        of("a"),
        json!(["a"]),
        json!([{"kind": "ConfigMap", "name": "a"}]),
        json!([more]),
        many,
    ] {
        let message = check_desired(vec![named("b", &wrong)]).unwrap_err().message;
        assert!(message.contains("has the option \"after\" with"), "{message}");
        assert!(
            message.contains("a list of at most 32 objects, each with apiVersion, kind, name"),
            "{message}"
        );
    }
    assert!(check_desired(vec![named("b", &json!([]))]).is_ok());
}

#[test]
fn options_that_do_not_suit_an_object_are_refused_by_name() {
    let with = |object: &str, options: &str| {
        let mut outcome = desiring(&[object]);
        options.clone_into(&mut outcome.desired[0].options);
        check_outcome(outcome).unwrap_err().message
    };
    let paths = format!("{{\"yield\":{:?}}}", vec![".data.k"; 33]);
    for (options, words) in [
        (
            r#"{"propagation":"foreground"}"#,
            "\"propagation\" with \"foreground\"; it is Background, Foreground or Orphan",
        ),
        (r#"{"propagation":true}"#, "\"propagation\" with true"),
        (r#"{"adopt":true}"#, "\"adopt\" with true; it is Never or IfUnowned"),
        (r#"{"adopt":"Always"}"#, "\"adopt\" with \"Always\""),
        (r#"{"yield":".data.k"}"#, "it is a list of at most 32 field paths"),
        (r#"{"yield":[1]}"#, "it is a list of at most 32 field paths"),
        (&paths, "it is a list of at most 32 field paths"),
        (r#"{"yield":["data"]}"#, "\"data\" is not a field path at byte 0"),
        (r#"{"yield":[".data.z"]}"#, "\".data.z\", which the object does not set"),
        (r#"{"yield":[".data[]"]}"#, "which leads into a list"),
        (r#"{"yield":["."]}"#, "which the host needs"),
        (r#"{"yield":[".metadata.name"]}"#, "which the host needs"),
        (
            r#"{"yield":[".metadata.annotations[\"pilothouse.dev/desired\"]"]}"#,
            "which the object does not set",
        ),
    ] {
        let message = with(CONFIG_MAP, options);
        assert!(
            message.starts_with("controller c: desired object 0, ConfigMap home/a, has the option")
                && message.contains(words),
            "{message}"
        );
    }
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#;
    let message = with(namespace, r#"{"propagation":"Orphan"}"#);
    assert!(
        message.contains("a Namespace is deleted with everything in it"),
        "{message}"
    );
    for options in [r#"{"propagation":"Orphan"}"#, r#"{"adopt":"IfUnowned"}"#] {
        let mut theirs = contributing(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#);
        options.clone_into(&mut theirs.desired[0].options);
        let message = check_outcome(theirs).unwrap_err().message;
        assert!(message.contains("which only owned objects have"), "{message}");
    }
    let mut once = desiring(&[CONFIG_MAP]);
    r#"{"yield":[".data.k"]}"#.clone_into(&mut once.desired[0].options);
    once.desired[0].lifecycle.create_only = true;
    let message = check_outcome(once).unwrap_err().message;
    assert!(message.contains("\"yield\" and the lifecycle create-only"), "{message}");
}

#[test]
fn an_option_that_the_manifest_does_not_list_is_refused() {
    let controller = json!({
        "name": "c", "kind": {"group": "x.dev", "version": "v1", "kind": "X"},
        "touches": [{"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["owned"]}],
    });
    let grants = Grants::new(&serde_json::from_value(controller).unwrap());
    let mut outcome = desiring(&[CONFIG_MAP]);
    r#"{"replace":true}"#.clone_into(&mut outcome.desired[0].options);
    let (kind, name) = (Kind::new("x.dev", "v1", "X"), Name::new(Some("home"), "x"));
    let primary = PrimaryName {
        kind: &kind,
        name: &name,
    };
    let served = |kind: &Kind| crate::rights::built_in::served(kind);
    let failure = check(outcome, &primary, &grants, &Limits::default(), served).unwrap_err();
    let words = "controller c: desired object 0, ConfigMap home/a, has the option \"replace\", which the manifest does not list";
    assert!(failure.message.starts_with(words), "{}", failure.message);
}

#[test]
fn fields_go_to_objects_of_any_place_and_to_the_primary_itself() {
    let answer = |object: &str| check_outcome(contributing(object)).unwrap().contributed.remove(0);
    let elsewhere = answer(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b"}}"#);
    assert_eq!(elsewhere.name, Name::new(Some("b"), "a"));
    let at_home = answer(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#);
    assert_eq!(at_home.name, Name::new(Some("home"), "a"));
    let of_the_cluster = answer(r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#);
    assert_eq!(of_the_cluster.name, Name::new(None, "a"));
    let labelled = answer(r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}"#);
    assert_eq!(labelled.body["metadata"]["name"], "n");
}

#[test]
fn undeclared_fields_and_fields_with_a_lifecycle_are_refused() {
    let message = |outcome: Outcome| check_outcome(outcome).unwrap_err().message;
    assert!(message(contributing(CONFIG_MAP)).contains("without access contributed"));
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"m"}}"#;
    assert!(message(contributing(node)).contains("outside the names"));
    let mut kept = contributing(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#);
    kept.desired[0].lifecycle.create_only = true;
    assert!(message(kept).contains("has a lifecycle"));
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#;
    let mut twice = desiring(&[pod, pod]);
    twice.desired[0].ownership = Ownership::Contributed;
    twice.desired[1].ownership = Ownership::Contributed;
    assert!(message(twice).contains("are both Pod home/a"));
}

#[test]
fn non_text_string_data_is_refused_by_its_name() {
    let secret = r#"{"apiVersion":"v2","kind":"Secret","metadata":{"name":"a"},"stringData":{"user":"u","port":5432}}"#;
    for outcome in [desiring(&[secret]), contributing(secret)] {
        let failure = check_outcome(outcome).unwrap_err();
        assert_eq!(failure.reason, Reason::InvalidAnswer);
        assert!(
            failure
                .message
                .starts_with("desired object 0, Secret home/a: stringData[\"port\"] is a number"),
            "{failure}"
        );
    }
}

#[test]
fn a_contributed_status_is_refused_where_it_is_a_subresource() {
    let node = |more: &str| format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"n"}},{more}}}"#);
    let failure = check_outcome(contributing(&node(r#""status":{"a":1}"#))).unwrap_err();
    assert!(failure.message.contains("Node n, contributes a status"), "{failure}");
    assert!(check_outcome(contributing(&node(r#""status":null"#))).is_ok());
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"status":{"a":1}}"#;
    let answer = check_outcome(contributing(pod)).unwrap();
    assert_eq!(answer.contributed[0].body["status"]["a"], 1, "a member like any other");
}

#[test]
fn an_object_may_be_owned_and_contributed_to_in_one_answer() {
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}"#;
    let mut both = desiring(&[namespace, namespace]);
    both.desired[1].ownership = Ownership::Contributed;
    let CheckedAnswer { owned, contributed, .. } = check_outcome(both).unwrap();
    assert_eq!((owned.len(), contributed.len()), (1, 1));
}

#[test]
fn an_object_that_the_plugin_would_not_see_again_is_refused() {
    let message = |object: &str| check_outcome(desiring(&[object])).unwrap_err().message;
    let service = |name: &str, label: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": {"app": label}}}).to_string()
    };
    assert!(check_outcome(desiring(&[&service("only", "mine")])).is_ok());
    assert!(message(&service("other", "mine")).contains("outside the names"));
    assert!(message(&service("only", "theirs")).contains("do not match app=mine"));
    let endpoints = r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"a"}}"#;
    assert!(message(endpoints).contains("in namespace home, outside the namespaces"));
}

#[test]
fn more_objects_than_the_limit_are_refused_by_the_limits_name() {
    let failure = check_outcome(desiring(&["", "", "", ""])).unwrap_err();
    assert_eq!(
        failure.message,
        "the plugin wants 4 objects, the limit outputObjects is 3"
    );
    assert_eq!(failure.reason, Reason::GuestLimit);
}

#[test]
fn each_unusable_rest_is_named_with_its_fault() {
    let message = |outcome: Outcome| check_outcome(outcome).unwrap_err().message;
    let status = |text: &str| Outcome {
        status: Some(text.to_owned()),
        ..Outcome::default()
    };
    assert!(message(status("3")).contains("status is not a JSON object"));
    assert!(message(status(r#"{"conditions":{}}"#)).contains("status.conditions must be a list"));
    assert!(message(status(r#"{"conditions":[{"type":"A"},{"type":"A"}]}"#)).contains("type A twice"));
    let condition = |type_: &str, reason: &str| Condition {
        type_: type_.into(),
        status: ConditionStatus::True,
        reason: reason.into(),
        message: String::new(),
    };
    let conditions = |conditions| Outcome {
        conditions,
        ..Outcome::default()
    };
    assert!(message(conditions(vec![condition("no good", "R")])).contains("no good"));
    for name in ["Reconciled", "Reconciling", "Stalled"] {
        assert!(message(conditions(vec![condition(name, "R")])).contains("the host's own"));
    }
    assert!(message(conditions(vec![condition("A", "")])).contains("reason \"\""));
    assert!(message(conditions(vec![condition("A", "R"), condition("A", "R")])).contains("A twice"));
    let event = Event {
        type_: EventType::Normal,
        reason: String::new(),
        message: String::new(),
    };
    assert!(
        message(Outcome {
            events: vec![event],
            ..Outcome::default()
        })
        .contains("an event has the reason")
    );
    for wait in [0, u64::MAX] {
        let outcome = Outcome {
            requeue_after: Some(wait),
            ..Outcome::default()
        };
        assert!(message(outcome).contains("requeue-after"));
    }
}

#[test]
fn who_asks_to_run_again_at_once_runs_again_in_a_second() {
    for (asked, given) in [(1, 1000), (999, 1000), (1000, 1000), (60_000, 60_000)] {
        let outcome = Outcome {
            requeue_after: Some(asked),
            ..Outcome::default()
        };
        assert_eq!(check_outcome(outcome).unwrap().requeue_after, Some(given));
    }
}

#[test]
fn texts_are_cut_at_the_border_of_a_character() {
    assert_eq!(shorten("aäb".into(), 10), "aäb");
    assert_eq!(shorten("ääääää".into(), 8), "ää…");
}

fn unserved(metadata: &str, ownership: Ownership) -> Desired {
    Desired {
        object: format!(r#"{{"apiVersion":"z.dev/v1","kind":"Unserved","metadata":{metadata}}}"#),
        ownership,
        lifecycle: Lifecycle::default(),
        options: "{}".to_owned(),
    }
}

#[test]
fn an_object_of_an_optional_kind_that_is_not_served_fails_alone() {
    let mut outcome = desiring(&[CONFIG_MAP]);
    outcome.status = Some(r#"{"ready": true}"#.to_owned());
    outcome.desired.insert(0, unserved(r#"{"name":"x"}"#, Ownership::Owned));
    let answer = check_outcome(outcome).unwrap();
    assert_eq!(answer.owned[0].title(), "ConfigMap home/a");
    assert!(answer.status.is_some());
    let [unserved] = &answer.unserved[..] else {
        panic!("{:?}", answer.unserved)
    };
    assert_eq!(
        (unserved.failure.reason, unserved.failure.retry),
        (Reason::NotSynced, Retry::Change)
    );
    assert_eq!(
        unserved.failure.message,
        "z.dev/v1 Unserved x is desired, but the cluster does not serve the kind; install what brings it"
    );
}

#[test]
fn an_unserved_object_may_stand_wherever_its_kind_can() {
    for (metadata, ownership, places) in [
        (r#"{"name":"x"}"#, Ownership::Owned, vec![Some("home"), None]),
        (
            r#"{"name":"x","namespace":"other"}"#,
            Ownership::Owned,
            vec![Some("other")],
        ),
        (r#"{"name":"x"}"#, Ownership::Contributed, vec![]),
    ] {
        let desired = vec![unserved(metadata, ownership)];
        let answer = check_outcome(Outcome {
            desired,
            ..Outcome::default()
        });
        let keys: Vec<_> = answer.unwrap().unserved[0].keys().collect();
        let found: Vec<_> = keys.iter().map(|key| key.name.namespace.as_deref()).collect();
        assert_eq!(found, places, "{metadata}");
    }
}

#[test]
fn an_unserved_object_is_still_held_against_the_contract() {
    for (desired, problem) in [
        (vec![unserved("{}", Ownership::Owned)], "has no metadata.name"),
        (
            vec![unserved(r#"{"name":"x"}"#, Ownership::Owned); 2],
            "desired objects 0 and 1 are both Unserved home/x",
        ),
        (
            vec![Desired {
                options: r#"{"new": 1}"#.to_owned(),
                ..unserved(r#"{"name":"x"}"#, Ownership::Owned)
            }],
            "has the option \"new\"",
        ),
    ] {
        let failure = check_outcome(Outcome {
            desired,
            ..Outcome::default()
        })
        .unwrap_err();
        assert!(failure.message.contains(problem), "{failure}");
    }
}
