//! Leave to make one call, as the circuit gives it out. What settling one does: [`circuit`](super).

use crate::clock::Timestamp;

/// Leave to make one call, to be settled once with [`Circuit::settle`](super::Circuit::settle).
///
/// It cannot be cloned and settling consumes it, so no call is counted twice. It has no `Drop`: a
/// permit that is thrown away leaves its slot taken until its lease ends. (The permit of
/// [`Breaker::acquire`](crate::Breaker::acquire) gives it back when dropped.)
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an admitted call has to be settled"]
pub struct Permit {
    pub(super) epoch: u64,
    pub(super) admitted: Timestamp,
    /// The slot of a probe; a call admitted while closed has none.
    pub(super) slot: Option<SlotId>,
}

/// Names a slot of one circuit, never used again by it.
pub(super) type SlotId = u64;

/// Stands for the epoch of a call that was refused and goes to its target all the same (R37): no real one
/// is so high, and a [`Word`](crate::gate::Word) has room for it.
pub(crate) const SPARED: u64 = (1 << 54) - 2;

impl Permit {
    /// Returns the epoch in which the call was admitted.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Tells whether the call is a probe.
    pub fn is_probe(&self) -> bool {
        self.slot.is_some()
    }

    /// Returns when the call was admitted.
    pub fn admitted(&self) -> Timestamp {
        self.admitted
    }

    /// The permit of a call that was admitted by reading the published state, without a clock: it is
    /// never slow by its age.
    pub(crate) fn closed(epoch: u64) -> Self {
        Self::closed_since(epoch, Timestamp::MAX)
    }

    /// What a call has that was refused and goes to its target all the same. There is nothing to settle.
    pub(crate) fn spared() -> Self {
        Self::closed(SPARED)
    }

    /// Whether the call was refused, so that nothing is to know how it ended.
    pub(crate) fn is_spared(&self) -> bool {
        self.epoch == SPARED
    }

    /// The same, for a caller that did read a clock.
    pub(crate) fn closed_since(epoch: u64, admitted: Timestamp) -> Self {
        Self {
            epoch,
            admitted,
            slot: None,
        }
    }
}
