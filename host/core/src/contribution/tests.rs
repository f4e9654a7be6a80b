//! Objects split into fields, united and assembled again, on the schemas and field sets of a real server.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::*;
use crate::kubernetes::fields::FieldSet;
use crate::kubernetes::key::Kind;
use crate::kubernetes::types::Types;
use crate::kubernetes::types::tests::document;

fn types() -> Types {
    Types::parse(&document(), &Kind::new("", "v1", "Service")).unwrap()
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn apart(value: &Value) -> Leaves {
    take_apart(&map(value), &types()).unwrap()
}

fn service(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n"}, "spec": spec})
}

fn claim(created: &str, spec: &Value) -> Claim {
    Claim {
        age: ClaimAge {
            created: created.to_owned(),
            uid: "u".into(),
        },
        leaves: Arc::new(apart(&service(spec))),
        held: None,
    }
}

fn paths(leaves: &Leaves) -> Vec<String> {
    leaves.keys().map(ToString::to_string).collect()
}

#[test]
fn keys_are_filled_up_and_the_place_is_no_field() {
    let leaves = apart(&service(
        &json!({"ports": [{"name": "a", "port": 80}, {"port": 53, "protocol": "UDP"}]}),
    ));
    assert_eq!(
        paths(&leaves),
        [
            r#".spec.ports[port=53,protocol="UDP"]"#,
            r#".spec.ports[port=80,protocol="TCP"]"#,
            r#".spec.ports[port=80,protocol="TCP"].name"#,
        ]
    );
    assert_eq!(
        Value::Object(assemble(&leaves)),
        json!({"spec": {"ports": [
            {"port": 53, "protocol": "UDP"},
            {"name": "a", "port": 80, "protocol": "TCP"},
        ]}})
    );
}

#[test]
fn a_part_of_an_atomic_list_is_refused_by_its_path() {
    let error = take_apart(&map(&service(&json!({"externalIPs": ["1.2.3.4"]}))), &types()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(".spec.externalIPs is a list that is only held as a whole")
    );
    assert!(apart(&service(&json!({"externalIPs": []}))).is_empty());
    let tree = Types::parse(&document(), &Kind::new("x.dev", "v1", "Tree")).unwrap();
    let below_unknown = take_apart(&map(&json!({"anything": {"a": {"b": [1]}}})), &tree).unwrap_err();
    assert!(below_unknown.to_string().starts_with(".anything.a.b is a list"));
    let keyless = take_apart(&map(&json!({"children": [{"list": []}]})), &tree).unwrap_err();
    assert!(keyless.to_string().contains("an item of .children lacks name"));
    let twice = take_apart(
        &map(&service(
            &json!({"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}),
        )),
        &types(),
    );
    assert!(twice.unwrap_err().to_string().ends_with("is there twice"));
}

#[test]
fn held_fields_are_those_of_the_field_set_with_live_values() {
    let fields: FieldSet = serde_json::from_str(
        r#"{"f:metadata":{"f:finalizers":{"v:\"a/b\"":{}},"f:labels":{"f:gone":{},"f:x":{}}},
            "f:spec":{"f:selector":{},"f:ports":{
                "k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{}}}}}"#,
    )
    .unwrap();
    let live = json!({
        "metadata": {"finalizers": ["z", "a/b"], "labels": {"x": "1", "y": "2"}},
        "spec": {"selector": {"p": "q"}, "ports": [
            {"port": 80, "protocol": "UDP"},
            {"name": "a", "port": 80, "protocol": "TCP", "nodePort": 3},
        ]},
    });
    let held = held(&fields, &live);
    let wanted = service(&json!({"selector": {"p": "q"}, "ports": [{"port": 80, "name": "a"}]}));
    let mut wanted = apart(&wanted);
    wanted.extend(apart(
        &json!({"metadata": {"labels": {"x": "1"}, "finalizers": ["a/b"]}}),
    ));
    assert_eq!(held, wanted, "what was applied is found as it was applied");
}

#[test]
fn the_older_claim_has_the_field_and_the_younger_gets_nothing() {
    let claims = BTreeMap::from([
        (
            "young",
            claim(
                "2026-01-02T00:00:00Z",
                &json!({"ports": [{"port": 1}, {"port": 80, "name": "b"}]}),
            ),
        ),
        (
            "old",
            claim("2026-01-01T00:00:00Z", &json!({"ports": [{"port": 80, "name": "a"}]})),
        ),
        (
            "friend",
            claim(
                "2026-01-03T00:00:00Z",
                &json!({"ports": [{"port": 80, "name": "a"}, {"port": 2}]}),
            ),
        ),
    ]);
    let union = unite(&claims, &Standing::new());
    let lost = &union.lost["young"];
    assert_eq!(lost.holder, Some("old"));
    assert_eq!(lost.path.to_string(), r#".spec.ports[port=80,protocol="TCP"].name"#);
    assert_eq!(union.lost.len(), 1, "the same value may be claimed by two");
    assert!(!paths(&union.leaves).iter().any(|path| path.contains("port=1,")));
    let without: BTreeMap<_, _> = claims.into_iter().filter(|(name, _)| *name != "old").collect();
    assert_eq!(unite(&without, &Standing::new()).lost["friend"].holder, Some("young"));
}

#[test]
fn a_claim_against_the_owner_is_overruled_by_field() {
    let claims = BTreeMap::from([
        (
            "same",
            claim("1", &json!({"type": "x", "ports": [{"port": 80, "name": "a"}]})),
        ),
        (
            "beside",
            claim(
                "1",
                &json!({"ports": [{"port": 80, "targetPort": 8}, {"port": 81, "name": "b"}]}),
            ),
        ),
        (
            "otherwise",
            claim("1", &json!({"ports": [{"port": 80, "name": "b"}], "type": "x"})),
        ),
        ("within", claim("1", &json!({"a": {"b": 1}}))),
        ("around", claim("1", &json!({"c": {}}))),
    ]);
    let owned = apart(&service(
        &json!({"type": "x", "ports": [{"port": 80, "name": "a"}], "a": {}, "c": {"d": 1}}),
    ));
    let overruled = overruled(&claims, &owned);
    let overruled: Vec<_> = overruled.iter().map(|(name, path)| (*name, path.to_string())).collect();
    assert_eq!(
        overruled,
        [("otherwise", r#".spec.ports[port=80,protocol="TCP"].name"#.to_owned())]
    );
}

#[test]
fn others_may_fill_an_empty_object_of_the_owner() {
    let fields: FieldSet = serde_json::from_str(r#"{"f:spec":{"f:a":{},"f:selector":{}}}"#).unwrap();
    let live = json!({"spec": {"a": {"b": 1}, "selector": {"p": "q"}}});
    let owned = held(&fields, &live);
    let claims = BTreeMap::from([
        (1, claim("1", &json!({"a": {"b": 1}}))),
        (2, claim("1", &json!({"a": {}}))),
        (3, claim("1", &json!({"selector": {"p": "r"}}))),
    ]);
    assert_eq!(overruled(&claims, &owned).into_keys().collect::<Vec<_>>(), [3]);
}

#[test]
fn a_value_excludes_children_unless_it_is_an_empty_object() {
    let claims = BTreeMap::from([
        (1, claim("1", &json!({"type": "x", "a": {}}))),
        (2, claim("2", &json!({"type": {"y": 1}}))),
        (3, claim("3", &json!({"a": {"b": 1}}))),
    ]);
    let union = unite(&claims, &Standing::new());
    assert_eq!(union.lost.keys().collect::<Vec<_>>(), [&2]);
    assert_eq!(paths(&union.leaves), [".spec.a.b", ".spec.type"]);
    let turned = BTreeMap::from([
        (1, claim("1", &json!({"type": {"y": 1}}))),
        (2, claim("2", &json!({"type": "x"}))),
    ]);
    assert_eq!(unite(&turned, &Standing::new()).lost[&2].holder, Some(1));
}

#[test]
fn what_is_kept_gives_way_to_what_is_wanted() {
    let mut wanted = apart(&service(&json!({"type": "x", "ports": [{"port": 80, "name": "new"}]})));
    let kept = apart(&service(
        &json!({"type": {"y": 1}, "ports": [{"port": 80, "name": "old", "targetPort": 8}, {"port": 81}]}),
    ));
    keep(&mut wanted, &kept);
    assert_eq!(
        Value::Object(assemble(&wanted)),
        json!({"spec": {"type": "x", "ports": [
            {"port": 80, "protocol": "TCP", "name": "new", "targetPort": 8},
            {"port": 81, "protocol": "TCP"},
        ]}})
    );
}

#[test]
fn only_those_who_want_what_others_hold_stand_against_it() {
    let claims = BTreeMap::from([
        (1, claim("1", &json!({"ports": [{"port": 80, "name": "a"}]}))),
        (2, claim("2", &json!({"ports": [{"port": 81, "name": "b"}]}))),
        (3, claim("3", &json!({"a": {"b": 1}}))),
        (4, claim("4", &json!({"a": {"b.c": 1}}))),
    ]);
    let field = |path: &str| HeldField {
        manager: "m".to_owned(),
        path: path.to_owned(),
    };
    let against = |paths: &[&str]| -> Vec<i32> {
        let held: Vec<_> = paths.iter().map(|path| field(path)).collect();
        conflicting(&claims, &held).into_keys().collect()
    };
    assert_eq!(
        against(&[r#".spec.ports[port=80,protocol="TCP"].name"#, ".spec.a.b"]),
        [1, 3]
    );
    assert_eq!(against(&[".spec.a.b.c"]), [4], "a dot in a name is none between two");
    assert_eq!(
        against(&[".spec.ports"]),
        [1, 2],
        "what is held as a whole is held in part"
    );
    assert_eq!(against(&[".spec.nothing"]), Vec::<i32>::new());
}

/// A small generator of the same numbers in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn some_spec(numbers: &mut Numbers) -> Value {
    let mut ports = BTreeMap::new();
    for _ in 0..numbers.below(4) {
        let (port, protocol) = (numbers.below(4) + 1, ["TCP", "UDP"][usize::from(numbers.below(3) == 0)]);
        let name = format!("n{}", numbers.below(3));
        ports.insert(
            (port, protocol),
            json!({"port": port, "protocol": protocol, "name": name}),
        );
    }
    let ports: Vec<_> = ports.into_values().collect();
    json!({"ports": ports, "type": format!("t{}", numbers.below(2))})
}

#[test]
fn the_holder_of_a_value_that_stands_wins_whatever_its_age() {
    let named = |created: &str, name: &str| claim(created, &json!({"ports": [{"port": 80, "name": name}]}));
    let claims = BTreeMap::from([
        ("old", named("1", "o")),
        ("young", named("2", "y")),
        ("next", named("3", "n")),
    ]);
    let lost = |stands: &Leaves, known: bool| {
        let union = unite(&claims, &holders(stands, &claims, |_, _| !known, |_, _| false));
        let lost = union.lost.into_iter().map(|(name, lost)| (name, lost.holder));
        lost.collect::<Vec<_>>()
    };
    let young = apart(&service(&json!({"ports": [{"port": 80, "name": "y"}]})));
    assert_eq!(lost(&young, true), [("next", Some("young")), ("old", Some("young"))]);
    let nobodys = apart(&service(&json!({"ports": [{"port": 80, "name": "x"}]})));
    assert_eq!(lost(&nobodys, true), [("next", Some("old")), ("young", Some("old"))]);
    assert_eq!(
        lost(&nobodys, false),
        [("next", None), ("old", None), ("young", None)],
        "it may be the field of somebody who has not been asked"
    );
    // Who had it before its claim was changed has it with the new value, too.
    let mut changed = claims.clone();
    changed.get_mut("next").unwrap().held = Some(Arc::new(nobodys.clone()));
    let union = unite(&changed, &holders(&nobodys, &changed, |_, _| false, |_, _| true));
    assert_eq!(union.lost["old"].holder, Some("next"));
    let union = unite(
        &claims,
        &holders(&nobodys, &claims, |_, _| false, |name, _| *name == "young"),
    );
    assert_eq!(
        union.lost["old"].holder,
        Some("young"),
        "it may have held the value that stands"
    );
}

#[test]
fn a_claim_that_is_changed_goes_on_to_hold_what_it_still_wants() {
    let named = |created: &str, name: &str| claim(created, &json!({"ports": [{"port": 80, "name": name}]}));
    let before = named("2", "y");
    let mut claims = BTreeMap::from([("old", named("1", "o")), ("young", named("2", "z"))]);
    claims.get_mut("young").unwrap().held = Some(before.leaves.clone());
    let lost = |claims: &BTreeMap<_, _>| {
        let union = unite(claims, &holders(&before.leaves, claims, |_, _| false, |_, _| false));
        union.lost.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(lost(&claims), ["old"]);
    claims.insert("twin", named("3", "y"));
    assert_eq!(lost(&claims), ["old", "young"], "somebody wants the value that stands");
}

#[test]
fn a_part_that_a_loser_holds_is_nobody_elses() {
    let ports = |created: &str, ports: &[(u32, &str)]| {
        let ports: Vec<_> = ports
            .iter()
            .map(|(port, name)| json!({"port": port, "name": name}))
            .collect();
        claim(created, &json!({"ports": ports}))
    };
    let claims = BTreeMap::from([
        ("a", ports("3", &[(80, "a"), (81, "a")])),
        ("b", ports("2", &[(81, "b")])),
        ("c", ports("1", &[(80, "c")])),
    ]);
    let stands = apart(&service(
        &json!({"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}),
    ));
    let union = unite(&claims, &holders(&stands, &claims, |_, _| false, |_, _| false));
    let lost: Vec<_> = union.lost.iter().map(|(name, lost)| (*name, lost.holder)).collect();
    assert_eq!(lost, [("a", Some("b")), ("c", Some("a"))]);
}

#[test]
fn the_union_holds_and_no_claim_loses_to_a_younger_one() {
    let mut numbers = Numbers(7);
    for _ in 0..500 {
        let claims: BTreeMap<u64, Claim> = (0..numbers.below(6))
            .map(|name| {
                let created = numbers.below(3).to_string();
                (name, claim(&created, &some_spec(&mut numbers)))
            })
            .collect();
        let union = unite(&claims, &Standing::new());
        for (name, claim) in &claims {
            match union.lost.get(name) {
                None => {
                    let has_all = claim
                        .leaves
                        .iter()
                        .all(|(path, leaf)| union.leaves.get(path) == Some(leaf));
                    assert!(has_all, "who did not lose has all that it wants");
                }
                Some(lost) => {
                    let by = lost.holder.unwrap();
                    let holder = &claims[&by];
                    assert!((&holder.age, by) < (&claim.age, *name), "the holder is older");
                    assert!(!union.lost.contains_key(&by), "the holder has it");
                    assert_ne!(holder.leaves.get(&lost.path), claim.leaves.get(&lost.path));
                }
            }
        }
        let winners = claims.iter().filter(|(name, _)| !union.lost.contains_key(name));
        let claimed = |path: &Path| winners.clone().any(|(_, claim)| claim.leaves.contains_key(path));
        assert!(union.leaves.keys().all(claimed), "nothing is held without a claim");
        let body = assemble(&union.leaves);
        assert_eq!(
            apart(&Value::Object(body)),
            union.leaves,
            "put together and taken apart it is the same"
        );
    }
}
