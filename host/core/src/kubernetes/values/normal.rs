//! Normalises values for comparison: equal values written in different ways get one form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use crate::kubernetes::key::Kind;

/// The parts of a value's path on which its form depends.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    kind: KindForm,
    /// Set if the value, or one below it, is a quantity.
    quantity: bool,
    /// Set if the value is below `data` of a Secret.
    base64: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KindForm {
    /// A built-in kind: kube-apiserver serves it from its own Go types.
    BuiltIn,
    Secret,
    /// A kind with quantities in `value`.
    Autoscaler,
    /// A custom kind: stored as it was sent, except defaults.
    Custom,
}

/// Members of built-in kinds that are quantities, or hold nothing else
/// (<https://github.com/kubernetes/api/tree/v0.36.0>: every member of type `resource.Quantity` or `ResourceList` that a user sets).
const QUANTITIES: [&str; 14] = [
    "allocatable",
    "averageValue",
    "capacity",
    "default",
    "defaultRequest",
    "divisor",
    "hard",
    "limits",
    "max",
    "maxLimitRequestRatio",
    "min",
    "overhead",
    "requests",
    "sizeLimit",
];

/// Defaults that the server sets within lists that are held as a whole, so that they are among our values.
const DEFAULTS: [(&str, &str); 6] = [
    ("apiGroup", "rbac.authorization.k8s.io"),
    ("apiVersion", "v1"),
    ("kind", "PersistentVolumeClaim"),
    ("protocol", "TCP"),
    ("scope", "*"),
    ("volumeMode", "Filesystem"),
];

impl Context {
    /// The context of an object.
    pub fn of(kind: &Kind) -> Self {
        let Kind { group, kind, .. } = kind;
        let form = match (group.as_str(), kind.as_str()) {
            ("", "Secret") => KindForm::Secret,
            ("autoscaling", _) => KindForm::Autoscaler,
            (group, _) if !group.contains('.') || group.ends_with(".k8s.io") => KindForm::BuiltIn,
            _ => KindForm::Custom,
        };
        Self {
            kind: form,
            quantity: false,
            base64: false,
        }
    }

    /// The context of a member.
    pub fn below(self, name: &str) -> Self {
        let is_quantity = match self.kind {
            KindForm::Custom => false,
            KindForm::Autoscaler if name == "value" => true,
            _ => QUANTITIES.contains(&name),
        };
        Self {
            quantity: self.quantity || is_quantity,
            base64: self.base64 || (self.kind == KindForm::Secret && name == "data"),
            ..self
        }
    }
}

/// Normalises a value. Empty values that the server omits become null.
pub fn normal(value: &Value, context: Context) -> Value {
    normal_in(value, context, false)
}

fn normal_in(value: &Value, context: Context, in_list: bool) -> Value {
    match value {
        Value::Null | Value::Bool(false) => Value::Null,
        Value::Bool(true) => Value::Bool(true),
        Value::Number(number) if context.quantity => {
            quantity(&number.to_string()).map_or_else(|| value.clone(), Value::String)
        }
        Value::Number(number) => normal_number(number),
        Value::String(text) if text.is_empty() => Value::Null,
        Value::String(text) => Value::String(normal_text(text, context)),
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Array(items) => items.iter().map(|item| normal_in(item, context, true)).collect(),
        Value::Object(members) => {
            let is_default = |name: &str, value: &Value| {
                let known = DEFAULTS
                    .iter()
                    .any(|(known, default)| *known == name && value.as_str() == Some(*default));
                in_list && context.kind != KindForm::Custom && known
            };
            let members = members.iter().filter(|(name, value)| !is_default(name, value));
            let members = members.map(|(name, value)| (name.clone(), normal_in(value, context.below(name), in_list)));
            let members: Map<String, Value> = members.filter(|(_, value)| !value.is_null()).collect();
            if members.is_empty() {
                Value::Null
            } else {
                Value::Object(members)
            }
        }
    }
}

fn normal_number(number: &Number) -> Value {
    if number.as_i64() == Some(0) || number.as_f64() == Some(0.0) {
        return Value::Null;
    }
    if number.is_f64()
        && let Some(float) = number.as_f64()
        && float.fract() == 0.0
        && float.abs() < 9e15
    {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and below 2^53")]
        return Value::from(float as i64);
    }
    Value::Number(number.clone())
}

fn normal_text(text: &str, context: Context) -> String {
    let form = match context {
        Context { quantity: true, .. } => quantity(text),
        Context { base64: true, .. } => {
            let plain: String = text.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
            STANDARD.decode(&plain).ok().map(|bytes| STANDARD.encode(bytes))
        }
        Context {
            kind: KindForm::BuiltIn,
            ..
        } => time(text),
        _ => None,
    };
    form.unwrap_or_else(|| text.to_owned())
}

/// The value of a quantity as `DIGITSeEXPONENT` without trailing zeros; none if the text is no quantity, or too long.
/// Grammar: <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>.
fn quantity(text: &str) -> Option<String> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && !"+-.".contains(letter))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (multiplier, mut exponent): (i128, i32) = match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        scientific => (1, scientific.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let mut value = digits.checked_mul(multiplier)?;
    exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    if value == 0 {
        return Some("0e0".to_owned());
    }
    while value % 10 == 0 {
        value /= 10;
        exponent += 1;
    }
    Some(format!("{value}e{exponent}"))
}

/// A time of RFC 3339 in seconds since the epoch; none if invalid. The server writes times of its types in UTC.
fn time(text: &str) -> Option<String> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let is_at = |index: usize, letter: u8| text.as_bytes().get(index) == Some(&letter);
    if !(is_at(4, b'-') && is_at(7, b'-') && is_at(10, b'T') && is_at(13, b':') && is_at(16, b':')) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let seconds = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    let rest = &text[19..];
    let zone = rest.find(['Z', '+', '-'])?;
    let fraction = rest[..zone].trim_start_matches('.').trim_end_matches('0');
    let offset = match &rest[zone..] {
        "Z" => 0,
        zone => {
            let (hours, minutes) = zone[1..].split_once(':')?;
            let offset = hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60;
            if zone.starts_with('-') { -offset } else { offset }
        }
    };
    // Days since the epoch, counted from 1 March of the year 0 (the proleptic Gregorian calendar).
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Some(format!("{}.{fraction}", days * 86_400 + seconds - offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_one_value_have_one_form() {
        for (one, other) in [
            ("1", "1000m"),
            ("0.5", "500m"),
            ("1Ki", "1024"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("0", "0Gi"),
            ("100n", "0.1u"),
            ("+5", "5"),
        ] {
            assert_eq!(quantity(one), quantity(other), "{one} {other}");
            assert!(quantity(one).is_some(), "{one}");
        }
        assert_ne!(quantity("1E"), quantity("1e1"));
        for nonsense in [
            "",
            "x",
            "1x",
            "1.2.3",
            "--1",
            "99999999999999999999999999999999999999999",
        ] {
            assert_eq!(quantity(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn times_of_one_moment_have_one_form() {
        assert_eq!(time("1970-01-01T00:00:00Z").unwrap(), "0.");
        assert_eq!(time("2000-03-01T00:00:00Z").unwrap(), "951868800.");
        assert_eq!(time("2026-01-01T01:30:00.500000+01:30"), time("2026-01-01T00:00:00.5Z"));
        for nonsense in [
            "",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01Tab:00:00Z",
            "nginx:1.27",
        ] {
            assert_eq!(time(nonsense), None, "{nonsense}");
        }
    }
}
