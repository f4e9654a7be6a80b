//! Checks of metadata that are the same for every kind.

use serde_json::{Value, json};

use super::names::{NameForm, labels, object_name, qualified_faults};
use crate::failure::FieldError;
use crate::kinds::Resource;

/// All annotations of an object together.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Finalizers without a domain that are known.
const PLAIN_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

fn name_form(resource: &Resource) -> NameForm {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "services" | "namespaces") => NameForm::Label,
        ("rbac.authorization.k8s.io", _) => NameForm::PathSegment,
        _ => NameForm::Subdomain,
    }
}

pub(super) fn check(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let mut errors = Vec::new();
    let name = metadata["name"].as_str().unwrap_or_default();
    if !name.is_empty() {
        errors.extend(object_name(name_form(resource), name, "metadata.name"));
    }
    errors.extend(labels(&metadata["labels"], "metadata.labels"));
    errors.extend(annotations(&metadata["annotations"]));
    errors.extend(owners(&metadata["ownerReferences"]));
    for (index, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        errors.extend(
            qualified_faults(text)
                .into_iter()
                .map(|fault| FieldError::invalid("metadata.finalizers", finalizer, fault)),
        );
        if resource.custom.is_none() && !text.contains('/') && !PLAIN_FINALIZERS.contains(&text) && !text.contains('.')
        {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                finalizer,
                detail,
            ));
        }
    }
    errors
}

fn annotations(annotations: &Value) -> Vec<FieldError> {
    let path = "metadata.annotations";
    let mut errors = Vec::new();
    let mut size = 0;
    for (name, value) in annotations.as_object().into_iter().flatten() {
        let lower = name.to_lowercase();
        errors.extend(
            qualified_faults(&lower)
                .into_iter()
                .map(|fault| FieldError::invalid(path, &json!(name), fault)),
        );
        size += name.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        errors.push(FieldError::too_long(path, ANNOTATIONS_LIMIT));
    }
    errors
}

fn owners(owners: &Value) -> Vec<FieldError> {
    let path = "metadata.ownerReferences";
    let list = owners.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut errors = Vec::new();
    let mut controller: Option<&Value> = None;
    for (index, owner) in list.iter().enumerate() {
        // The server gives no index here.
        let _ = index;
        for (name, words) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[name].as_str().unwrap_or_default().is_empty() {
                let value = json!(owner[name].as_str().unwrap_or_default());
                errors.push(FieldError::invalid(format!("{path}.{name}"), &value, words));
            }
        }
        if owner["controller"] == true {
            if let Some(first) = controller {
                let text = |owner: &Value, name: &str| owner[name].as_str().unwrap_or_default().to_owned();
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                    text(first, "kind"),
                    text(first, "name"),
                    text(owner, "kind"),
                    text(owner, "name")
                );
                errors.push(FieldError::invalid(path, owners, detail));
            }
            controller = Some(owner);
        }
    }
    errors
}
