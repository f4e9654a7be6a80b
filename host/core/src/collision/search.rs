//! The search for the fewest fields whose absence makes an apply valid. Each step is an object to try as a dry run.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::merge::{Entries, item_key, merged, remove};
use super::{FieldLocation, foreign_fields};
use crate::kubernetes::fields::{FieldSet, FieldSetElement};
use crate::kubernetes::types::{Shape, Types};

/// The highest number of dry runs of one search.
const MOST_TRIES: u32 = 48;

/// The highest number of fields of one refusal that the search follows.
const MOST_CAUSES: usize = 64;

/// The next step of a search.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// An object to send as a dry run.
    Try(Value),
    /// Fields that make the apply invalid; none if the object would be accepted as it is.
    Found(Vec<FieldLocation>),
    /// The refusal has another cause.
    NotFound,
}

/// A search.
#[derive(Debug)]
pub struct Search<'a> {
    merged: Value,
    types: &'a Types,
    candidates: Vec<FieldLocation>,
    /// Fields left out of the next object, by position among the candidates.
    left_out: BTreeSet<usize>,
    phase: Phase,
    tries: u32,
}

#[derive(Debug)]
enum Phase {
    /// Grows the set of left-out fields: no accepted object is known yet.
    Grow,
    /// Without `accepted` the object is valid. Whether it is without fewer fields is tried in chunks.
    Shrink {
        accepted: Vec<usize>,
        chunk: usize,
        begin: usize,
    },
    Ended(bool),
}

impl<'a> Search<'a> {
    /// Begins with the live object, whole, and the body that was refused.
    pub fn new(live: &Value, body: &Map<String, Value>, entries: &Entries, types: &'a Types) -> Self {
        let merged = merged(live, body, entries, types);
        let candidates = foreign_fields(&merged, body, types);
        Self {
            merged,
            types,
            candidates,
            left_out: BTreeSet::new(),
            phase: Phase::Grow,
            tries: 0,
        }
    }

    /// The next step.
    pub fn next(&self) -> Step {
        match &self.phase {
            Phase::Ended(true) => {
                let fields = self.left_out.iter().map(|index| self.candidates[*index].clone());
                Step::Found(fields.collect())
            }
            Phase::Ended(false) => Step::NotFound,
            Phase::Grow | Phase::Shrink { .. } => Step::Try(self.attempt()),
        }
    }

    fn attempt(&self) -> Value {
        let left_out: Vec<&FieldLocation> = self.left_out.iter().map(|index| &self.candidates[*index]).collect();
        let mut set = FieldSet::default();
        set.add(&left_out);
        let mut attempt = self.merged.clone();
        if !left_out.is_empty() {
            remove(&mut attempt, &set);
        }
        attempt
    }

    /// Records that the server accepted the last object.
    pub fn accepted(&mut self) {
        self.tries += 1;
        let accepted: Vec<usize> = self.left_out.iter().copied().collect();
        match &self.phase {
            Phase::Grow if accepted.len() > 1 => {
                let chunk = accepted.len().div_ceil(2);
                self.shrink(accepted, chunk, 0);
            }
            Phase::Shrink { chunk, begin, .. } if accepted.len() > 1 => {
                let (chunk, begin) = (*chunk, *begin);
                self.shrink(accepted, chunk, begin);
            }
            _ => self.phase = Phase::Ended(true),
        }
    }

    /// Records that the server refused the last object because of these fields, as `details.causes[].field` names them.
    pub fn refused(&mut self, causes: &[String]) {
        self.tries += 1;
        match &self.phase {
            Phase::Grow => {
                let more = self.near(causes);
                self.left_out.extend(&more);
                if more.is_empty() || self.tries >= MOST_TRIES {
                    self.phase = Phase::Ended(false);
                }
            }
            Phase::Shrink { accepted, chunk, begin } => {
                let (accepted, chunk, begin) = (accepted.clone(), *chunk, begin + chunk);
                self.shrink(accepted, chunk, begin);
            }
            Phase::Ended(_) => {}
        }
    }

    /// Tries an accepted set without one chunk of it; where each chunk is needed, with smaller chunks.
    fn shrink(&mut self, accepted: Vec<usize>, mut chunk: usize, mut begin: usize) {
        if begin >= accepted.len() {
            begin = 0;
            // Chunks of one that are all needed are the end.
            if chunk == 1 || self.tries >= MOST_TRIES {
                self.left_out = accepted.into_iter().collect();
                self.phase = Phase::Ended(true);
                return;
            }
            chunk = chunk.div_ceil(2).min(chunk - 1);
        }
        let end = (begin + chunk).min(accepted.len());
        let without = accepted[..begin].iter().chain(&accepted[end..]);
        self.left_out = without.copied().collect();
        self.phase = Phase::Shrink { accepted, chunk, begin };
    }

    /// The candidates closest to the fields that a refusal names and not left out yet.
    fn near(&self, causes: &[String]) -> BTreeSet<usize> {
        let attempt = self.attempt();
        let mut near = BTreeSet::new();
        let whole = [String::new()];
        let causes = if causes.is_empty() { &whole[..] } else { causes };
        for cause in causes.iter().take(MOST_CAUSES) {
            let location = self.locate(&attempt, cause);
            let closest = (0..=location.len()).rev().find_map(|length| {
                let around = &location[..length];
                let found: Vec<usize> = self.around(around).collect();
                (!found.is_empty()).then_some(found)
            });
            near.extend(closest.into_iter().flatten());
        }
        near
    }

    fn around<'b>(&'b self, location: &'b [FieldSetElement]) -> impl Iterator<Item = usize> + 'b {
        let candidates = self.candidates.iter().enumerate();
        candidates.filter_map(move |(index, candidate)| {
            let touches = candidate.starts_with(location) || location.starts_with(candidate);
            (touches && !self.left_out.contains(&index)).then_some(index)
        })
    }

    /// Turns `spec.ports[1].name` into the location of that field of an object: the server counts the items of the object
    /// that it was sent.
    fn locate(&self, object: &Value, cause: &str) -> FieldLocation {
        let mut location = Vec::new();
        let (mut value, mut shape) = (Some(object), self.types.root());
        for token in tokens(cause) {
            let index = token.parse::<usize>().ok();
            let (element, below) = match (value, index, shape) {
                (Some(Value::Array(items)), Some(index), Shape::Map { keys, item }) => {
                    let Some(found) = items.get(index) else { break };
                    let key = FieldSetElement::Key(item_key(found, keys));
                    (key, (Some(found), self.types.resolve(item)))
                }
                (Some(Value::Array(items)), Some(index), _) => {
                    let Some(found) = items.get(index) else { break };
                    (FieldSetElement::Item(found.clone()), (Some(found), &Shape::Leaf))
                }
                (value, _, shape) => {
                    let found = value.and_then(|value| value.get(token));
                    let below = self.types.member(shape, token);
                    (FieldSetElement::Field(token.to_owned()), (found, below))
                }
            };
            location.push(element);
            (value, shape) = below;
        }
        location
    }
}

/// The steps of a field path of Kubernetes (`k8s.io/apimachinery/pkg/util/validation/field`): names after dots, and keys or
/// indexes in brackets.
fn tokens(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = if path == "<nil>" { "" } else { path };
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches('.');
        let (token, after) = match rest.strip_prefix('[') {
            Some(bracket) => bracket.split_once(']')?,
            None if rest.is_empty() => return None,
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        rest = after;
        Some(token)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::key::Kind;

    const OURS: &str = "pilothouse/p";

    fn types() -> Types {
        let named = |key: &str, properties: Value| {
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key],
                   "items": {"type": "object", "properties": properties}})
        };
        let text = json!({"type": "string"});
        let quantities = json!({"type": "object", "additionalProperties": text});
        let handler = json!({"type": "object", "properties": {"port": text}});
        let document = json!({"components": {"schemas": {"x": {
            "x-kubernetes-group-version-kind": [{"group": "x.dev", "version": "v1", "kind": "X"}],
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {
                "ports": named("port", json!({"port": text, "name": text})),
                "containers": named("name", json!({"name": text, "image": text, "memory": text,
                    "limits": quantities, "requests": quantities,
                    "probe": {"type": "object", "properties": {"http": handler, "tcp": handler, "period": text}}})),
                "strategy": {"type": "object", "properties": {"type": text, "rolling": {"type": "object"}}},
            }}},
        }}}});
        Types::parse(&document.to_string(), &Kind::new("x.dev", "v1", "X")).unwrap()
    }

    /// Runs a search against rules: each names a field of an object that it refuses.
    fn search(live: &Value, body: &Value, rules: impl Fn(&Value) -> Vec<&'static str>) -> (Option<Vec<String>>, u32) {
        let types = types();
        let entries = Entries::read(live, OURS);
        let mut search = Search::new(live, body.as_object().unwrap(), &entries, &types);
        loop {
            match search.next() {
                Step::Try(object) => {
                    let causes: Vec<String> = rules(&object).into_iter().map(str::to_owned).collect();
                    if causes.is_empty() {
                        search.accepted();
                    } else {
                        search.refused(&causes);
                    }
                }
                Step::Found(fields) => {
                    let fields = fields.iter().map(|field| super::super::display(field)).collect();
                    return (Some(fields), search.tries);
                }
                Step::NotFound => return (None, search.tries),
            }
        }
    }

    fn found(live: &Value, body: &Value, rules: impl Fn(&Value) -> Vec<&'static str>) -> Vec<String> {
        search(live, body, rules).0.expect("the search ends with fields")
    }

    #[test]
    fn a_second_item_with_our_name_is_found() {
        let live = json!({"spec": {"ports": [{"port": "81", "name": "web"}, {"port": "9", "name": "other"}]}});
        let body = json!({"spec": {"ports": [{"port": "80", "name": "web"}]}});
        let rules = |object: &Value| {
            let ports = object["spec"]["ports"].as_array().unwrap();
            let named = ports.iter().filter(|port| port["name"] == "web").count();
            if named > 1 { vec!["spec.ports[2].name"] } else { vec![] }
        };
        assert_eq!(found(&live, &body, rules), [r#".spec.ports[{"port":"81"}]"#]);
    }

    #[test]
    fn another_member_of_a_one_of_is_found_and_defaults_stay() {
        let probe = json!({"tcp": {"port": "80"}, "period": "10"});
        let live = json!({"spec": {"containers": [{"name": "a", "memory": "x", "probe": probe}]}});
        let body = json!({"spec": {"containers": [{"name": "a", "probe": {"http": {"port": "80"}}}]}});
        let rules = |object: &Value| {
            let probe = &object["spec"]["containers"][0]["probe"];
            if probe["tcp"].is_object() && probe["http"].is_object() {
                vec!["spec.containers[0].probe.tcp"]
            } else {
                vec![]
            }
        };
        assert_eq!(
            found(&live, &body, rules),
            [r#".spec.containers[{"name":"a"}].probe.tcp"#]
        );
    }

    #[test]
    fn a_member_of_a_map_is_found_beside_the_field_that_is_named() {
        let live = json!({"spec": {"containers": [{"name": "a", "limits": {"cpu": "1", "memory": "1"}}]}});
        let body = json!({"spec": {"containers": [{"name": "a", "requests": {"cpu": "2"}}]}});
        let rules = |object: &Value| {
            let limit = object["spec"]["containers"][0]["limits"]["cpu"].as_str();
            if limit == Some("1") {
                vec!["spec.containers[0].requests"]
            } else {
                vec![]
            }
        };
        assert_eq!(
            found(&live, &body, rules),
            [r#".spec.containers[{"name":"a"}].limits.cpu"#]
        );
    }

    #[test]
    fn what_is_left_of_an_item_that_a_co_owner_holds_is_found() {
        let ours =
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"old\"}": {".": {}, "f:name": {}, "f:image": {}}}}});
        let theirs = json!({"f:spec": {"f:containers": {"k:{\"name\":\"old\"}": {"f:name": {}, "f:memory": {}}}}});
        let live = json!({
            "metadata": {"managedFields": [
                {"manager": OURS, "operation": "Apply", "fieldsV1": ours},
                {"manager": "co-owner", "operation": "Apply", "fieldsV1": theirs},
            ]},
            "spec": {"containers": [{"name": "old", "image": "i", "memory": "x"}]},
        });
        let body = json!({"spec": {"containers": [{"name": "new", "image": "i"}]}});
        let rules = |object: &Value| {
            let containers = object["spec"]["containers"].as_array().unwrap();
            if containers.iter().any(|it| it["image"].is_null()) {
                vec!["spec.containers[0].image"]
            } else {
                vec![]
            }
        };
        assert_eq!(found(&live, &body, rules), [r#".spec.containers[{"name":"old"}]"#]);
        let entries = Entries::read(&live, OURS);
        let location = foreign_fields(
            &merged(&live, body.as_object().unwrap(), &entries, &types()),
            body.as_object().unwrap(),
            &types(),
        );
        assert_eq!(super::super::holders(&entries, &location[0]), ["co-owner"]);
    }

    #[test]
    fn only_the_fields_that_collide_are_taken_where_none_is_named() {
        let items: Vec<Value> = (0..20)
            .map(|number| json!({"port": number.to_string(), "name": "n"}))
            .collect();
        let live = json!({"spec": {"ports": items}});
        let body = json!({"spec": {"ports": [{"port": "80"}], "strategy": {"type": "x"}}});
        let rules = |object: &Value| {
            let ports = object["spec"]["ports"].as_array().unwrap();
            let collide = ports
                .iter()
                .filter(|port| ["3", "17"].contains(&port["port"].as_str().unwrap()))
                .count();
            if collide > 0 { vec!["<nil>"] } else { vec![] }
        };
        let (fields, tries) = search(&live, &body, rules);
        assert_eq!(
            fields.unwrap(),
            [r#".spec.ports[{"port":"3"}]"#, r#".spec.ports[{"port":"17"}]"#]
        );
        assert!(tries < MOST_TRIES, "{tries} dry runs");
    }

    #[test]
    fn search_finds_no_fields_for_immutable_field_or_wrong_body() {
        let live = json!({"spec": {"strategy": {"type": "a", "rolling": {}}, "ports": [{"port": "1"}]}});
        let body = json!({"spec": {"strategy": {"type": "b"}}});
        let (fields, tries) = search(&live, &body, |_| vec!["spec.strategy.type"]);
        assert_eq!(fields, None);
        assert!(tries <= 4, "{tries} dry runs");
    }

    #[test]
    fn moved_fields_are_in_our_entry_alone() {
        let theirs = json!({"f:spec": {"f:strategy": {"f:rolling": {"f:max": {}}}, "f:ports": {}}});
        let managed = [
            json!({"manager": "kubectl-edit", "operation": "Update", "fieldsV1": theirs}),
            json!({"manager": OURS, "operation": "Apply", "fieldsV1": {"f:spec": {"f:strategy": {"f:type": {}}}}}),
            json!({"manager": "x", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}}),
        ];
        let field = |name: &str| FieldSetElement::Field(name.to_owned());
        let location = vec![field("spec"), field("strategy"), field("rolling")];
        let moved = super::super::move_to_us(&managed, &[location], OURS, "x.dev/v1");
        let held = |index: usize| moved[index]["fieldsV1"].clone();
        assert_eq!(held(0), json!({"f:spec": {"f:ports": {}}}));
        assert_eq!(moved[1], managed[2]);
        assert_eq!(
            held(2),
            json!({"f:spec": {"f:strategy": {"f:type": {}, "f:rolling": {}}}})
        );
    }

    #[test]
    fn a_search_takes_a_few_steps_for_each_field() {
        crate::kubernetes::fields::assert_linear("a search", [400, 4000], |items: usize| {
            let port = |number: usize| json!({"port": number.to_string(), "name": "n"});
            let key = |number: usize| format!(r#"k:{{"port":"{number}"}}"#);
            let held = |numbers: std::ops::Range<usize>| -> Map<String, Value> {
                let entries = numbers.map(|number| (key(number), json!({".": {}, "f:port": {}, "f:name": {}})));
                entries.collect()
            };
            let entry = |manager: &str, numbers| json!({"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:ports": held(numbers)}}});
            let live = json!({
                "metadata": {"managedFields": [entry(OURS, 0..items), entry("other", items / 2..2 * items)]},
                "spec": {"ports": (0..2 * items).map(port).collect::<Vec<_>>()},
            });
            let body = json!({"spec": {"ports": (0..items / 4).map(port).collect::<Vec<_>>()}});
            let (types, entries) = (types(), Entries::read(&live, OURS));
            let mut search = Search::new(&live, body.as_object().unwrap(), &entries, &types);
            assert!(!search.candidates.is_empty());
            for _ in 0..2 {
                assert!(matches!(search.next(), Step::Try(_)));
                search.refused(&[]);
            }
        });
    }
}
