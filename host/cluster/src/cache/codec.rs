//! Encodes the cached objects of one kind: trims them to the visible fields, compresses them against a sample of the
//! kind, and interns repeated values.
//!
//! Uses LZ4 in blocks, because a read has to stay cheap (a microsecond for an object of a few KB) and needs no C. An
//! object alone compresses badly; against others of its kind, little more is left than its own values.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use pilothouse_core::Kind;
use pilothouse_core::kubernetes::path::Projection;
use serde_json::value::RawValue;

use crate::object::apply_entry::ApplyEntry;
use crate::object::facts::{FactKeys, MetadataFacts};

/// The longest sample against which objects of a kind are compressed, in bytes. It is hashed at each compression, and
/// copied at each read.
const SAMPLE_BYTES: usize = 8 * 1024;

/// The number of objects from which a sample is made.
const SAMPLED_OBJECTS: usize = 4;

/// The lowest number of interned values for a sweep of unused ones. The next sweep is at twice the remaining number.
const SMALLEST_SWEEP: usize = 256;

/// The first byte of plain text, and that of compressed bytes.
const PLAIN: u8 = 0;
const COMPRESSED: u8 = 1;

/// The codec for the objects of one kind.
#[derive(Debug)]
pub struct ObjectCodec {
    kind: Arc<Kind>,
    layout: RwLock<Arc<ObjectLayout>>,
    texts: Interner<str>,
    entries: Interner<[ApplyEntry]>,
    keys: RwLock<Arc<FactKeys>>,
    facts: Interner<MetadataFacts>,
}

/// The trimming and compression of an object; everything that is needed to read it again.
#[derive(Debug)]
pub struct ObjectLayout {
    projection: Projection,
    sample: Box<[u8]>,
}

impl ObjectLayout {
    /// The visible fields of the object.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }
}

impl ObjectCodec {
    /// A codec that trims objects of a kind to a projection.
    pub fn new(kind: Arc<Kind>, projection: Projection) -> Self {
        Self {
            kind,
            layout: RwLock::new(Arc::new(ObjectLayout {
                projection,
                sample: Box::default(),
            })),
            texts: Interner::default(),
            entries: Interner::default(),
            keys: RwLock::default(),
            facts: Interner::default(),
        }
    }

    /// The kind.
    pub fn kind(&self) -> &Arc<Kind> {
        &self.kind
    }

    /// The layout of new objects.
    pub fn layout(&self) -> Arc<ObjectLayout> {
        self.layout.read().clone()
    }

    /// Trims new objects to another projection. [`ObjectCodec::again`] trims earlier ones.
    pub fn trim_to(&self, projection: Projection) {
        let mut layout = self.layout.write();
        let sample = layout.sample.clone();
        *layout = Arc::new(ObjectLayout { projection, sample });
    }

    /// Extracts the facts that these keys name from new objects, too. Returns whether any key is new: then
    /// [`ObjectCodec::with_facts`] updates earlier objects.
    pub fn ask(&self, keys: &FactKeys) -> bool {
        let mut known = self.keys.write();
        let is_new = !known.covers(keys);
        if is_new {
            *known = Arc::new(known.union(keys));
        }
        is_new
    }

    /// The keys of the facts that are extracted.
    pub(crate) fn keys(&self) -> Arc<FactKeys> {
        self.keys.read().clone()
    }

    /// Makes the sample against which others are compressed from these objects, if there is none yet.
    pub fn learn(&self, objects: &[&RawValue]) {
        let layout = self.layout();
        if !layout.sample.is_empty() || objects.is_empty() {
            return;
        }
        let step = objects.len().div_ceil(SAMPLED_OBJECTS);
        let mut sample = Vec::new();
        for object in objects.iter().step_by(step) {
            let Ok(text) = layout.projection.project(object, &self.kind) else {
                continue;
            };
            let rest = SAMPLE_BYTES - sample.len();
            let fair = (SAMPLE_BYTES / SAMPLED_OBJECTS).max(if sample.is_empty() { SAMPLE_BYTES / 2 } else { 0 });
            sample.extend_from_slice(&text.as_bytes()[..text.len().min(rest).min(fair)]);
        }
        *self.layout.write() = Arc::new(ObjectLayout {
            projection: layout.projection.clone(),
            sample: sample.into(),
        });
    }

    /// Interns a text that many objects have.
    pub(crate) fn text(&self, text: &str) -> Arc<str> {
        self.texts.keep(text, || Arc::from(text))
    }

    /// Interns facts that many objects have.
    pub(crate) fn facts(&self, facts: &MetadataFacts) -> Arc<MetadataFacts> {
        self.facts.keep(facts, || Arc::new(facts.clone()))
    }

    /// Interns entries that many objects have.
    pub(crate) fn entries(&self, entries: &[ApplyEntry]) -> Arc<[ApplyEntry]> {
        self.entries.keep(entries, || Arc::from(entries))
    }
}

/// Compresses text. `own` has the object's identity, which the compressed text need not repeat.
pub(crate) fn pack(text: &str, layout: &ObjectLayout, own: &[&str]) -> Box<[u8]> {
    let plain = || {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.push(PLAIN);
        bytes.extend_from_slice(text.as_bytes());
        bytes.into_boxed_slice()
    };
    let Ok(length) = u32::try_from(text.len()) else {
        return plain();
    };
    if layout.sample.is_empty() {
        return plain();
    }
    let mut bytes = vec![0; 5 + lz4_flex::block::get_maximum_output_size(text.len())];
    bytes[0] = COMPRESSED;
    bytes[1..5].copy_from_slice(&length.to_le_bytes());
    match lz4_flex::block::compress_into_with_dict(text.as_bytes(), &mut bytes[5..], &known(layout, own)) {
        Ok(written) if written + 5 <= text.len() => {
            bytes.truncate(5 + written);
            bytes.into_boxed_slice()
        }
        _ => plain(),
    }
}

/// The length of the text given to [`pack`].
pub(crate) fn packed_bytes(bytes: &[u8]) -> usize {
    match bytes {
        [COMPRESSED, a, b, c, d, ..] => u32::from_le_bytes([*a, *b, *c, *d]) as usize,
        plain => plain.len().saturating_sub(1),
    }
}

/// The text given to [`pack`].
pub(crate) fn unpack<'a>(bytes: &'a [u8], layout: &ObjectLayout, own: &[&str]) -> Cow<'a, str> {
    const WRITTEN: &str = "the bytes were written by pack with this form";
    match bytes.split_first().expect(WRITTEN) {
        (&PLAIN, text) => Cow::Borrowed(std::str::from_utf8(text).expect(WRITTEN)),
        (_, rest) => {
            let (length, compressed) = rest.split_at(4);
            let length = u32::from_le_bytes(length.try_into().expect(WRITTEN)) as usize;
            let text = lz4_flex::block::decompress_with_dict(compressed, length, &known(layout, own)).expect(WRITTEN);
            Cow::Owned(String::from_utf8(text).expect(WRITTEN))
        }
    }
}

/// The dictionary against which an object is compressed: the kind's sample, and the object's own values.
fn known(layout: &ObjectLayout, own: &[&str]) -> Vec<u8> {
    let mut known = Vec::with_capacity(layout.sample.len() + own.iter().map(|text| text.len()).sum::<usize>());
    known.extend_from_slice(&layout.sample);
    for text in own {
        known.extend_from_slice(text.as_bytes());
    }
    known
}

/// Interns equal values for as long as they are used.
#[derive(Debug)]
struct Interner<T: ?Sized>(Mutex<Interned<T>>);

#[derive(Debug)]
struct Interned<T: ?Sized> {
    values: HashSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self(Mutex::new(Interned {
            values: HashSet::new(),
            sweep_at: SMALLEST_SWEEP,
        }))
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    fn keep(&self, value: &T, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut kept = self.0.lock();
        if let Some(value) = kept.values.get(value) {
            return value.clone();
        }
        if kept.values.len() >= kept.sweep_at {
            kept.values.retain(|value| Arc::strong_count(value) > 1);
            kept.sweep_at = (kept.values.len() * 2).max(SMALLEST_SWEEP);
        }
        let value = make();
        kept.values.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(index: usize) -> Box<RawValue> {
        RawValue::from_string(format!(
            r#"{{"metadata":{{"name":"web-{index}","namespace":"shop","uid":"4c7e7c52-0f0b-4f0e-9a51-{index:012}","resourceVersion":"{index}"}},
            "spec":{{"replicas":{index},"paused":false,"progressDeadlineSeconds":600,"revisionHistoryLimit":10}}}}"#
        ))
        .unwrap()
    }

    fn codec() -> ObjectCodec {
        ObjectCodec::new(Arc::new(Kind::new("apps", "v1", "Deployment")), Projection::whole())
    }

    #[test]
    fn what_was_made_small_reads_as_it_was() {
        let codec = codec();
        let plain = codec.read(&raw(1)).unwrap();
        codec.learn(&[&raw(2), &raw(3)]);
        let small = codec.read(&raw(1)).unwrap();
        assert_eq!(plain.text(), small.text());
        assert!(small.has_text_of(&plain) && !small.has_text_of(&codec.read(&raw(4)).unwrap()));
        assert!(
            small.packed_bytes() * 2 < plain.packed_bytes(),
            "{} of {}",
            small.packed_bytes(),
            plain.packed_bytes()
        );
    }

    #[test]
    fn an_object_is_trimmed_again_when_less_is_shown() {
        let codec = codec();
        codec.learn(&[&raw(2)]);
        let whole = codec.read(&raw(1)).unwrap();
        codec.trim_to(Projection::default());
        let trimmed = codec.again(&whole);
        assert!(!trimmed.text().contains("replicas") && trimmed.text().contains("web-1"));
        assert_eq!(trimmed.text(), codec.read(&raw(1)).unwrap().text());
    }

    /// Users write annotations of up to 256 KiB, and what the host finds in its own is part of what others are compressed
    /// against.
    #[test]
    fn an_annotation_of_ours_may_have_any_length_and_any_characters() {
        let codec = codec();
        codec.learn(&[&raw(2), &raw(3)]);
        for digest in ["x".repeat(250_000), "\\u0001\\u0002".repeat(20_000), String::new()] {
            let text = format!(
                r#"{{"metadata":{{"name":"web","uid":"\u0001","resourceVersion":"1","annotations":{{"pilothouse.dev/desired":"{digest}"}}}},"spec":{{"again":"{digest}"}}}}"#
            );
            let stored = codec.read(&RawValue::from_string(text).unwrap()).unwrap();
            let value = stored.value();
            assert_eq!(value["spec"]["again"].as_str(), stored.digest.as_deref());
            codec.trim_to(Projection::whole());
            assert_eq!(codec.again(&stored).text(), stored.text());
        }
    }

    #[test]
    fn what_nobody_uses_is_not_kept() {
        let codec = codec();
        let used = codec.text("used");
        for index in 0..10_000 {
            codec.text(&index.to_string());
        }
        assert!(codec.texts.0.lock().values.len() <= 2 * SMALLEST_SWEEP);
        assert!(Arc::ptr_eq(&used, &codec.text("used")));
    }
}
