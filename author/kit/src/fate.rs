//! The fate that a step of a scenario gives to the pods of an object.

use serde::Deserialize;

/// Fate of the pods of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// The pods run and are ready.
    Available,
    /// Their containers exit with an error, over and over where they are restarted.
    Failed,
    /// The pods exit with success.
    Completed,
}
