//! Narrows a refused union to the claims to blame, by bisection: one claim among a hundred costs about a dozen tries,
//! and the other claims are held meanwhile.

use std::collections::BTreeSet;

/// A search for the refused claims. Each try consists of the claims that have passed so far and some of the rest.
#[derive(Debug)]
pub struct ClaimBisection<K> {
    passed: BTreeSet<K>,
    /// The claims of the current try.
    trying: Option<Vec<K>>,
    /// Groups not tried yet, or tried only together with others; the last one is next.
    rest: Vec<Vec<K>>,
}

impl<K: Clone + Ord> ClaimBisection<K> {
    /// A search among `suspects`, in the order of their claims, beside those that are held already.
    pub fn new(held: BTreeSet<K>, suspects: Vec<K>) -> Self {
        Self {
            passed: held,
            trying: None,
            // Without suspects there is still one try: that of the held claims.
            rest: vec![suspects],
        }
    }

    /// The claims to try next; none when the search is complete.
    pub fn next_try(&mut self) -> Option<BTreeSet<K>> {
        if self.trying.is_none() {
            self.trying = Some(self.rest.pop()?);
        }
        let trying = self.trying.iter().flatten();
        Some(self.passed.iter().chain(trying).cloned().collect())
    }

    /// Records that the try was accepted.
    pub fn accepted(&mut self) {
        self.passed.extend(self.trying.take().into_iter().flatten());
    }

    /// Records that the try was refused. Returns the claim to blame, once it is known; [`RefusedClaim::Nobody`] if only
    /// held claims were tried.
    pub fn refused(&mut self) -> RefusedClaim<K> {
        let mut trying = self.trying.take().unwrap_or_default();
        match trying.len() {
            0 => RefusedClaim::Nobody,
            1 => RefusedClaim::Claim(trying.remove(0)),
            count => {
                let younger = trying.split_off(count / 2);
                self.rest.push(younger);
                self.rest.push(trying);
                RefusedClaim::Unknown
            }
        }
    }

    /// The claims that have passed.
    pub fn into_passed(self) -> BTreeSet<K> {
        self.passed
    }

    /// Leaves out a claim whose refusal is known without a search.
    pub fn leave_out(&mut self, claim: &K) {
        self.passed.remove(claim);
        for group in self.trying.iter_mut().chain(&mut self.rest) {
            group.retain(|it| it != claim);
        }
    }
}

/// The claim to blame for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedClaim<K> {
    /// The search continues.
    Unknown,
    /// This claim is to blame.
    Claim(K),
    /// No claim is to blame: the held claims are not accepted with something removed.
    Nobody,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches as the host does: the refused, and how many tries it took.
    fn search(count: u32, is_bad: impl Fn(u32) -> bool) -> (Vec<u32>, u32) {
        let mut narrowing = ClaimBisection::new(BTreeSet::new(), (0..count).collect());
        let (mut refused, mut tries) = (Vec::new(), 0);
        while let Some(tried) = narrowing.next_try() {
            tries += 1;
            if tried.iter().any(|claim| is_bad(*claim)) {
                if let RefusedClaim::Claim(claim) = narrowing.refused() {
                    refused.push(claim);
                }
            } else {
                narrowing.accepted();
            }
        }
        let mut passed: Vec<_> = narrowing.passed.into_iter().chain(refused.iter().copied()).collect();
        passed.sort_unstable();
        assert_eq!(passed, (0..count).collect::<Vec<_>>(), "every claim was judged once");
        (refused, tries)
    }

    #[test]
    fn exactly_the_bad_claims_are_refused_wherever_they_stand() {
        for count in 1..40 {
            for seed in 0..60_u32 {
                let is_bad = |claim: u32| (claim.wrapping_add(seed)).wrapping_mul(2_654_435_761) >> 29 == seed % 8;
                let bad: Vec<_> = (0..count).filter(|claim| is_bad(*claim)).collect();
                let (mut refused, _) = search(count, is_bad);
                refused.sort_unstable();
                assert_eq!(refused, bad);
            }
        }
    }

    #[test]
    fn one_bad_claim_among_a_hundred_is_found_in_some_fifteen_tries() {
        for bad in 0..100 {
            let (refused, tries) = search(100, |claim| claim == bad);
            assert_eq!(refused, [bad]);
            assert!(tries <= 15, "{tries} tries for {bad}");
        }
        assert_eq!(search(100, |_| false).1, 1);
    }

    #[test]
    fn of_two_claims_that_exclude_each_other_the_first_passes() {
        let mut narrowing = ClaimBisection::new(BTreeSet::from([9]), vec![1, 2, 3]);
        let mut refused = Vec::new();
        while let Some(tried) = narrowing.next_try() {
            if tried.contains(&1) && tried.contains(&3) {
                if let RefusedClaim::Claim(claim) = narrowing.refused() {
                    refused.push(claim);
                }
            } else {
                narrowing.accepted();
            }
        }
        assert_eq!(refused, [3]);
        assert_eq!(narrowing.passed, BTreeSet::from([1, 2, 9]));
    }

    #[test]
    fn nobody_is_to_blame_when_what_is_held_is_refused() {
        let mut narrowing = ClaimBisection::new(BTreeSet::from([1]), Vec::new());
        assert_eq!(narrowing.next_try(), Some(BTreeSet::from([1])));
        assert_eq!(narrowing.refused(), RefusedClaim::Nobody);
        assert_eq!(narrowing.next_try(), None);
    }

    #[test]
    fn a_claim_that_is_left_out_is_not_tried_again() {
        let mut narrowing = ClaimBisection::new(BTreeSet::new(), vec![1, 2]);
        narrowing.next_try();
        narrowing.leave_out(&1);
        assert_eq!(narrowing.next_try(), Some(BTreeSet::from([2])));
        narrowing.accepted();
        assert_eq!(narrowing.next_try(), None);
    }
}
