//! Shrinks an object that shows a defect, as long as it still shows the same one.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

/// The most attempts for one object.
const ATTEMPTS: usize = 400;

/// Time limit of shrinking an object.
const WITHIN: Duration = Duration::from_secs(20);

/// Fields that identify an object, which are never removed.
const FIXED: [&str; 5] = [
    "/apiVersion",
    "/kind",
    "/metadata",
    "/metadata/name",
    "/metadata/namespace",
];

/// The smallest object that was found to fail, and how often it was made smaller.
pub(super) fn shrink(object: &Value, mut fails: impl FnMut(&Value) -> bool) -> (Value, usize) {
    let (mut smallest, mut steps, mut attempts) = (object.clone(), 0, 0);
    let begun = Instant::now();
    // From the first place again after each success: what could not go before may go now.
    'smaller: loop {
        for path in places(&smallest) {
            if FIXED.contains(&path.as_str()) {
                continue;
            }
            for candidate in smaller(&smallest, &path) {
                attempts += 1;
                if attempts > ATTEMPTS || begun.elapsed() > WITHIN {
                    break 'smaller;
                }
                if fails(&candidate) {
                    smallest = candidate;
                    steps += 1;
                    continue 'smaller;
                }
            }
        }
        break;
    }
    (smallest, steps)
}

/// All places below the root as JSON pointers, those that hold most first.
fn places(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(object, "", &mut found);
    found.sort_by_key(|(size, path)| (std::cmp::Reverse(*size), path.clone()));
    found.into_iter().map(|(_, path)| path).collect()
}

fn collect(value: &Value, path: &str, found: &mut Vec<(usize, String)>) -> usize {
    let mut size = 1;
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                size += collect(member, &format!("{path}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                size += collect(item, &format!("{path}/{index}"), found);
            }
        }
        Value::String(text) => size += text.len() / 16,
        _ => {}
    }
    if !path.is_empty() {
        found.push((size, path.to_owned()));
    }
    size
}

/// The object with less at one place, the least first.
fn smaller(object: &Value, path: &str) -> Vec<Value> {
    let mut candidates = Vec::new();
    let (parent, last) = path.rsplit_once('/').unwrap_or_default();
    let last = last.replace("~1", "/").replace("~0", "~");
    let mut without = object.clone();
    let removed = match without.pointer_mut(parent) {
        Some(Value::Object(members)) => members.remove(&last).is_some(),
        Some(Value::Array(items)) => last.parse::<usize>().is_ok_and(|index| {
            items.remove(index);
            true
        }),
        _ => false,
    };
    if removed {
        candidates.push(without);
    }
    let instead = |value: Value, candidates: &mut Vec<Value>| {
        let mut changed = object.clone();
        if let Some(place) = changed.pointer_mut(path)
            && *place != value
        {
            *place = value;
            candidates.push(changed);
        }
    };
    match object.pointer(path) {
        Some(Value::Object(members)) if !members.is_empty() => instead(Value::Object(Map::new()), &mut candidates),
        Some(Value::Array(items)) if !items.is_empty() => {
            instead(Value::Array(Vec::new()), &mut candidates);
            instead(Value::Array(items[..items.len() / 2].to_vec()), &mut candidates);
        }
        Some(Value::String(text)) if !text.is_empty() => {
            let letters: Vec<char> = text.chars().collect();
            instead(Value::from(""), &mut candidates);
            if letters.len() > 1 {
                instead(Value::from("a"), &mut candidates);
                instead(
                    letters[..letters.len() / 2].iter().collect::<String>().into(),
                    &mut candidates,
                );
                instead(
                    letters[..letters.len() - 1].iter().collect::<String>().into(),
                    &mut candidates,
                );
            }
        }
        Some(Value::Number(number)) => {
            if let Some(number) = number.as_i64().filter(|number| *number != 0) {
                for less in [0, number.signum(), number / 2, number - number.signum()] {
                    if less.abs() < number.saturating_abs() {
                        instead(less.into(), &mut candidates);
                    }
                }
            } else if number.as_i64().is_none() {
                instead(0.into(), &mut candidates);
            }
        }
        Some(Value::Bool(true)) => instead(false.into(), &mut candidates),
        _ => {}
    }
    candidates
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_matter_goes() {
        let object = json!({
            "apiVersion": "v1", "kind": "A", "metadata": {"name": "a", "labels": {"x/y": "z"}},
            "spec": {"size": 1000, "list": [{"a": 1}, {"b": "long text", "bad": true}, {"c": 3}], "other": {"deep": [1]}}
        });
        let fails = |object: &Value| {
            let size = object["spec"]["size"].as_i64().unwrap_or(0);
            let items = object["spec"]["list"].as_array();
            size > 10 && items.is_some_and(|items| items.iter().any(|item| item["bad"] == true))
        };
        let (smallest, steps) = shrink(&object, fails);
        assert_eq!(
            smallest,
            json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "spec": {"size": 11, "list": [{"bad": true}]}})
        );
        assert!(steps > 3);
    }

    #[test]
    fn an_object_that_always_fails_keeps_what_it_is() {
        let object = json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "spec": {"b": [1]}});
        let (smallest, _) = shrink(&object, |_| true);
        assert_eq!(smallest["kind"], "A");
        assert_eq!(smallest.get("spec"), None);
    }

    #[test]
    fn the_attempts_are_bounded() {
        let items: Vec<i64> = (0..2000).collect();
        let mut attempts = 0;
        shrink(&json!({"a": items}), |_| {
            attempts += 1;
            false
        });
        assert_eq!(attempts, ATTEMPTS);
    }
}
