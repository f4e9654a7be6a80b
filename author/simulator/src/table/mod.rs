//! Makes tables, the form in which `kubectl get` asks for objects, with the printer columns of CRDs. Built-in kinds have name and
//! age alone; `kubectl describe`, `kubectl events` and `-o yaml` show the rest.

mod path;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::custom::Column;
use crate::kinds::Resource;

/// An object or a list as a table. The times in it are as of `now`.
pub(crate) fn table(resource: &Resource, value: &Value, include: &str, now: SystemTime, headers: bool) -> Value {
    let items: Vec<&Value> = match value.get("items").and_then(Value::as_array) {
        Some(items) if value["kind"] == resource.list_kind.as_str() => items.iter().collect(),
        _ => vec![value],
    };
    let rows: Vec<Value> = items
        .into_iter()
        .map(|item| row(resource, item, include, now))
        .collect();
    let mut metadata = json!({});
    for name in ["resourceVersion", "continue", "remainingItemCount"] {
        if let Some(found) = value["metadata"].get(name) {
            metadata[name] = found.clone();
        }
    }
    let columns = if headers { columns(resource) } else { Value::Null };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn column(name: &str, kind: &str, format: &str, priority: i64) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
}

fn columns(resource: &Resource) -> Value {
    let mut columns = vec![column("Name", "string", "name", 0)];
    match printer_columns(resource) {
        [] => columns.push(column("Age", "date", "", 0)),
        printed => columns.extend(
            printed
                .iter()
                .map(|found| column(&found.name, &found.kind, &found.format, found.priority)),
        ),
    }
    Value::Array(columns)
}

/// The columns of a CRD; none for a CRD without columns, and for a built-in kind.
fn printer_columns(resource: &Resource) -> &[Column] {
    let custom = resource.custom.as_ref();
    custom.map(|custom| custom.columns.as_slice()).unwrap_or_default()
}

fn row(resource: &Resource, object: &Value, include: &str, now: SystemTime) -> Value {
    let mut cells = vec![object["metadata"]["name"].clone()];
    match printer_columns(resource) {
        [] => cells.push(json!(age(&object["metadata"]["creationTimestamp"], now))),
        printed => cells.extend(printed.iter().map(|column| cell(column, object, now))),
    }
    let shown = match include {
        "None" => Value::Null,
        "Object" => {
            let mut object = object.clone();
            object["apiVersion"] = json!(resource.api_version());
            object["kind"] = json!(resource.kind);
            object
        }
        _ => metadata_only(object),
    };
    json!({"cells": cells, "object": shown})
}

/// `PartialObjectMetadata`.
pub(crate) fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// A list, or an object, with metadata alone.
pub(crate) fn partial(resource: &Resource, value: &Value) -> Value {
    match value.get("items").and_then(Value::as_array) {
        Some(items) if value["kind"] == resource.list_kind.as_str() => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": value["metadata"],
            "items": items.iter().map(metadata_only).collect::<Vec<_>>(),
        }),
        _ => metadata_only(value),
    }
}

fn cell(column: &Column, object: &Value, now: SystemTime) -> Value {
    let found = path::find(&column.path, object);
    let Some(first) = found.first() else { return Value::Null };
    match column.kind.as_str() {
        "integer" => first.as_i64().map_or(Value::Null, Value::from),
        "number" => first.as_f64().map_or(Value::Null, Value::from),
        "boolean" => first.as_bool().map_or(Value::Null, Value::from),
        "date" => json!(age(first, now)),
        _ => json!(found.iter().map(|value| text(value)).collect::<Vec<_>>().join(" ")),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the age in one or two units.
fn age(timestamp: &Value, now: SystemTime) -> String {
    let Some(stamp) = timestamp.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    let now = now
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX));
    let seconds = now - stamp.as_second();
    if seconds < 0 {
        return if seconds < -1 {
            "<invalid>".to_owned()
        } else {
            "0s".to_owned()
        };
    }
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => pair(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () => pair(days / 365, "y", days % 365, "d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;
    use std::time::Duration;

    #[test]
    fn ages_are_told_in_one_or_two_units() {
        let at = |seconds| {
            age(
                &json!("1970-01-01T00:00:00Z"),
                UNIX_EPOCH + Duration::from_secs(seconds),
            )
        };
        assert_eq!(at(90), "90s");
        assert_eq!(at(125), "2m5s");
        assert_eq!(at(3 * 86_400 + 3600), "3d1h");
    }

    #[test]
    fn a_row_of_a_built_in_kind_has_name_and_age() {
        let kinds = Kinds::builtin();
        let resource = kinds.get("apps", "v1", "deployments").expect("deployments are served");
        let object = json!({"metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:00Z"}});
        let table = table(resource, &object, "", UNIX_EPOCH + Duration::from_secs(5), true);
        assert_eq!(table["rows"][0]["cells"], json!(["web", "5s"]));
        assert_eq!(table["columnDefinitions"].as_array().map(Vec::len), Some(2));
    }
}
