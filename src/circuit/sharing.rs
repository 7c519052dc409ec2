//! What a circuit has to do with a record that several processes share: nothing, mostly.
//! A store keeps circuits ([`Stored`](super::Stored)).

use super::record::Phase;
use super::{Cause, Circuit, next_epoch};
use crate::clock::Timestamp;

/// Boxed, since most circuits share nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Sharing(Option<Box<Part>>);

#[derive(Debug, Clone)]
enum Part {
    /// The circuit is the shared record itself; its next epoch is at least this.
    Store { floor: u64 },
}

impl Sharing {
    /// Has epochs follow the shared time, so that those of different processes differ.
    pub(super) fn number_from(&mut self, least: u64, now: Timestamp) {
        self.0 = Some(Box::new(Part::Store {
            floor: least.max(now.as_micros()),
        }));
    }
}

impl Circuit {
    /// The epoch after the present one. That of an order whose time is over follows from the record alone,
    /// since each process ends it by itself.
    pub(super) fn epoch_after(&self, cause: Cause, now: Timestamp) -> u64 {
        let next = next_epoch(self.record.epoch);
        match self.sharing.0.as_deref() {
            Some(Part::Store { floor }) if cause != Cause::Expired => {
                next.max(*floor).max(now.as_micros())
            }
            _ => next,
        }
    }

    /// Cuts a break that is longer than the settings allow (R3).
    pub(super) fn cap_break(&mut self, now: Timestamp) {
        if let Phase::Open { until } = &mut self.record.phase {
            *until = (*until).min(now + self.config.longest_break());
        }
    }
}
