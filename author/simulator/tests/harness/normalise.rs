//! Removes chance and time from a response.

use serde_json::{Map, Value, json};

/// Values in errors that are longer are not compared.
const LONG: usize = 250;

/// Brings an answer into its comparable form; each of the texts by chance becomes the word beside it.
pub fn normalised(body: &Value, chance: &[(&str, &str)]) -> Value {
    let text = chance
        .iter()
        .fold(body.to_string(), |text, (chance, word)| text.replace(chance, word));
    let value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
    clean("", &value)
}

fn clean(name: &str, value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members
                .iter()
                .filter(|(name, value)| !is_other_controllers(name, value));
            let mut cleaned: Map<String, Value> =
                members.map(|(name, value)| (key(name), clean(name, value))).collect();
            // Allocated, not asked for.
            if cleaned
                .get("nodePort")
                .is_some_and(|port| *port != 30_999 && *port != 30_998)
            {
                cleaned.insert("nodePort".to_owned(), json!("NODEPORT"));
            }
            if cleaned
                .get("kind")
                .is_some_and(|kind| kind == "Deployment" || kind == "ReplicaSet")
            {
                cleaned.remove("status");
            }
            // Prose of the API's reference.
            cleaned.remove("description");
            sort_causes(&mut cleaned);
            Value::Object(cleaned)
        }
        Value::Array(items) if name == "managedFields" => {
            let of_controllers = |item: &&Value| item["manager"] != "kube-controller-manager";
            let mut entries: Vec<Value> = items
                .iter()
                .filter(of_controllers)
                .map(|item| clean("", item))
                .collect();
            // In the order of time, which the second that a request falls into decides.
            entries.sort_by_key(|entry| {
                (
                    entry["operation"].to_string(),
                    entry["manager"].to_string(),
                    entry["subresource"].to_string(),
                )
            });
            Value::Array(entries)
        }
        Value::Array(items) => items.iter().map(|item| clean(name, item)).collect(),
        Value::String(text) => json!(scalar(name, text)),
        other => other.clone(),
    }
}

/// Several faults of one object come in the order of Go's maps, which is none.
fn sort_causes(status: &mut Map<String, Value>) {
    let Some(causes) = status
        .get_mut("details")
        .and_then(|details| details.get_mut("causes"))
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    if causes.len() < 2 {
        return;
    }
    causes.sort_by_key(ToString::to_string);
    let message = status.get("message").and_then(Value::as_str).unwrap_or_default();
    if let Some((head, _)) = message.split_once(": ") {
        let head = head.to_owned();
        status.insert("message".to_owned(), json!(head));
    }
}

fn is_other_controllers(name: &str, value: &Value) -> bool {
    name == "deployment.kubernetes.io/revision"
        || (name == "annotations"
            && value.as_object().is_some_and(|all| {
                !all.is_empty() && all.keys().all(|name| name == "deployment.kubernetes.io/revision")
            }))
}

/// Keys of managed fields may hold a uid.
fn key(name: &str) -> String {
    if name.starts_with("k:{\"uid\"") {
        "k:UID".to_owned()
    } else {
        name.to_owned()
    }
}

fn scalar(name: &str, text: &str) -> String {
    match name {
        "uid" | "controller-uid" | "batch.kubernetes.io/controller-uid" => return "UID".to_owned(),
        "resourceVersion" | "continue" => return name.to_uppercase(),
        "clusterIP" | "clusterIPs" if text.starts_with("10.") => return "IP".to_owned(),
        "name" if text.starts_with("gen-") => return "gen-SUFFIX".to_owned(),
        _ => {}
    }
    // A whole object within a sentence, in whatever order its members are.
    if let (Some(start), Some(end)) = (text.find("Invalid value: \"{"), text.rfind("}\": "))
        && name == "message"
    {
        return format!("{}OBJECT{}", &text[..start], &text[end..]);
    }
    // What differs follows an error that forbids it, in Go's words for the server's own types.
    let text = match text.split_once('\n') {
        Some((error, _)) if name == "message" && text.contains("Forbidden: ") => error,
        _ => text,
    };
    let text = &values_in_order(text);
    let is_time = text.len() >= 20 && text.ends_with('Z') && text.as_bytes()[4] == b'-' && text.as_bytes()[10] == b'T';
    if is_time && !text.starts_with("2020") {
        "TIME".to_owned()
    } else {
        without_chance(text)
    }
}

/// Objects and lists that an error shows, with their members in one order.
fn values_in_order(text: &str) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(" value: ") {
        let (head, tail) = rest.split_at(start + " value: ".len());
        done.push_str(head);
        let mut values = serde_json::Deserializer::from_str(tail).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) if value.is_object() || value.is_array() => {
                let shown = value.to_string();
                // Whole templates are in the form of the server's own types.
                done.push_str(if shown.len() > LONG { "OBJECT" } else { &shown });
                rest = &tail[values.byte_offset()..];
            }
            _ => rest = tail,
        }
    }
    done + rest
}

/// Uids, times and revisions within sentences.
fn without_chance(text: &str) -> String {
    text.split_inclusive([' ', ',', '"', '(', ')', ':'])
        .map(|word| {
            let bare = word.trim_end_matches([' ', ',', '"', '(', ')', ':']);
            let is_uid = bare.len() == 36 && bare.matches('-').count() == 4;
            let is_number = bare.len() >= 2 && bare.len() < 8 && bare.bytes().all(|byte| byte.is_ascii_digit());
            if is_uid {
                word.replace(bare, "UID")
            } else if is_number && text.contains("esource version") | text.contains("ResourceVersion") {
                word.replace(bare, "RV")
            } else {
                word.to_owned()
            }
        })
        .collect()
}

/// The lines that differ, or None.
pub fn difference(expected: &Value, actual: &Value) -> Option<String> {
    if expected == actual {
        return None;
    }
    let (expected, actual) = (format!("{expected:#}"), format!("{actual:#}"));
    let diff = similar::TextDiff::from_lines(&expected, &actual);
    Some(diff.unified_diff().context_radius(3).to_string())
}
