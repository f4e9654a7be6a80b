//! Makes untrusted texts safe for a log and a terminal: they cannot begin a line, control the terminal, or show
//! characters in another order.

use std::borrow::Borrow;

use serde_json::Value;

/// A text on one line. Control characters, line separators, and characters that reorder or hide text are escaped as in Rust.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_plain(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_default());
        }
    }
    shown
}

/// The same for a text of several lines. All but the first are indented, so that none looks like another entry's line.
pub fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(printable).collect();
    lines.join("\n  ")
}

/// Reports whether a character is visible and does not affect others.
fn is_plain(character: char) -> bool {
    // Bidirectional marks, embeddings and isolates (Unicode Standard Annex 9), invisible operators, annotations and tags. The
    // joiners U+200C and U+200D stay, because scripts and emoji need them.
    let steers = matches!(
        character,
        '\u{61c}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    !character.is_control() && !steers
}

/// Truncates a text to at most so many bytes, at a character boundary.
pub fn shorten(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        let mut end = bytes.saturating_sub('…'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The first few texts of several, and the number of the rest.
pub fn first_few<Text: Borrow<str>>(texts: impl ExactSizeIterator<Item = Text>) -> String {
    pilothouse_description::first_of(texts, MAX_NAMED)
}

/// The highest number of texts that a message lists.
pub(crate) const MAX_NAMED: usize = 5;

/// Returns the type of a JSON value, with its article.
pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_neither_steer_a_terminal_nor_begin_a_line() {
        assert_eq!(
            printable("a\u{1b}[2Jb\r\nc\u{9b}\u{85}ü\t"),
            "a\\u{1b}[2Jb\\r\\nc\\u{9b}\\u{85}ü\\t"
        );
        assert_eq!(
            printable("\u{202e}txt\u{2066}x\u{2069}\u{200f}"),
            "\\u{202e}txt\\u{2066}x\\u{2069}\\u{200f}"
        );
        assert_eq!(
            printable("a\u{2028}b\u{2029}\u{feff}\u{e0041}"),
            "a\\u{2028}b\\u{2029}\\u{feff}\\u{e0041}"
        );
        for plain in ["e\u{301}", "नमस्ते", "مرحبا", "👩‍👩‍👧", "\"a\\b\""] {
            assert_eq!(printable(plain), plain);
        }
        assert_eq!(printable_lines("a\nerror: b\r\nc\r"), "a\n  error: b\n  c\\r");
    }
}
