//! Checks a value of nginx's configuration: its characters and its variables.
//!
//! The writer quotes every value, so none of them can end its directive. Characters that would do so in a hand-written
//! configuration are refused all the same: they are never intended, and the file stays readable.

use super::variables::Block;

/// Longest value, in bytes, as it is written: nginx reads 4096 bytes at a time and accepts no longer token.
pub(crate) const LONGEST_TOKEN: usize = 4000;

/// Context of a value, which determines the allowed characters and variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// The format of the access log: any text without single quotes, in which it is commonly written.
    LogFormat,
    /// A value of an http directive, in which `$1` to `$9` are groups of the last regular expression.
    Http,
    /// A value of a stream directive.
    Stream,
}

/// Reasons why nginx would refuse a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SyntaxError {
    /// nginx's message.
    #[error("unknown {0:?} variable")]
    UnknownVariable(String),
    /// nginx's message.
    #[error("invalid variable name")]
    InvalidVariableName,
    /// nginx's message, for a log format.
    #[error("invalid parameter {0:?}")]
    InvalidParameter(String),
    /// nginx's message.
    #[error("the closing bracket in {0:?} variable is missing")]
    UnclosedVariable(String),
    /// A reference to a group without a regular expression.
    #[error("${0} is a group of a regular expression, and there is none here")]
    NoGroup(char),
    /// A character that would end a directive.
    #[error("has {0:?}, which would end or open a directive of nginx.conf; leave it out")]
    Breaks(char),
    /// Line ends and the like.
    #[error("has a control character ({0:?}); leave it out")]
    Control(char),
    /// A space where none is allowed.
    #[error("has a space; leave it out")]
    Space,
    /// Characters beyond ASCII.
    #[error("has {0:?}; only ASCII characters can stand here")]
    NotAscii(char),
    /// nginx's message.
    #[error("too long parameter: {0} bytes, and there can be {LONGEST_TOKEN}")]
    TooLong(usize),
}

/// Checks a value: that it can be written, and that nginx knows its variables.
pub(crate) fn check(text: &str, value: Value) -> Result<(), SyntaxError> {
    check_length(text)?;
    for character in text.chars() {
        let breaks = match value {
            Value::LogFormat => character == '\'' || character == '\\',
            // Braces are checked with the variables, whose names they may enclose.
            Value::Http | Value::Stream => matches!(character, ';' | '"' | '\'' | '\\'),
        };
        if character.is_control() {
            return Err(SyntaxError::Control(character));
        }
        if breaks {
            return Err(SyntaxError::Breaks(character));
        }
        if !character.is_ascii() && value != Value::LogFormat {
            return Err(SyntaxError::NotAscii(character));
        }
    }
    check_variables(text, value)
}

/// Checks a value like [`check`], and that it is one word.
pub(crate) fn check_word(text: &str, value: Value) -> Result<(), SyntaxError> {
    check(text, value)?;
    if text.contains(' ') {
        return Err(SyntaxError::Space);
    }
    Ok(())
}

/// Checks that a value is not too long to be written: quotes and backslashes take two bytes.
pub(crate) fn check_length(text: &str) -> Result<(), SyntaxError> {
    let length = text.len() + text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    if length > LONGEST_TOKEN {
        return Err(SyntaxError::TooLong(length));
    }
    Ok(())
}

/// Reports whether a value contains a variable.
pub(crate) fn has_variables(text: &str) -> bool {
    text.contains('$')
}

/// Scans a value as nginx's script compiler does.
fn check_variables(text: &str, value: Value) -> Result<(), SyntaxError> {
    let mut rest = text;
    while let Some(at) = rest.find(['$', '{', '}']) {
        let Some(after) = rest[at..].strip_prefix('$') else {
            let brace = if rest[at..].starts_with('{') { '{' } else { '}' };
            if value == Value::LogFormat {
                rest = &rest[at + 1..];
                continue;
            }
            return Err(SyntaxError::Breaks(brace));
        };
        rest = check_variable(after, value)?;
    }
    Ok(())
}

/// Checks the variable whose name, or the bracket before it, begins here, and returns the text after it.
fn check_variable(after: &str, value: Value) -> Result<&str, SyntaxError> {
    if let Some(digit @ '1'..='9') = after.chars().next() {
        match value {
            Value::Http => return Ok(&after[1..]),
            Value::Stream => return Err(SyntaxError::NoGroup(digit)),
            // A log format has no groups; there this is a name.
            Value::LogFormat => {}
        }
    }
    let (bracketed, start) = match after.strip_prefix('{') {
        Some(inside) => (true, inside),
        None => (false, after),
    };
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let end = start.find(|character| !is_name(character)).unwrap_or(start.len());
    let (name, mut behind) = start.split_at(end);
    let nameless = || match value {
        Value::LogFormat => SyntaxError::InvalidParameter(format!("${after}")),
        Value::Http | Value::Stream => SyntaxError::InvalidVariableName,
    };
    if bracketed {
        match behind.strip_prefix('}') {
            Some(closed) => behind = closed,
            None if start.is_empty() => return Err(nameless()),
            None => return Err(SyntaxError::UnclosedVariable(name.to_owned())),
        }
    }
    if name.is_empty() {
        return Err(nameless());
    }
    let block = match value {
        Value::LogFormat | Value::Http => Block::Http,
        Value::Stream => Block::Stream,
    };
    if !block.knows(name) {
        return Err(SyntaxError::UnknownVariable(name.to_owned()));
    }
    Ok(behind)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_TOKEN, Value, check, check_word};

    fn refused(text: &str, value: Value) -> String {
        check(text, value).expect_err(text).to_string()
    }

    #[test]
    fn known_variables_are_taken_with_and_without_brackets() {
        for text in ["", "plain", "$host", "${host}s", "a$http_x_y-$1$2", "$arg_a$arg_b"] {
            assert_eq!(check(text, Value::Http), Ok(()), "{text}");
        }
        assert_eq!(check("$remote_addr$session_time", Value::Stream), Ok(()));
    }

    #[test]
    fn variables_are_refused_in_nginxs_words() {
        for (text, words) in [
            ("$noexists", "unknown \"noexists\" variable"),
            ("a${noexists}b", "unknown \"noexists\" variable"),
            ("$0", "unknown \"0\" variable"),
            ("costs 5$", "invalid variable name"),
            ("$-", "invalid variable name"),
            ("${}", "invalid variable name"),
            ("${", "invalid variable name"),
            ("$$host", "invalid variable name"),
            ("${host", "the closing bracket in \"host\" variable is missing"),
            ("${ho st}", "the closing bracket in \"ho\" variable is missing"),
        ] {
            assert_eq!(refused(text, Value::Http), words, "{text}");
        }
        assert_eq!(refused("$1", Value::LogFormat), "unknown \"1\" variable");
        assert_eq!(refused("a $", Value::LogFormat), "invalid parameter \"$\"");
        assert!(refused("$1", Value::Stream).starts_with("$1 is a group"));
    }

    #[test]
    fn what_would_end_a_directive_is_refused() {
        for text in ["a; b", "a\"b", "a'b", "a{b", "a}b", "a\\", "$host}", "{"] {
            assert!(refused(text, Value::Http).contains("end or open a directive"), "{text}");
        }
        for text in ["a\nb", "a\r", "a\0", "\u{7f}", "\u{85}"] {
            assert!(refused(text, Value::Http).contains("control character"), "{text:?}");
            assert!(
                refused(text, Value::LogFormat).contains("control character"),
                "{text:?}"
            );
        }
        assert!(refused("ä", Value::Http).contains("only ASCII"));
        assert_eq!(
            check_word("a b", Value::Http).unwrap_err().to_string(),
            "has a space; leave it out"
        );
    }

    #[test]
    fn a_log_format_may_be_json_and_may_not_have_single_quotes() {
        assert_eq!(check("{\"host\": \"$host\"}; ä", Value::LogFormat), Ok(()));
        assert!(refused("it's", Value::LogFormat).contains("'\\''"));
    }

    #[test]
    fn what_nginx_could_not_read_in_one_piece_is_refused() {
        assert_eq!(check(&"a".repeat(LONGEST_TOKEN), Value::Http), Ok(()));
        assert!(refused(&"a".repeat(LONGEST_TOKEN + 1), Value::Http).starts_with("too long parameter"));
        assert!(refused(&"\"".repeat(LONGEST_TOKEN / 2 + 1), Value::LogFormat).starts_with("too long parameter"));
    }
}
