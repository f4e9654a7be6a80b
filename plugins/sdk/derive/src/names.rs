//! Names of members in JSON by serde's `rename_all`, and their form in paths.

use proc_macro2::Span;
use syn::{Error, LitStr, Result};

/// Cases that serde knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Lower,
    Upper,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

impl Case {
    /// Parses the name of a case.
    pub fn parse(name: &LitStr) -> Result<Self> {
        Ok(match name.value().as_str() {
            "lowercase" => Self::Lower,
            "UPPERCASE" => Self::Upper,
            "PascalCase" => Self::Pascal,
            "camelCase" => Self::Camel,
            "snake_case" => Self::Snake,
            "SCREAMING_SNAKE_CASE" => Self::ScreamingSnake,
            "kebab-case" => Self::Kebab,
            "SCREAMING-KEBAB-CASE" => Self::ScreamingKebab,
            other => return Err(Error::new_spanned(name, format!("serde has no case {other:?}"))),
        })
    }

    /// Converts a field's name, which is in snake case, to this case.
    pub fn of_field(self, field: &str) -> String {
        match self {
            Self::Lower | Self::Snake => field.to_owned(),
            Self::Upper | Self::ScreamingSnake => field.to_ascii_uppercase(),
            Self::Kebab => field.replace('_', "-"),
            Self::ScreamingKebab => field.to_ascii_uppercase().replace('_', "-"),
            Self::Pascal => pascal(field),
            Self::Camel => {
                let pascal = pascal(field);
                let mut letters = pascal.chars();
                let first = letters.next().map(|first| first.to_ascii_lowercase());
                first.into_iter().chain(letters).collect()
            }
        }
    }
}

fn pascal(field: &str) -> String {
    let mut name = String::new();
    let mut begins_word = true;
    for letter in field.chars() {
        if letter == '_' {
            begins_word = true;
        } else if begins_word {
            name.push(letter.to_ascii_uppercase());
            begins_word = false;
        } else {
            name.push(letter);
        }
    }
    name
}

/// Returns the step of a path to a member, for example `.spec` or `["a.b/c"]`.
pub fn step(member: &str, span: Span) -> Result<String> {
    if member.contains("\"]") {
        return Err(Error::new(span, format!("a path cannot name the member {member:?}")));
    }
    let is_plain =
        !member.is_empty() && !member.contains(|letter: char| letter.is_whitespace() || ".[]\"'".contains(letter));
    Ok(if is_plain {
        format!(".{member}")
    } else {
        format!("[\"{member}\"]")
    })
}
