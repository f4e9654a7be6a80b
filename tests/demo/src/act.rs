//! Definition of an act of the demo: one plugin, the objects in its cluster before the host starts, and the steps of
//! its story. Pure: `story` carries out the steps.

use serde_json::Value;

use crate::kind::Kind;
use crate::sample::Sample;
use crate::scene::Scene;

/// One plugin's part of the demo, or what it does for one of its kinds.
pub struct Act {
    /// The plugin's name, which is that of its component too.
    pub plugin: &'static str,
    /// The name of the sample's file.
    pub sample: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// The kind of the sample.
    pub kind: Kind,
    /// What is there before the host is.
    pub seeds: fn() -> Vec<(Kind, Value)>,
    /// What is done, and what has to come of it, in order.
    pub steps: fn(&Sample) -> Vec<Step>,
    /// What there is of the sample beside the objects that it owns: where, and how it is.
    pub contributed: fn(&Scene, &Sample) -> Vec<[String; 2]>,
}

/// A step of an act.
pub enum Step {
    /// Applies the sample.
    Apply,
    /// Changes an object by a merge patch.
    Patch {
        /// As it is told.
        text: String,
        /// Which object.
        object: Place,
        /// `status`, or none for the object itself.
        subresource: Option<&'static str>,
        /// What is changed.
        body: Value,
    },
    /// Makes an object.
    Create {
        /// As it is told.
        text: String,
        /// Its kind.
        kind: Kind,
        /// The whole of it.
        body: Value,
    },
    /// Deletes an object.
    Delete {
        /// As it is told.
        text: String,
        /// Which object.
        object: Place,
    },
    /// Waits until something has come true.
    Until {
        /// What, for the message when it does not.
        what: &'static str,
        /// Whether it has, or what it lacks.
        holds: fn(&Scene, &Sample) -> Result<(), String>,
    },
}

/// Where an object is.
pub struct Place {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace, where its kind has namespaces.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Place {
    /// The object of another kind that has the sample's name and namespace, or the sample itself.
    pub fn like(sample: &Sample, kind: Kind) -> Self {
        Self {
            kind,
            namespace: sample.namespace.clone(),
            name: sample.name.clone(),
        }
    }
}

/// For acts that begin with an empty cluster.
pub fn no_seeds() -> Vec<(Kind, Value)> {
    Vec::new()
}

/// For acts whose plugin owns all that it makes.
pub fn nothing_contributed(_: &Scene, _: &Sample) -> Vec<[String; 2]> {
    Vec::new()
}

/// The error of an expectation that does not hold.
pub fn expect<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, wanted: &T) -> Result<(), String> {
    if is == wanted {
        Ok(())
    } else {
        Err(format!("{what}: {is:?} in place of {wanted:?}"))
    }
}
