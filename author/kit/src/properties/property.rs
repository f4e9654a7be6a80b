//! Properties that `check` judges.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// Property that every plugin must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// Equal inputs give equal answers, whatever the number of failures before.
    Equal,
    /// The plugin's objects, fed back, change nothing after a few rounds.
    FixedPoint,
    /// Only declared kinds are touched, and the answer depends on declared fields only.
    Declared,
    /// Objects and status fit their schemas, and are stored as they are applied.
    Valid,
    /// The order of a map's members, and of lists that are sets or maps, in the object and in those that are read, makes no
    /// difference.
    Order,
    /// No object that can be stored makes the plugin trap, exceed a limit or give an invalid answer.
    NoTrap,
    /// The finalizer releases a deleted object, and leaves nothing. Objects without a finalizer are not checked: the
    /// host deletes their children.
    Deletion,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Equal,
        Self::FixedPoint,
        Self::Declared,
        Self::Valid,
        Self::Order,
        Self::NoTrap,
        Self::Deletion,
    ];

    /// Name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::FixedPoint => "fixed-point",
            Self::Declared => "declared",
            Self::Valid => "valid",
            Self::Order => "order",
            Self::NoTrap => "no-trap",
            Self::Deletion => "deletion",
        }
    }

    /// Statement of the property.
    pub fn statement(self) -> &'static str {
        match self {
            Self::Equal => "equal inputs give equal answers",
            Self::FixedPoint => "a fixed point is reached",
            Self::Declared => "only declared kinds and fields are touched",
            Self::Valid => "the output is valid and canonical",
            Self::Order => "order without meaning makes no difference",
            Self::NoTrap => "no object that can be stored makes the plugin trap",
            Self::Deletion => "deletion leaves nothing",
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Property {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|property| property.as_str() == text);
        named.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("there is no property {text:?}; there are: {names}")
        })
    }
}
