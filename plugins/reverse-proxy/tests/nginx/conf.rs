//! Parser of nginx's syntax: words, quotes and backslashes, semicolons, blocks and comments.
//!
//! Source: `ngx_conf_read_token` in nginx's `src/core/ngx_conf_file.c`. It is written for these tests alone, and shares
//! nothing with the plugin's writer.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

/// Directive with its name, its values, and its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The name first.
    pub words: Vec<String>,
    /// None where it ends with a semicolon.
    pub block: Option<Vec<Self>>,
}

/// The tree of a configuration, or why there is none.
pub fn parse(text: &str) -> Result<Vec<Directive>, String> {
    let mut characters = text.chars().peekable();
    directives(&mut characters, false)
}

/// A tree that is shown a directive a line.
pub struct Shown<'a>(pub &'a [Directive]);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for directive in self.0 {
            writeln!(formatter, "{:?}", directive.words)?;
            if let Some(block) = &directive.block {
                write!(formatter, "{{\n{:?}}}\n", Shown(block))?;
            }
        }
        Ok(())
    }
}

enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

fn directives(characters: &mut Peekable<Chars<'_>>, inside: bool) -> Result<Vec<Directive>, String> {
    let mut directives = Vec::new();
    let mut words = Vec::new();
    loop {
        let block = match token(characters)? {
            Token::Word(word) => {
                words.push(word);
                continue;
            }
            Token::Semicolon if words.is_empty() => return Err("unexpected \";\"".to_owned()),
            Token::Semicolon => None,
            Token::Open if words.is_empty() => return Err("unexpected \"{\"".to_owned()),
            Token::Open => Some(self::directives(characters, true)?),
            Token::Close if inside && words.is_empty() => return Ok(directives),
            Token::Close => return Err("unexpected \"}\"".to_owned()),
            Token::End if inside || !words.is_empty() => return Err("unexpected end of file".to_owned()),
            Token::End => return Ok(directives),
        };
        let words = std::mem::take(&mut words);
        directives.push(Directive { words, block });
    }
}

fn token(characters: &mut Peekable<Chars<'_>>) -> Result<Token, String> {
    loop {
        match characters.next() {
            None => return Ok(Token::End),
            Some(' ' | '\t' | '\r' | '\n') => {}
            Some(';') => return Ok(Token::Semicolon),
            Some('{') => return Ok(Token::Open),
            Some('}') => return Ok(Token::Close),
            Some('#') => while characters.next_if(|next| *next != '\n').is_some() {},
            Some(quote @ ('"' | '\'')) => return quoted(characters, quote),
            Some(first) => return plain(characters, first),
        }
    }
}

/// Reads the text behind a quote at the beginning of a word. The text behind the closing quote must not be part of a
/// word.
fn quoted(characters: &mut Peekable<Chars<'_>>, quote: char) -> Result<Token, String> {
    let mut word = String::new();
    loop {
        match characters.next() {
            None => return Err("unexpected end of file, expecting a quote".to_owned()),
            Some('\\') => escape(characters, &mut word)?,
            Some(end) if end == quote => break,
            Some(other) => word.push(other),
        }
    }
    match characters.peek() {
        None | Some(' ' | '\t' | '\r' | '\n' | ';' | '{' | ')') => Ok(Token::Word(word)),
        Some(other) => Err(format!("unexpected {other:?} behind a quote")),
    }
}

/// A word without quotes: it ends before a space, a semicolon or a block.
fn plain(characters: &mut Peekable<Chars<'_>>, first: char) -> Result<Token, String> {
    let mut word = String::new();
    let mut last = first;
    if first == '\\' {
        escape(characters, &mut word)?;
    } else {
        word.push(first);
    }
    while let Some(next) = characters
        .next_if(|next| !matches!(next, ' ' | '\t' | '\r' | '\n' | ';' | '{') || (*next == '{' && last == '$'))
    {
        last = next;
        if next == '\\' {
            escape(characters, &mut word)?;
        } else {
            word.push(next);
        }
    }
    Ok(Token::Word(word))
}

fn escape(characters: &mut Peekable<Chars<'_>>, word: &mut String) -> Result<(), String> {
    match characters.next().ok_or("unexpected end of file behind a backslash")? {
        quoted @ ('"' | '\'' | '\\') => word.push(quoted),
        't' => word.push('\t'),
        'r' => word.push('\r'),
        'n' => word.push('\n'),
        other => word.extend(['\\', other]),
    }
    Ok(())
}

#[test]
fn words_quotes_blocks_and_comments_are_read() {
    let tree = parse("a b \"c ; } \\\" \\d\" 'e'; # f;\nx ${y}z { \"\" v; }").unwrap();
    let shown = format!("{:?}", Shown(&tree));
    let expected = concat!(
        "[\"a\", \"b\", \"c ; } \\\" \\\\d\", \"e\"]\n",
        "[\"x\", \"${y}z\"]\n{\n[\"\", \"v\"]\n}\n"
    );
    assert_eq!(shown, expected);
    for wrong in ["a", "a;}", "a {", "a \"b", "a \"b\"c;", ";"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
