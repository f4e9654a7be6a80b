//! Reads which findings about a plugin are meant to be as they are, from the list that a project keeps. Entries with a `property`
//! are `pilothouse check`'s, and left out.

use serde_json::Value;

use crate::{Finding, Severity};

/// The file of a project with the findings that are accepted.
pub const ACCEPTED_FILE: &str = "accepted-findings.yaml";

/// A warning that is meant to be as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedFinding {
    /// The name of the finding.
    finding: String,
    /// A part of its message, where only some findings of the name are accepted.
    contains: Option<String>,
}

impl AcceptedFinding {
    /// Reports whether this accepts the finding. An error is never accepted.
    pub fn accepts(&self, finding: &Finding) -> bool {
        let is_contained = |part: &String| finding.message.contains(part);
        finding.severity == Severity::Warning
            && self.finding == finding.name
            && self.contains.as_ref().is_none_or(is_contained)
    }
}

/// The accepted findings of a list, or what is wrong with it.
pub fn parse(list: &Value) -> Result<Vec<AcceptedFinding>, String> {
    let entries = match list {
        Value::Null => return Ok(Vec::new()),
        list => list.as_array().ok_or("it is no list of findings")?,
    };
    let numbered = entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry["property"].is_null());
    let parsed =
        numbered.map(|(index, entry)| of_entry(entry).map_err(|problem| format!("entry {}: {problem}", index + 1)));
    parsed.collect()
}

fn of_entry(entry: &Value) -> Result<AcceptedFinding, String> {
    const MEMBERS: [&str; 3] = ["finding", "contains", "reason"];
    let members = entry.as_object().ok_or("it is no object")?;
    if let Some(unknown) = members.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(format!("{unknown:?} is none of finding, contains and reason"));
    }
    let text = |name: &str| {
        members
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.trim().is_empty())
    };
    let finding =
        text("finding").ok_or("give `finding`, the name that stands in parentheses in the warning, or `property`")?;
    text("reason").ok_or("reason is empty; say why the finding is meant to be as it is")?;
    let contains = text("contains").map(str::to_owned);
    if members.contains_key("contains") && contains.is_none() {
        return Err("contains is empty; give a part of the finding's message, or leave it out".to_owned());
    }
    Ok(AcceptedFinding {
        finding: finding.to_owned(),
        contains,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_warning_is_accepted_by_name_and_part_of_its_message() {
        let finding = |severity, name| Finding {
            severity,
            name,
            message: "the CRD of Site does not take it".to_owned(),
        };
        let of = |entry: Value| parse(&json!([entry])).unwrap().remove(0);
        let warning = finding(Severity::Warning, "status-fields");
        assert!(of(json!({"finding": "status-fields", "reason": "r"})).accepts(&warning));
        assert!(of(json!({"finding": "status-fields", "contains": "of Site", "reason": "r"})).accepts(&warning));
        assert!(!of(json!({"finding": "status-fields", "contains": "of Page", "reason": "r"})).accepts(&warning));
        assert!(!of(json!({"finding": "scope", "reason": "r"})).accepts(&warning));
        assert!(!of(json!({"finding": "scope", "reason": "r"})).accepts(&finding(Severity::Error, "scope")));
    }

    #[test]
    fn a_wrong_list_is_refused_with_the_entry() {
        assert_eq!(parse(&Value::Null).unwrap(), []);
        assert_eq!(
            parse(&json!([{"property": "valid", "contains": "x", "reason": "y"}])).unwrap(),
            []
        );
        for (list, words) in [
            (json!({"finding": "a"}), "no list"),
            (json!(["a"]), "entry 1: it is no object"),
            (
                json!([{"finding": "a", "reason": "r"}, {"reason": "r"}]),
                "entry 2: give `finding`",
            ),
            (json!([{"finding": "a", "reason": " "}]), "reason is empty"),
            (
                json!([{"finding": "a", "reason": "r", "contains": ""}]),
                "contains is empty",
            ),
            (
                json!([{"finding": "a", "reason": "r", "name": "x"}]),
                "\"name\" is none of",
            ),
        ] {
            let error = parse(&list).unwrap_err();
            assert!(error.contains(words), "{list}: {error}");
        }
    }
}
