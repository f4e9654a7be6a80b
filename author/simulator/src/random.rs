//! Draws every random value of a server from the seed: uids, generated names, node ports. So a run can be repeated.

/// The alphabet of generated names: no vowels, no digits that look like letters.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// SplitMix64: small, and good enough for names.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below the bound, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A version 4 uid.
    pub(crate) fn uid(&mut self) -> String {
        let high = (self.next() & 0xFFFF_FFFF_FFFF_0FFF) | 0x4000;
        let low = (self.next() & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000;
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xFFFF,
            high & 0xFFFF,
            low >> 48,
            low & 0xFFFF_FFFF_FFFF
        )
    }

    /// Letters for the end of a generated name.
    pub(crate) fn suffix(&mut self, length: usize) -> String {
        let letters = NAME_LETTERS.len() as u64;
        (0..length)
            .map(|_| {
                let index = usize::try_from(self.below(letters)).expect("an index below 27 fits");
                char::from(NAME_LETTERS[index])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_uids_of_version_4() {
        let (mut one, mut other) = (Random::new(7), Random::new(7));
        let uid = one.uid();
        assert_eq!(uid, other.uid());
        assert_ne!(uid, one.uid());
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
    }
}
