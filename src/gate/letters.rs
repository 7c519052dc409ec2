//! What handles leave for the actor to find before its next message, and what they owe it.
//! Leaving a letter wakes nobody and is safe wherever a value can be dropped.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use super::sync::{AtomicU32, Ordering};
use super::{End, Gate};
use crate::caught::quietly;
use crate::circuit::{Ending, Permit};
use crate::clock::Timestamp;
use crate::hold::Place;
use crate::outcome::Outcome;

/// What waits for the actor outside its mailbox.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    /// Permits whose callers went away or panicked.
    ended: Vec<(Permit, End)>,
    /// Settlements above the number that may be under way as messages.
    overflow: Overflow,
    left: Left,
}

/// What callers leave whose messages wait, or should have.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// The places of messages whose callers went away. Bounded, since each was given by the actor.
    pub(crate) places: Vec<Place>,
    /// How many found no room on the way to the actor.
    pub(crate) turned_away: u64,
}

/// How many runs of like endings are kept in their order.
const RUNS: usize = 1024;

/// Ends of closed calls of one epoch, added up by runs.
#[derive(Debug, Default)]
struct Overflow {
    epoch: u64,
    counts: Vec<(End, u64)>,
    /// Those of epochs before.
    late: u64,
}

/// What the actor takes out of the letterbox.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) ended: Vec<(Permit, End)>,
    /// The epoch of `counts`.
    pub(crate) epoch: u64,
    pub(crate) counts: Vec<(End, u64)>,
    pub(crate) late: u64,
    pub(crate) left: Left,
}

impl Left {
    pub(crate) fn is_any(&self) -> bool {
        !self.places.is_empty() || self.turned_away > 0
    }
}

impl Letters {
    /// Leaves the end of a probe. Bounded, since each probe was given out by the actor.
    pub(crate) fn end(&mut self, permit: Permit, end: impl Into<End>) {
        self.ended.push((permit, end.into()));
    }

    /// Adds up the end of a closed call.
    pub(crate) fn add(&mut self, epoch: u64, end: impl Into<End>) {
        let end = end.into();
        let overflow = &mut self.overflow;
        if epoch > overflow.epoch {
            let passed: u64 = overflow.counts.drain(..).map(|(_, count)| count).sum();
            overflow.late = overflow.late.saturating_add(passed);
            overflow.epoch = epoch;
        }
        if epoch < overflow.epoch {
            overflow.late = overflow.late.saturating_add(1);
            return;
        }
        let runs = overflow.counts.len();
        let fits = match overflow.counts.last_mut() {
            Some(last) if last.0 == end => Some(last),
            _ if runs < RUNS => None,
            // No more of them: the order is given up, the count is not.
            _ => overflow.counts.iter_mut().find(|run| run.0 == end),
        };
        match fits {
            Some((_, count)) => *count = count.saturating_add(1),
            None => overflow.counts.push((end, 1)),
        }
    }

    /// Leaves word of callers whose messages waited, or should have.
    pub(crate) fn left(&mut self) -> &mut Left {
        &mut self.left
    }

    pub(super) fn taken(self) -> Taken {
        Taken {
            ended: self.ended,
            epoch: self.overflow.epoch,
            counts: self.overflow.counts,
            late: self.overflow.late,
            left: self.left,
        }
    }
}

/// How a call ended whose permit is dropped now: in a panic it failed, else its caller went away (R10).
pub(crate) fn end_of_drop() -> Ending {
    if std::thread::panicking() {
        Ending::Outcome {
            outcome: Outcome::Failure,
            slow: false,
        }
    } else {
        Ending::Gone
    }
}

/// A probe's permit in a caller's hands. Dropped, it gives the slot back without a vote; in a panic it
/// counts as a failure (R10).
pub(crate) struct Held {
    gate: Arc<Gate>,
    permit: Option<Permit>,
    probe: bool,
    /// Tells who has to know at once that it was dropped.
    tell: Option<Box<dyn FnOnce() + Send>>,
}

impl Held {
    pub(super) fn new(gate: Arc<Gate>, permit: Permit) -> Self {
        let probe = permit.is_probe();
        gate.held().fetch_add(1, Ordering::AcqRel);
        gate.meter().hold(probe);
        Self {
            gate,
            permit: Some(permit),
            probe,
            tell: None,
        }
    }

    /// Has somebody told when it is dropped unsettled: others than this breaker's callers wait for its slot.
    pub(crate) fn telling(mut self, tell: impl FnOnce() + Send + 'static) -> Self {
        self.tell = Some(Box::new(tell));
        self
    }

    /// When the probe was admitted.
    pub(crate) fn admitted(&self) -> Option<Timestamp> {
        self.permit.as_ref().map(Permit::admitted)
    }

    /// Takes the permit out, to settle it. It counts as held until this is dropped.
    pub(crate) fn take(&mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.gate
                .leave(|letters| letters.end(permit, end_of_drop()));
            if let Some(tell) = self.tell.take() {
                quietly(tell);
            }
        }
        self.gate.held().fetch_sub(1, Ordering::AcqRel);
        self.gate.meter().let_go(self.probe);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.permit).finish()
    }
}

/// One message on its way to the actor, among those of its kind. Dropped when it is handled, or lost with
/// the message.
pub(crate) struct OnItsWay {
    gate: Arc<Gate>,
    counter: Counter,
}

/// Which messages are counted together.
pub(super) type Counter = fn(&Gate) -> &AtomicU32;

impl OnItsWay {
    /// Counts a message; `None` if there are `most` already.
    pub(super) fn new(gate: &Arc<Gate>, counter: Counter, most: u32) -> Option<Self> {
        let before = counter(gate).fetch_add(1, Ordering::AcqRel);
        let message = Self {
            gate: Arc::clone(gate),
            counter,
        };
        (before < most).then_some(message)
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        (self.counter)(&self.gate).fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for OnItsWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnItsWay").finish_non_exhaustive()
    }
}
