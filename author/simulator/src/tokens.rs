//! Tokens of service accounts: issued for accounts that exist, and valid for as long as they do.

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::state::State;

/// Prefix of a token.
const MARK: &str = "simulated:";

/// A service account whose token is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRequest {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl TokenRequest {
    /// Parses the path of a token request; none if it is another path.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let path = path.strip_prefix("/api/v1/namespaces/")?.strip_suffix("/token")?;
        let (namespace, name) = path.split_once("/serviceaccounts/")?;
        (!name.contains('/')).then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// The answer.
    pub(crate) fn grant(&self, state: &State, body: &[u8]) -> Result<Value, Failure> {
        let Self { namespace, name } = self;
        let account = state.get("", "serviceaccounts", namespace, name);
        let account = account.ok_or_else(|| Failure::not_found("", "serviceaccounts", name))?;
        let uid = account["metadata"]["uid"].as_str().unwrap_or_default();
        let mut answer: Value = serde_json::from_slice(body).unwrap_or_default();
        answer["status"] = json!({"token": format!("{MARK}{namespace}:{name}:{uid}")});
        Ok(answer)
    }
}

/// Returns the user of a header's token; none if it has none, an error if the token is no longer valid.
pub(crate) fn user(state: &State, authorization: &str) -> Result<Option<String>, Failure> {
    let Some(token) = authorization
        .strip_prefix("Bearer ")
        .and_then(|token| token.strip_prefix(MARK))
    else {
        return Ok(None);
    };
    let mut parts = token.splitn(3, ':');
    let (namespace, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let account = state.get("", "serviceaccounts", namespace, name);
    let is_good = account.is_some_and(|account| account["metadata"]["uid"].as_str() == parts.next());
    if !is_good {
        return Err(Failure::injected(401, None));
    }
    Ok(Some(format!("system:serviceaccount:{namespace}:{name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_requested_by_the_path_of_its_account() {
        let path = "/api/v1/namespaces/system/serviceaccounts/web/token";
        let asked = TokenRequest::of(path).map(|asked| (asked.namespace, asked.name));
        assert_eq!(asked, Some(("system".to_owned(), "web".to_owned())));
        for path in [
            "/api/v1/namespaces/a/serviceaccounts/web",
            "/api/v1/namespaces/a/pods/b/token",
        ] {
            assert_eq!(TokenRequest::of(path), None, "{path}");
        }
    }
}
