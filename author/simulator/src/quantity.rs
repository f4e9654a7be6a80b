//! Parses resource quantities and returns their canonical form (`1000m` is `1`, `0.5Gi` is `512Mi`).

/// The largest power of ten or 1024 that is tried as a suffix.
const DECIMAL: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: &[(&str, u32)] = &[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Binary,
    Exponent,
}

/// The canonical form, or None when the text is no quantity.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (nanos, form) = parse(text)?;
    Some(match form {
        // A binary quantity that is not a whole number of anything binary, or below 1024, is written decimally.
        Form::Binary if nanos % 1_000_000_000 == 0 && (nanos / 1_000_000_000).abs() >= 1024 => {
            binary(nanos / 1_000_000_000)
        }
        Form::Binary | Form::Decimal => decimal(nanos),
        Form::Exponent => exponent(nanos),
    })
}

/// In thousandths, rounded up; None when the text is no quantity.
pub(crate) fn millis(text: &str) -> Option<i128> {
    let (nanos, _) = parse(text)?;
    Some(nanos.div_euclid(1_000_000) + i128::from(nanos.rem_euclid(1_000_000) != 0))
}

/// The value in billionths, rounded up, and how it was written.
fn parse(text: &str) -> Option<(i128, Form)> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = unsigned
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let (nanos, form) = if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        let scaled = mantissa
            .checked_mul(1_i128.checked_shl(*bits)?)?
            .checked_mul(1_000_000_000)?;
        (
            divide_up(scaled, 10_i128.checked_pow(places.unsigned_abs())?),
            Form::Binary,
        )
    } else if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        (scale(mantissa, power + 9 - places)?, Form::Decimal)
    } else {
        let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        (
            scale(mantissa, power.checked_add(9)?.checked_sub(places)?)?,
            Form::Exponent,
        )
    };
    Some((if negative { -nanos } else { nanos }, form))
}

fn scale(mantissa: i128, power: i32) -> Option<i128> {
    let factor = 10_i128.checked_pow(power.unsigned_abs())?;
    if power >= 0 {
        mantissa.checked_mul(factor)
    } else {
        Some(divide_up(mantissa, factor))
    }
}

fn divide_up(value: i128, divisor: i128) -> i128 {
    value / divisor + i128::from(value % divisor != 0)
}

fn decimal(nanos: i128) -> String {
    let (value, power) = largest_power(nanos);
    let name = DECIMAL
        .iter()
        .find(|(_, exponent)| *exponent == power)
        .map_or("", |(name, _)| name);
    format!("{value}{name}")
}

fn exponent(nanos: i128) -> String {
    let (value, power) = largest_power(nanos);
    if power == 0 {
        value.to_string()
    } else {
        format!("{value}e{power}")
    }
}

/// Divides by thousands as long as nothing is lost.
fn largest_power(nanos: i128) -> (i128, i32) {
    if nanos == 0 {
        return (0, 0);
    }
    let (mut value, mut power) = (nanos, -9);
    while value % 1000 == 0 && power < 18 {
        value /= 1000;
        power += 3;
    }
    (value, power)
}

fn binary(whole: i128) -> String {
    let (mut value, mut suffix) = (whole, "");
    for (name, _) in BINARY {
        if value % 1024 != 0 {
            break;
        }
        value /= 1024;
        suffix = name;
    }
    format!("{value}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_in_their_canonical_form() {
        for (text, expected) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("0.5Gi", "512Mi"),
            ("1500Ki", "1500Ki"),
            ("128974848", "128974848"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("0", "0"),
            ("100Mi", "100Mi"),
            ("-1.5", "-1500m"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "x", "1.2.3", "1Xi", "Mi"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }
}
