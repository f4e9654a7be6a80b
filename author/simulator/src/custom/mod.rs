//! Rules that a CRD's version sets for its objects. `definition` reads the CRD itself.

pub(crate) mod definition;
mod rules;
mod structural;
mod validate;

use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) use structural::Nulls;

use serde_json::Value;

use crate::failure::FieldError;
use crate::schema::Schema;

/// A column that a CRD adds to the table of its objects.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) priority: i64,
    pub(crate) path: String,
}

/// Paths of the scale subresource's numbers.
#[derive(Debug, Clone)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

/// One version of a custom resource.
#[derive(Debug, Clone)]
pub(crate) struct CustomKind {
    pub(crate) storage_version: String,
    pub(crate) storage_schema: Arc<Schema>,
    pub(crate) schema: Arc<Schema>,
    /// The schema as the CRD gives it, to be published.
    pub(crate) text: Value,
    pub(crate) columns: Vec<Column>,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) selectable: Vec<String>,
    /// Set if a webhook converts objects between versions.
    pub(crate) converted: bool,
}

impl CustomKind {
    /// Normalises embedded resources, and removes unknown fields; returns their paths.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        structural::coerce_embedded(&self.schema, object);
        structural::prune(&self.schema, object)
    }

    /// Fills in the schema's defaults.
    pub(crate) fn default(&self, object: &mut Value, nulls: Nulls) {
        structural::default(&self.schema, object, nulls);
    }

    /// Fills in the defaults of the version in which objects are stored, as at each read.
    pub(crate) fn default_stored(&self, object: &mut Value) {
        structural::default(&self.storage_schema, object, Nulls::Dropped);
    }

    /// Removes the values that the schema's defaults would fill in again.
    pub(crate) fn undefault(&self, object: &mut Value) {
        structural::undefault(&self.schema, object);
    }

    /// Checks the status alone, as a write through its own path does.
    pub(crate) fn validate_status(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = match (self.schema.properties.get("status"), object.get("status")) {
            (Some(schema), Some(status)) => validate::validate(schema.get(), status),
            _ => Vec::new(),
        };
        set_below("status", &mut errors);
        self.complete(errors, object, Some(old))
    }

    /// Adds the errors beside the schema's. Rules are not evaluated over objects that do not have the schema's form.
    fn complete(&self, mut errors: Vec<FieldError>, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        errors.extend(self.validate_scale(object));
        errors.extend(validate::lists(&self.schema, object));
        if !rules::any(&self.schema) {
            return errors;
        }
        if errors.iter().any(FieldError::blocks_rules) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                errors to complete validation";
            errors.push(FieldError::invalid("<nil>", &Value::Null, detail));
        } else {
            errors.extend(rules::check(&self.schema, object, old).errors);
        }
        errors
    }

    /// Numbers that the scale subresource shows must be such.
    fn validate_scale(&self, object: &Value) -> Vec<FieldError> {
        let paths = self.scale.iter().flat_map(|scale| [&scale.spec, &scale.status]);
        let mut errors = Vec::new();
        for path in paths {
            let value = object.pointer(&path.replace('.', "/")).unwrap_or(&Value::Null);
            match value.as_i64() {
                Some(number) if number < 0 => {
                    errors.push(FieldError::invalid(path, value, "should be a non-negative integer"));
                }
                None if !value.is_null() => {
                    let (shown, kind) = match value {
                        Value::String(text) => (text.clone(), "string"),
                        Value::Number(number) => (number.to_string(), "float64"),
                        Value::Bool(flag) => (flag.to_string(), "bool"),
                        other => (other.to_string(), "map[string]interface {}"),
                    };
                    let detail = format!("{path} accessor error: {shown} is of the type {kind}, expected int64");
                    errors.push(FieldError::invalid(path, &Value::from(0), detail));
                }
                _ => {}
            }
        }
        errors
    }

    /// The rules that cannot be evaluated over the object.
    pub(crate) fn unevaluated_rules(&self, object: &Value) -> BTreeSet<String> {
        rules::check(&self.schema, object, None).unevaluated
    }

    /// Checks the object against the schema and its rules.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let errors = validate::validate(&self.schema, object);
        self.complete(errors, object, old)
    }
}

/// Makes the paths of errors about a part those of the whole.
fn set_below(path: &str, errors: &mut [FieldError]) {
    for error in errors {
        error.field = match error.field.as_str() {
            "<nil>" => path.to_owned(),
            field => format!("{path}.{field}"),
        };
    }
}
