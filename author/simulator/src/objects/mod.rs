//! Verbs on objects: the effect of a request on the store, and its response. Knows nothing of HTTP.

pub(crate) mod bind;
pub(crate) mod body;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod patch;
pub(crate) mod prepare;
pub(crate) mod read;
pub(crate) mod scale;
pub(crate) mod update;

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use crate::failure::Failure;
use crate::faults::Rewrite;
use crate::kinds::Resource;
use crate::request::Options;
use crate::resource::Key;

/// One request to a resource.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) resource: Arc<Resource>,
    /// None where the path names no namespace: a cluster-scoped resource, or a list over all namespaces.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    /// Empty for the resource itself.
    pub(crate) subresource: String,
    pub(crate) options: Options,
    /// The change that a mutating webhook makes, as a fault says.
    pub(crate) rewrite: Option<Rewrite>,
}

impl Call {
    /// A write by one of the control plane's own controllers.
    pub(crate) fn internal(resource: &Arc<Resource>, key: &Key, subresource: &str, manager: &str) -> Self {
        Self {
            resource: resource.clone(),
            namespace: resource.namespaced.then(|| key.namespace.clone()),
            name: Some(key.name.clone()),
            subresource: subresource.to_owned(),
            options: Options::internal(manager),
            rewrite: None,
        }
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(
            self.namespace.as_deref().unwrap_or_default(),
            self.name.as_deref().unwrap_or_default(),
        )
    }

    pub(crate) fn not_found(&self) -> Failure {
        Failure::not_found(
            &self.resource.group,
            &self.resource.plural,
            self.name.as_deref().unwrap_or_default(),
        )
    }
}

/// Response of a verb.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) value: Value,
    pub(crate) warnings: Vec<String>,
    /// Set if the value is an object or a list of the resource, which can be shown as a table.
    pub(crate) of_resource: bool,
}

impl Answer {
    pub(crate) fn object(value: Value) -> Self {
        Self {
            code: StatusCode::OK,
            value,
            warnings: Vec::new(),
            of_resource: true,
        }
    }

    pub(crate) fn created(value: Value) -> Self {
        Self {
            code: StatusCode::CREATED,
            ..Self::object(value)
        }
    }

    pub(crate) fn other(value: Value) -> Self {
        Self {
            of_resource: false,
            ..Self::object(value)
        }
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        self
    }
}

/// The most bytes of an object that the store takes, etcd's `--max-request-bytes`.
const MOST_STORED_BYTES: usize = 1024 * 1024 * 3 / 2;

/// Refuses an object that is larger than the store takes. Objects of built-in kinds are stored in a form that is somewhat
/// smaller than the JSON that is counted here.
fn check_size(object: &Value) -> Result<(), Failure> {
    match object.to_string().len() {
        bytes if bytes > MOST_STORED_BYTES => Err(Failure::object_too_large(bytes)),
        _ => Ok(()),
    }
}
