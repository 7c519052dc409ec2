//! How long calls took: counts of buckets that grow with the time, until they are handed over.

use std::sync::OnceLock;
use std::time::Duration;

use crate::clock::micros;
use crate::gate::sync::{AtomicU64, Ordering};

/// Each doubling of the time has so many buckets, as a power of two: what is handed over is off by at most
/// one sixteenth.
const FINENESS: u32 = 3;

/// Times of less than 2^34 µs, almost five hours, have buckets of their own.
const DOUBLINGS: u32 = 34;

const BUCKETS: usize = 256;

/// So many calls are handed over at most, thinned out evenly: recorders keep each.
const MOST: u64 = 4_096;

/// Made when the first time is taken.
#[derive(Default)]
pub(super) struct Durations(OnceLock<Box<[AtomicU64]>>);

impl Durations {
    pub(super) fn add(&self, took: Duration) {
        let buckets = self
            .0
            .get_or_init(|| (0..BUCKETS).map(|_| AtomicU64::new(0)).collect());
        if let Some(bucket) = buckets.get(bucket_of(micros(took))) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes all out: the middle of each bucket in seconds, and how many.
    pub(super) fn take(&self) -> Vec<(f64, usize)> {
        let Some(buckets) = self.0.get() else {
            return Vec::new();
        };
        let taken: Vec<(usize, u64)> = buckets
            .iter()
            .enumerate()
            .filter(|(_, bucket)| bucket.load(Ordering::Relaxed) > 0)
            .map(|(at, bucket)| (at, bucket.swap(0, Ordering::Relaxed)))
            .collect();
        let total: u64 = taken.iter().map(|(_, count)| count).sum();
        // A bucket that has any keeps one: the rare slow calls are what is looked for.
        let share = |count: u64| match total {
            0..=MOST => count,
            _ => (u128::from(count).saturating_mul(MOST.into()))
                .div_ceil(total.into())
                .try_into()
                .unwrap_or(MOST),
        };
        let count = |all: u64| usize::try_from(share(all)).unwrap_or(usize::MAX);
        taken
            .into_iter()
            .map(|(at, all)| (middle_of(at), count(all)))
            .collect()
    }
}

/// Below 2^FINENESS each microsecond has a bucket; above, the bits after the highest say which.
fn bucket_of(micros: u64) -> usize {
    let micros = micros.min((1 << DOUBLINGS) - 1);
    let highest = micros.checked_ilog2().unwrap_or(0);
    let bucket = match highest.checked_sub(FINENESS) {
        None => micros,
        Some(shift) => {
            let steps = micros.checked_shr(shift).unwrap_or(0);
            (u64::from(shift) << FINENESS).saturating_add(steps)
        }
    };
    usize::try_from(bucket).unwrap_or(0)
}

/// The middle of a bucket, in seconds.
fn middle_of(bucket: usize) -> f64 {
    let bucket = u64::try_from(bucket).unwrap_or(0);
    let shift = (bucket >> FINENESS).saturating_sub(1);
    let steps = bucket.saturating_sub(shift << FINENESS);
    let width = u32::try_from(shift)
        .ok()
        .and_then(|shift| 1_u64.checked_shl(shift))
        .unwrap_or(1);
    let least = Duration::from_micros(steps.saturating_mul(width));
    least.as_secs_f64() + Duration::from_micros(width).as_secs_f64() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_not_far_from_what_is_in_it() {
        let mut last = 0;
        for exponent in 0..DOUBLINGS {
            for off in 0..64_u64 {
                let micros = (1_u64 << exponent) + ((off << exponent) >> 6);
                let bucket = bucket_of(micros);
                assert!(bucket >= last && bucket < BUCKETS, "{micros}: {bucket}");
                last = bucket;
                let seconds = Duration::from_micros(micros).as_secs_f64();
                let off = (middle_of(bucket) - seconds).abs();
                assert!(off <= 0.6e-6 + seconds / 16.0, "{micros}: {off}");
            }
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), bucket_of((1 << DOUBLINGS) - 1));
    }

    #[test]
    fn what_is_handed_over_is_bounded_and_keeps_what_is_rare() {
        let durations = Durations::default();
        for _ in 0..100_000 {
            durations.add(Duration::from_millis(1));
        }
        durations.add(Duration::from_secs(3));
        let taken = durations.take();
        assert_eq!(taken.len(), 2);
        assert!(taken[0].1 <= 4_096 && taken[0].1 > 4_000, "{taken:?}");
        assert_eq!(taken[1].1, 1);
        assert_eq!(durations.take(), []);
    }
}
