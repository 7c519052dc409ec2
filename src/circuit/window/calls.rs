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
    /// Those of them in the window. Not derived from the window, which another process may set larger.
    samples: u64,
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
        self.samples = self.samples.saturating_add(batch).min(window);
        self.newest = now;
        let out = self.seen.saturating_sub(window);
        for positions in [&mut self.failures, &mut self.slow] {
            while positions.front().is_some_and(|oldest| *oldest <= out) {
                positions.pop_front();
            }
        }
    }

    /// The place of the newest call once `calls` more are counted.
    pub(super) fn place_after(&self, calls: u64) -> u64 {
        self.seen.saturating_add(calls)
    }

    /// The place of the oldest call in the window then.
    pub(super) fn first_place_after(&self, calls: u64, window: u64) -> u64 {
        let samples = self.samples.saturating_add(calls).min(window);
        let before = self.place_after(calls).saturating_sub(samples);
        before.saturating_add(1)
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            failures: super::length(self.failures.len()),
            slow: super::length(self.slow.len()),
            samples: self.samples,
        }
    }

    pub(super) fn newest(&self) -> Option<Timestamp> {
        (self.samples > 0).then_some(self.newest)
    }

    /// Numbers the calls anew, from the oldest one in the window.
    pub(super) fn restored(self, window: u64, now: Timestamp) -> Self {
        let samples = self.samples.min(self.seen).min(window);
        let out = self.seen.saturating_sub(samples);
        let renumbered = |positions: VecDeque<u64>| {
            let mut positions: Vec<_> = positions
                .into_iter()
                .filter(|position| *position <= self.seen)
                .filter_map(|position| position.checked_sub(out))
                .filter(|position| *position > 0)
                .collect();
            positions.sort_unstable();
            positions.dedup();
            positions.into()
        };
        Self {
            seen: samples,
            samples,
            failures: renumbered(self.failures),
            slow: renumbered(self.slow),
            newest: self.newest.min(now),
        }
    }
}
