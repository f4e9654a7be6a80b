//! Writes a value as JSON with the members of its maps in another order, which means the same.

use fastrand::Rng;
use serde_json::Value;

/// The value as JSON, with the members of every map in an order that is drawn from the seed.
pub(super) fn shuffled_text(value: &Value, seed: u64) -> String {
    let mut text = String::new();
    write(value, &mut Rng::with_seed(seed), &mut text);
    text
}

fn write(value: &Value, random: &mut Rng, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            // The opposite order differs wherever there are two members; chance alone would leave small maps as they are.
            members.reverse();
            if members.len() > 2 && random.bool() {
                random.shuffle(&mut members);
            }
            text.push('{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(member, random, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(item, random, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_change_their_order_and_nothing_else() {
        let value = json!({"a": [1, {"x": "\"", "y": null}], "b": {"c": 1.5, "d": true, "e": {}}});
        let text = shuffled_text(&value, 1);
        assert_ne!(text, value.to_string());
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        assert_eq!(shuffled_text(&value, 1), text);
    }
}
