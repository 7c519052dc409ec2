//! Where a waiting message stands, for the two who know of it: the breaker's actor and the caller's future.
//! Either may be the first to be done with it, from any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Place;

/// The message is on its way to the breaker.
const ARRIVING: u64 = 0;
/// The caller went away.
const GONE: u64 = u64::MAX;
/// The message left the queue.
const LEFT: u64 = u64::MAX - 1;

/// A place in a queue, or why there is none. What it is seen to change by is all it protects.
#[derive(Debug, Default)]
pub(crate) struct Seat(AtomicU64);

impl Seat {
    /// The first place there is.
    pub(crate) const FIRST: Place = ARRIVING + 1;

    /// For the actor: gives the message its place. `false` if the caller went away before.
    pub(crate) fn take(&self, place: Place) -> bool {
        self.0
            .compare_exchange(ARRIVING, place, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// For the actor: the message leaves the queue. A caller that goes away from now on says nothing.
    pub(crate) fn leave(&self) {
        self.0.store(LEFT, Ordering::Release);
    }

    /// Whether the caller went away while the message waited.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Acquire) == GONE
    }

    /// For the caller: goes away. Gives the place that is to be cleared, if the message has one.
    pub(crate) fn abandon(&self) -> Option<Place> {
        match self.0.swap(GONE, Ordering::AcqRel) {
            ARRIVING | GONE | LEFT => None,
            place => Some(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_away_while_waiting_names_the_place() {
        let seat = Seat::default();
        assert!(seat.take(7));
        assert!(!seat.is_abandoned());
        assert_eq!(seat.abandon(), Some(7));
        assert!(seat.is_abandoned());
        assert_eq!(seat.abandon(), None);
    }

    #[test]
    fn who_goes_away_before_gets_no_place_and_after_names_none() {
        let early = Seat::default();
        assert_eq!(early.abandon(), None);
        assert!(!early.take(7));
        let late = Seat::default();
        assert!(late.take(7));
        late.leave();
        assert_eq!(late.abandon(), None);
    }
}
