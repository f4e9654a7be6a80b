//! Owns the evidence that a plugin has judged an object at admission. That a webhook exists is no evidence: its
//! failure policy may let an object pass unasked, a selector may leave it out, and it may have been stored before. So an
//! object counts as judged only if this process remembers that exactly what the plugin sees of it was judged, by the same
//! component with the same configuration. Whatever is not remembered is judged before it is reconciled.

use std::collections::HashSet;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The most verdicts that are remembered, of all plugins. Those that were not asked for longest are forgotten first, which
/// costs a call of the plugin for each reconcile of their objects. A verdict takes about 50 bytes.
pub const MAX_VERDICTS: usize = 32_768;

/// Metadata that the API server sets between defaulting and validation.
const SET_BETWEEN: [&str; 3] = ["uid", "creationTimestamp", "generation"];

/// What a plugin did with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This is what its defaulter answered. The API server gives the object a uid only afterwards, so that is left out.
    Defaulted,
    /// Its validator let exactly this pass.
    Validated,
}

/// Who judges: a controller of a component with a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// The digest of the component.
    pub component: &'a str,
    /// The controller's name.
    pub controller: &'a str,
    /// The configuration as the plugin is given it.
    pub config: &'a str,
}

/// The digest of a verdict with its judge and its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of what a plugin sees of an object, as JSON; none if that is no JSON. Neither order nor space counts.
    pub fn new(judge: &Judge<'_>, verdict: Verdict, visible: &str) -> Option<Self> {
        let mut visible: Value = serde_json::from_str(visible).ok()?;
        if verdict == Verdict::Defaulted
            && let Some(metadata) = visible.get_mut("metadata").and_then(Value::as_object_mut)
        {
            for name in SET_BETWEEN {
                metadata.remove(name);
            }
        }
        let Judge {
            component,
            controller,
            config,
        } = judge;
        let mut hash = Sha256::new();
        for part in [component, controller, config] {
            add(&mut hash, part.as_bytes());
        }
        hash.update([match verdict {
            Verdict::Defaulted => 0,
            Verdict::Validated => 1,
        }]);
        add_value(&mut hash, &visible);
        Some(Self(hash.finalize().into()))
    }
}

/// With its length before it, so that no two sequences of parts are the same bytes.
fn add(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// A value in a form that depends on neither the order of members nor on space.
fn add_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            hash.update([b'{']);
            hash.update((names.len() as u64).to_le_bytes());
            for name in names {
                add(hash, name.as_bytes());
                add_value(hash, &members[name]);
            }
        }
        Value::Array(items) => {
            hash.update([b'[']);
            hash.update((items.len() as u64).to_le_bytes());
            for item in items {
                add_value(hash, item);
            }
        }
        Value::String(text) => {
            hash.update([b'"']);
            add(hash, text.as_bytes());
        }
        // A number as it is written: another way to write it costs a call, and nothing else.
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_)) => {
            hash.update([b'=']);
            add(hash, scalar.to_string().as_bytes());
        }
    }
}

/// What is remembered.
#[derive(Debug, Default)]
pub struct Evidence {
    recent: HashSet<Fingerprint>,
    /// Those of before `recent` was full the last time.
    older: HashSet<Fingerprint>,
}

impl Evidence {
    /// Whether nothing is remembered at all, as where no webhooks are served.
    pub fn is_empty(&self) -> bool {
        self.recent.is_empty() && self.older.is_empty()
    }

    /// A plugin has judged.
    pub fn record(&mut self, fingerprint: Fingerprint) {
        if self.recent.len() >= MAX_VERDICTS / 2 {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(fingerprint);
    }

    /// Whether a plugin has judged. What is asked for is remembered longer.
    pub fn has(&mut self, fingerprint: Fingerprint) -> bool {
        if self.recent.contains(&fingerprint) {
            return true;
        }
        let is_known = self.older.contains(&fingerprint);
        if is_known {
            self.record(fingerprint);
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = r#"{"kind":"Gate","metadata":{"name":"a","uid":"1","generation":1},"spec":{"size":1,"b":[]}}"#;

    fn judge() -> Judge<'static> {
        Judge {
            component: "c0ffee",
            controller: "gates",
            config: "{}",
        }
    }

    fn of(judge: &Judge<'_>, object: &str) -> Fingerprint {
        Fingerprint::new(judge, Verdict::Validated, object).unwrap()
    }

    #[test]
    fn only_the_same_object_component_and_configuration_have_been_judged() {
        let mut evidence = Evidence::default();
        evidence.record(of(&judge(), OBJECT));
        assert!(evidence.has(of(&judge(), OBJECT)));
        let reordered =
            r#"{"spec": {"b": [], "size": 1}, "metadata": {"uid": "1", "generation": 1, "name": "a"}, "kind": "Gate"}"#;
        assert!(evidence.has(of(&judge(), reordered)), "neither order nor space counts");
        for (from, to) in [
            (r#""size":1"#, r#""size":2"#),
            (r#""size":1"#, r#""size":"1""#),
            (r#""b":[]"#, r#""b":{}"#),
            (r#""b":[]"#, r#""b":[],"c":null"#),
            (r#""name":"a""#, r#""name":"a","finalizers":["x"]"#),
            (r#""uid":"1""#, r#""uid":"2""#),
        ] {
            let other = OBJECT.replace(from, to);
            assert_ne!(other, OBJECT);
            assert!(!evidence.has(of(&judge(), &other)), "{other}");
        }
        let others = [
            Judge {
                component: "decaf",
                ..judge()
            },
            Judge {
                controller: "doors",
                ..judge()
            },
            Judge {
                config: "{\"strict\":true}",
                ..judge()
            },
        ];
        for other in others {
            assert!(!evidence.has(of(&other, OBJECT)), "{other:?}");
        }
        let defaulted = Fingerprint::new(&judge(), Verdict::Defaulted, OBJECT).unwrap();
        assert!(!evidence.has(defaulted), "to have defaults is not to be valid");
    }

    #[test]
    fn what_was_defaulted_is_known_again_with_the_uid_that_it_got() {
        let before = r#"{"metadata":{"name":"a","creationTimestamp":null},"spec":{}}"#;
        let after = r#"{"metadata":{"name":"a","uid":"1","generation":1,"creationTimestamp":"now"},"spec":{}}"#;
        let of = |object| Fingerprint::new(&judge(), Verdict::Defaulted, object);
        assert_eq!(of(before), of(after));
        assert_ne!(of(before), of(&after.replace("\"a\"", "\"b\"")));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_asked_for_stays() {
        let mut evidence = Evidence::default();
        let number = |number: usize| of(&judge(), &format!("{{\"number\":{number}}}"));
        for it in 0..2 * MAX_VERDICTS {
            evidence.record(number(it));
            assert!(evidence.has(number(0)));
        }
        assert!(evidence.recent.len() + evidence.older.len() <= MAX_VERDICTS);
        assert!(!evidence.has(number(1)) && evidence.has(number(2 * MAX_VERDICTS - 1)));
    }
}
