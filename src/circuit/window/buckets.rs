//! What a rate policy remembers of the calls of the last span: ten buckets, so that memory is bounded
//! whatever the traffic. A bucket leaves when its start is as old as the span (R18).

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Counts, Sample};
use crate::clock::{Timestamp, micros};

const BUCKETS: u64 = 10;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::circuit) struct Buckets {
    /// Oldest first, none of them empty of samples.
    buckets: VecDeque<Bucket>,
    newest: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Bucket {
    start: Timestamp,
    #[serde(flatten)]
    counts: Counts,
}

impl Buckets {
    pub(super) fn add(&mut self, sample: Sample, span: Duration, now: Timestamp) {
        let counts = Counts {
            failures: sample.failed.into(),
            slow: sample.slow.into(),
            samples: 1,
        };
        self.add_counts(counts, span, now);
    }

    pub(super) fn add_successes(&mut self, batch: u64, span: Duration, now: Timestamp) {
        let counts = Counts {
            samples: batch,
            ..Counts::default()
        };
        self.add_counts(counts, span, now);
    }

    /// Adds to the bucket of `now`, which is no earlier than the newest one.
    fn add_counts(&mut self, counts: Counts, span: Duration, now: Timestamp) {
        while let Some(oldest) = self.buckets.front()
            && oldest.start.is_over(span, now)
        {
            self.buckets.pop_front();
        }
        self.newest = now;
        let start = bucket_start(span, now);
        match self.buckets.back_mut() {
            Some(newest) if newest.start >= start => newest.counts = newest.counts.plus(counts),
            _ => self.buckets.push_back(Bucket { start, counts }),
        }
    }

    pub(super) fn counts(&self, span: Duration, now: Timestamp) -> Counts {
        self.buckets
            .iter()
            .filter(|bucket| !bucket.start.is_over(span, now))
            .fold(Counts::default(), |sum, bucket| sum.plus(bucket.counts))
    }

    pub(super) fn newest(&self) -> Option<Timestamp> {
        (!self.buckets.is_empty()).then_some(self.newest)
    }

    pub(super) fn restored(mut self, span: Duration, now: Timestamp) -> Self {
        let mut restored = Self::default();
        let buckets = self.buckets.make_contiguous();
        buckets.sort_unstable_by_key(|bucket| bucket.start);
        for bucket in buckets.iter().filter(|bucket| bucket.counts.samples > 0) {
            restored.add_counts(bucket.counts.plausible(), span, bucket.start.min(now));
        }
        restored.newest = self.newest.min(now);
        restored
    }
}

/// The length of one bucket: a tenth of the span, rounded up to whole microseconds.
fn bucket_width(span: Duration) -> u64 {
    micros(span).div_ceil(BUCKETS).max(1)
}

/// The one function from instants to buckets, for writing and reading alike.
fn bucket_start(span: Duration, at: Timestamp) -> Timestamp {
    let at = at.as_micros();
    let into = at.checked_rem(bucket_width(span)).unwrap_or(0);
    Timestamp::from_micros(at.saturating_sub(into))
}

/// When the bucket that holds `at` ends.
pub(super) fn bucket_end(span: Duration, at: Timestamp) -> Timestamp {
    bucket_start(span, at) + Duration::from_micros(bucket_width(span))
}
