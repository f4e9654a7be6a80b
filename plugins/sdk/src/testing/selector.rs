//! Owns Kubernetes label selectors: `app=web,tier in (a,b),!old`.

use serde_json::Value;

/// Whether an object's labels match a selector.
///
/// # Panics
///
/// When the selector is none: the host would refuse the call.
pub(super) fn matches(selector: &str, object: &Value) -> bool {
    let label = |name: &str| object["metadata"]["labels"][name].as_str();
    requirements(selector).into_iter().all(|requirement| {
        holds(requirement, label).unwrap_or_else(|| panic!("{selector:?} is no label selector: see {requirement:?}"))
    })
}

/// The parts between commas that are not in brackets.
fn requirements(selector: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let outside = |character: char| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    };
    selector
        .split(outside)
        .map(str::trim)
        .filter(|requirement| !requirement.is_empty())
        .collect()
}

/// Whether one requirement holds; none when it is not one.
fn holds<'a>(requirement: &str, label: impl Fn(&str) -> Option<&'a str>) -> Option<bool> {
    for (operator, negated) in [("!=", true), ("==", false), ("=", false)] {
        if let Some((name, value)) = requirement.split_once(operator) {
            return Some((label(word(name)?) == Some(value.trim())) != negated);
        }
    }
    if let Some((head, values)) = requirement.split_once('(') {
        let values = values.strip_suffix(')')?;
        let (name, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let among = label(word(name)?).is_some_and(|value| values.split(',').any(|one| one.trim() == value));
        return match operator {
            "in" => Some(among),
            "notin" => Some(!among),
            _ => None,
        };
    }
    match requirement.strip_prefix('!') {
        Some(name) => Some(label(word(name)?).is_none()),
        None => Some(label(word(requirement)?).is_some()),
    }
}

/// A label's name.
fn word(text: &str) -> Option<&str> {
    let text = text.trim();
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./".contains(character);
    (!text.is_empty() && text.chars().all(plain)).then_some(text)
}
