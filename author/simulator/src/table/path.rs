//! Part of kubectl's JSONPath that printer columns use: members, indexes, wildcards and filters for equality.

use serde_json::Value;

/// Every value at the path; none when it does not parse or leads nowhere.
pub(super) fn find<'a>(path: &str, object: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![object];
    let mut rest = path
        .trim()
        .trim_start_matches('{')
        .trim_end_matches('}')
        .trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let Some(end) = closing(tail) else { return Vec::new() };
            found = found
                .into_iter()
                .flat_map(|value| bracket(&tail[..end], value))
                .collect();
            rest = &tail[end + 1..];
        } else {
            let tail = rest.trim_start_matches('.');
            let end = member_end(tail);
            let name = tail[..end].replace("\\.", ".");
            if name == "*" {
                found = found.into_iter().flat_map(children).collect();
            } else if !name.is_empty() {
                found = found.into_iter().filter_map(|value| value.get(&name)).collect();
            } else if tail.is_empty() || !tail.starts_with('[') {
                return found;
            }
            rest = &tail[end..];
        }
    }
    found
}

/// The end of a member's name; a dot behind a backslash belongs to it.
fn member_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    (0..bytes.len())
        .find(|&index| bytes[index] == b'[' || (bytes[index] == b'.' && (index == 0 || bytes[index - 1] != b'\\')))
        .unwrap_or(bytes.len())
}

/// The bracket that closes, outside quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (index, letter) in text.char_indices() {
        match (quote, letter) {
            (None, ']') => return Some(index),
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    }
}

fn bracket<'a>(text: &str, value: &'a Value) -> Vec<&'a Value> {
    if text == "*" {
        return children(value);
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let (equal, pair) = match (filter.split_once("=="), filter.split_once("!=")) {
            (Some(pair), _) => (true, pair),
            (None, Some(pair)) => (false, pair),
            (None, None) => return Vec::new(),
        };
        let inner = pair.0.trim().trim_start_matches('@').to_owned();
        let wanted = pair.1.trim().trim_matches(|letter| letter == '"' || letter == '\'');
        let holds = |item: &&Value| {
            find(&inner, item)
                .first()
                .is_some_and(|found| (super::text(found) == wanted) == equal)
        };
        return children(value).into_iter().filter(holds).collect();
    }
    let quoted = text.trim_matches(|letter| letter == '"' || letter == '\'');
    if quoted.len() != text.len() {
        return value.get(quoted).into_iter().collect();
    }
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    match text.parse::<isize>() {
        Ok(index) if index < 0 => items
            .len()
            .checked_sub(index.unsigned_abs())
            .and_then(|index| items.get(index))
            .into_iter()
            .collect(),
        Ok(index) => items.get(index.unsigned_abs()).into_iter().collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_find_members_wildcards_and_conditions() {
        let object = json!({"spec": {"servers": [{"server": "a"}, {"server": "b"}]},
            "metadata": {"annotations": {"x.y/z": "1"}},
            "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Reconciled", "status": "True"}]}});
        assert_eq!(find(".spec.servers[*].server", &object), [&json!("a"), &json!("b")]);
        assert_eq!(
            find(".status.conditions[?(@.type==\"Reconciled\")].status", &object),
            [&json!("True")]
        );
        assert_eq!(find(".metadata.annotations['x.y/z']", &object), [&json!("1")]);
        assert_eq!(find(".metadata.annotations.x\\.y/z", &object), [&json!("1")]);
        assert_eq!(find(".spec.servers[-1].server", &object), [&json!("b")]);
        assert!(find(".spec.nope.a", &object).is_empty());
    }
}
