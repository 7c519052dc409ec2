//! How a call ended, as it travels to the actor. What its end does is decided by the circuit, which does
//! not ask why a call failed; what is counted for people tells a timeout from the other failures.

use crate::circuit::Ending;
use crate::outcome::Outcome;

/// How much of its time a call took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Took {
    Usual,
    /// As long as a slow call.
    Slow,
    /// All of it: the call timed out.
    TooLong,
}

impl Took {
    pub(crate) fn is_usual(self) -> bool {
        self == Self::Usual
    }
}

/// How an admitted call ended, and whether because its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) ending: Ending,
    pub(crate) timed_out: bool,
}

impl End {
    pub(crate) fn new(outcome: Outcome, took: Took) -> Self {
        Self {
            ending: Ending::Outcome {
                outcome,
                slow: !took.is_usual(),
            },
            timed_out: took == Took::TooLong,
        }
    }
}

impl From<Ending> for End {
    fn from(ending: Ending) -> Self {
        Self {
            ending,
            timed_out: false,
        }
    }
}
