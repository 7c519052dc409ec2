//! The probes of one half-open round: who holds a slot until when, and the votes so far.
//! What the votes lead to is decided in [`circuit`](super).

use serde::{Deserialize, Serialize};

use super::permit::SlotId;
use crate::clock::Timestamp;

/// A probe's right to run, until its lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slot {
    id: SlotId,
    lease_end: Timestamp,
}

/// One half-open round.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Round {
    /// Those given out and not yet settled or passed on. At most `max_probes` of them have a running
    /// lease; the others are swept out by the next admission.
    slots: Vec<Slot>,
    successes: u32,
    inconclusive: u32,
}

impl Round {
    /// The slots whose lease is running.
    pub(super) fn held(&self, now: Timestamp) -> u32 {
        let held = self.running(now).count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    pub(super) fn first_lease_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.running(now).map(|slot| slot.lease_end).min()
    }

    /// The end of the last lease, running or not.
    pub(super) fn last_lease_end(&self) -> Option<Timestamp> {
        self.slots.iter().map(|slot| slot.lease_end).max()
    }

    fn running(&self, now: Timestamp) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(move |slot| slot.lease_end > now)
    }

    /// A round that goes on elsewhere, with these votes.
    pub(super) fn voted(successes: u32, inconclusive: u32) -> Self {
        Self {
            slots: Vec::new(),
            successes,
            inconclusive,
        }
    }

    /// Adds a slot that was given out elsewhere.
    pub(super) fn seat(&mut self, id: SlotId, lease_end: Timestamp) {
        self.slots.push(Slot { id, lease_end });
    }

    /// Whether that slot's lease is running.
    pub(super) fn holds(&self, id: SlotId, now: Timestamp) -> bool {
        self.running(now).any(|slot| slot.id == id)
    }

    /// The slots that were given out, and when their leases end.
    pub(super) fn slots(&self) -> impl Iterator<Item = (SlotId, Timestamp)> {
        self.slots.iter().map(|slot| (slot.id, slot.lease_end))
    }

    pub(super) fn successes(&self) -> u32 {
        self.successes
    }

    pub(super) fn inconclusive(&self) -> u32 {
        self.inconclusive
    }

    /// Tells whether another probe may start: a slot is free, and a round that had as many
    /// inconclusive probes as it may waits for those still running (R7, R15).
    pub(super) fn admits(&self, max_probes: u32, max_inconclusive: u32, now: Timestamp) -> bool {
        let held = self.held(now);
        held < max_probes && (self.inconclusive < max_inconclusive || held == 0)
    }

    /// Gives a slot out, over those whose lease is over; returns how many of these there were.
    pub(super) fn take(&mut self, id: SlotId, lease_end: Timestamp, now: Timestamp) -> u64 {
        let before = self.slots.len();
        self.slots.retain(|slot| slot.lease_end > now);
        let lost = before.saturating_sub(self.slots.len());
        self.slots.push(Slot { id, lease_end });
        u64::try_from(lost).unwrap_or(u64::MAX)
    }

    /// Takes a slot back, if it was not passed on; tells whether its lease was running (R13, R16).
    pub(super) fn give_back(&mut self, id: SlotId, now: Timestamp) -> bool {
        let held = self.holds(id, now);
        self.slots.retain(|slot| slot.id != id);
        held
    }

    /// Counts a probe's success and returns how many there are.
    pub(super) fn succeed(&mut self) -> u32 {
        self.inconclusive = 0;
        self.successes = self.successes.saturating_add(1);
        self.successes
    }

    /// Counts a probe without a verdict and returns how many there were in a row.
    pub(super) fn shrug(&mut self) -> u32 {
        self.inconclusive = self.inconclusive.saturating_add(1);
        self.inconclusive
    }
}
