//! Parses a user's consent to actions that the host refuses by default. There is one notation: the annotation
//! [`ACCEPT`] of a Plugin, such as `deletes=300`, which `--accept` of the commands writes. Several parts are separated
//! by commas.

use std::fmt;
use std::str::FromStr;

/// The annotation of a Plugin with the accepted actions.
pub const ACCEPT: &str = "pilothouse.dev/accept";

/// Accepted actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// The highest number of objects that a version may delete because it is another plugin, or lacks a controller.
    pub deletes: Option<u64>,
}

/// The text is not a consent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} says nothing that can be accepted; give deletes=NUMBER")]
pub struct ConsentError(String);

/// A command would delete another number of objects than the user accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct NotAccepted {
    /// The number of objects that would be deleted.
    pub deletes: u64,
    /// The accepted number, if any.
    pub accepted: Option<u64>,
}

impl fmt::Display for NotAccepted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deletes, accepted } = self;
        let objects = if *deletes == 1 { "object" } else { "objects" };
        write!(formatter, "it would delete {deletes} {objects}")?;
        match accepted {
            Some(accepted) => write!(formatter, ", and --accept deletes={accepted} accepts {accepted}")?,
            None => formatter.write_str(", which --yes alone does not accept")?,
        }
        match deletes {
            0 => formatter.write_str("; nothing was changed. Leave --accept out"),
            deletes => write!(
                formatter,
                "; nothing was changed. If that is meant, run the command again with --accept deletes={deletes}"
            ),
        }
    }
}

impl Consent {
    /// Reports whether so many objects may be deleted. More than are there may be accepted: a host counts them again
    /// when objects may have changed since the user looked.
    pub fn allows_deletes(&self, count: u64) -> bool {
        self.deletes.is_some_and(|most| count <= most)
    }

    /// Checks a consent against what a command has just found out: the numbers have to be equal.
    pub fn check_deletes(consent: Option<&Self>, deletes: u64) -> Result<(), NotAccepted> {
        let accepted = consent.and_then(|consent| consent.deletes);
        if accepted.unwrap_or_default() == deletes {
            return Ok(());
        }
        Err(NotAccepted { deletes, accepted })
    }
}

impl FromStr for Consent {
    type Err = ConsentError;

    fn from_str(text: &str) -> Result<Self, ConsentError> {
        let mut consent = Self::default();
        for part in text.split(',').map(str::trim) {
            let wrong = || ConsentError(part.to_owned());
            let (what, value) = part.split_once('=').ok_or_else(wrong)?;
            let known = match what.trim() {
                "deletes" => &mut consent.deletes,
                _ => return Err(wrong()),
            };
            *known = Some(value.trim().parse().map_err(|_| wrong())?);
        }
        Ok(consent)
    }
}

/// Formats the consent as in the annotation.
impl fmt::Display for Consent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deletes } = self;
        let parts = [("deletes", deletes)];
        let parts = parts.into_iter().filter_map(|(what, value)| Some((what, (*value)?)));
        let parts: Vec<_> = parts.map(|(what, value)| format!("{what}={value}")).collect();
        formatter.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_accepts_exactly_what_it_deletes() {
        let check = |accepted: Option<u64>, deletes| {
            let consent = Consent { deletes: accepted };
            Consent::check_deletes(Some(&consent), deletes).map_err(|error| error.to_string())
        };
        for (accepted, deletes) in [(None, 0), (Some(0), 0), (Some(4), 4)] {
            assert_eq!(check(accepted, deletes), Ok(()));
        }
        assert_eq!(Consent::check_deletes(None, 0), Ok(()));
        for (accepted, deletes, words) in [
            (
                None,
                4,
                "which --yes alone does not accept; nothing was changed. If that is meant, run the command again with --accept deletes=4",
            ),
            (
                Some(3),
                4,
                "it would delete 4 objects, and --accept deletes=3 accepts 3",
            ),
            (Some(5), 1, "it would delete 1 object, and --accept deletes=5 accepts 5"),
            (Some(2), 0, "Leave --accept out"),
        ] {
            let said = check(accepted, deletes).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn a_consent_names_what_is_accepted_and_up_to_how_many() {
        let consent: Consent = " deletes = 300 ".parse().unwrap();
        assert_eq!(consent.to_string(), "deletes=300");
        assert!(consent.allows_deletes(300) && !consent.allows_deletes(301));
        assert!(!Consent::default().allows_deletes(0), "nothing was said");
        for text in [
            "",
            "deletes",
            "deletes=",
            "deletes=-1",
            "deletes=all",
            "delete=1",
            "deletes=1,",
            "deletes=1,x=2",
        ] {
            assert!(text.parse::<Consent>().is_err(), "{text}");
        }
    }
}
