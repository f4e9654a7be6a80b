//! Turns descriptions of the OpenAPI documents into doc comments.

use std::fmt::Write as _;

/// Maximum length of a comment's line, without its prefix.
const WIDTH: usize = 100;

/// So much of a description is kept, in bytes, if a second sentence ends before.
const ENOUGH: usize = 240;

/// The first sentence of a description, and the second if both are short.
pub fn first_sentences(description: &str) -> String {
    let paragraph = description.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    let mut text = String::new();
    let mut sentences = 0;
    let mut end = 0;
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        text.push_str(word);
        if ends_sentence(word, words.get(index + 1)) {
            sentences += 1;
            if sentences == 1 || text.len() <= ENOUGH {
                end = text.len();
            }
            if sentences == 2 {
                break;
            }
        }
    }
    if sentences > 0 {
        text.truncate(end);
    }
    text
}

fn ends_sentence(word: &str, next: Option<&&str>) -> bool {
    let abbreviations = ["e.g.", "i.e.", "etc.", "(e.g.", "(i.e.", "vs.", "Ex."];
    word.ends_with('.')
        && !abbreviations.contains(&word)
        && next.is_none_or(|next| next.starts_with(|first: char| first.is_uppercase() || !first.is_alphanumeric()))
}

/// The lines of a doc comment, each with this indentation. Whatever Markdown would take for more than text is escaped.
pub fn comment(indent: &str, text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    let balanced = text.matches('`').count().is_multiple_of(2);
    let mut in_code = false;
    for word in text.split_whitespace() {
        let escaped = if balanced && (in_code || word.contains('`')) {
            word.to_owned()
        } else {
            escape(word)
        };
        if balanced && word.matches('`').count() % 2 == 1 {
            in_code = !in_code;
        }
        // What would begin a list or a heading does not stand at the beginning of a line.
        let marker = word.len() < 4 && !word.starts_with(char::is_alphabetic) || word.ends_with('.') && word.len() < 5;
        if !line.is_empty() && line.len() + escaped.len() >= WIDTH && !marker && !in_code {
            let _ = writeln!(lines, "{indent}/// {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&escaped);
    }
    let _ = writeln!(lines, "{indent}/// {line}");
    lines
}

fn escape(word: &str) -> String {
    if let Some(start) = word.find("http://").or_else(|| word.find("https://")) {
        let end = word.trim_end_matches([',', '.', ')', ';', ']', '"', '\'']).len();
        if end > start {
            return format!(
                "{}<{}>{}",
                escape(&word[..start]),
                &word[start..end],
                escape(&word[end..])
            );
        }
    }
    let mut escaped = String::new();
    for letter in word.chars() {
        if "\\[]<>*_`#|~".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{comment, first_sentences};

    #[test]
    fn at_most_two_short_sentences_are_kept() {
        assert_eq!(
            first_sentences("One e.g. this. Two.  Three. \n\nFour."),
            "One e.g. this. Two."
        );
        assert_eq!(first_sentences("no end"), "no end");
        let long = format!("One. Two {} end.", "words ".repeat(60));
        assert_eq!(first_sentences(&long), "One.");
    }

    #[test]
    fn markdown_and_links_are_escaped() {
        assert_eq!(
            comment("", "a [b] <c> `d[]` * e"),
            "/// a \\[b\\] \\<c\\> `d[]` \\* e\n"
        );
        assert_eq!(
            comment("", "More: http://k8s.io/a_b."),
            "/// More: <http://k8s.io/a_b>.\n"
        );
    }
}
