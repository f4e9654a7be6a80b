//! Facts about an object that lanes need without reading it: its finalizers, the labels and annotations that filters
//! name, and the texts of annotations by which users steer reconciles. They are extracted once, when the object
//! arrives, so that a decision under the host's lock parses nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use pilothouse_core::kubernetes::selector::Selector;
use pilothouse_core::text::printable::shorten;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::object::raw::BorrowedText;

/// The longest text of an annotation that is kept, in bytes; the rest is cut off.
const LONGEST_TEXT: usize = 256;

/// The labels and annotations that lanes need, for the objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FactKeys {
    labels: BTreeSet<Box<str>>,
    annotations: BTreeSet<Box<str>>,
    /// Annotations whose texts are kept.
    texts: BTreeSet<Box<str>>,
}

impl FactKeys {
    /// Adds the labels of a selector.
    #[must_use]
    pub fn with_labels(mut self, selector: &Selector) -> Self {
        self.labels.extend(selector.keys().map(Box::from));
        self
    }

    /// Adds an annotation whose presence matters.
    #[must_use]
    pub fn with_annotation(mut self, annotation: &str) -> Self {
        self.annotations.insert(annotation.into());
        self
    }

    /// Adds an annotation whose text matters.
    #[must_use]
    pub fn with_text(mut self, annotation: &str) -> Self {
        self.texts.insert(annotation.into());
        self
    }

    /// Reports whether all labels of a selector are among them.
    pub(crate) fn has_labels(&self, selector: &Selector) -> bool {
        selector.keys().all(|key| self.labels.contains(key))
    }

    /// Reports whether an annotation is among them.
    pub(crate) fn has_annotation(&self, annotation: &str) -> bool {
        self.annotations.contains(annotation)
    }

    /// Reports whether the text of an annotation is among them.
    pub(crate) fn has_text(&self, annotation: &str) -> bool {
        self.texts.contains(annotation)
    }

    /// Reports whether all keys of another set are in this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.labels.is_superset(&other.labels)
            && self.annotations.is_superset(&other.annotations)
            && self.texts.is_superset(&other.texts)
    }

    /// The union of two sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            labels: &self.labels | &other.labels,
            annotations: &self.annotations | &other.annotations,
            texts: &self.texts | &other.texts,
        }
    }
}

/// The facts of an object's metadata. Most objects of a kind have the same, and share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MetadataFacts {
    /// The keys that were extracted.
    pub(crate) keys: Arc<FactKeys>,
    pub(crate) finalizers: Box<[Box<str>]>,
    labels: Box<[(Box<str>, Box<str>)]>,
    annotations: Box<[Box<str>]>,
    texts: Box<[(Box<str>, Box<str>)]>,
}

impl MetadataFacts {
    /// Parses three members of the metadata, as far as they exist.
    pub(crate) fn read(
        keys: Arc<FactKeys>,
        finalizers: Option<&RawValue>,
        labels: Option<&RawValue>,
        annotations: Option<&RawValue>,
    ) -> Self {
        // A member with another form than Kubernetes' has no facts.
        let finalizers: Vec<Box<str>> = parsed(finalizers).unwrap_or_default();
        let present = |names: &BTreeSet<Box<str>>, text: Option<&RawValue>| -> Vec<(Box<str>, Box<str>)> {
            if names.is_empty() {
                return Vec::new();
            }
            let known: BTreeMap<Cow<'_, str>, Option<BorrowedText<'_>>> = parsed(text).unwrap_or_default();
            let found = names.iter().filter_map(|name| {
                let BorrowedText(value) = known.get(&**name)?.as_ref()?;
                Some((name.clone(), value.as_ref().into()))
            });
            found.collect()
        };
        let labels = present(&keys.labels, labels);
        let [filtered, texts] = [&keys.annotations, &keys.texts].map(|names| present(names, annotations));
        let texts = texts.into_iter();
        let texts = texts.map(|(name, text)| (name, shorten(text.into(), LONGEST_TEXT).into()));
        Self {
            finalizers: finalizers.into(),
            labels: labels.into(),
            annotations: filtered.into_iter().map(|(name, _)| name).collect(),
            texts: texts.collect(),
            keys,
        }
    }

    /// Reports whether a selector matches the labels. All of its keys must be known.
    pub(crate) fn matches(&self, selector: &Selector) -> bool {
        selector.matches(|key| {
            let label = self.labels.iter().find(|(name, _)| **name == *key);
            label.map(|(_, value)| &**value)
        })
    }

    /// The text of an annotation whose text is kept.
    pub(crate) fn text(&self, annotation: &str) -> Option<&str> {
        let found = self.texts.iter().find(|(name, _)| **name == *annotation);
        found.map(|(_, text)| &**text)
    }

    /// Reports whether an annotation with a known key exists.
    pub(crate) fn has_annotation(&self, annotation: &str) -> bool {
        self.annotations.iter().any(|name| **name == *annotation)
    }
}

fn parsed<'a, T: Deserialize<'a>>(text: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(text?.get()).ok()
}

/// A hash to compare texts within one process.
pub(crate) fn fingerprint(texts: &[Option<&RawValue>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for text in texts {
        text.map(RawValue::get).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn only_what_filters_name_is_kept() {
        let selector = Selector::parse("app=web,!legacy").unwrap();
        let keys = Arc::new(FactKeys::default().with_labels(&selector).with_annotation("on"));
        let labels = raw(r#"{"app":"web","unique":"u-1"}"#);
        let annotations = raw(r#"{"on":"","other":"x"}"#);
        let finalizers = raw(r#"["a/b"]"#);
        let facts = MetadataFacts::read(keys.clone(), Some(&finalizers), Some(&labels), Some(&annotations));
        assert!(facts.matches(&selector) && facts.has_annotation("on"));
        assert_eq!(
            (facts.labels.len(), facts.annotations.len(), facts.finalizers.len()),
            (1, 1, 1)
        );
        let others = raw(r#"{"app":"web","unique":"u-2"}"#);
        let same = MetadataFacts::read(keys.clone(), Some(&finalizers), Some(&others), Some(&annotations));
        assert_eq!(facts, same, "so they are shared");
        let legacy = raw(r#"{"app":"web","legacy":""}"#);
        assert!(!MetadataFacts::read(keys.clone(), None, Some(&legacy), None).matches(&selector));
        let bare = MetadataFacts::read(keys, None, None, None);
        assert!(!bare.matches(&selector) && !bare.has_annotation("on") && bare.finalizers.is_empty());
    }

    #[test]
    fn texts_are_kept_for_some_annotations_and_long_ones_are_cut() {
        let keys = Arc::new(FactKeys::default().with_text("paused").with_annotation("on"));
        let read = |text: &str| MetadataFacts::read(keys.clone(), None, None, Some(&raw(text)));
        let facts = read(r#"{"on":"x","paused":"true","other":"y"}"#);
        assert_eq!(
            (facts.text("paused"), facts.text("on"), facts.text("other")),
            (Some("true"), None, None)
        );
        let long = read(&format!(r#"{{"paused":"{}"}}"#, "é".repeat(100_000)));
        assert!(long.text("paused").unwrap().len() <= LONGEST_TEXT);
        assert!(keys.has_text("paused") && !keys.has_text("on"));
        assert!(!keys.covers(&FactKeys::default().with_text("on")));
    }

    #[test]
    fn metadata_of_another_form_has_no_facts() {
        let keys = Arc::new(FactKeys::default().with_annotation("on").with_text("on"));
        for text in ["[]", "3", r#"{"on":3}"#, r#"{"on":null}"#, r#"{"on":{"on":""}}"#] {
            let text = raw(text);
            let facts = MetadataFacts::read(keys.clone(), Some(&text), Some(&text), Some(&text));
            assert!(
                !facts.has_annotation("on") && facts.text("on").is_none() && facts.finalizers.is_empty(),
                "{text}"
            );
        }
    }
}
