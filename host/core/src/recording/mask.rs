//! Masks the values of Secrets, and of configuration members that the schema marks as secret, wherever they occur in a
//! recording. The replacement is derived from the value and a key that exists only while the recording is made: equal
//! values stay equal, and nobody can recover them.
//!
//! A value is searched as it is, without surrounding space, in base64, hexadecimal digits, percent-encoding and JSON
//! escapes. If the value is JSON, each text in it is searched too; if it has several lines, each line. Values shorter
//! than [`LEAST_BYTES`] are replaced only as whole texts, or half of all words would be. In names and keys only values
//! of at least [`LEAST_NAME_BYTES`] are replaced.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::{Number, Value};
use sha2::{Digest, Sha256};

use super::visit::Visitor;
use super::{RecordedCall, Tree};
use crate::kubernetes::key::Kind;

/// The prefix of a masked value. [`MASK_DIGITS`] hexadecimal digits follow. Its base64 needs no padding.
pub const MASK: &str = "masked:";

/// The number of hexadecimal digits after the prefix.
pub const MASK_DIGITS: usize = 8;

/// The length of a key, in bytes.
pub const KEY_BYTES: usize = 32;

/// The shortest value that is replaced within texts, in bytes.
const LEAST_BYTES: usize = 4;

/// The shortest value that is replaced in the names of objects and members, in bytes.
const LEAST_NAME_BYTES: usize = 8;

/// The shortest line of a value that is searched by itself, in bytes.
const LEAST_LINE_BYTES: usize = 8;

/// The depth to which schemas of configurations are followed.
const SCHEMA_DEPTH: usize = 32;

/// The highest number of digits of a masked number.
const MOST_DIGITS: u32 = 15;

/// The block size of SHA-256 in bytes, for HMAC.
const BLOCK: usize = 64;

/// Collects the values to mask.
pub struct Masker {
    key: [u8; KEY_BYTES],
    /// Values searched within texts, with their replacements.
    within: BTreeMap<String, String>,
    /// Values searched as whole texts, with their replacements.
    whole: BTreeMap<String, String>,
}

/// Masks the collected values.
pub struct Masks {
    key: [u8; KEY_BYTES],
    within: AhoCorasick,
    replacements: Vec<String>,
    whole: HashMap<String, String>,
}

impl Masker {
    /// A masker without values. The key has to be random, and used for one recording only.
    pub fn new(key: [u8; KEY_BYTES]) -> Self {
        Self {
            key,
            within: BTreeMap::new(),
            whole: BTreeMap::new(),
        }
    }

    /// Collects the Secrets of a call: passed in, read, and desired.
    pub fn learn(&mut self, call: &mut RecordedCall) {
        call.visit(self);
    }

    /// Collects the configuration members that the schema marks as secret: `writeOnly: true`, or `format: password`.
    pub fn learn_configuration(&mut self, schema: &Value, configuration: &Tree) {
        let mut secret = Vec::new();
        marked(schema, schema, configuration, SCHEMA_DEPTH, &mut secret);
        for value in secret {
            self.learn_tree(value);
        }
    }

    /// Reports whether there is nothing to mask.
    pub fn is_empty(&self) -> bool {
        self.within.is_empty() && self.whole.is_empty()
    }

    /// Completes the collection. Fails if there are too many values for one search.
    pub fn finish(self) -> Result<Masks, String> {
        let Self { key, within, whole } = self;
        let built = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(within.keys());
        Ok(Masks {
            key,
            within: built.map_err(|error| error.to_string())?,
            replacements: within.into_values().collect(),
            whole: whole.into_iter().collect(),
        })
    }

    /// Collects each text of a value.
    fn learn_tree(&mut self, tree: &Tree) {
        match tree {
            Tree::Null | Tree::Bool(_) => {}
            Tree::Number(number) => self.learn_value(number.to_string().as_bytes()),
            Tree::String(text) => self.learn_value(text.as_bytes()),
            Tree::Array(items) => items.iter().for_each(|item| self.learn_tree(item)),
            Tree::Object(members) => members.iter().for_each(|(_, value)| self.learn_tree(value)),
        }
    }

    fn learn_value(&mut self, value: &[u8]) {
        let text = std::str::from_utf8(value).ok();
        let is_blank = text.map_or(value.is_empty(), |text| text.trim().is_empty());
        if is_blank {
            return;
        }
        let token = token(&self.key, value);
        self.learn_forms(value, &token);
        let Some(text) = text else { return };
        let trimmed = text.trim();
        if trimmed.len() != text.len() {
            self.learn_forms(trimmed.as_bytes(), &token);
        }
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| line.len() >= LEAST_LINE_BYTES && line.len() < trimmed.len()) {
            self.learn_forms(line.as_bytes(), &self::token(&self.key, line.as_bytes()));
        }
        if trimmed.starts_with(['{', '[']) {
            self.learn_texts(&Tree::read(trimmed));
        }
    }

    /// Collects the texts of a document that is a value.
    fn learn_texts(&mut self, tree: &Tree) {
        match tree {
            Tree::String(text) if text.len() >= LEAST_BYTES => {
                self.learn_forms(text.as_bytes(), &token(&self.key, text.as_bytes()));
                // As `auth` of a registry's credentials: USER:PASSWORD.
                let decoded = STANDARD.decode(text).ok();
                let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
                if let Some((_, password)) = decoded.as_deref().and_then(|text| text.split_once(':')) {
                    self.learn_forms(password.as_bytes(), &token(&self.key, password.as_bytes()));
                }
            }
            Tree::Array(items) => items.iter().for_each(|item| self.learn_texts(item)),
            Tree::Object(members) => members.iter().for_each(|(_, value)| self.learn_texts(value)),
            _ => {}
        }
    }

    /// Collects the encodings of a value. An earlier replacement of the same text stays.
    fn learn_forms(&mut self, value: &[u8], token: &str) {
        let is_short = value.len() < LEAST_BYTES;
        let mut learn = |form: String, replacement: String| {
            let known = if is_short || form.len() < LEAST_BYTES {
                &mut self.whole
            } else {
                &mut self.within
            };
            known.entry(form).or_insert(replacement);
        };
        if let Ok(text) = std::str::from_utf8(value) {
            learn(text.to_owned(), token.to_owned());
            let escaped = serde_json::to_string(text).unwrap_or_default();
            learn(escaped.trim_matches('"').to_owned(), token.to_owned());
            learn(percent_encoded(text), token.to_owned());
        }
        let masked = STANDARD.encode(token);
        for encoded in [
            STANDARD.encode(value),
            STANDARD_NO_PAD.encode(value),
            URL_SAFE.encode(value),
            URL_SAFE_NO_PAD.encode(value),
        ] {
            learn(encoded, masked.clone());
        }
        let digits = hexadecimal(value);
        learn(digits.to_uppercase(), hexadecimal(token.as_bytes()));
        learn(digits, hexadecimal(token.as_bytes()));
    }
}

/// The secret values of a configuration.
fn marked<'a>(root: &Value, schema: &Value, value: &'a Tree, depth: usize, secret: &mut Vec<&'a Tree>) {
    if depth == 0 {
        return;
    }
    if schema["writeOnly"] == true || schema["format"] == "password" {
        secret.push(value);
        return;
    }
    if let Some(target) = schema["$ref"].as_str().and_then(|it| it.strip_prefix('#'))
        && let Some(target) = root.pointer(target)
    {
        marked(root, target, value, depth - 1, secret);
    }
    for part in ["allOf", "anyOf", "oneOf"] {
        for schema in schema[part].as_array().into_iter().flatten() {
            marked(root, schema, value, depth - 1, secret);
        }
    }
    match value {
        Tree::Object(members) => {
            for (name, value) in members {
                let declared = &schema["properties"][name];
                let declared = if declared.is_null() {
                    &schema["additionalProperties"]
                } else {
                    declared
                };
                marked(root, declared, value, depth - 1, secret);
            }
        }
        Tree::Array(items) => {
            for item in items {
                marked(root, &schema["items"], item, depth - 1, secret);
            }
        }
        _ => {}
    }
}

impl Visitor for Masker {
    fn document(&mut self, tree: &mut Tree, kind: Option<&Kind>) {
        if is_secret(tree, kind) {
            for value in secret_values(tree) {
                self.learn_value(&value);
            }
        }
        // A Secret may be part of another document, in a list or in the text of an annotation.
        match tree {
            Tree::Array(items) => items.iter_mut().for_each(|item| self.document(item, None)),
            Tree::Object(members) => {
                for (_, value) in members {
                    self.document(value, None);
                }
            }
            Tree::String(text) => {
                if let Some(mut inner) = document_in(text) {
                    self.document(&mut inner, None);
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, _: &mut String) {}

    fn name(&mut self, _: &mut String) {}
}

/// The member of a Secret that has values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SecretMember {
    Data,
    StringData,
}

impl SecretMember {
    fn of(name: &str) -> Option<Self> {
        match name {
            "data" => Some(Self::Data),
            "stringData" => Some(Self::StringData),
            _ => None,
        }
    }

    /// The bytes that a value encodes.
    fn bytes(self, value: &Tree) -> Vec<u8> {
        match (self, value) {
            (Self::Data, Tree::String(text)) => STANDARD
                .decode(text.as_bytes())
                .unwrap_or_else(|_| text.as_bytes().to_vec()),
            (_, Tree::String(text)) => text.as_bytes().to_vec(),
            (_, other) => other.text().into_bytes(),
        }
    }
}

fn is_secret(tree: &Tree, kind: Option<&Kind>) -> bool {
    let is_kind = kind.is_some_and(|kind| kind.group.is_empty() && kind.kind == "Secret");
    let text = |name| tree.get(name).and_then(Tree::as_str);
    is_kind || (text("kind") == Some("Secret") && text("apiVersion") == Some("v1"))
}

fn secret_values(secret: &Tree) -> Vec<Vec<u8>> {
    let Tree::Object(members) = secret else {
        return Vec::new();
    };
    let mut values = Vec::new();
    for (name, value) in members {
        let (Some(member), Tree::Object(entries)) = (SecretMember::of(name), value) else {
            continue;
        };
        values.extend(entries.iter().map(|(_, value)| member.bytes(value)));
    }
    values
}

/// The document that a text encodes, such as the last-applied annotation.
fn document_in(text: &str) -> Option<Tree> {
    let may_be = text.starts_with(['{', '[']);
    serde_json::from_str(text).ok().filter(|_| may_be)
}

/// Reports whether a document is a Secret or contains one.
fn has_secret(tree: &Tree) -> bool {
    is_secret(tree, None)
        || match tree {
            Tree::Array(items) => items.iter().any(has_secret),
            Tree::Object(members) => members.iter().any(|(_, value)| has_secret(value)),
            _ => false,
        }
}

fn is_last_applied(annotation: &str) -> bool {
    annotation.ends_with("last-applied-configuration")
}

impl Masks {
    /// Masks a call.
    pub fn mask(&self, call: &mut RecordedCall) {
        call.visit(&mut Masking(self));
    }

    /// Masks a document that is not a call.
    pub fn mask_document(&self, tree: &mut Tree) {
        Masking(self).document(tree, None);
    }

    fn masked(&self, text: &str, least: usize) -> Option<String> {
        if let Some(replacement) = self.whole.get(text).filter(|_| least <= LEAST_BYTES) {
            return Some(replacement.clone());
        }
        let mut masked = String::new();
        let mut copied = 0;
        for found in self.within.find_iter(text).filter(|found| found.len() >= least) {
            masked.push_str(&text[copied..found.start()]);
            masked.push_str(&self.replacements[found.pattern().as_usize()]);
            copied = found.end();
        }
        if copied == 0 {
            return None;
        }
        masked.push_str(&text[copied..]);
        Some(masked)
    }

    fn mask_text(&self, text: &mut String, least: usize) {
        if let Some(masked) = self.masked(text, least) {
            *text = masked;
        }
    }

    /// Masks a number that is a value. It keeps the number of its digits, so it remains a number.
    fn mask_number(&self, number: &mut Number) {
        let text = number.to_string();
        if text.len() < LEAST_BYTES || self.masked(&text, LEAST_BYTES).is_none() {
            return;
        }
        let code = hmac(&self.key, text.as_bytes());
        let digits = u64::from_be_bytes(code[..8].try_into().expect("a code has 32 bytes"));
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX).min(MOST_DIGITS);
        let least = 10_u64.pow(length - 1);
        *number = (least + digits % (9 * least)).into();
    }

    fn mask_tree(&self, tree: &mut Tree, place: Place) {
        if is_secret(tree, None) {
            return self.mask_secret(tree);
        }
        match tree {
            Tree::Null | Tree::Bool(_) => {}
            Tree::Number(number) => self.mask_number(number),
            Tree::String(text) => {
                if let Some(mut inner) = document_in(text)
                    && (has_secret(&inner) || inner.text() == *text)
                {
                    self.mask_tree(&mut inner, Place::Root);
                    *text = inner.text();
                }
                self.mask_text(text, place.least());
            }
            Tree::Array(items) => items.iter_mut().for_each(|item| self.mask_tree(item, Place::Elsewhere)),
            Tree::Object(members) => {
                for (name, value) in members {
                    let place = place.member(name);
                    self.mask_text(name, LEAST_NAME_BYTES);
                    self.mask_tree(value, place);
                }
            }
        }
    }

    fn mask_secret(&self, secret: &mut Tree) {
        let members = match secret {
            Tree::Object(members) => members,
            Tree::String(text) => return self.mask_text(text, LEAST_BYTES),
            _ => return,
        };
        for (name, value) in members {
            match (SecretMember::of(name), value) {
                (Some(member), Tree::Object(entries)) => {
                    for (_, value) in entries {
                        let token = token(&self.key, &member.bytes(value));
                        *value = Tree::String(match member {
                            SecretMember::Data => STANDARD.encode(token),
                            SecretMember::StringData => token,
                        });
                    }
                }
                (_, value) if name == "metadata" => {
                    self.mask_last_applied(value);
                    self.mask_tree(value, Place::Metadata);
                }
                (_, value) => {
                    let place = Place::Root.member(name);
                    self.mask_tree(value, place);
                }
            }
        }
    }

    /// Masks the last-applied annotation, which may have values that the Secret no longer has.
    fn mask_last_applied(&self, metadata: &mut Tree) {
        let Tree::Object(members) = metadata else { return };
        let annotations = members.iter_mut().filter(|(name, _)| name == "annotations");
        for (_, annotations) in annotations {
            let Tree::Object(annotations) = annotations else {
                continue;
            };
            for (_, value) in annotations.iter_mut().filter(|(name, _)| is_last_applied(name)) {
                *value = Tree::String(token(&self.key, value.text().as_bytes()));
            }
        }
    }
}

/// The position of a text in a document.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Metadata,
    /// `apiVersion` and `kind`, and the name and the namespace of the object.
    Name,
    Elsewhere,
}

impl Place {
    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Root, "apiVersion" | "kind") | (Self::Metadata, "name" | "namespace") => Self::Name,
            (Self::Root, "metadata") => Self::Metadata,
            _ => Self::Elsewhere,
        }
    }

    fn least(self) -> usize {
        if self == Self::Name {
            LEAST_NAME_BYTES
        } else {
            LEAST_BYTES
        }
    }
}

struct Masking<'a>(&'a Masks);

impl Visitor for Masking<'_> {
    fn document(&mut self, tree: &mut Tree, kind: Option<&Kind>) {
        if is_secret(tree, kind) {
            self.0.mask_secret(tree);
        } else {
            self.0.mask_tree(tree, Place::Root);
        }
    }

    fn text(&mut self, text: &mut String) {
        self.0.mask_text(text, LEAST_BYTES);
    }

    fn name(&mut self, name: &mut String) {
        self.0.mask_text(name, LEAST_NAME_BYTES);
    }
}

/// The replacement of a value.
fn token(key: &[u8; KEY_BYTES], value: &[u8]) -> String {
    let mut digits = hexadecimal(&hmac(key, value));
    digits.truncate(MASK_DIGITS);
    format!("{MASK}{digits}")
}

/// HMAC with SHA-256 (RFC 2104).
fn hmac(key: &[u8; KEY_BYTES], message: &[u8]) -> [u8; 32] {
    let pad = |byte: u8| {
        let mut block = [byte; BLOCK];
        for (padded, key) in block.iter_mut().zip(key) {
            *padded ^= key;
        }
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner);
    outer.finalize().into()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests;
