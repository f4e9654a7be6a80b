//! Computes, parses and formats SHA-256 digests. Pilothouse supports no other algorithm: cosign, wkg and oras write
//! SHA-256, and one algorithm leaves nothing to negotiate.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of a digest.
const DIGITS: usize = 64;

/// The SHA-256 digest of a manifest or a blob, written `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The text is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// The algorithm is another one.
    #[error("the digest {0:?} is not a SHA-256 digest; write sha256: and {DIGITS} hexadecimal digits")]
    Algorithm(String),
    /// The text does not have the form of a digest.
    #[error("{0:?} is not a digest; write sha256: and {DIGITS} lower-case hexadecimal digits")]
    Form(String),
}

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest that was computed elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hexadecimal digits without the algorithm.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        self.0.iter().fold(String::with_capacity(DIGITS), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || DigestError::Form(text.chars().take(2 * DIGITS).collect());
        let (algorithm, digits) = text.split_once(':').ok_or_else(form)?;
        if algorithm != "sha256" {
            return Err(DigestError::Algorithm(text.chars().take(2 * DIGITS).collect()));
        }
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != DIGITS || !digits.bytes().all(is_digit) {
            return Err(form());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| form())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| form())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_digest_is_read_and_written_in_one_form() {
        assert_eq!(Digest::of(b"").to_string(), EMPTY);
        assert_eq!(EMPTY.parse::<Digest>(), Ok(Digest::of(b"")));
        assert_eq!(serde_json::to_string(&Digest::of(b"")).unwrap(), format!("{EMPTY:?}"));
    }

    #[test]
    fn what_is_no_digest_is_refused_with_its_form() {
        for text in [
            "",
            "sha256",
            "sha256:",
            "e3b0",
            &EMPTY.to_uppercase().replace("SHA", "sha"),
            &EMPTY[..70],
        ] {
            let error = text.parse::<Digest>().unwrap_err();
            assert!(matches!(error, DigestError::Form(_)), "{text}: {error}");
        }
        assert!(matches!("sha512:00".parse::<Digest>(), Err(DigestError::Algorithm(_))));
        assert!(format!("sha256:é{}", &EMPTY[9..]).parse::<Digest>().is_err());
    }
}
