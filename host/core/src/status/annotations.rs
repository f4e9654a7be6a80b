//! Interprets the annotations by which a user steers the reconciles of one object.

use crate::text::printable::shorten;

/// Annotation of a primary: with the text `true`, the object is neither reconciled nor written.
pub const PAUSED: &str = "pilothouse.dev/paused";

/// Annotation of a primary: whenever it gets another text, the object is reconciled at once.
pub const RECONCILE_REQUESTED: &str = "pilothouse.dev/reconcile-requested-at";

/// The longest text of [`PAUSED`] that a warning quotes, in bytes.
const LONGEST_QUOTE: usize = 64;

/// Reports whether [`PAUSED`] with this text pauses an object.
///
/// Only `true` does. Another text may be meant as `true` (`yes`) or as `false` (`no`, `off`): the object is then reconciled as before
/// the annotation was set, and [`unclear_pause`] warns.
pub fn is_paused(text: Option<&str>) -> bool {
    text == Some("true")
}

/// The warning about a text of [`PAUSED`] that is neither `true` nor `false`.
pub fn unclear_pause(text: Option<&str>) -> Option<String> {
    let text = text.filter(|text| !matches!(*text, "true" | "false"))?;
    let text = shorten(text.to_owned(), LONGEST_QUOTE);
    Some(format!(
        "the annotation {PAUSED} is {text:?}, which does not pause the object; set it to \"true\" to pause, or to \"false\" or \
         remove it"
    ))
}

/// Reports whether a change of an annotation such as [`RECONCILE_REQUESTED`] is a request: it has another text than before.
pub fn is_request(before: Option<&str>, now: Option<&str>) -> bool {
    now.is_some_and(|now| !now.is_empty()) && before != now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_pauses_and_other_texts_are_warned_of() {
        assert!(is_paused(Some("true")) && unclear_pause(Some("true")).is_none());
        assert!(!is_paused(None) && unclear_pause(None).is_none());
        assert!(!is_paused(Some("false")) && unclear_pause(Some("false")).is_none());
        for text in ["", "yes", "True", "TRUE", " true", "1", "no", "off"] {
            let warning = unclear_pause(Some(text)).unwrap();
            assert!(!is_paused(Some(text)), "{text}");
            assert!(
                warning.contains(PAUSED) && warning.contains(&format!("{text:?}")),
                "{warning}"
            );
        }
        assert!(unclear_pause(Some(&"x".repeat(100_000))).unwrap().len() < 300);
    }

    #[test]
    fn each_new_text_is_a_request_and_none_is_no_request() {
        assert!(is_request(None, Some("1")) && is_request(Some("1"), Some("2")));
        assert!(!is_request(Some("1"), Some("1")) && !is_request(Some("1"), None) && !is_request(None, Some("")));
    }
}
