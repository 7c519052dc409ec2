//! Tells the recorder of the `metrics` crate what breakers have counted; the feature `metrics`.
//! What is counted, and when, is in `gate/meter.rs`; whose counts there are, in `supervisor/metrics.rs`.
//!
//! The recorder is the user's: it runs in whoever asks for a recording, under no lock of a breaker's, and a
//! panic of it ends at most what is told of one breaker.

mod names;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use metrics::{counter, gauge, histogram};

use crate::caught::quietly;
use crate::circuit::CircuitState;
use crate::gate::{Change, Counts, Meter};
use names::{FORCED_OPEN, OUTCOMES, REASONS, STATES};

/// What there is to tell of one breaker or family.
pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    pub(crate) meter: Meter,
    pub(crate) kind: Kind,
    /// The share of refused calls that is rejected.
    pub(crate) enforcement: f64,
}

/// How its state is told.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Breaker(CircuitState),
    /// How many keys are in each state, in the order of [`STATES`], and how often a key found no room.
    Family {
        keys: [u64; 5],
        unguarded: u64,
    },
}

/// What there is to tell of the store that records are shared through.
#[derive(Clone, Copy)]
pub(crate) struct StoreSource {
    pub(crate) is_away: bool,
    pub(crate) steps: u64,
}

/// What was told so far.
#[derive(Default)]
pub(crate) struct Telemetry(Mutex<Told>);

#[derive(Default)]
struct Told {
    described: bool,
    /// Those of the last recording, so no more than there may be breakers.
    series: BTreeMap<Arc<str>, Series>,
    evictions: u64,
    steps: u64,
}

/// What was told of one breaker.
struct Series {
    name: Arc<str>,
    meter: Meter,
    kind: Kind,
    enforcement: f64,
    told: Counts,
    unguarded: u64,
}

/// The part of a total that was not told yet. It counts as told now: a recorder that panics over it is not
/// told again.
fn take_new(told: &mut u64, total: u64) -> u64 {
    let new = total.saturating_sub(*told);
    *told = total.max(*told);
    new
}

impl Telemetry {
    /// Tells the recorder of this thread, or the global one. Somebody who is at it already does it for both.
    pub(crate) fn record(&self, sources: Vec<Source>, evictions: u64, store: Option<StoreSource>) {
        let mut told = match self.0.try_lock() {
            Ok(told) => told,
            Err(TryLockError::Poisoned(told)) => told.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let told = &mut *told;
        if !std::mem::replace(&mut told.described, true) {
            quietly(names::describe);
        }
        let mut before = std::mem::take(&mut told.series);
        let mut gone = Vec::new();
        for source in sources {
            let Source {
                name,
                meter,
                kind,
                enforcement,
            } = source;
            let known = before.remove(&name);
            let (series, other) = match known {
                Some(known) if known.meter.is(&meter) => {
                    let known = Series {
                        kind,
                        enforcement,
                        ..known
                    };
                    (known, None)
                }
                other => {
                    let name = Arc::clone(&name);
                    (Series::new(name, meter, kind, enforcement), other)
                }
            };
            gone.extend(other);
            told.series.insert(name, series);
        }
        gone.extend(before.into_values());
        // First those that are gone: one of the same name may have come in their place.
        for mut series in gone {
            series.tell();
            series.withdraw();
        }
        for series in told.series.values_mut() {
            series.tell();
        }
        let evicted = take_new(&mut told.evictions, evictions);
        quietly(|| counter!(names::EVICTIONS).increment(evicted));
        if let Some(StoreSource { is_away, steps }) = store {
            let steps = take_new(&mut told.steps, steps);
            quietly(|| {
                gauge!(names::STORE_DEGRADED).set(if is_away { 1.0 } else { 0.0 });
                counter!(names::STORE_STEPS).increment(steps);
            });
        }
    }
}

/// Nobody tells of the breakers any more: their gauges go down.
impl Drop for Telemetry {
    fn drop(&mut self) {
        let told = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for series in told.series.values() {
            series.withdraw();
        }
    }
}

impl Series {
    fn new(name: Arc<str>, meter: Meter, kind: Kind, enforcement: f64) -> Self {
        Self {
            name,
            meter,
            kind,
            enforcement,
            told: Counts::default(),
            unguarded: 0,
        }
    }

    /// Tells what is new. What is not is told as well, so that an exporter does not take it for idle.
    fn tell(&mut self) {
        let now = self.meter.read();
        quietly(|| self.tell_totals(&now));
        quietly(|| self.tell_durations());
        quietly(|| {
            let state = self.state();
            self.show([now.in_flight, now.probes, now.held], state, self.kind);
            self.show_dial(self.enforcement);
        });
    }

    fn tell_totals(&mut self, now: &Counts) {
        let told = &mut self.told;
        let outcomes = [
            (&mut told.successes, now.successes),
            (&mut told.failures, now.failures),
            (&mut told.ignored, now.ignored),
            (&mut told.late, now.late),
            (&mut told.timeouts, now.timeouts),
        ];
        let name = || Arc::clone(&self.name);
        for (outcome, (told, total)) in OUTCOMES.into_iter().zip(outcomes) {
            let new = take_new(told, total);
            counter!(names::CALLS, "breaker" => name(), "outcome" => outcome).increment(new);
        }
        let rejected = told.rejected.iter_mut().zip(now.rejected);
        for (reason, (told, now)) in REASONS.into_iter().zip(rejected) {
            let new = take_new(told, now);
            counter!(names::REJECTIONS, "breaker" => name(), "reason" => reason).increment(new);
        }
        let simulated = told.simulated.iter_mut().zip(now.simulated);
        for (reason, (told, now)) in REASONS.into_iter().zip(simulated) {
            // What an operator ordered is never simulated.
            if reason != FORCED_OPEN {
                let new = take_new(told, now);
                counter!(names::SIMULATED, "breaker" => name(), "reason" => reason).increment(new);
            }
        }
        for ((from, to, cause), total) in &now.transitions {
            let new = take_new_of(&mut told.transitions, (*from, *to, *cause), *total);
            counter!(
                names::TRANSITIONS,
                "breaker" => name(),
                "from" => names::state(*from),
                "to" => names::state(*to),
                "cause" => names::cause(*cause)
            )
            .increment(new);
        }
        let restarts = take_new(&mut told.restarts, now.restarts);
        counter!(names::RESTARTS, "breaker" => name()).increment(restarts);
        if let Kind::Family { unguarded, .. } = self.kind {
            let new = take_new(&mut self.unguarded, unguarded);
            counter!(names::UNGUARDED, "breaker" => name()).increment(new);
        }
    }

    fn tell_durations(&self) {
        let taken = self.meter.take_durations();
        if taken.is_empty() {
            return;
        }
        let durations = histogram!(names::DURATION, "breaker" => Arc::clone(&self.name));
        for (seconds, calls) in taken {
            durations.record_many(seconds, calls);
        }
    }

    /// The state that is told; a family has none.
    fn state(&self) -> Option<CircuitState> {
        match self.kind {
            Kind::Breaker(state) => Some(state),
            Kind::Family { .. } => None,
        }
    }

    /// The breaker is gone: all its gauges are 0.
    fn withdraw(&self) {
        let kind = match self.kind {
            Kind::Breaker(_) => self.kind,
            Kind::Family { unguarded, .. } => Kind::Family {
                keys: [0; 5],
                unguarded,
            },
        };
        quietly(|| {
            self.show([0; 3], None, kind);
            self.show_dial(0.0);
        });
    }

    fn show_dial(&self, enforcement: f64) {
        gauge!(names::ENFORCEMENT, "breaker" => Arc::clone(&self.name)).set(enforcement);
    }

    /// Sets all gauges but that of the dial.
    fn show(&self, counts: [u64; 3], state: Option<CircuitState>, kind: Kind) {
        let [in_flight, probes, held] = counts;
        let name = || Arc::clone(&self.name);
        let set = |gauge: metrics::Gauge, count: u64| gauge.set(as_f64(count));
        set(gauge!(names::IN_FLIGHT, "breaker" => name()), in_flight);
        set(gauge!(names::PROBES, "breaker" => name()), probes);
        set(gauge!(names::HELD, "breaker" => name()), held);
        let is_order =
            |state| matches!(state, CircuitState::ForcedOpen | CircuitState::ForcedClosed);
        let overrides = match kind {
            Kind::Breaker(_) => {
                // First the zeros: whoever looks meanwhile sees no two states.
                let shown = |known: &CircuitState| Some(*known) == state;
                let (one, zeros): (Vec<_>, Vec<_>) = STATES.into_iter().partition(shown);
                for (states, value) in [(zeros, 0), (one, 1)] {
                    for state in states {
                        let state = names::state(state);
                        let gauge = gauge!(names::STATE, "breaker" => name(), "state" => state);
                        set(gauge, value);
                    }
                }
                u64::from(state.is_some_and(is_order))
            }
            Kind::Family { keys, .. } => {
                for (state, count) in STATES.into_iter().zip(keys) {
                    let state = names::state(state);
                    set(
                        gauge!(names::KEYS, "breaker" => name(), "state" => state),
                        count,
                    );
                }
                let orders = STATES.into_iter().zip(keys);
                orders
                    .filter(|(state, _)| is_order(*state))
                    .map(|(_, keys)| keys)
                    .sum()
            }
        };
        set(gauge!(names::OVERRIDES, "breaker" => name()), overrides);
    }
}

/// As [`take_new`], of one change.
fn take_new_of(told: &mut Vec<(Change, u64)>, change: Change, total: u64) -> u64 {
    if let Some((_, told)) = told.iter_mut().find(|(known, _)| *known == change) {
        return take_new(told, total);
    }
    told.push((change, total));
    total
}

/// A count as recorders take it.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "exact below 2^53, which no gauge reaches"
)]
fn as_f64(count: u64) -> f64 {
    count as f64
}
