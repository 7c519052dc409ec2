//! What a rate policy remembers of the last so many calls: how many there were, and the positions of
//! those that failed or were slow. A success costs a count, nothing else.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Counts, Sample};
use crate::clock::Timestamp;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::circuit) struct LastCalls {
    /// All calls ever counted; the newest has this position.
    seen: u64,
    failures: VecDeque<u64>,
    slow: VecDeque<u64>,
    newest: Timestamp,
}

impl LastCalls {
    pub(super) fn add(&mut self, sample: Sample, window: u64, now: Timestamp) {
        self.add_successes(1, window, now);
        if sample.failed {
            self.failures.push_back(self.seen);
        }
        if sample.slow {
            self.slow.push_back(self.seen);
        }
    }

    pub(super) fn add_successes(&mut self, batch: u64, window: u64, now: Timestamp) {
        self.seen = self.seen.saturating_add(batch);
        self.newest = now;
        let out = self.seen.saturating_sub(window);
        for positions in [&mut self.failures, &mut self.slow] {
            while positions.front().is_some_and(|oldest| *oldest <= out) {
                positions.pop_front();
            }
        }
    }

    pub(super) fn counts(&self, window: u64) -> Counts {
        Counts {
            failures: super::length(self.failures.len()),
            slow: super::length(self.slow.len()),
            samples: self.seen.min(window),
        }
    }

    pub(super) fn newest(&self) -> Option<Timestamp> {
        (self.seen > 0).then_some(self.newest)
    }

    pub(super) fn restored(self, window: u64, now: Timestamp) -> Self {
        let Self {
            seen,
            failures,
            slow,
            newest,
        } = self;
        let out = seen.saturating_sub(window);
        let kept = |positions: VecDeque<u64>| {
            let mut positions: Vec<_> = positions
                .into_iter()
                .filter(|position| *position > out && *position <= seen)
                .collect();
            positions.sort_unstable();
            positions.dedup();
            positions.into()
        };
        Self {
            seen,
            failures: kept(failures),
            slow: kept(slow),
            newest: newest.min(now),
        }
    }
}
