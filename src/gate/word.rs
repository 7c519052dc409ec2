//! State, flags and epoch in one word, so that nobody reads one of them without the others.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::circuit::{CircuitState, SPARED};

/// The published word: three bits of state, seven of flags, and the epoch above them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

const STATE: u64 = 0b111;
const EPOCH_SHIFT: u32 = 10;
const BELOW_EPOCH: u64 = (1 << EPOCH_SHIFT) - 1;

const CLOSED: u64 = 0;
const FORCED_CLOSED: u64 = 1;
const OPEN: u64 = 2;
const FORCED_OPEN: u64 = 3;
const HALF_OPEN: u64 = 4;
/// Closed, but not for all calls.
const RAMPING: u64 = 5;
/// Open, but not for all calls.
const DIALLED: u64 = 6;

/// What a handle has to know beside the state.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flags(u64);

impl Flags {
    /// Open, and the break is over: the next call may be the probe.
    pub(crate) const DUE: Self = Self(1 << 3);
    /// A success is counted on the thread's stripe.
    pub(crate) const TALLY: Self = Self(1 << 4);
    /// A success changes the record: it is settled by message, as a failure is.
    pub(crate) const TELL: Self = Self(1 << 5);
    /// A counted success could trip: the actor wants to know of it.
    pub(crate) const REPORT: Self = Self(1 << 6);
    /// The deadline is in the odd slot.
    pub(crate) const ODD: Self = Self(1 << 7);
    /// The deadline is near: who is to be rejected looks at the clock first.
    pub(crate) const NEAR: Self = Self(1 << 8);
    /// Messages wait inside the breaker: what may wait goes behind them, whatever the state.
    pub(crate) const WAITING: Self = Self(1 << 9);

    /// Closed, and only a share of calls is admitted. It makes another state code of the closed one, so
    /// that [`Word::passes`] need not look for it.
    pub(crate) const RAMP: Self = Self(RAMPING ^ CLOSED);

    /// Open, and not all that is refused is rejected (R37); a state code of its own as well.
    pub(crate) const DIAL: Self = Self(DIALLED ^ OPEN);

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn when(self, condition: bool) -> Self {
        if condition { self } else { Self(0) }
    }

    pub(crate) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

impl Word {
    /// Of a breaker that nothing is known of, so that it passes; no real epoch is so high.
    pub(crate) const UNKNOWN: Self = Self(!STATE);

    /// For a call that passes though it was refused.
    pub(crate) const SPARED: Self = Self(SPARED << EPOCH_SHIFT | CLOSED);

    pub(crate) const fn new(state: CircuitState, epoch: u64, flags: Flags) -> Self {
        let state = match state {
            CircuitState::Closed => CLOSED,
            CircuitState::ForcedClosed => FORCED_CLOSED,
            CircuitState::Open => OPEN,
            CircuitState::HalfOpen => HALF_OPEN,
            CircuitState::ForcedOpen => FORCED_OPEN,
        };
        Self(epoch << EPOCH_SHIFT | flags.0 | state)
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// Whether calls go straight to their targets.
    #[inline]
    pub(crate) const fn passes(self) -> bool {
        self.0 & STATE <= FORCED_CLOSED
    }

    /// Whether the word does not tell what becomes of a call: half-open and ramping up, where the mailbox
    /// decides, and open where not all that is refused is rejected.
    #[inline]
    pub(super) const fn asks(self) -> bool {
        self.0 & STATE >= HALF_OPEN
    }

    /// Whether the mailbox decides which calls go to their targets, though the state is closed.
    pub(super) const fn is_ramping(self) -> bool {
        self.0 & STATE == RAMPING
    }

    /// Whether the state is open, and not all calls that it refuses are rejected.
    pub(super) const fn is_dialled(self) -> bool {
        self.0 & STATE == DIALLED
    }

    pub(crate) const fn state(self) -> CircuitState {
        match self.0 & STATE {
            CLOSED | RAMPING => CircuitState::Closed,
            FORCED_CLOSED => CircuitState::ForcedClosed,
            OPEN | DIALLED => CircuitState::Open,
            FORCED_OPEN => CircuitState::ForcedOpen,
            _ => CircuitState::HalfOpen,
        }
    }

    #[inline]
    pub(crate) const fn epoch(self) -> u64 {
        self.0 >> EPOCH_SHIFT
    }

    #[inline]
    pub(crate) const fn has(self, flag: Flags) -> bool {
        self.0 & flag.0 != 0
    }

    pub(super) const fn flags(self) -> Flags {
        Flags(self.0 & (BELOW_EPOCH ^ STATE))
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("state", &self.state())
            .field("epoch", &self.epoch())
            .field("flags", &format_args!("{:#b}", self.flags().0 >> 3))
            .finish()
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({:#b})", self.0 >> 3)
    }
}
