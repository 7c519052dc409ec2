//! Counters that threads add to without meeting each other.
//! Each thread has one of a few stripes; the actor adds them up. The first threads own theirs, and count
//! what nobody takes away in a plain load and store; those that come later share.

#[cfg(all(test, not(breaker_loom)))]
mod tests;

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;

use super::Unsent;
use super::sync::{AtomicU64, Ordering, thread_local};

/// How many stripes a breaker has; a power of two. Models have as few as show that there are several.
pub(super) const STRIPES: usize = if cfg!(all(test, breaker_loom)) { 2 } else { 4 };

/// A tally holds the low bits of its epoch above this many bits of count, so that a success which
/// comes late can see so in the same step in which it would be counted.
const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

#[derive(Debug)]
pub(super) struct Stripes([Stripe; STRIPES]);

/// A cache line of its own.
#[repr(align(64))]
#[derive(Debug)]
pub(super) struct Stripe {
    successes: AtomicU64,
    /// Written by the owner of the stripe alone.
    rejected_by_owner: AtomicU64,
    /// Written by all others that have the stripe.
    rejected: AtomicU64,
    late: AtomicU64,
    ignored: AtomicU64,
    /// Calls that were refused and not rejected.
    simulated: AtomicU64,
}

/// A thread's stripe: the low bits say which, the bits above say what the thread is to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(pub(super) usize);

impl Place {
    /// No thread has it yet.
    const NONE: Self = Self(2 * STRIPES);

    /// Gives threads their places in turn. The first round owns, all others share.
    #[cold]
    fn next() -> Self {
        #[cfg(not(all(test, breaker_loom)))]
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        #[cfg(all(test, breaker_loom))]
        loom::lazy_static! { static ref NEXT: AtomicUsize = AtomicUsize::new(0); }
        Self::nth(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The place of the thread before which there were `nth`: its number, as long as that names a stripe
    /// or a share of one.
    fn nth(nth: usize) -> Self {
        Self(nth.min((nth % STRIPES).saturating_add(STRIPES)))
    }

    /// The place of this thread. One whose locals are gone shares the first stripe.
    #[inline]
    pub(super) fn mine() -> Self {
        thread_local! {
            static MINE: Cell<Place> = const { Cell::new(Place::NONE) };
        }
        MINE.try_with(|mine| {
            if mine.get() == Self::NONE {
                mine.set(Self::next());
            }
            mine.get()
        })
        .unwrap_or(Self(STRIPES))
    }

    #[inline]
    pub(super) fn owns(self) -> bool {
        self.0 < STRIPES
    }
}

impl Stripes {
    pub(super) fn new(epoch: u64) -> Self {
        Self(std::array::from_fn(|_| Stripe {
            successes: AtomicU64::new(tag(epoch)),
            rejected_by_owner: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            late: AtomicU64::new(0),
            ignored: AtomicU64::new(0),
            simulated: AtomicU64::new(0),
        }))
    }

    #[inline]
    pub(super) fn mine(&self) -> &Stripe {
        self.at(Place::mine())
    }

    #[inline]
    fn at(&self, place: Place) -> &Stripe {
        let [first, ..] = &self.0;
        self.0.get(place.0 % STRIPES).unwrap_or(first)
    }

    /// The thread's stripe, for a rejection.
    #[inline]
    pub(super) fn for_rejection(&self) -> Rejecting<'_> {
        let place = Place::mine();
        Rejecting {
            stripe: self.at(place),
            owned: place.owns(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Stripe> {
        self.0.iter()
    }

    /// Takes the successes counted in `epoch`.
    pub(super) fn fold(&self, epoch: u64) -> u64 {
        self.iter().fold(0, |sum: u64, stripe| {
            // Most stripes are empty most of the time, and a load does not take the line away. To swap
            // them all would count the same.
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
                .saturating_add(stripe.rejected_by_owner.load(Ordering::Relaxed))
                .saturating_add(stripe.rejected.load(Ordering::Relaxed)),
            late: sum.late.saturating_add(stripe.late.load(Ordering::Relaxed)),
            ignored: sum
                .ignored
                .saturating_add(stripe.ignored.load(Ordering::Relaxed)),
            simulated: sum
                .simulated
                .saturating_add(stripe.simulated.load(Ordering::Relaxed)),
        })
    }
}

impl Stripe {
    /// Counts a success of `epoch`; as late if the stripe counts for another one by now. Tells whether it
    /// was not.
    #[inline]
    pub(super) fn tally(&self, epoch: u64) -> bool {
        let tag = tag(epoch);
        let mut tally = self.successes.load(Ordering::Relaxed);
        loop {
            if tally & !COUNT != tag {
                self.late();
                return false;
            }
            // Forty-eight bits of count do not overflow between two folds.
            match self.successes.compare_exchange_weak(
                tally,
                tally.wrapping_add(1),
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => tally = now,
            }
        }
    }

    pub(super) fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ignored(&self) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn simulated(&self) {
        self.simulated.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the next call that is not rejected is the `nth` on this stripe, or the one `nth` later, and so
    /// on.
    pub(super) fn is_nth_simulated(&self, nth: u64) -> bool {
        let before = self.simulated.load(Ordering::Relaxed);
        before.wrapping_add(1).is_multiple_of(nth)
    }
}

/// A thread that rejects.
#[derive(Clone, Copy)]
pub(super) struct Rejecting<'a> {
    stripe: &'a Stripe,
    owned: bool,
}

impl Rejecting<'_> {
    /// Whether the next rejection on this stripe is the `nth`, or the one `nth` later, and so on.
    #[inline]
    pub(super) fn is_nth(self, nth: u64) -> bool {
        let counter = if self.owned {
            &self.stripe.rejected_by_owner
        } else {
            &self.stripe.rejected
        };
        counter
            .load(Ordering::Relaxed)
            .wrapping_add(1)
            .is_multiple_of(nth)
    }

    /// Counts a rejection.
    #[inline]
    pub(super) fn count(self) {
        let Stripe {
            rejected_by_owner,
            rejected,
            ..
        } = self.stripe;
        if self.owned {
            let count = rejected_by_owner.load(Ordering::Relaxed);
            rejected_by_owner.store(count.wrapping_add(1), Ordering::Relaxed);
        } else {
            rejected.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn tag(epoch: u64) -> u64 {
    epoch << COUNT_BITS
}
