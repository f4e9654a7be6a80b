//! Converts Event between its two versions: core/v1, in which it is stored, and events.k8s.io/v1.

use serde_json::Value;

/// Core name, name in events.k8s.io.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(crate) fn to_events_group(stored: &Value) -> Value {
    let mut event = stored.clone();
    if let Some(members) = event.as_object_mut() {
        for (core, other) in NAMES {
            if let Some(value) = members.remove(*core) {
                members.insert((*other).to_owned(), value);
            }
        }
    }
    event["apiVersion"] = Value::from("events.k8s.io/v1");
    event
}

pub(crate) fn to_core(event: &Value) -> Value {
    let mut stored = event.clone();
    if let Some(members) = stored.as_object_mut() {
        for (core, other) in NAMES {
            if let Some(value) = members.remove(*other) {
                members.insert((*core).to_owned(), value);
            }
        }
    }
    stored["apiVersion"] = Value::from("v1");
    stored
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_survives_the_way_there_and_back() {
        let event =
            json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "a"}, "message": "m", "count": 2});
        let shown = to_events_group(&event);
        assert_eq!(shown["regarding"]["name"], "a");
        assert_eq!(shown["note"], "m");
        assert_eq!(to_core(&shown), event);
    }
}
