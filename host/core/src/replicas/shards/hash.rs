//! Hashes of namespaces and ranges of them, by which API servers divide lists and watches
//! (<https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5866-server-side-sharded-list-and-watch>).

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

/// The offset basis and the prime of FNV-1a with 64 bits
/// (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>).
const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// The FNV-1a hash of a namespace's name.
pub fn hash_of(namespace: &str) -> u64 {
    namespace
        .bytes()
        .fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// The hashes from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(try_from = "RangeText", into = "RangeText")]
pub struct HashRange {
    first: u64,
    last: u64,
}

/// A range in readable form: hexadecimal, with an exclusive end.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RangeText {
    from: String,
    to: String,
}

impl HashRange {
    /// Every hash.
    pub const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    /// A range; none if it would end before it begins.
    pub fn new(first: u64, last: u64) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The first hash of it.
    pub fn first(self) -> u64 {
        self.first
    }

    /// The last hash of it.
    pub fn last(self) -> u64 {
        self.last
    }

    /// The exclusive end, as a number.
    fn end(self) -> u128 {
        u128::from(self.last) + 1
    }

    fn text(self) -> (String, String) {
        (format!("0x{:016x}", self.first), format!("0x{:016x}", self.end()))
    }
}

impl From<HashRange> for RangeText {
    fn from(range: HashRange) -> Self {
        let (from, to) = range.text();
        Self { from, to }
    }
}

impl TryFrom<RangeText> for HashRange {
    type Error = String;

    fn try_from(RangeText { from, to }: RangeText) -> Result<Self, String> {
        let read = |text: &str| {
            let digits = text
                .strip_prefix("0x")
                .filter(|digits| digits.len() <= 17 && digits.bytes().all(|it| it.is_ascii_hexdigit()));
            digits.and_then(|digits| u128::from_str_radix(digits, 16).ok())
        };
        let range = || {
            let (first, end) = (read(&from)?, read(&to)?);
            Self::new(u64::try_from(first).ok()?, u64::try_from(end.checked_sub(1)?).ok()?)
        };
        range().ok_or_else(|| format!("from {from:?} to {to:?} is no range of 64-bit hexadecimal hashes"))
    }
}

/// A set of hashes: sorted ranges that neither overlap nor adjoin.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(from = "Vec<HashRange>", into = "Vec<HashRange>")]
pub struct HashRanges(Vec<HashRange>);

impl From<HashRanges> for Vec<HashRange> {
    fn from(ranges: HashRanges) -> Self {
        ranges.0
    }
}

impl From<Vec<HashRange>> for HashRanges {
    fn from(mut ranges: Vec<HashRange>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<HashRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(before) if u128::from(range.first) <= before.end() => before.last = before.last.max(range.last),
                _ => merged.push(range),
            }
        }
        Self(merged)
    }
}

impl FromIterator<HashRange> for HashRanges {
    fn from_iter<I: IntoIterator<Item = HashRange>>(ranges: I) -> Self {
        Self::from(ranges.into_iter().collect::<Vec<_>>())
    }
}

/// Formats the ranges for people: `0x00..0x10, 0x20..0x30`, each with an exclusive end.
impl fmt::Display for HashRanges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let (from, to) = range.text();
            write!(formatter, "{separator}{from}..{to}")?;
        }
        Ok(())
    }
}

impl HashRanges {
    /// Every hash.
    pub fn all() -> Self {
        Self(vec![HashRange::ALL])
    }

    /// The ranges.
    pub fn iter(&self) -> impl Iterator<Item = HashRange> + '_ {
        self.0.iter().copied()
    }

    /// Reports whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether a hash is in the set.
    pub fn contains(&self, hash: u64) -> bool {
        let after = self.0.partition_point(|range| range.first <= hash);
        after.checked_sub(1).is_some_and(|index| hash <= self.0[index].last)
    }

    /// The hash of one namespace.
    pub fn of_namespace(namespace: &str) -> Self {
        let hash = hash_of(namespace);
        Self(vec![HashRange {
            first: hash,
            last: hash,
        }])
    }

    /// Reports whether a namespace's hash is in the set.
    pub fn has(&self, namespace: &str) -> bool {
        self.contains(hash_of(namespace))
    }

    /// Reports whether objects of a namespace are in the set. Cluster-scoped objects always are.
    pub fn has_object_in(&self, namespace: Option<&str>) -> bool {
        namespace.is_none_or(|namespace| self.has(namespace))
    }

    /// Reports whether every hash of another set is in this one.
    pub fn covers(&self, other: &Self) -> bool {
        // Each range of the other has to be within one of these, because these do not adjoin.
        other.iter().all(|asked| {
            let after = self.0.partition_point(|range| range.first <= asked.first);
            after
                .checked_sub(1)
                .is_some_and(|index| asked.last <= self.0[index].last)
        })
    }

    /// The intersection of two sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let both = self.iter().flat_map(|one| {
            other
                .iter()
                .filter_map(move |other| HashRange::new(one.first.max(other.first), one.last.min(other.last)))
        });
        both.collect()
    }

    /// The union of two sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// The difference: hashes of this set that are not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let ends = other.iter().map(|range| range.last.checked_add(1));
        let starts = std::iter::once(Some(0)).chain(ends);
        let lasts = other
            .iter()
            .map(|range| range.first.checked_sub(1))
            .chain([Some(u64::MAX)]);
        let gaps = starts
            .zip(lasts)
            .filter_map(|(first, last)| HashRange::new(first?, last?));
        self.intersection(&gaps.collect())
    }

    /// The value of the parameter `shardSelector` for objects in namespaces with these hashes; none if all are in.
    pub fn selector(&self) -> Option<String> {
        if self.0 == [HashRange::ALL] {
            return None;
        }
        let mut selector = String::new();
        for range in &self.0 {
            let (from, to) = range.text();
            let or = if selector.is_empty() { "" } else { " || " };
            write!(selector, "{or}shardRange(object.metadata.namespace, '{from}', '{to}')")
                .expect("a String takes all");
        }
        Some(selector)
    }
}
