//! Definition of an act of the demo: one plugin, the objects in its cluster before the host starts, and the steps of
//! its story. Pure: `story` carries out the steps.

use serde_json::Value;

use crate::kind::Kind;
use crate::sample::Sample;
use crate::scene::Scene;

/// One plugin's part of the demo, or that of one of its kinds.
pub struct Act {
    /// The plugin's name, which is that of its component too.
    pub plugin: &'static str,
    /// The name of the sample's file.
    pub sample: &'static str,
    /// Description of the plugin, in a sentence.
    pub about: &'static str,
    /// The kind of the sample.
    pub kind: Kind,
    /// Objects that exist before the host starts.
    pub seeds: fn() -> Vec<(Kind, Value)>,
    /// Steps, and their expected results, in order.
    pub steps: fn(&Sample) -> Vec<Step>,
    /// State of the sample beside its children: places and texts.
    pub contributed: fn(&Scene, &Sample) -> Vec<[String; 2]>,
}

/// A step of an act.
pub enum Step {
    /// Applies the sample.
    Apply,
    /// Changes an object by a merge patch.
    Patch {
        /// Text that is shown.
        text: String,
        /// The object.
        object: Place,
        /// `status`, or none for the object itself.
        subresource: Option<&'static str>,
        /// Merge patch of the object.
        body: Value,
    },
    /// Makes an object.
    Create {
        /// Text that is shown.
        text: String,
        /// Its kind.
        kind: Kind,
        /// The whole of it.
        body: Value,
    },
    /// Deletes an object.
    Delete {
        /// Text that is shown.
        text: String,
        /// The object.
        object: Place,
    },
    /// Waits until something has come true.
    Until {
        /// Name of the expectation, for the message when it does not hold.
        what: &'static str,
        /// Check of the expectation; its error is the missing part.
        holds: fn(&Scene, &Sample) -> Result<(), String>,
    },
}

/// Place of an object.
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

/// Seeds of acts that begin with an empty cluster.
pub fn no_seeds() -> Vec<(Kind, Value)> {
    Vec::new()
}

/// State of acts whose plugin owns all that it makes.
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
