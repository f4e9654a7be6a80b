//! Parses and matches label selectors: text (`app=web,tier in (a,b),!old`), and the LabelSelector of Kubernetes' API.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use crate::fields::Fields;
use crate::names::is_label_value;

/// Longest name and value of a label, and longest prefix of a name.
const MAX_NAME: usize = 63;
const MAX_PREFIX: usize = 253;

/// A label selector. As a member of a spec it is deserialized from the form of Kubernetes' API, with `matchLabels` and
/// `matchExpressions`; one that no API server would accept is an error with its path.
///
/// An empty selector matches every object. A member that may be absent is an `Option`: in Kubernetes, none matches
/// nothing.
///
/// ```
/// use pilothouse_plugin::{LabelSelector, ListOptions, json};
///
/// let selector: LabelSelector = serde_json::from_value(json!({
///     "matchLabels": {"app": "web"},
///     "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
/// })).unwrap();
/// let labels = [("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "b".to_owned())].into();
/// assert!(selector.matches(&labels));
/// assert_eq!(selector.to_string(), "app=web,tier in (a,b)");
/// let options = ListOptions::new().labels(selector.to_string());
/// # drop(options);
///
/// let typo: Result<LabelSelector, _> = "app=web,tier within (a)".parse();
/// assert!(typo.is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ApiSelector")]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// Error of an invalid label selector, with the path of the invalid part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LabelSelectorError(String);

/// Form of the API.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ApiSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<ApiRequirement>,
}

#[derive(Deserialize)]
struct ApiRequirement {
    key: String,
    operator: String,
    #[serde(default)]
    values: Vec<String>,
}

impl LabelSelector {
    /// The selector of objects that have all of these labels, as `spec.selector` of a Service means it.
    ///
    /// ```
    /// use pilothouse_plugin::{LabelSelector, ListOptions};
    ///
    /// let labels = [("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "front".to_owned())].into();
    /// let selector = LabelSelector::from_labels(&labels);
    /// assert_eq!(selector.to_string(), "app=web,tier=front");
    /// assert!(selector.matches(&labels));
    /// # let options = ListOptions::new().labels(selector.to_string());
    /// # drop(options);
    /// ```
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let requirements = labels.iter().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: Operator::In,
            values: vec![value.clone()],
        });
        Self {
            requirements: requirements.collect(),
        }
    }

    /// Reports whether labels satisfy each requirement. An absent label is "not in" any list.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_with(|key| labels.get(key).map(String::as_str))
    }

    /// Reports whether there is no requirement, so that every object matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub(crate) fn matches_with<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let Requirement { key, operator, values } = requirement;
            let is_listed = |value: &str| values.iter().any(|listed| listed == value);
            match operator {
                Operator::Exists => label(key).is_some(),
                Operator::DoesNotExist => label(key).is_none(),
                Operator::In => label(key).is_some_and(is_listed),
                Operator::NotIn => !label(key).is_some_and(is_listed),
            }
        })
    }
}

impl Requirement {
    fn new(key: &str, operator: Operator, values: Vec<String>, path: &str) -> Result<Self, LabelSelectorError> {
        check_key(key).map_err(|problem| LabelSelectorError(format!("{path}key: {problem}")))?;
        for (index, value) in values.iter().enumerate() {
            check_value(value).map_err(|problem| LabelSelectorError(format!("{path}values[{index}]: {problem}")))?;
        }
        let takes_values = matches!(operator, Operator::In | Operator::NotIn);
        if takes_values == values.is_empty() {
            let words = if takes_values {
                "give at least one"
            } else {
                "leave them out"
            };
            return Err(LabelSelectorError(format!(
                "{path}values: for the operator {operator:?}, {words}"
            )));
        }
        Ok(Self {
            key: key.to_owned(),
            operator,
            values,
        })
    }
}

impl TryFrom<ApiSelector> for LabelSelector {
    type Error = LabelSelectorError;

    fn try_from(selector: ApiSelector) -> Result<Self, Self::Error> {
        let ApiSelector {
            match_labels,
            match_expressions,
        } = selector;
        let mut requirements = Vec::new();
        for (key, value) in match_labels {
            let about = |problem: String| LabelSelectorError(format!("matchLabels[{key:?}]: {problem}"));
            check_key(&key).map_err(about)?;
            check_value(&value).map_err(about)?;
            requirements.push(Requirement {
                key,
                operator: Operator::In,
                values: vec![value],
            });
        }
        for (index, expression) in match_expressions.into_iter().enumerate() {
            let ApiRequirement { key, operator, values } = expression;
            let path = format!("matchExpressions[{index}].");
            let operator = match operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(LabelSelectorError(format!(
                        "{path}operator: {other:?} is none of In, NotIn, Exists, DoesNotExist"
                    )));
                }
            };
            requirements.push(Requirement::new(&key, operator, values, &path)?);
        }
        Ok(Self { requirements })
    }
}

impl FromStr for LabelSelector {
    type Err = LabelSelectorError;

    /// Parses the form of `kubectl get --selector`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut requirements = Vec::new();
        if text.trim().is_empty() {
            return Ok(Self { requirements });
        }
        for part in split_outside_parentheses(text) {
            let part = part.trim();
            let about = |LabelSelectorError(problem)| {
                LabelSelectorError(format!(
                    "{text:?} is no label selector: in {part:?}, {problem}; write it like app=web,tier in (a,b),!old"
                ))
            };
            requirements.push(requirement(part).map_err(about)?);
        }
        Ok(Self { requirements })
    }
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
}

fn requirement(text: &str) -> Result<Requirement, LabelSelectorError> {
    if let Some(key) = text.strip_prefix('!') {
        return Requirement::new(key.trim(), Operator::DoesNotExist, Vec::new(), "");
    }
    for (sign, operator) in [("!=", Operator::NotIn), ("==", Operator::In), ("=", Operator::In)] {
        if let Some((key, value)) = text.split_once(sign) {
            return Requirement::new(key.trim(), operator, vec![value.trim().to_owned()], "");
        }
    }
    let Some((key, rest)) = text.split_once(char::is_whitespace) else {
        return Requirement::new(text, Operator::Exists, Vec::new(), "");
    };
    let rest = rest.trim();
    let (operator, list) = match (rest.strip_prefix("notin"), rest.strip_prefix("in")) {
        (Some(list), _) => (Operator::NotIn, list),
        (None, Some(list)) => (Operator::In, list),
        (None, None) => {
            return Err(LabelSelectorError(format!(
                "after {key:?} one of =, !=, in, notin is expected"
            )));
        }
    };
    let list = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
    let list = list.ok_or_else(|| LabelSelectorError(format!("the values for {key:?} stand in parentheses")))?;
    let values = list.split(',').map(|value| value.trim().to_owned()).collect();
    Requirement::new(key, operator, values, "")
}

fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key
        .rsplit_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_subdomain = |prefix: &str| {
        let is_part = |part: &str| {
            let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            !part.is_empty() && part.bytes().all(is_inner) && !part.starts_with('-') && !part.ends_with('-')
        };
        prefix.len() <= MAX_PREFIX && prefix.split('.').all(is_part)
    };
    let is_name = !name.is_empty() && is_label_value(name);
    if is_name && prefix.is_none_or(is_subdomain) {
        return Ok(());
    }
    Err(format!(
        "{key:?} is no label's name, which is at most {MAX_NAME} letters, digits, '-', '_' and '.', as in app or example.com/app"
    ))
}

fn check_value(value: &str) -> Result<(), String> {
    if is_label_value(value) {
        return Ok(());
    }
    Err(format!(
        "{value:?} is no label's value, which is at most {MAX_NAME} letters, digits, '-', '_' and '.'"
    ))
}

/// Writes the form that `kubectl get --selector` and [`ListOptions::labels`](crate::ListOptions::labels) accept.
impl fmt::Display for LabelSelector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, operator, values }) in self.requirements.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            match (operator, values.as_slice()) {
                (Operator::Exists, _) => formatter.write_str(key)?,
                (Operator::DoesNotExist, _) => write!(formatter, "!{key}")?,
                (Operator::In, [value]) => write!(formatter, "{key}={value}")?,
                (Operator::NotIn, [value]) => write!(formatter, "{key}!={value}")?,
                (Operator::In, values) => write!(formatter, "{key} in ({})", values.join(","))?,
                (Operator::NotIn, values) => write!(formatter, "{key} notin ({})", values.join(","))?,
            }
        }
        Ok(())
    }
}

impl Fields for LabelSelector {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        crate::fields::whole(path, fields);
    }
}

#[cfg(feature = "crd")]
impl schemars::JsonSchema for LabelSelector {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "LabelSelector".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                "matchExpressions": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
                    },
                }},
            },
            "x-kubernetes-map-type": "atomic",
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn labels() -> BTreeMap<String, String> {
        [("app", "web"), ("example.com/tier", "a"), ("empty", "")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    fn of_api(selector: Value) -> Result<LabelSelector, String> {
        serde_json::from_value(selector).map_err(|error| error.to_string())
    }

    #[test]
    fn selectors_mean_what_they_mean_to_kubernetes() {
        for (text, matches) in [
            ("", true),
            ("app=web", true),
            ("app==web,example.com/tier in (a, b)", true),
            ("app,!old", true),
            ("old!=x", true),
            ("example.com/tier notin (b),app != shop", true),
            ("old notin (x)", true),
            ("empty=", true),
            ("app=shop", false),
            ("!app", false),
            ("old", false),
            ("app in (a,b)", false),
            ("app=web,example.com/tier!=a", false),
            ("old in (x)", false),
            ("empty!=", false),
        ] {
            let selector: LabelSelector = text.parse().unwrap();
            assert_eq!(selector.matches(&labels()), matches, "{text}");
        }
        for (selector, matches) in [
            (json!({}), true),
            (json!({"matchLabels": {"app": "web"}}), true),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "old", "operator": "NotIn", "values": ["x"]}]}),
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
                false,
            ),
            (
                json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "empty", "operator": "In", "values": ["a"]}]}),
                false,
            ),
        ] {
            assert_eq!(
                of_api(selector.clone()).unwrap().matches(&labels()),
                matches,
                "{selector}"
            );
        }
    }

    #[test]
    fn both_forms_are_written_as_one_text_that_the_host_takes() {
        let of_json = of_api(json!({
            "matchLabels": {"b": "2", "a": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["x", "y"]}, {"key": "d", "operator": "NotIn", "values": ["z"]},
                {"key": "e", "operator": "Exists"}, {"key": "f", "operator": "DoesNotExist", "values": []},
            ],
        }));
        let text = of_json.unwrap().to_string();
        assert_eq!(text, "a=1,b=2,c in (x,y),d!=z,e,!f");
        let parsed: LabelSelector = text.parse().unwrap();
        assert_eq!(parsed.to_string(), text);
        assert_eq!(
            pilothouse_core::kubernetes::selector::Selector::parse(&text)
                .unwrap()
                .to_string(),
            text
        );
    }

    #[test]
    fn an_invalid_selector_is_reported_with_the_whole_path() {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "only reading is tested")]
        struct Spec {
            rules: Vec<Rule>,
        }
        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "only reading is tested")]
        struct Rule {
            selector: LabelSelector,
            name: Option<String>,
        }
        let text = r#"{"rules":[{"selector":{"matchLabels":{"a":"b"}}},{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]},"name":"n"}]}"#;
        let error = serde_json::from_str::<Spec>(text).unwrap_err();
        let told = crate::locate::explain(text, &error);
        let words = "matchExpressions[0].operator: \"Is\" is none of In, NotIn, Exists, DoesNotExist";
        assert!(told.starts_with("rules[1].selector") && told.ends_with(words), "{told}");
    }

    #[test]
    fn an_invalid_selector_is_an_error_with_its_path() {
        let expression =
            |expression: Value| json!({"matchExpressions": [{"key": "a", "operator": "Exists"}, expression]});
        for (selector, words) in [
            (
                expression(json!({"key": "a", "operator": "Equals", "values": ["b"]})),
                "matchExpressions[1].operator: \"Equals\" is none of In, NotIn, Exists, DoesNotExist",
            ),
            (
                expression(json!({"key": "a", "operator": "In"})),
                "matchExpressions[1].values: for the operator In, give at least one",
            ),
            (
                expression(json!({"key": "a", "operator": "Exists", "values": ["b"]})),
                "matchExpressions[1].values: for the operator Exists, leave them out",
            ),
            (
                expression(json!({"key": "a b", "operator": "Exists"})),
                "matchExpressions[1].key: \"a b\" is no label's name",
            ),
            (
                expression(json!({"key": "Example.com/a", "operator": "Exists"})),
                "matchExpressions[1].key: \"Example.com/a\"",
            ),
            (
                expression(json!({"key": "a", "operator": "In", "values": ["b", "-c"]})),
                "matchExpressions[1].values[1]: \"-c\"",
            ),
            (
                json!({"matchLabels": {"app": "web app"}}),
                "matchLabels[\"app\"]: \"web app\" is no label's value",
            ),
            (
                json!({"matchLabels": {"/app": "web"}}),
                "matchLabels[\"/app\"]: \"/app\" is no label's name",
            ),
        ] {
            let error = of_api(selector.clone()).unwrap_err();
            assert!(error.starts_with(words), "{selector}: {error}");
        }
        for text in [
            "=", "a=b=c", "a in b", "a in (b", "a b", "a=ü", ",", "a=-b", "!", "a in ()x", "a,,b",
        ] {
            let error = text.parse::<LabelSelector>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{text:?} is no label selector: in ")),
                "{error}"
            );
            assert!(error.contains("app=web"), "{error}");
        }
    }
}
