//! Counters that threads add to without meeting each other.
//! Each thread has one of a few stripes; the actor adds them up.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Unsent;
use crate::clock::Clock;
use crate::error::Origin;

/// How many stripes a breaker has; a power of two.
const STRIPES: usize = 4;

/// A tally holds the low bits of its epoch above this many bits of count, so that a success which
/// comes late can see so in the same step in which it would be counted.
const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

#[derive(Debug)]
pub(super) struct Stripes([Stripe; STRIPES]);

/// Aligned to two cache lines, since neighbours are fetched in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Stripe {
    successes: AtomicU64,
    rejected: AtomicU64,
    late: AtomicU64,
    ignored: AtomicU64,
    origin: Arc<Origin>,
}

thread_local! {
    /// The thread's stripe, or one past the end while it has none.
    static MINE: Cell<usize> = const { Cell::new(STRIPES) };
}

/// Gives threads their stripes in turn.
static NEXT: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn mine() -> usize {
    // A thread whose locals are gone takes the first stripe.
    MINE.try_with(|mine| match mine.get() {
        STRIPES => first_use(mine),
        known => known,
    })
    .unwrap_or(0)
}

#[cold]
fn first_use(mine: &Cell<usize>) -> usize {
    mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES);
    mine.get()
}

impl Stripes {
    pub(super) fn new(name: &Arc<str>, clock: &Arc<dyn Clock>, epoch: u64) -> Self {
        Self(std::array::from_fn(|_| Stripe {
            successes: AtomicU64::new(tag(epoch)),
            rejected: AtomicU64::new(0),
            late: AtomicU64::new(0),
            ignored: AtomicU64::new(0),
            origin: Arc::new(Origin {
                name: Arc::clone(name),
                clock: Arc::clone(clock),
            }),
        }))
    }

    #[inline]
    pub(super) fn mine(&self) -> &Stripe {
        let [first, ..] = &self.0;
        self.0.get(mine()).unwrap_or(first)
    }

    pub(super) fn first(&self) -> &Stripe {
        let [first, ..] = &self.0;
        first
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stripe> {
        self.0.iter()
    }

    /// Takes the successes counted in `epoch`.
    pub(super) fn fold(&self, epoch: u64) -> u64 {
        self.iter().fold(0, |sum: u64, stripe| {
            // Most stripes are empty most of the time, and a load does not take the line away.
            if stripe.successes.load(Ordering::SeqCst) & COUNT == 0 {
                return sum;
            }
            sum.saturating_add(stripe.successes.swap(tag(epoch), Ordering::SeqCst) & COUNT)
        })
    }

    /// Starts counting for a new epoch; returns what was left of the old one.
    pub(super) fn begin_epoch(&self, epoch: u64) -> u64 {
        self.iter().fold(0, |sum: u64, stripe| {
            sum.saturating_add(stripe.successes.swap(tag(epoch), Ordering::SeqCst) & COUNT)
        })
    }

    /// How many successes wait to be folded.
    pub(super) fn tallied(&self) -> u64 {
        self.iter().fold(0, |sum: u64, stripe| {
            sum.saturating_add(stripe.successes.load(Ordering::SeqCst) & COUNT)
        })
    }

    pub(super) fn unsent(&self) -> Unsent {
        self.iter().fold(Unsent::default(), |sum, stripe| Unsent {
            rejected: sum
                .rejected
                .saturating_add(stripe.rejected.load(Ordering::Relaxed)),
            late: sum.late.saturating_add(stripe.late.load(Ordering::Relaxed)),
            ignored: sum
                .ignored
                .saturating_add(stripe.ignored.load(Ordering::Relaxed)),
        })
    }
}

impl Stripe {
    #[inline]
    pub(super) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// Counts a success of `epoch`; as late if the stripe counts for another one by now.
    #[inline]
    pub(super) fn tally(&self, epoch: u64) {
        let tag = tag(epoch);
        let mut tally = self.successes.load(Ordering::Relaxed);
        loop {
            if tally & !COUNT != tag {
                return self.late();
            }
            // Forty-eight bits of count do not overflow between two folds.
            match self.successes.compare_exchange_weak(
                tally,
                tally.wrapping_add(1),
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => tally = now,
            }
        }
    }

    /// Looks at the clock.
    #[cold]
    pub(super) fn is_over(&self, until: u64) -> bool {
        until <= self.origin.clock.now().as_micros()
    }

    #[inline]
    pub(super) fn next_is_nth_rejection(&self, nth: u64) -> bool {
        self.rejected
            .load(Ordering::Relaxed)
            .wrapping_add(1)
            .is_multiple_of(nth)
    }

    #[inline]
    pub(super) fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ignored(&self) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
    }
}

fn tag(epoch: u64) -> u64 {
    epoch << COUNT_BITS
}
