//! Accepts regular expressions: a conservative subset of PCRE, of which PCRE refuses nothing.
//!
//! A parser of PCRE would be most of the component, and the `regex` crate has neither PCRE's messages nor its limits.
//! So rare features are refused here: lookbehind, named groups, literal braces, conditions, verbs. Every accepted
//! expression compiles with PCRE2 10.42; the oracle test checks that. [`RegexError`] has PCRE's messages if it has one.

/// Deepest nesting of groups; PCRE2 allows 250.
const DEEPEST: usize = 50;

/// The largest number in a quantifier; PCRE2 allows 65535.
const LARGEST_COUNT: u32 = 1000;

/// Largest size of an expression with its quantifiers written out, in items. PCRE2's limit is 64 KiB of compiled code.
const LARGEST: u64 = 2000;

/// Reasons why an expression is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegexError {
    /// PCRE's message.
    #[error("missing closing parenthesis")]
    UnclosedGroup,
    /// PCRE's message.
    #[error("unmatched closing parenthesis")]
    UnopenedGroup,
    /// PCRE's message.
    #[error("quantifier does not follow a repeatable item")]
    NothingToRepeat,
    /// PCRE's message.
    #[error("missing terminating ] for character class")]
    UnclosedClass,
    /// PCRE's message.
    #[error("range out of order in character class")]
    RangeOutOfOrder,
    /// PCRE's message.
    #[error("invalid range in character class")]
    InvalidRange,
    /// PCRE's message.
    #[error("\\ at end of pattern")]
    TrailingBackslash,
    /// PCRE's message.
    #[error("numbers out of order in {{}} quantifier")]
    CountsOutOfOrder,
    /// PCRE's message.
    #[error("number too big in {{}} quantifier")]
    CountTooBig,
    /// PCRE's message.
    #[error("reference to non-existent subpattern")]
    UnknownGroup,
    /// PCRE's message.
    #[error("unknown POSIX class name")]
    UnknownClass,
    /// PCRE's message.
    #[error("unrecognized character follows \\")]
    UnknownEscape,
    /// PCRE's message.
    #[error("regular expression is too large")]
    TooLarge,
    /// PCRE's message.
    #[error("parentheses are too deeply nested")]
    TooDeep,
    /// PCRE's message.
    #[error("unrecognized character after (? or (?-")]
    UnknownGroupKind,
    /// Valid in PCRE, not supported here.
    #[error("{0} is not supported in a rewrite; use groups ( ), (?: ), (?= ), (?! ) and $1 to $9")]
    Unsupported(&'static str),
    /// Valid in PCRE in some places, but error-prone.
    #[error("{0:?} stands for itself here; write \\{0}")]
    BareBrace(char),
}

/// Checks an expression, and returns the number of its groups.
pub(crate) fn check(pattern: &str) -> Result<usize, RegexError> {
    let mut parser = Parser {
        rest: pattern.strip_prefix("(?i)").unwrap_or(pattern),
        depth: 0,
        groups: 0,
        largest_reference: 0,
    };
    let size = parser.alternatives()?;
    if parser.rest.starts_with(')') {
        return Err(RegexError::UnopenedGroup);
    }
    if parser.largest_reference > parser.groups {
        return Err(RegexError::UnknownGroup);
    }
    if size > LARGEST {
        return Err(RegexError::TooLarge);
    }
    Ok(parser.groups)
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    groups: usize,
    largest_reference: usize,
}

/// A parsed item, by whether a quantifier may follow.
enum Item {
    /// An item of this size that can be repeated.
    Repeatable(u64),
    /// An assertion, which cannot.
    Assertion,
}

impl Parser<'_> {
    /// Parses the alternatives between two parentheses, or between the ends; returns their size.
    fn alternatives(&mut self) -> Result<u64, RegexError> {
        let mut size = 0_u64;
        while let Some(next) = self.peek() {
            if next == ')' {
                break;
            }
            self.skip();
            let item = match next {
                '|' => {
                    size += 1;
                    continue;
                }
                '(' => self.group()?,
                '[' => self.class()?,
                '\\' => self.escape()?,
                '^' | '$' => Item::Assertion,
                '*' | '+' | '?' => return Err(RegexError::NothingToRepeat),
                '{' | '}' => return Err(RegexError::BareBrace(next)),
                _ => Item::Repeatable(1),
            };
            let times = self.quantifier()?;
            size = size.saturating_add(match (item, times) {
                (Item::Repeatable(size), times) => size.saturating_mul(u64::from(times.unwrap_or(1).max(1))),
                (Item::Assertion, None) => 1,
                (Item::Assertion, Some(_)) => return Err(RegexError::NothingToRepeat),
            });
        }
        Ok(size)
    }

    /// Parses a group after its opening parenthesis.
    fn group(&mut self) -> Result<Item, RegexError> {
        let mut assertion = false;
        if self.rest.starts_with('*') {
            return Err(RegexError::Unsupported("a verb (*..)"));
        }
        if self.take('?') {
            match self.next() {
                Some(':') => {}
                Some('=' | '!') => assertion = true,
                Some('<' | 'P' | '\'') => return Err(RegexError::Unsupported("a named group or a lookbehind")),
                Some('i' | 'm' | 's' | 'x' | 'J' | 'U' | 'n' | '-' | '^') => {
                    return Err(RegexError::Unsupported("an option but (?i) at the beginning"));
                }
                Some('#' | '>' | '|' | '(' | '&' | 'R' | 'C' | '+' | '0'..='9') => {
                    return Err(RegexError::Unsupported(
                        "a condition, a recursion, a comment or an atomic group",
                    ));
                }
                Some(_) | None => return Err(RegexError::UnknownGroupKind),
            }
        } else {
            self.groups += 1;
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(RegexError::TooDeep);
        }
        let size = self.alternatives()?;
        self.depth -= 1;
        if !self.take(')') {
            return Err(RegexError::UnclosedGroup);
        }
        // PCRE accepts a quantifier after an assertion in brackets, and ignores most of it: that is never intended.
        Ok(if assertion {
            Item::Assertion
        } else {
            Item::Repeatable(size.saturating_add(2))
        })
    }

    /// Parses an escape after its backslash, outside of a class.
    fn escape(&mut self) -> Result<Item, RegexError> {
        Ok(match self.next().ok_or(RegexError::TrailingBackslash)? {
            'b' | 'B' | 'A' | 'z' | 'Z' => Item::Assertion,
            digit @ '1'..='9' => {
                if self.peek().is_some_and(|next| next.is_ascii_digit()) {
                    return Err(RegexError::Unsupported("a reference beyond \\9"));
                }
                let reference = digit as usize - '0' as usize;
                self.largest_reference = self.largest_reference.max(reference);
                Item::Repeatable(1)
            }
            escaped => {
                self.escaped(escaped)?;
                Item::Repeatable(1)
            }
        })
    }

    /// Parses an escape whose first character after the backslash was read. Returns the character; none for a set.
    fn escaped(&mut self, escaped: char) -> Result<Option<char>, RegexError> {
        Ok(match escaped {
            'd' | 'D' | 'w' | 'W' | 's' | 'S' | 'h' | 'H' | 'v' | 'V' => None,
            't' => Some('\t'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            'f' => Some('\u{c}'),
            'e' => Some('\u{1b}'),
            'x' => {
                let hexadecimal = self
                    .rest
                    .get(..2)
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok());
                let plain = self.rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
                match hexadecimal {
                    Some(number) if plain => {
                        self.rest = &self.rest[2..];
                        Some(char::from(number))
                    }
                    _ => return Err(RegexError::Unsupported("\\x without two digits")),
                }
            }
            other if other.is_ascii_punctuation() || other == ' ' => Some(other),
            'a' | 'c' | 'C' | 'E' | 'g' | 'G' | 'k' | 'K' | 'N' | 'o' | 'p' | 'P' | 'Q' | 'R' | 'X' | '0' => {
                return Err(RegexError::Unsupported("this escape"));
            }
            _ => return Err(RegexError::UnknownEscape),
        })
    }

    /// Parses a class after its opening bracket.
    fn class(&mut self) -> Result<Item, RegexError> {
        self.take('^');
        if self.rest.starts_with(']') {
            return Err(RegexError::UnclosedClass);
        }
        // The start of a range, if the last item was a character.
        let mut last: Option<char> = None;
        loop {
            let next = self.next().ok_or(RegexError::UnclosedClass)?;
            let one = match next {
                ']' => return Ok(Item::Repeatable(1)),
                '[' if self.rest.starts_with([':', '.', '=']) => {
                    self.posix_class()?;
                    None
                }
                '-' if self.rest.starts_with(']') => Some('-'),
                '-' if last.is_some() => {
                    self.range_to(last.expect("it was just looked at"))?;
                    None
                }
                '-' => Some('-'),
                other => self.class_character(other)?,
            };
            // A set can't begin a range; PCRE reports that only for some sets.
            if one.is_none() && self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                return Err(RegexError::InvalidRange);
            }
            last = one;
        }
    }

    fn class_character(&mut self, first: char) -> Result<Option<char>, RegexError> {
        if first != '\\' {
            return Ok(Some(first));
        }
        match self.next().ok_or(RegexError::TrailingBackslash)? {
            'b' => Ok(Some('\u{8}')),
            'B' | 'A' | 'z' | 'Z' | '1'..='9' => Err(RegexError::Unsupported("this escape in a class")),
            escaped => self.escaped(escaped),
        }
    }

    /// Parses the end of a range in a class.
    fn range_to(&mut self, from: char) -> Result<(), RegexError> {
        let next = self.next().ok_or(RegexError::UnclosedClass)?;
        if next == '[' && self.rest.starts_with([':', '.', '=']) {
            return Err(RegexError::InvalidRange);
        }
        match self.class_character(next)? {
            Some(to) if to < from => Err(RegexError::RangeOutOfOrder),
            Some(_) => Ok(()),
            None => Err(RegexError::InvalidRange),
        }
    }

    /// Parses a class like `[:alpha:]` after its opening bracket.
    fn posix_class(&mut self) -> Result<(), RegexError> {
        const NAMES: [&str; 14] = [
            "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
            "word", "xdigit",
        ];
        let inside = self
            .rest
            .strip_prefix(':')
            .ok_or(RegexError::Unsupported("a collating element"))?;
        let (name, behind) = inside.split_once(":]").ok_or(RegexError::UnclosedClass)?;
        if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(RegexError::UnknownClass);
        }
        self.rest = behind;
        Ok(())
    }

    /// Parses a quantifier. Returns the most repetitions; 1 for "any number", which PCRE does not write out.
    fn quantifier(&mut self) -> Result<Option<u32>, RegexError> {
        let times = match self.peek() {
            Some('*' | '+' | '?') => {
                self.skip();
                1
            }
            Some('{') => {
                self.skip();
                self.counts()?
            }
            _ => return Ok(None),
        };
        // Lazy or possessive.
        if self.rest.starts_with(['?', '+']) {
            self.skip();
        }
        if self.rest.starts_with(['*', '+', '?', '{']) {
            return Err(RegexError::NothingToRepeat);
        }
        Ok(Some(times))
    }

    /// Parses the counts of a quantifier after its opening brace.
    fn counts(&mut self) -> Result<u32, RegexError> {
        let (inside, behind) = self.rest.split_once('}').ok_or(RegexError::BareBrace('{'))?;
        let (least, most) = match inside.split_once(',') {
            Some((least, "")) => (least, least),
            Some((least, most)) => (least, most),
            None => (inside, inside),
        };
        let number = |digits: &str| {
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(RegexError::BareBrace('{'));
            }
            match digits.parse() {
                Ok(number) if number <= LARGEST_COUNT => Ok(number),
                _ => Err(RegexError::CountTooBig),
            }
        };
        let (least, most) = (number(least)?, number(most)?);
        if most < least {
            return Err(RegexError::CountsOutOfOrder);
        }
        self.rest = behind;
        Ok(most)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn skip(&mut self) {
        self.next();
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.skip();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{RegexError, check};

    #[test]
    fn common_expressions_are_taken_and_their_groups_counted() {
        for (pattern, groups) in [
            ("", 0),
            ("^/foo(.*)$", 1),
            ("(?i)^/(a|b)+?/([^/]*)/?$", 2),
            (r"^/v(\d{1,3})\.(?:json|xml)$", 1),
            (r"^/[[:alpha:]_][\w.-]*(?=/)", 0),
            (r"(a)\1{2,}[\]\-a-z]*+", 1),
            (r"\x3bX\/[^\]^]|", 0),
            (r"^(?!/api)(/.*)$", 1),
        ] {
            assert_eq!(check(pattern), Ok(groups), "{pattern}");
        }
    }

    #[test]
    fn others_are_refused_in_pcres_words() {
        for (pattern, words) in [
            ("^/(foo", "missing closing parenthesis"),
            ("foo)", "unmatched closing parenthesis"),
            ("*foo", "quantifier does not follow a repeatable item"),
            ("a|+", "quantifier does not follow a repeatable item"),
            ("a**", "quantifier does not follow a repeatable item"),
            ("^*", "quantifier does not follow a repeatable item"),
            ("[abc", "missing terminating ] for character class"),
            ("[]", "missing terminating ] for character class"),
            ("[z-a]", "range out of order in character class"),
            (r"[\d-z]", "invalid range in character class"),
            (r"[a-\d]", "invalid range in character class"),
            ("[[:nope:]]", "unknown POSIX class name"),
            ("a\\", "\\ at end of pattern"),
            ("a{3,2}", "numbers out of order in {} quantifier"),
            ("a{70000}", "number too big in {} quantifier"),
            (r"(a)\2", "reference to non-existent subpattern"),
            (r"\y", "unrecognized character follows \\"),
            ("(?z)", "unrecognized character after (? or (?-"),
            ("((a{1000}){1000}){9}", "regular expression is too large"),
            ("a{", "'{' stands for itself here; write \\{"),
            ("a}", "'}' stands for itself here; write \\}"),
        ] {
            assert_eq!(check(pattern).expect_err(pattern).to_string(), words, "{pattern}");
        }
        for pattern in [
            "(?<name>a)",
            "(?<=a)b",
            "a(?i)b",
            "(?>a)",
            r"\Qa\E",
            r"\p{L}",
            "(*ACCEPT)",
            r"(a)\11",
        ] {
            let error = check(pattern).expect_err(pattern);
            assert!(matches!(error, RegexError::Unsupported(_)), "{pattern}: {error}");
        }
        assert_eq!(check(&("(".repeat(60) + &")".repeat(60))), Err(RegexError::TooDeep));
    }
}
