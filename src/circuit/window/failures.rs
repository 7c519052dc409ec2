//! What the policies remember that look at failures alone.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// The length of a run of failures whose distance in time does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::circuit) struct Run {
    length: u32,
    newest: Timestamp,
}

impl Run {
    pub(super) fn add(&mut self, failed: bool, now: Timestamp) {
        if failed {
            self.length = self.length.saturating_add(1);
            self.newest = now;
        } else {
            self.length = 0;
        }
    }

    pub(super) fn length(&self) -> u32 {
        self.length
    }

    pub(super) fn newest(&self) -> Option<Timestamp> {
        (self.length > 0).then_some(self.newest)
    }

    pub(super) fn restored(self, longest: u32, now: Timestamp) -> Self {
        Self {
            length: self.length.min(longest),
            newest: self.newest.min(now),
        }
    }
}

/// The instants of the newest failures, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::circuit) struct Instants(VecDeque<Timestamp>);

impl Instants {
    /// Adds a failure; keeps at most `most`, none of them older than `within`.
    pub(super) fn add(&mut self, within: Duration, most: usize, now: Timestamp) {
        while let Some(oldest) = self.0.front()
            && (self.0.len() >= most || oldest.is_over(within, now))
        {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many of them are not older than `within`.
    pub(super) fn count(&self, within: Duration, now: Timestamp) -> usize {
        let young = self.0.iter().filter(|at| !at.is_over(within, now));
        young.count()
    }

    pub(super) fn young(&self, within: Duration, now: Timestamp) -> Vec<Timestamp> {
        let young = self.0.iter().filter(|at| !at.is_over(within, now));
        young.copied().collect()
    }

    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.0.back().copied()
    }

    pub(super) fn as_slice(&mut self) -> &[Timestamp] {
        self.0.make_contiguous()
    }

    /// What is too old by now stays: `now` may turn out to be ahead of the time (R3).
    pub(super) fn restored(self, most: usize, now: Timestamp) -> Self {
        let mut instants: Vec<_> = self.0.into_iter().map(|at| at.min(now)).collect();
        instants.sort_unstable();
        let superfluous = instants.len().saturating_sub(most);
        Self(instants.split_off(superfluous).into())
    }
}
