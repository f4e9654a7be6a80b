//! Replaces `$NAME` in scenario files. `run` defines the variables.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::matching::ANY;

/// Names in capitals with their values.
#[derive(Debug, Default)]
pub(super) struct Variables(BTreeMap<String, Value>);

impl Variables {
    pub(super) fn set(&mut self, name: &str, value: Value) -> Result<(), String> {
        if !name.starts_with(|first: char| first.is_ascii_uppercase()) || !name.chars().all(is_name_character) {
            return Err(format!("{name:?} is no name: use capitals, digits and underscores"));
        }
        self.0.insert(name.to_owned(), value);
        Ok(())
    }

    /// The value with everything put in. A string that is nothing but `$NAME` becomes the value itself, a number for
    /// instance; within a longer string it becomes text.
    pub(super) fn substitute(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => self.substitute_text(text)?,
            Value::Array(items) => items
                .iter()
                .map(|item| self.substitute(item))
                .collect::<Result<_, _>>()?,
            Value::Object(members) => {
                let mut object = Map::new();
                for (name, member) in members {
                    object.insert(plain(&self.substitute_text(name)?), self.substitute(member)?);
                }
                Value::Object(object)
            }
            other => other.clone(),
        })
    }

    fn substitute_text(&self, text: &str) -> Result<Value, String> {
        if text == ANY {
            return Ok(Value::from(text));
        }
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            result.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                result.push('$');
                rest = after;
                continue;
            }
            let begins = after.starts_with(|first: char| first.is_ascii_uppercase());
            let length = after
                .find(|character| !is_name_character(character))
                .unwrap_or(after.len());
            let (name, after) = after.split_at(if begins { length } else { 0 });
            if name.is_empty() {
                // A dollar sign before anything else is itself: `$host`, `$1`.
                result.push('$');
            } else {
                let value = self.0.get(name).ok_or_else(|| {
                    format!("${name} is not known: let an earlier step remember it, or write $${name}")
                })?;
                if text.len() == name.len() + 1 {
                    return Ok(value.clone());
                }
                result.push_str(&plain(value));
            }
            rest = after;
        }
        result.push_str(rest);
        Ok(Value::String(result))
    }
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_uppercase() || character.is_ascii_digit() || character == '_'
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn substitute(value: &Value) -> Result<Value, String> {
        let mut variables = Variables::default();
        variables.set("NAMESPACE", json!("shop")).unwrap();
        variables.set("PORT", json!(30_002)).unwrap();
        variables.substitute(value)
    }

    #[test]
    fn a_whole_value_keeps_its_type_and_a_part_becomes_text() {
        assert_eq!(
            substitute(&json!({"a-$PORT": ["$PORT", "x:$PORT", "$NAMESPACE/web"]})),
            Ok(json!({"a-30002": [30_002, "x:30002", "shop/web"]}))
        );
    }

    #[test]
    fn other_dollar_signs_stay() {
        assert_eq!(
            substitute(&json!("$host /$1 $$NAMESPACE $")),
            Ok(json!("$host /$1 $NAMESPACE $"))
        );
        assert_eq!(substitute(&json!("$ANY")), Ok(json!("$ANY")));
    }

    #[test]
    fn an_unknown_name_is_an_error() {
        assert!(
            substitute(&json!("$CLUSTER_IP"))
                .unwrap_err()
                .contains("let an earlier step remember it")
        );
        assert!(Variables::default().set("a-b", json!(1)).is_err());
    }
}
