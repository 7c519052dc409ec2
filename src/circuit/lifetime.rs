//! How long a record is worth keeping: derived, never a setting (R31).

use std::time::Duration;

use super::Circuit;
use super::order::OrderKind;
use super::record::Phase;
use super::window::Counts;
use crate::clock::Timestamp;

/// How long a record is worth keeping (R31).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lifetime {
    /// Not at all: it says what a new one says.
    None,
    /// For so long.
    For(Duration),
    /// Until an operator's order is lifted.
    Forever,
}

impl Circuit {
    /// Returns how long the record is worth keeping from `now` on (R31).
    pub fn lifetime(&self, now: Timestamp) -> Lifetime {
        let now = now.max(self.record.newest);
        let margin = self.config.margin();
        let end = match &self.record.phase {
            Phase::Closed(memory) | Phase::Ramping { memory, .. } => {
                let remembers = memory.counts(&self.config, now) != Counts::default();
                let window = memory.newest().filter(|_| remembers);
                let window = window.map(|newest| newest + margin);
                match window.max(self.ramp_end().filter(|end| *end > now)) {
                    Some(end) => end,
                    None => return Lifetime::None,
                }
            }
            Phase::Open { until } => *until + margin,
            Phase::HalfOpen { due, round } => {
                round.last_lease_end().unwrap_or(*due).max(*due) + margin
            }
            Phase::Forced(order) => match (order.until, order.kind) {
                (None, _) => return Lifetime::Forever,
                (Some(until), OrderKind::Closed) => until,
                (Some(until), OrderKind::Open) => until + margin,
            },
        };
        Lifetime::For(end.since(now))
    }
}
