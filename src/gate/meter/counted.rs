//! The meter of the feature `metrics`. What every call does is counted on the thread's stripe, in a plain load
//! and store on the first threads; what is rare, in one place for all.
//!
//! Nothing here is read by a decision, and no code of the user's is met.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::durations::Durations;
use crate::circuit::{Calls, Cause, CircuitState, Reason};
use crate::gate::stripe::{Place, STRIPES};
use crate::gate::sync::{AtomicU64, Mutex, Ordering};

/// The stripes with an owner, and as many that are shared.
const PLACES: usize = 2 * STRIPES;

/// So many calls of a stripe are measured after each time the counts were read; then one of `EVERY`.
const FIRST: u64 = 64;
const EVERY: u64 = 32;

/// The counts of one breaker; clones count together. The breakers of a family share one, so that what a
/// member has counted outlives it.
#[derive(Clone)]
pub(crate) struct Meter(Arc<Counters>);

struct Counters {
    stripes: [Stripe; PLACES],
    /// Successes that the circuit was told of.
    told: AtomicU64,
    /// But for timeouts.
    failures: AtomicU64,
    timeouts: AtomicU64,
    ignored: AtomicU64,
    late: AtomicU64,
    probes: AtomicU64,
    held: AtomicU64,
    restarts: AtomicU64,
    /// Calls that were refused and not rejected. Not on the stripes, whose line is full.
    simulated: [AtomicU64; 4],
    transitions: Mutex<Vec<(Change, u64)>>,
    durations: Durations,
}

/// A cache line, for one of the first threads or for those of the others that share it.
#[repr(align(64))]
#[derive(Default)]
struct Stripe {
    /// Successes that nobody was told of.
    successes: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    /// What `ended` was when the counts were read.
    ended_before: AtomicU64,
    rejected: [AtomicU64; 4],
}

/// A change of state: from, to, and why.
pub(crate) type Change = (CircuitState, CircuitState, Cause);

/// The totals at some instant. Each call that has ended is under exactly one outcome.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    pub(crate) successes: u64,
    pub(crate) failures: u64,
    pub(crate) ignored: u64,
    pub(crate) late: u64,
    pub(crate) timeouts: u64,
    /// Rejections while open, with all probes in use, while forced open, and while ramping up.
    pub(crate) rejected: [u64; 4],
    /// Those that were none, in the same order.
    pub(crate) simulated: [u64; 4],
    pub(crate) in_flight: u64,
    pub(crate) probes: u64,
    /// Messages that wait.
    pub(crate) held: u64,
    pub(crate) restarts: u64,
    pub(crate) transitions: Vec<(Change, u64)>,
}

/// Adds one and returns how many it is now; `owned` by the thread that counts.
#[inline]
fn count(counter: &AtomicU64, owned: bool) -> u64 {
    // Released, so that who sees the end of a call sees its beginning, on whatever thread that was.
    if owned {
        let count = counter.load(Ordering::Relaxed).wrapping_add(1);
        counter.store(count, Ordering::Release);
        count
    } else {
        counter.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }
}

/// The counter of a reason for which calls are refused.
#[inline]
fn of_reason(counters: &[AtomicU64; 4], reason: Reason) -> &AtomicU64 {
    let [open, probes_in_use, forced_open, ramp_up] = counters;
    match reason {
        Reason::Open => open,
        Reason::ProbesInUse => probes_in_use,
        Reason::ForcedOpen => forced_open,
        Reason::RampUp => ramp_up,
    }
}

fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self(Arc::new(Counters {
            stripes: std::array::from_fn(|_| Stripe::default()),
            told: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            ignored: AtomicU64::new(0),
            late: AtomicU64::new(0),
            probes: AtomicU64::new(0),
            held: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            simulated: std::array::from_fn(|_| AtomicU64::new(0)),
            transitions: Mutex::default(),
            durations: Durations::default(),
        }))
    }
}

impl Meter {
    /// The thread's stripe, and whether it is the only one that writes to it.
    #[inline]
    fn mine(&self) -> (&Stripe, bool) {
        let place = Place::mine();
        let [first, ..] = &self.0.stripes;
        let stripe = self.0.stripes.get(place.0).unwrap_or(first);
        (stripe, place.owns())
    }

    /// Counts a success that changes nothing, so that the circuit is not told.
    #[inline]
    pub(crate) fn success(&self) {
        let (stripe, owned) = self.mine();
        count(&stripe.successes, owned);
    }

    pub(crate) fn late(&self) {
        add(&self.0.late, 1);
    }

    pub(crate) fn ignored(&self) {
        add(&self.0.ignored, 1);
    }

    #[inline]
    pub(crate) fn reject(&self, reason: Reason) {
        let (stripe, owned) = self.mine();
        count(of_reason(&stripe.rejected, reason), owned);
    }

    /// A call that was refused and not rejected.
    pub(crate) fn simulate(&self, reason: Reason) {
        add(of_reason(&self.0.simulated, reason), 1);
    }

    /// A call that passed, and is not done at once.
    #[inline]
    pub(crate) fn begin(&self) {
        let (stripe, owned) = self.mine();
        count(&stripe.begun, owned);
    }

    /// The end of such a call; `took` is asked only if it is to be measured.
    #[inline]
    pub(crate) fn end(&self, took: impl FnOnce() -> Option<Duration>) {
        let (stripe, owned) = self.mine();
        let ended = count(&stripe.ended, owned);
        let since = ended.wrapping_sub(stripe.ended_before.load(Ordering::Relaxed));
        if since <= FIRST || since.is_multiple_of(EVERY) {
            self.measure(took);
        }
    }

    /// Takes the time of a call.
    #[cold]
    pub(crate) fn measure(&self, took: impl FnOnce() -> Option<Duration>) {
        if let Some(took) = took() {
            self.0.durations.add(took);
        }
    }

    /// A call that the actor knows of, be it a probe or not.
    pub(crate) fn hold(&self, probe: bool) {
        self.begin();
        add(&self.0.probes, probe.into());
    }

    /// The end of such a call.
    pub(crate) fn let_go(&self, probe: bool) {
        self.end(|| None);
        if probe {
            self.0.probes.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn restarted(&self) {
        add(&self.0.restarts, 1);
    }

    pub(crate) fn transition(&self, from: CircuitState, to: CircuitState, cause: Cause) {
        let change = (from, to, cause);
        let mut transitions = self.0.lock_transitions();
        match transitions.iter_mut().find(|(known, _)| *known == change) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => transitions.push((change, 1)),
        }
    }

    /// Whether both count together.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The totals so far. From now on the next calls are measured again.
    pub(crate) fn read(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &*self.0;
        let stripes = &counters.stripes;
        let sum = |of: fn(&Stripe) -> &AtomicU64| {
            let all = stripes.iter().map(of);
            all.fold(0, |sum: u64, one| {
                sum.wrapping_add(one.load(Ordering::Acquire))
            })
        };
        for stripe in stripes {
            let ended = load(&stripe.ended);
            stripe.ended_before.store(ended, Ordering::Relaxed);
        }
        // The ends first: each has a beginning, which is seen then.
        let ended = sum(|stripe| &stripe.ended);
        let begun = sum(|stripe| &stripe.begun);
        Counts {
            successes: sum(|stripe| &stripe.successes).wrapping_add(load(&counters.told)),
            failures: load(&counters.failures),
            ignored: load(&counters.ignored),
            late: load(&counters.late),
            timeouts: load(&counters.timeouts),
            rejected: [
                sum(|stripe| &stripe.rejected[0]),
                sum(|stripe| &stripe.rejected[1]),
                sum(|stripe| &stripe.rejected[2]),
                sum(|stripe| &stripe.rejected[3]),
            ],
            simulated: counters.simulated.each_ref().map(load),
            in_flight: begun.saturating_sub(ended),
            probes: load(&counters.probes),
            held: load(&counters.held),
            restarts: load(&counters.restarts),
            transitions: counters.lock_transitions().clone(),
        }
    }

    /// Takes out how long calls took: seconds, and how many calls.
    pub(crate) fn take_durations(&self) -> Vec<(f64, usize)> {
        self.0.durations.take()
    }
}

impl Counters {
    fn lock_transitions(&self) -> impl std::ops::DerefMut<Target = Vec<(Change, u64)>> {
        self.transitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

/// What a circuit has counted and the meter knows of; kept by the circuit's actor.
#[derive(Debug, Default)]
pub(crate) struct Account {
    seen: Calls,
    /// Failures since then that were timeouts.
    timeouts: u64,
    /// How many messages wait, as the meter knows.
    held: u64,
}

impl Account {
    /// The circuit has just counted a timeout as a failure.
    pub(crate) fn timed_out(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
    }

    /// So many messages wait now.
    pub(crate) fn hold(&mut self, held: usize, meter: &Meter) {
        let held = u64::try_from(held).unwrap_or(u64::MAX);
        let before = std::mem::replace(&mut self.held, held);
        if held != before {
            // Wraps around where there are fewer, and so takes them off.
            add(&meter.0.held, held.wrapping_sub(before));
        }
    }

    /// Has the meter count what the circuit has counted since.
    pub(crate) fn close(&mut self, calls: &Calls, meter: &Meter) {
        if self.seen == *calls {
            return;
        }
        let counters = &*meter.0;
        let timeouts = std::mem::take(&mut self.timeouts);
        let failures = calls.failures.saturating_sub(self.seen.failures);
        add(&counters.failures, failures.saturating_sub(timeouts));
        add(&counters.timeouts, timeouts);
        let since = |now: u64, before: u64| now.saturating_sub(before);
        add(&counters.told, since(calls.successes, self.seen.successes));
        add(&counters.ignored, since(calls.ignored, self.seen.ignored));
        add(&counters.late, since(calls.late, self.seen.late));
        self.seen = *calls;
    }
}
