//! Tables, the form in which `kubectl get` requests objects: CRDs' printer columns, and the main columns of built-in
//! kinds.

mod builtin;
mod path;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::custom::{Column, CustomKind};
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
    match &resource.custom {
        Some(custom) if custom.columns.is_empty() => columns.push(column("Age", "date", "", 0)),
        Some(custom) => columns.extend(
            custom
                .columns
                .iter()
                .map(|found| column(&found.name, &found.kind, &found.format, found.priority)),
        ),
        None => columns
            .extend(builtin::columns(&resource.storage).map(|(name, kind, priority)| column(name, kind, "", priority))),
    }
    Value::Array(columns)
}

fn row(resource: &Resource, object: &Value, include: &str, now: SystemTime) -> Value {
    let mut cells = vec![object["metadata"]["name"].clone()];
    match &resource.custom {
        Some(custom) => cells.extend(custom_cells(custom, object, now)),
        None => cells.extend(builtin::cells(&resource.storage, &stored_form(resource, object), now)),
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

fn stored_form(resource: &Resource, object: &Value) -> Value {
    if resource.storage.plural == "events" {
        resource.store(object.clone())
    } else {
        object.clone()
    }
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

fn custom_cells(custom: &CustomKind, object: &Value, now: SystemTime) -> Vec<Value> {
    if custom.columns.is_empty() {
        return vec![json!(age(&object["metadata"]["creationTimestamp"], now))];
    }
    custom
        .columns
        .iter()
        .map(|column| custom_cell(column, object, now))
        .collect()
}

fn custom_cell(column: &Column, object: &Value, now: SystemTime) -> Value {
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
    fn a_deployments_row_counts_its_replicas() {
        let kinds = Kinds::builtin();
        let resource = kinds.get("apps", "v1", "deployments").expect("deployments are served");
        let object = json!({"metadata": {"name": "web", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"replicas": 3}, "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2}});
        let table = table(resource, &object, "", UNIX_EPOCH + Duration::from_secs(5), true);
        let cells = table["rows"][0]["cells"].as_array().expect("a row has cells");
        assert_eq!(
            cells[..5],
            [json!("web"), json!("2/3"), json!(3), json!(2), json!("5s")]
        );
        assert_eq!(table["columnDefinitions"].as_array().map(Vec::len), Some(cells.len()));
    }
}
