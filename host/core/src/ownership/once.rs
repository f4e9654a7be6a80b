//! Remembers which objects were made once for a primary, so that one that is gone is not made again before it gets another token.
//!
//! The memory is an annotation of the primary: `{"pilothouse/PLUGIN": {"objects": {"batch/Job/a/migrate": {"token": "v2",
//! "current": true}}, "uid": "…"}}`. It goes where the primary goes: through restarts and other hosts, and into a backup. The uid keeps a primary that
//! was deleted and made again, or copied with its annotations, from taking over what was made for another one. An annotation needs no
//! schema, unlike a status, and no right to another kind, unlike an object of its own. Whoever may change it may change the primary, and
//! can as well ask for another token.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::kubernetes::key::Key;
use crate::ownership::owner_name;

/// The annotation: of an object that is made once, its token; of the primary, the memory.
pub const ONCE_ANNOTATION: &str = "pilothouse.dev/once";

/// The most objects of one answer that are made once: the memory has to stay small.
pub const MAX_ONCE: usize = 64;

/// The longest token, in bytes.
pub const MAX_TOKEN: usize = 128;

/// Reports whether a text can be a token.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TOKEN && !text.chars().any(char::is_control)
}

/// The objects that a plugin has made once for a primary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The uid of the primary.
    uid: String,
    /// By the name of each object.
    objects: BTreeMap<String, MadeOnce>,
}

/// An object that was made once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MadeOnce {
    token: String,
    /// Set if it was seen to be Current with this token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    current: bool,
}

/// A desired object that is made once.
#[derive(Clone, Copy, Debug)]
pub struct Once<'a> {
    /// The object.
    pub key: &'a Key,
    /// Its token.
    pub token: &'a str,
    /// Set if it exists with this token, and says whether it is Current.
    pub made: Option<bool>,
}

impl Memory {
    /// Reads what a field manager has made for the primary with this uid. A text that no host has written has nothing.
    pub fn read(annotation: Option<&str>, manager: &str, uid: &str) -> Self {
        let memory = parse(annotation).remove(manager);
        let memory: Option<Self> = memory.and_then(|memory| serde_json::from_value(memory).ok());
        memory.filter(|memory| memory.uid == uid).unwrap_or_else(|| Self {
            uid: uid.to_owned(),
            objects: BTreeMap::new(),
        })
    }

    /// Reports whether an object that was made with this token was seen to be Current; none if it was not made with it.
    pub fn made(&self, key: &Key, token: &str) -> Option<bool> {
        let made = self.objects.get(&owner_name(&key.kind, &key.name))?;
        (made.token == token).then_some(made.current)
    }

    /// The memory after the desired objects were applied. One that is no longer desired is forgotten.
    #[must_use]
    pub fn after<'a>(&self, desired: impl Iterator<Item = Once<'a>>) -> Self {
        let mut objects = BTreeMap::new();
        for Once { key, token, made } in desired {
            let name = owner_name(&key.kind, &key.name);
            let known = self.objects.get(&name);
            let next = match made {
                None => known.cloned(),
                Some(current) => Some(MadeOnce {
                    current: current || known.is_some_and(|known| known.token == token && known.current),
                    token: token.to_owned(),
                }),
            };
            objects.extend(next.map(|next| (name, next)));
        }
        Self {
            uid: self.uid.clone(),
            objects,
        }
    }

    /// The annotation with this memory of a field manager; none if nothing is to be remembered.
    pub fn write(&self, annotation: Option<&str>, manager: &str) -> Option<String> {
        let mut all = parse(annotation);
        if self.objects.is_empty() {
            all.remove(manager);
        } else {
            all.insert(manager.to_owned(), json!(self));
        }
        (!all.is_empty()).then(|| Value::Object(all).to_string())
    }
}

/// The whole annotation: for each field manager of a plugin, its memory.
fn parse(annotation: Option<&str>) -> Map<String, Value> {
    annotation
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::key::{Kind, Name};

    const MANAGER: &str = "pilothouse/p";

    fn job(name: &str) -> Key {
        Key::new(Kind::new("batch", "v1", "Job").into(), Name::new(Some("a"), name))
    }

    fn once<'a>(key: &'a Key, token: &'a str, made: Option<bool>) -> Once<'a> {
        Once { key, token, made }
    }

    #[test]
    fn what_was_made_is_remembered_in_the_annotation() {
        let (job, other) = (job("migrate"), job("seed"));
        let nothing = Memory::read(None, MANAGER, "u1");
        assert_eq!(nothing.made(&job, "v1"), None);
        assert_eq!(nothing.write(None, MANAGER), None);
        let made = nothing.after([once(&job, "v1", Some(false)), once(&other, "v1", None)].into_iter());
        let text = made.write(None, MANAGER).unwrap();
        assert_eq!(
            text,
            r#"{"pilothouse/p":{"objects":{"batch/Job/a/migrate":{"token":"v1"}},"uid":"u1"}}"#
        );
        let read = Memory::read(Some(&text), MANAGER, "u1");
        assert_eq!(read, made);
        assert_eq!((read.made(&job, "v1"), read.made(&job, "v2")), (Some(false), None));
        assert_eq!(read.made(&other, "v1"), None, "it could not be made");
    }

    #[test]
    fn a_gone_object_keeps_its_token_until_it_is_made_again() {
        let job = job("migrate");
        let after = |memory: &Memory, token: &str, made| memory.after(std::iter::once(once(&job, token, made)));
        let done = after(&Memory::read(None, MANAGER, "u1"), "v1", Some(true));
        assert_eq!(after(&done, "v1", None), done);
        assert_eq!(after(&done, "v1", Some(false)), done, "it has been Current");
        assert_eq!(after(&done, "v2", None), done, "the new one is not made yet");
        let again = after(&done, "v2", Some(false));
        assert_eq!((again.made(&job, "v1"), again.made(&job, "v2")), (None, Some(false)));
        let nothing = done.after(std::iter::empty());
        assert_eq!(nothing.made(&job, "v1"), None, "it is no longer desired");
        let text = done.write(None, MANAGER);
        assert_eq!(nothing.write(text.as_deref(), MANAGER), None);
    }

    #[test]
    fn a_primary_with_another_uid_begins_anew() {
        let job = job("migrate");
        let memory = Memory::read(None, MANAGER, "u1").after(std::iter::once(once(&job, "v1", Some(true))));
        let text = memory.write(None, MANAGER).unwrap();
        let heir = Memory::read(Some(&text), MANAGER, "u2");
        assert_eq!(heir.made(&job, "v1"), None);
        let text = heir
            .after(std::iter::once(once(&job, "v1", Some(false))))
            .write(Some(&text), MANAGER);
        assert_eq!(Memory::read(text.as_deref(), MANAGER, "u1").made(&job, "v1"), None);
    }

    #[test]
    fn what_other_plugins_have_made_stays() {
        let job = job("migrate");
        let of = |manager: &str, text: Option<&str>| {
            let memory = Memory::read(text, manager, "u1").after(std::iter::once(once(&job, "v1", Some(true))));
            memory.write(text, manager)
        };
        let both = of("pilothouse/other", of(MANAGER, None).as_deref());
        for manager in [MANAGER, "pilothouse/other"] {
            assert_eq!(
                Memory::read(both.as_deref(), manager, "u1").made(&job, "v1"),
                Some(true)
            );
        }
        let nothing = Memory::default().write(both.as_deref(), MANAGER);
        assert!(nothing.unwrap().contains("pilothouse/other"));
        let garbled = Memory::read(None, MANAGER, "u1").write(Some(r#"{"pilothouse/other": 1}"#), MANAGER);
        assert_eq!(garbled.as_deref(), Some(r#"{"pilothouse/other":1}"#));
    }

    #[test]
    fn what_no_host_has_written_counts_as_nothing() {
        for text in [
            "",
            "{",
            "[]",
            r#"{"pilothouse/p":1}"#,
            r#"{"pilothouse/p":{"uid":"u1"}}"#,
        ] {
            assert_eq!(
                Memory::read(Some(text), MANAGER, "u1"),
                Memory::read(None, MANAGER, "u1"),
                "{text}"
            );
        }
        assert!(is_token("v1 ü") && !is_token("") && !is_token("a\nb"));
        assert!(is_token(&"x".repeat(128)) && !is_token(&"x".repeat(129)));
    }
}
