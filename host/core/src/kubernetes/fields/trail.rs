//! The place of a walk through an object, told only where somebody wants to know: a path that is made at every step would
//! cost the square of a long name.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::text::printable::shorten;

/// The most bytes of a path that people are shown.
const SHOWN_BYTES: usize = 512;

/// A place within an object, linked to the places around it.
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

    /// A member of what is here.
    pub(crate) fn member(&'a self, name: &'a str) -> Self {
        Self {
            around: Some(self),
            step: TrailStep::Member(name),
        }
    }

    /// An item of the list that is here.
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

    /// The path for people, such as `.spec.ports[{"port":80}]`. A long one is cut short.
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
