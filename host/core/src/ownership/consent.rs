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

impl Consent {
    /// Reports whether so many objects may be deleted.
    pub fn allows_deletes(&self, count: u64) -> bool {
        self.deletes.is_some_and(|most| count <= most)
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
