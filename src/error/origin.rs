//! What all rejections of a breaker share: its name, the clock that tells the rest of a break, and the dial
//! that says which calls are rejected at all.
//! What a rejection says is in `error.rs`.

use std::cell::Cell;
use std::sync::Arc;

use super::Dial;
use crate::clock::Clock;

/// Who rejected.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) name: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dial: Dial,
}

thread_local! {
    /// The share of the rejection that this thread has dropped last, for the next one.
    static SPARE: Cell<Option<Arc<Origin>>> = const { Cell::new(None) };
}

impl Origin {
    pub(crate) fn new(name: Arc<str>, clock: Arc<dyn Clock>, dial: Dial) -> Arc<Self> {
        Arc::new(Self { name, clock, dial })
    }

    /// A share for a rejection. A thread that rejects again and again, and drops what it gets, uses the
    /// same one each time: counting it up and down would be most of what a rejection costs.
    #[inline]
    pub(crate) fn share(self: &Arc<Self>) -> Arc<Self> {
        match SPARE.try_with(Cell::take) {
            Ok(Some(spare)) if Arc::ptr_eq(&spare, self) => spare,
            _ => Arc::clone(self),
        }
    }

    /// Takes back the share of a rejection. At most one stays behind with each thread, and none whose
    /// breaker is gone by now.
    #[inline]
    pub(crate) fn take_back(share: Arc<Self>) {
        if Arc::strong_count(&share) > 1 {
            // A thread whose locals are gone keeps none.
            let _ = SPARE.try_with(|spare| spare.set(Some(share)));
        }
    }
}
