//! Rules of the API server for names, for configurations and fields that contain one.

/// Reports whether a text is a DNS label, like the names of namespaces and Services: 1 to 63 characters a-z, 0-9 and
/// `-`, the first and last of which is a letter or digit.
///
/// ```
/// use pilothouse_plugin::names::is_dns_label;
///
/// assert!(is_dns_label("ingress-nginx"));
/// assert!(!is_dns_label("ingress.nginx") && !is_dns_label("-a") && !is_dns_label(""));
/// ```
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63
        && has_alphanumeric_ends(text)
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Reports whether a text is a DNS name, like most objects' names: at most 253 characters, labels separated by dots.
///
/// ```
/// use pilothouse_plugin::names::is_dns_name;
///
/// assert!(is_dns_name("tcp-services") && is_dns_name("www.example.com"));
/// assert!(!is_dns_name("a..b") && !is_dns_name("Example.com"));
/// ```
pub fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

/// Reports whether a text can be the value of a label: at most 63 characters A-Z, a-z, 0-9, `-`, `_` and `.`, the first
/// and last of which is a letter or digit; also the empty text.
///
/// ```
/// use pilothouse_plugin::names::is_label_value;
///
/// assert!(is_label_value("v1.2_Beta") && is_label_value(""));
/// assert!(!is_label_value("a b") && !is_label_value("beta-"));
/// ```
pub fn is_label_value(text: &str) -> bool {
    text.is_empty()
        || text.len() <= 63
            && has_alphanumeric_ends(text)
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn has_alphanumeric_ends(text: &str) -> bool {
    let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    is_alphanumeric(text.as_bytes().first()) && is_alphanumeric(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use super::{is_dns_label, is_dns_name, is_label_value};

    #[test]
    fn each_name_has_its_longest() {
        assert!(is_dns_label(&"a".repeat(63)) && !is_dns_label(&"a".repeat(64)));
        assert!(is_label_value(&"A".repeat(63)) && !is_label_value(&"A".repeat(64)));
        let labels = |last: usize| {
            [&"a".repeat(63), &"b".repeat(63), &"c".repeat(63), &"d".repeat(last)]
                .map(String::as_str)
                .join(".")
        };
        assert!(is_dns_name(&labels(61)) && !is_dns_name(&labels(62)));
        assert!(!is_dns_name(&"a".repeat(64)));
    }

    #[test]
    fn letters_of_other_alphabets_are_refused() {
        assert!(!is_dns_label("é") && !is_dns_name("a.é") && !is_label_value("é"));
        assert!(!is_dns_label("A") && !is_dns_label("a_b") && is_label_value("a_B"));
    }
}
