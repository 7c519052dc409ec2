//! How calls end, as words; what an ending does is decided in [`circuit`](super).

use crate::outcome::Outcome;

/// What settling a permit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The outcome was counted.
    Counted,
    /// The permit was of an earlier epoch: the outcome moved nothing (R11).
    Late,
}

/// Code of the user's that panicked inside a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Panicked {
    /// The [`TripRule`](crate::TripRule): the circuit did not trip.
    TripRule,
    /// The [`RandomSource`](crate::RandomSource): the break was not lengthened, or the call was admitted.
    RandomSource,
}

/// How an admitted call ended, with what only the caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It has an outcome; `slow` where the policy's limit on slow calls was reached.
    Outcome { outcome: Outcome, slow: bool },
    /// The caller went away (R10).
    Gone,
}
