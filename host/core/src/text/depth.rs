//! Parses JSON of any depth. An API server stores objects of 10,000 levels, while recursive parsers fail or exhaust the
//! stack long before that.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The highest number of levels of lists and objects that a plugin sees, and that the host itself parses. Less than the
/// 127 at which `serde_json` fails, in the host as in plugins, so that an object still fits into another document.
pub const MAX_DEPTH: usize = 120;

/// Parses a text as every later reader will: syntax, escapes and numbers. Returns whether it nests deeper than
/// [`MAX_DEPTH`]; deeper levels are not parsed.
pub fn is_too_deep(json: &str) -> Result<bool, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let mut is_too_deep = false;
    let check = DepthCheck {
        levels: MAX_DEPTH,
        is_too_deep: &mut is_too_deep,
    };
    check.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(is_too_deep)
}

/// The longest number that every reader accepts unchecked, in digits.
const PLAIN_NUMBER: usize = 18;

/// Reports whether a text that is known to be JSON certainly passes [`is_too_deep`]: it does not nest too deep, and has
/// neither escaped code points nor numbers that may be out of range. Nearly every object passes, and this check costs
/// less than half of a full parse.
pub fn is_plain(json: &str) -> bool {
    let mut bytes = json.bytes();
    let (mut levels, mut digits) = (0, 0);
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => loop {
                match bytes.next() {
                    Some(b'\\') if bytes.next() == Some(b'u') => return false,
                    Some(b'"') | None => break,
                    Some(_) => {}
                }
            },
            b'{' | b'[' => levels += 1,
            b'}' | b']' => levels -= 1,
            b'e' | b'E' if digits > 0 => return false,
            _ => {}
        }
        digits = if byte.is_ascii_digit() || byte == b'.' {
            digits + 1
        } else {
            0
        };
        if levels > MAX_DEPTH || digits > PLAIN_NUMBER {
            return false;
        }
    }
    true
}

/// A value of any depth: levels deeper than [`MAX_DEPTH`] are null.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bounded(pub Value);

impl<'de> Deserialize<'de> for Bounded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BoundedReader { levels: MAX_DEPTH }.deserialize(deserializer).map(Self)
    }
}

/// Parses without storing anything.
struct DepthCheck<'a> {
    /// The number of levels that are still allowed.
    levels: usize,
    is_too_deep: &'a mut bool,
}

impl DepthCheck<'_> {
    /// The check one level deeper; none if that is too deep.
    fn below(&mut self) -> Option<DepthCheck<'_>> {
        let levels = self.levels.checked_sub(1)?;
        Some(DepthCheck {
            levels,
            is_too_deep: self.is_too_deep,
        })
    }
}

impl<'de> DeserializeSeed<'de> for DepthCheck<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DepthCheck<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        loop {
            let Some(below) = self.below() else {
                *self.is_too_deep = true;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(());
            };
            if list.next_element_seed(below)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        loop {
            let Some(below) = self.below() else {
                *self.is_too_deep = true;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                return Ok(());
            };
            if map.next_key::<SkippedText>()?.is_none() {
                return Ok(());
            }
            map.next_value_seed(below)?;
        }
    }
}

/// A text that is parsed and dropped.
struct SkippedText;

impl<'de> Deserialize<'de> for SkippedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = SkippedText;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the name of a member")
            }

            fn visit_str<E>(self, _: &str) -> Result<SkippedText, E> {
                Ok(SkippedText)
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Parses into a value.
#[derive(Clone, Copy)]
struct BoundedReader {
    /// The number of levels that are still allowed.
    levels: usize,
}

impl<'de> DeserializeSeed<'de> for BoundedReader {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedReader {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let Some(levels) = self.levels.checked_sub(1) else {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(Self { levels })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Some(levels) = self.levels.checked_sub(1) else {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        };
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            members.insert(name, map.next_value_seed(Self { levels })?);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A document with an even number of levels.
    fn nested(levels: usize) -> String {
        let (open, close) = (r#"{"a":["#.repeat(levels / 2), "]}".repeat(levels / 2));
        format!("{open}{close}")
    }

    #[test]
    fn a_text_is_too_deep_from_the_first_level_on_that_is_not_read() {
        for (levels, too_deep) in [(2, false), (MAX_DEPTH, false), (MAX_DEPTH + 2, true), (20_000, true)] {
            assert_eq!(is_too_deep(&nested(levels)).unwrap(), too_deep, "{levels}");
        }
        let within = |levels: usize| format!(r#"{{"first":1,"deep":{},"last":"x"}}"#, nested(levels));
        assert!(!is_too_deep(&within(MAX_DEPTH - 2)).unwrap());
        assert!(is_too_deep(&within(MAX_DEPTH)).unwrap());
    }

    #[test]
    fn what_is_plain_need_not_be_read_through() {
        for plain in [
            r#"{"a":[true,false,null,-1,0.25,123456789012345678],"e":"1e999 \\ \" {[ \n","b":{}}"#,
            &nested(MAX_DEPTH),
            "[]",
        ] {
            assert!(is_plain(plain) && !is_too_deep(plain).unwrap(), "{plain}");
        }
        for odd in [
            r#"{"\ud800":1}"#,
            r#""\\\u0041""#,
            "[1e999]",
            "[1E5]",
            &"9".repeat(400),
            &nested(MAX_DEPTH + 2),
        ] {
            assert!(!is_plain(odd), "{odd}");
        }
    }

    #[test]
    fn what_lies_too_deep_is_null_and_the_rest_is_as_it_is() {
        let text = format!(
            r#"{{"first":[1,-2,0.5,true,null,"x"],"deep":{},"last":{{"a":"b"}}}}"#,
            nested(20_000)
        );
        let Bounded(value) = serde_json::from_str(&text).unwrap();
        assert_eq!(value["first"], json!([1, -2, 0.5, true, null, "x"]));
        assert_eq!(value["last"], json!({"a": "b"}));
        let mut place = &value["deep"];
        let mut levels = 1;
        while !place.is_null() {
            place = if place.is_array() { &place[0] } else { &place["a"] };
            levels += 1;
        }
        assert_eq!(levels, MAX_DEPTH);
    }

    #[test]
    fn what_no_reader_understands_is_an_error_and_no_panic() {
        for text in [
            "",
            "{",
            r#"{"a":1}}"#,
            r#""\ud800""#,
            r#"{"\ud800":1}"#,
            "1e999",
            "[1,]",
            "nul",
        ] {
            assert!(is_too_deep(text).is_err(), "{text}");
            assert!(serde_json::from_str::<Bounded>(text).is_err(), "{text}");
        }
    }
}
