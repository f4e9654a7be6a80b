//! The position of a walk through an object. Its path is built only on request: built at every step, a long name would
//! cost quadratic time.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::text::printable::shorten;

/// The longest shown path, in bytes.
const SHOWN_BYTES: usize = 512;

/// A position within an object, linked to the positions around it.
#[derive(Clone, Copy)]
pub(crate) struct Trail<'a> {
    around: Option<&'a Trail<'a>>,
    step: TrailStep<'a>,
}

#[derive(Clone, Copy, Hash)]
enum TrailStep<'a> {
    Member(&'a str),
    Item(&'a str),
}

impl<'a> Trail<'a> {
    /// A member of the object.
    pub(crate) fn root(name: &'a str) -> Self {
        Self {
            around: None,
            step: TrailStep::Member(name),
        }
    }

    /// A member of this position.
    pub(crate) fn member(&'a self, name: &'a str) -> Self {
        Self {
            around: Some(self),
            step: TrailStep::Member(name),
        }
    }

    /// An item of the list at this position.
    pub(crate) fn item(&'a self, text: &'a str) -> Self {
        Self {
            around: Some(self),
            step: TrailStep::Item(text),
        }
    }

    /// A hash of the path, from the hash of the path around it.
    pub(crate) fn hash_after(&self, around: u64) -> u64 {
        let mut hasher = DefaultHasher::new();
        around.hash(&mut hasher);
        self.step.hash(&mut hasher);
        hasher.finish()
    }

    /// The path for messages, such as `.spec.ports[{"port":80}]`. A long one is truncated.
    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        self.write(&mut path);
        shorten(path, SHOWN_BYTES)
    }

    fn write(&self, path: &mut String) {
        if let Some(around) = self.around {
            around.write(path);
        }
        if path.len() > SHOWN_BYTES {
            return;
        }
        let mut push = |text: &str| path.extend(text.chars().take(SHOWN_BYTES + 1));
        match self.step {
            TrailStep::Member(name) => {
                push(".");
                push(name);
            }
            TrailStep::Item(text) => {
                push("[");
                push(text);
                push("]");
            }
        }
    }
}
