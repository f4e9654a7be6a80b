//! Reads the claims of a bearer token without verifying them. Anybody can write such a token, so the claims decide only
//! whether and when the API server is called.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

/// Unverified claims of a JSON Web Token.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenClaims {
    /// Set if the token is a JSON Web Token that has not expired.
    pub is_current: bool,
    /// Set if the token's audience is the given one.
    pub is_for_audience: bool,
}

impl TokenClaims {
    /// Reads a token; `now` is in seconds since the epoch.
    pub fn read(token: &str, audience: &str, now: i64) -> Self {
        #[derive(Deserialize)]
        struct Payload {
            exp: Option<f64>,
            aud: Option<Value>,
        }
        let mut parts = token.split('.');
        let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Self::default();
        };
        let payload = URL_SAFE_NO_PAD.decode(payload).unwrap_or_default();
        let Ok(Payload { exp, aud }) = serde_json::from_slice(&payload) else {
            return Self::default();
        };
        let is_for_audience = match aud {
            Some(Value::String(own)) => own == audience,
            Some(Value::Array(all)) => all.iter().any(|own| own == audience),
            _ => false,
        };
        #[expect(clippy::cast_precision_loss, reason = "times are far below 2^52")]
        let is_current = exp.is_none_or(|exp| exp > now as f64);
        Self {
            is_current,
            is_for_audience,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_claims_of_a_token_are_read_without_trusting_them() {
        let token = |payload: &str| format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(payload));
        let read = |token: &str| TokenClaims::read(token, "us", 1000);
        let ours = TokenClaims {
            is_current: true,
            is_for_audience: true,
        };
        assert_eq!(read(&token(r#"{"aud":["us"],"exp":1001}"#)), ours);
        assert_eq!(read(&token(r#"{"aud":"us"}"#)), ours);
        assert!(!read(&token(r#"{"aud":["api"],"exp":1001}"#)).is_for_audience);
        assert!(!read(&token(r#"{"exp":1000}"#)).is_current);
        for other in ["", "made-up", "a.b.c", "a.b.c.d", "..", &token("[]")] {
            assert_eq!(read(other), TokenClaims::default(), "{other}");
        }
    }
}
