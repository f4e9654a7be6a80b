//! Computes the back-off of a failed object: exponential per object, with jitter, from the number of failures alone.

use std::time::Duration;

/// The delay after the first failure.
pub const FIRST: Duration = Duration::from_millis(500);

/// The longest delay.
pub const LONGEST: Duration = Duration::from_mins(5);

/// The delay after `failures` consecutive failures (1 for the first): `FIRST * 2^(failures - 1)`, at most [`LONGEST`],
/// less up to a quarter. The jitter comes from `seed`: objects that failed together are retried at different times, and
/// a run can be repeated.
pub fn delay(failures: u32, seed: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let wait = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    let jitter = mix(seed ^ u64::from(failures)) % 256;
    wait.mul_f64(1.0 - f64::from(u32::try_from(jitter).unwrap_or(0)) / 1024.0)
}

/// The period extended by up to a fifth, so that processes that started together do not send requests together: the
/// jitter of client-go's leader election.
pub fn jittered(period: Duration, seed: u64) -> Duration {
    let jitter = mix(seed) % 256;
    period.mul_f64(1.0 + f64::from(u32::try_from(jitter).unwrap_or(0)) / 1280.0)
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        for seed in 0..100 {
            for failures in 1..40 {
                let full = FIRST.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST);
                let wait = delay(failures, seed);
                assert!(
                    wait <= full && wait >= full.mul_f64(0.75),
                    "{failures} {seed}: {wait:?}"
                );
            }
        }
    }

    #[test]
    fn objects_that_failed_together_come_back_apart() {
        let waits: std::collections::BTreeSet<_> = (0..100).map(|seed| delay(5, seed * 7919 + 1)).collect();
        assert!(waits.len() > 50);
    }
}
