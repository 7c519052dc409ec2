//! What a circuit has to do with a record that several processes share: nothing, mostly. A store keeps
//! such records ([`Stored`](super::Stored)), a process has a circuit beside it ([`replica`](super::replica)).

use super::replica::Replica;
use super::{Cause, Circuit, next_epoch};
use crate::clock::Timestamp;

/// Boxed, since most circuits share nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Sharing(Option<Box<Part>>);

#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "it is boxed as a whole")]
enum Part {
    /// The circuit is the shared record itself; its next epoch is at least this.
    Store { floor: u64 },
    /// The circuit stands beside one.
    Replica(Replica),
}

impl Sharing {
    pub(super) fn as_replica(replica: Replica) -> Self {
        Self(Some(Box::new(Part::Replica(replica))))
    }

    /// Has epochs follow the shared time, so that those of different processes differ.
    pub(super) fn number_from(&mut self, least: u64, now: Timestamp) {
        self.0 = Some(Box::new(Part::Store {
            floor: least.min(Timestamp::MAX.as_micros()).max(now.as_micros()),
        }));
    }

    pub(super) fn replica(&self) -> Option<&Replica> {
        match self.0.as_deref() {
            Some(Part::Replica(replica)) => Some(replica),
            _ => None,
        }
    }

    pub(super) fn replica_mut(&mut self) -> Option<&mut Replica> {
        match self.0.as_deref_mut() {
            Some(Part::Replica(replica)) => Some(replica),
            _ => None,
        }
    }
}

impl Circuit {
    /// The epoch after the present one. Where a record is shared, epochs follow the shared time, so that
    /// those of different processes differ; but that of an order whose time is over follows from the record
    /// alone, since each process ends it by itself.
    pub(super) fn epoch_after(&self, cause: Cause, now: Timestamp) -> u64 {
        let next = next_epoch(self.record.epoch);
        let floor = match self.sharing.0.as_deref() {
            _ if cause == Cause::Expired => 0,
            None => 0,
            Some(Part::Store { floor }) => (*floor).max(now.as_micros()),
            Some(Part::Replica(replica)) => replica.epoch_floor(now),
        };
        next.max(floor)
    }
}
