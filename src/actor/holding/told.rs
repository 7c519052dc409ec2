//! What is told of messages that were to wait: their numbers, and those that were not sent.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::actor::Listeners;
use crate::event::{DropReason, HeldDropped, Subscribers};
use crate::report;

/// What became of the messages that were to wait, since the breaker was made.
///
/// `held` is the sum of `released`, `dropped` and those that wait now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeldCounts {
    /// Messages that had to wait.
    pub held: u64,
    /// Of those, messages that were sent.
    pub released: u64,
    /// Of those, messages that were not: they expired, or their callers went away.
    pub dropped: u64,
    /// Messages that found no room to wait.
    pub full: u64,
}

impl HeldCounts {
    pub(super) fn add(count: &mut u64) {
        *count = count.saturating_add(1);
    }
}

/// Drops to be told.
pub(in crate::actor) struct Drops {
    pub(super) subscribers: Option<Arc<Mutex<Subscribers<HeldDropped>>>>,
    pub(super) logs_full: bool,
    pub(super) events: Vec<HeldDropped>,
}

impl Drops {
    /// To those who listen to the breaker, to its whole family, and to the log.
    pub(in crate::actor) fn deliver(self, family: Option<&Listeners>) {
        let mut logs_full = self.logs_full;
        for event in &self.events {
            if event.why != DropReason::Full || std::mem::take(&mut logs_full) {
                report::held_dropped(event);
            }
            let family = family.map(|all| &all.drops);
            for subscribers in self.subscribers.as_deref().into_iter().chain(family) {
                let mut subscribers = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
                subscribers.tell(event);
            }
        }
    }
}

impl fmt::Debug for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Drops").field(&self.events).finish()
    }
}
