//! Messages that wait until they may be sent: in order, each for a time.
//! When the next may go is in `hold/pace.rs`; what is sent, and how, is the actor's business.

mod pace;
mod seat;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use pace::{Pace, Turn};
pub(crate) use seat::Seat;

use crate::clock::Timestamp;

/// Where something stands in a queue. It is never used again by that queue.
pub(crate) type Place = u64;

/// What waits, in the order in which it came.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    waiting: BTreeMap<Place, Waiting<T>>,
    next: Place,
    /// The newest instant seen, so that whatever the clock does the first has waited longest.
    newest: Timestamp,
}

/// Something that waits.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    pub(crate) item: T,
    /// When it was first held.
    pub(crate) since: Timestamp,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            next: Seat::FIRST,
            newest: Timestamp::ZERO,
        }
    }
}

impl<T> Queue<T> {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The place of the next that comes.
    pub(crate) fn next_place(&self) -> Place {
        self.next
    }

    /// Adds the last one.
    pub(crate) fn push(&mut self, item: T, now: Timestamp) {
        self.newest = self.newest.max(now);
        let since = self.newest;
        self.waiting.insert(self.next, Waiting { item, since });
        self.next = self.next.saturating_add(1);
    }

    /// The one that waits longest.
    pub(crate) fn first(&self) -> Option<&Waiting<T>> {
        self.waiting.first_key_value().map(|(_, first)| first)
    }

    /// Takes the one that waits longest.
    pub(crate) fn pop(&mut self) -> Option<Waiting<T>> {
        self.waiting.pop_first().map(|(_, first)| first)
    }

    /// Takes the first if it has waited for `ttl`.
    pub(crate) fn pop_over(&mut self, ttl: Duration, now: Timestamp) -> Option<Waiting<T>> {
        let is_over = self.first()?.since.is_over(ttl, now);
        is_over.then(|| self.pop()).flatten()
    }

    /// Takes the one at a place out of the row, if it is still there.
    pub(crate) fn remove(&mut self, place: Place) -> Option<Waiting<T>> {
        self.waiting.remove(&place)
    }

    /// When the first will have waited for `ttl`.
    pub(crate) fn next_over(&self, ttl: Duration) -> Option<Timestamp> {
        Some(self.first()?.since + ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + secs(seconds)
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn all<T>(mut queue: Queue<T>) -> Vec<T> {
        std::iter::from_fn(|| queue.pop())
            .map(|waiting| waiting.item)
            .collect()
    }

    #[test]
    fn what_came_first_leaves_first() {
        let mut queue = Queue::default();
        for item in 0..5 {
            queue.push(item, at(item));
        }
        assert_eq!(queue.len(), 5);
        assert_eq!(all(queue), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn one_can_leave_from_anywhere_and_only_once() {
        let mut queue = Queue::default();
        let mut places = Vec::new();
        for item in 0..5 {
            places.push(queue.next_place());
            queue.push(item, at(item));
        }
        assert_eq!(queue.remove(places[2]).map(|gone| gone.item), Some(2));
        assert!(queue.remove(places[2]).is_none());
        assert_eq!(queue.pop().map(|first| first.item), Some(0));
        assert!(queue.remove(places[0]).is_none());
        // No place is used again.
        queue.push(5, at(5));
        assert_eq!(queue.len(), 4);
        assert_eq!(all(queue), [1, 3, 4, 5]);
    }

    // R4
    #[test]
    fn a_wait_is_over_at_its_very_end() {
        let mut queue = Queue::default();
        queue.push('a', at(1));
        queue.push('b', at(2));
        let last = Timestamp::from_micros(at(11).as_micros() - 1);
        assert!(queue.pop_over(secs(10), last).is_none());
        assert_eq!(queue.next_over(secs(10)), Some(at(11)));
        let over = queue.pop_over(secs(10), at(11)).expect("over");
        assert_eq!((over.item, over.since), ('a', at(1)));
        assert!(queue.pop_over(secs(10), at(11)).is_none());
        assert_eq!(queue.next_over(secs(10)), Some(at(12)));
    }

    // R3
    #[test]
    fn a_clock_that_goes_back_does_not_change_the_order_of_expiry() {
        let mut queue = Queue::default();
        queue.push('a', at(100));
        queue.push('b', at(50));
        assert_eq!(queue.first().map(|first| first.since), Some(at(100)));
        queue.pop();
        assert_eq!(queue.next_over(secs(10)), Some(at(110)));
    }
}
