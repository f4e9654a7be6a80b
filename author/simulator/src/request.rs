//! Parts of a request beside its body: query parameters, headers, options.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};
use serde_json::Value;

use crate::failure::{Failure, FieldError};

/// Field managers longer than this are refused.
const MANAGER_LIMIT: usize = 128;

/// Decoded query parameters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(name), percent_decode(value))
        });
        // Where a parameter is given several times, the first one counts.
        let mut query = BTreeMap::new();
        for (name, value) in pairs {
            query.entry(name).or_insert(value);
        }
        Self(query)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.text(name), "true" | "1")
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }
}

/// Decodes `%41` and `+`; invalid escapes stay as they are.
pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let escape = (bytes[index] == b'%')
            .then(|| text.get(index + 1..index + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (escape, bytes[index]) {
            (Some(byte), _) => {
                decoded.push(byte);
                index += 3;
            }
            (None, b'+') => {
                decoded.push(b' ');
                index += 1;
            }
            (None, byte) => {
                decoded.push(byte);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Handling of fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The form in which the client wants objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Table,
    Metadata,
}

/// Headers and parameters that every verb understands.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) query: Query,
    pub(crate) field_validation: FieldValidation,
    pub(crate) dry_run: bool,
    pub(crate) user_agent: String,
    /// User that the client impersonates.
    pub(crate) impersonated: Option<String>,
    pub(crate) form: Form,
}

impl Options {
    pub(crate) fn read(query: Query, headers: &HeaderMap) -> Result<Self, Failure> {
        let header = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let field_validation = match query.text("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                let error = FieldError::not_supported(
                    "fieldValidation",
                    &Value::from(other),
                    &["", "Ignore", "Strict", "Warn"],
                );
                return Err(Failure::invalid("meta.k8s.io", "CreateOptions", "", &[error]));
            }
        };
        let dry_run = match query.text("dryRun") {
            "" => false,
            "All" => true,
            other => {
                let error = FieldError::not_supported("dryRun", &Value::from(vec![other]), &["All"]);
                return Err(Failure::invalid("meta.k8s.io", "CreateOptions", "", &[error]));
            }
        };
        Ok(Self {
            field_validation,
            dry_run,
            user_agent: header(USER_AGENT.as_str()),
            impersonated: Some(header("impersonate-user")).filter(|user| !user.is_empty()),
            form: form(&header(ACCEPT.as_str()))?,
            query,
        })
    }

    /// Options of a write by one of the control plane's own controllers.
    pub(crate) fn internal(manager: &str) -> Self {
        Self {
            query: Query::default(),
            field_validation: FieldValidation::Ignore,
            dry_run: false,
            user_agent: manager.to_owned(),
            impersonated: None,
            form: Form::Plain,
        }
    }

    /// The field manager: as given, else the beginning of the user agent.
    pub(crate) fn manager(&self, options_kind: &str) -> Result<String, Failure> {
        let given = self.query.text("fieldManager");
        if given.len() > MANAGER_LIMIT {
            let error = FieldError::too_long("fieldManager", MANAGER_LIMIT);
            return Err(Failure::invalid("meta.k8s.io", options_kind, "", &[error]));
        }
        if given.is_empty() {
            let agent = self.user_agent.split('/').next().unwrap_or_default();
            let cut: String = agent
                .chars()
                .filter(|letter| !letter.is_control())
                .take(MANAGER_LIMIT)
                .collect();
            return Ok(if cut.is_empty() { "unknown".to_owned() } else { cut });
        }
        Ok(given.to_owned())
    }
}

/// Reads an Accept header; the first form that is understood wins.
fn form(accept: &str) -> Result<Form, Failure> {
    if accept.trim().is_empty() {
        return Ok(Form::Plain);
    }
    for part in accept.split(',') {
        let mut words = part.split(';').map(str::trim);
        let media = words.next().unwrap_or_default();
        if !["application/json", "application/*", "*/*", "application/yaml"].contains(&media) {
            continue;
        }
        let (mut wanted, mut version) = ("", "v1");
        for word in words {
            match word.split_once('=') {
                Some(("as", value)) => wanted = value,
                Some(("v", value)) => version = value,
                _ => {}
            }
        }
        match (wanted, version) {
            // Discovery is answered elsewhere.
            ("" | "APIGroupDiscoveryList", _) => return Ok(Form::Plain),
            ("Table", "v1") => return Ok(Form::Table),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "v1") => return Ok(Form::Metadata),
            _ => {}
        }
    }
    Err(Failure::not_acceptable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_plus_signs_are_decoded() {
        let query = Query::parse("labelSelector=app%3Dweb%2Ctier+in+(a)&watch=1&limit=5");
        assert_eq!(query.text("labelSelector"), "app=web,tier in (a)");
        assert!(query.flag("watch"));
        assert_eq!(query.number("limit"), Some(5));
    }

    #[test]
    fn kubectl_gets_tables_and_the_metadata_client_metadata() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(form(table).ok(), Some(Form::Table));
        assert_eq!(
            form("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").ok(),
            Some(Form::Metadata)
        );
        assert_eq!(
            form("application/vnd.kubernetes.protobuf,application/json").ok(),
            Some(Form::Plain)
        );
        assert!(form("application/vnd.kubernetes.protobuf").is_err());
    }

    #[test]
    fn the_user_agent_is_the_manager_where_none_is_given() {
        let mut headers = HeaderMap::new();
        headers.insert(
            USER_AGENT,
            "kubectl/v1.36 (linux)".parse().expect("a plain header value"),
        );
        let options = Options::read(Query::default(), &headers).expect("nothing is wrong");
        assert_eq!(options.manager("CreateOptions").ok().as_deref(), Some("kubectl"));
    }
}
