//! Every state that the real circuit can reach in small worlds of callers, targets, timers, clocks and
//! operators, with the laws that hold in each of them and in each step between them. Single rules and their
//! numbers are in `circuit_table.rs`; long random stories, in `circuit_model.rs`.
//!
//! No depth bounds the search: time is told relative to the newest instant that the circuit has seen, and what
//! lies beyond every span looks alike, so the states are finitely many and all of them are visited. Each step is
//! taken by a clone of the real [`Circuit`]. A permit cannot be copied, so the world keeps the circuit as it
//! stood before the admission, and asks it again when the call ends.
//!
//! A caller settles whenever it likes: late, after its lease, or never. A caller that is lost takes its permit
//! with it. The clock goes back. A timer may fire at any moment with what the clock then says (so: late, twice,
//! or for a break that is long over), and in the worlds with armed timers, those set for an earlier break are
//! never taken back. The process may begin anew on the record, with calls of the last one still under way.
//!
//! That the laws can see a fault is itself tested: see [`FAULTS`].
//!
//! The large worlds: `CIRCUIT_EXHAUSTIVE=large cargo test --release --test exhaustive large -- --nocapture`.
//! On 2026-11-30 they had 831,306 states and 22,614,000 steps between them, no law was broken, and two cores
//! took about a minute:
//!
//! | world | callers | states | steps |
//! | --- | --- | --- | --- |
//! | three probes at once, long leases, orders, restarts | 5 | 342,592 | 9,872,104 |
//! | reconfiguration among three settings, the same | 4 | 313,500 | 8,625,131 |
//! | two probes at once, three armed timers, orders, restarts | 3 | 155,310 | 3,448,487 |
//! | breaks that grow and are lengthened at random, orders | 5 | 19,904 | 668,777 |
//!
//! What is not in any world: rates over a window of time and of slow calls, which `circuit_model.rs` holds to a
//! model of their own, and the end of the line of instants.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::match_same_arms,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test, the numbers are small, and a row stands for a fault"
)]

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use actix_circuit_breaker::circuit::{
    Calls, Cause, Circuit, CircuitState, Permit, Reason, Record, Refused, Settlement, Transition,
};
use actix_circuit_breaker::{
    Backoff, BreakerConfig, Outcome, RampUp, RandomSource, Timestamp, TripPolicy, TripRule, Window,
};
use serde::Deserialize;
use stateright::{Checker, Model, Property};

use CircuitState::{Closed, ForcedClosed, ForcedOpen, HalfOpen, Open};

/// One unit of time, in microseconds: two of them are less than a second, three are more (R9).
const UNIT: u64 = 400_000;

/// Where the clock begins. Epochs begin far above it, so that they show in traces as small steps.
const START: u64 = 1_000_000 * UNIT;
const FIRST_EPOCH: u64 = 1 << 40;

thread_local! {
    /// What the random source answers next.
    static RANDOM: Cell<f64> = const { Cell::new(0.0) };
}

fn random() -> Arc<dyn RandomSource> {
    Arc::new(|| RANDOM.with(Cell::get))
}

// ---------------------------------------------------------------------------------------------------
// What is looked for.

/// A law that a step can break. Two more are of the states alone: looking tells what asking would meet (R8),
/// and from every open or half-open circuit some probe is admitted within a bound, whatever is lost (R16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Law {
    /// R7: never more probes under a running lease than `max_probes`; each free slot is given out.
    MaxProbes,
    /// R6, R8: a break admits nothing before its deadline and the first call at it.
    OpenHolds,
    /// R3, R9, R12: nothing moves a deadline.
    DeadlineStays,
    /// R11: a late outcome changes nothing but the newest instant.
    LateChangesNothing,
    /// R36: a ramp-up begins with a recovery and with nothing else, and refuses whom it draws while it lasts.
    RampUp,
    /// R9: a rejection changes nothing, and says exactly when to come again.
    Rejection,
    /// R13 to R17: what an outcome in time does.
    Outcome,
    /// R10: every end of a call is counted once, and nothing else is.
    Accounts,
    /// R23: an order outranks everything until it is lifted or its time is over.
    OrderOutranks,
    /// R23, R24, R35: what an operator's word does.
    Operator,
    /// R28: a timer ends an order whose time is over and moves nothing else.
    TimerDecidesNothing,
    /// R25: events follow from each other, one for each change of state, a break begun by exactly one.
    Events,
    /// R1: the epoch grows with every change of state and at a reset, never otherwise, never back.
    Epoch,
    /// R3: the newest instant never goes back.
    Newest,
    /// R29: a restart of the actor changes nothing, one of the process what it must.
    Restart,
    /// R2: the record says nothing that contradicts itself or what the world knows.
    Consistent,
}

/// The laws that are read off a state, whatever step led there.
fn always(name: &'static str, holds: fn(&World, &State) -> bool) -> Property<World> {
    Property::always(name, holds)
}

fn laws() -> Vec<Property<World>> {
    vec![
        always("MaxProbes", |_, state| state.keeps(Law::MaxProbes)),
        always("OpenHolds", |_, state| state.keeps(Law::OpenHolds)),
        always("DeadlineStays", |_, state| state.keeps(Law::DeadlineStays)),
        always("LateChangesNothing", |_, state| {
            state.keeps(Law::LateChangesNothing)
        }),
        always("RampUp", |_, state| state.keeps(Law::RampUp)),
        always("Rejection", |_, state| state.keeps(Law::Rejection)),
        always("Outcome", |_, state| state.keeps(Law::Outcome)),
        always("Accounts", |_, state| state.keeps(Law::Accounts)),
        always("OrderOutranks", |_, state| state.keeps(Law::OrderOutranks)),
        always("Operator", |_, state| state.keeps(Law::Operator)),
        always("TimerDecidesNothing", |_, state| {
            state.keeps(Law::TimerDecidesNothing)
        }),
        always("Events", |_, state| state.keeps(Law::Events)),
        always("Epoch", |_, state| state.keeps(Law::Epoch)),
        always("Newest", |_, state| state.keeps(Law::Newest)),
        always("Restart", |_, state| state.keeps(Law::Restart)),
        always("Consistent", World::is_consistent),
        always("Looking", looking_tells),
        always("Recovers", World::recovers),
    ]
}

/// What a world must be able to show, so that a law is not kept by never being put to the test.
fn sights() -> Vec<Property<World>> {
    vec![
        Property::sometimes(
            "a late call of an earlier round in half-open",
            |_, state: &State| {
                state.state() == HalfOpen && state.calls.iter().any(|call| call.stale)
            },
        ),
        Property::sometimes(
            "a lease is over while its probe runs",
            |_, state: &State| {
                state.calls.iter().any(|call| {
                    call.probe() && !call.stale && !call.lost && !call.leased(state.view.newest)
                })
            },
        ),
        Property::sometimes("a lost probe holds a slot", |_, state: &State| {
            state.calls.iter().any(|call| call.lost)
        }),
        Property::sometimes("a clock behind the record", |_, state: &State| {
            state.clock < state.view.newest
        }),
    ]
}

// ---------------------------------------------------------------------------------------------------
// The record as it is written down, to look at every part of it.

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct View {
    phase: Phase,
    epoch: u64,
    attempt: u32,
    newest: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Phase {
    Closed(Memory),
    Ramping {
        since: u64,
        memory: Memory,
    },
    Open {
        until: u64,
    },
    HalfOpen {
        due: u64,
        round: Round,
    },
    Forced {
        kind: Kind,
        until: Option<u64>,
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Memory {
    Run { length: u32, newest: u64 },
    Instants(Vec<u64>),
    Calls(LastCalls),
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastCalls {
    seen: u64,
    samples: u64,
    failures: Vec<u64>,
    slow: Vec<u64>,
    newest: u64,
}

impl LastCalls {
    /// Which of the calls in the window failed, the oldest first.
    fn failed(&self) -> Vec<bool> {
        let window = (self.seen - self.samples + 1)..=self.seen;
        window.map(|call| self.failures.contains(&call)).collect()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Round {
    slots: Vec<Slot>,
    successes: u32,
    inconclusive: u32,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slot {
    id: u64,
    lease_end: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Open,
    Closed,
}

impl View {
    fn of(record: &Record) -> Self {
        let written = serde_json::to_string(record).unwrap();
        serde_json::from_str(&written).unwrap()
    }

    fn slots(&self) -> &[Slot] {
        match &self.phase {
            Phase::HalfOpen { round, .. } => &round.slots,
            _ => &[],
        }
    }

    fn with_newest(&self, newest: u64) -> Self {
        Self {
            newest,
            ..self.clone()
        }
    }

    /// Whether an order ends at `now`.
    fn order_is_over(&self, now: u64) -> bool {
        matches!(&self.phase, Phase::Forced { until: Some(until), .. } if *until <= now)
    }

    /// What a ramp-up leaves behind, where it ends at `now` (R36).
    fn after_ramp(&self, settings: &Settings, now: u64) -> Option<Self> {
        match &self.phase {
            Phase::Ramping { since, memory } if settings.ramp_end(*since) <= now => Some(Self {
                phase: Phase::Closed(memory.clone()),
                newest: now,
                ..self.clone()
            }),
            _ => None,
        }
    }
}

// ---------------------------------------------------------------------------------------------------
// Settings, in units.

#[derive(Debug, Clone, Copy)]
enum Trip {
    Run(u32),
    RunWithin(u32, u64),
    Count(u32, u64),
    /// Half of the last calls, and how many there have to be.
    Half(u32, u32),
    /// Two failures at the same instant, by a rule of one's own that looks so far back.
    Pair(u64),
}

/// The rule of [`Trip::Pair`].
struct Pair(Duration);

impl TripRule for Pair {
    fn trips(&self, failures: &[Timestamp], _: Timestamp) -> bool {
        failures.windows(2).any(|pair| pair[0] == pair[1])
    }

    fn lookback(&self) -> Duration {
        self.0
    }
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    trip: Trip,
    break_duration: u64,
    /// The factor and the longest break.
    backoff: Option<(u64, u64)>,
    jitter: bool,
    probe_timeout: u64,
    max_probes: u32,
    successes_to_close: u32,
    max_inconclusive: u32,
    /// How long a ramp-up takes.
    ramp_up: Option<u64>,
}

/// A break of two units, one probe at a time, a lease of two units, all calls to be over after one.
const PLAIN: Settings = Settings {
    trip: Trip::Run(1),
    break_duration: 2,
    backoff: None,
    jitter: false,
    probe_timeout: 2,
    max_probes: 1,
    successes_to_close: 1,
    max_inconclusive: 1,
    ramp_up: None,
};

/// Two of everything.
const PAIRS: Settings = Settings {
    trip: Trip::Count(2, 2),
    probe_timeout: 3,
    max_probes: 2,
    successes_to_close: 2,
    max_inconclusive: 2,
    ..PLAIN
};

/// Breaks that grow and are lengthened at random; failures in a row, near each other.
const GROWING: Settings = Settings {
    trip: Trip::RunWithin(2, 2),
    backoff: Some((2, 8)),
    jitter: true,
    max_inconclusive: 2,
    ..PLAIN
};

/// Half of the last three calls, two at least.
const HALF: Settings = Settings {
    trip: Trip::Half(2, 3),
    ..PLAIN
};

/// A rule of one's own.
const PAIR: Settings = Settings {
    trip: Trip::Pair(3),
    ..PLAIN
};

/// A recovery that admits a share of calls for longer than a second, and one for a unit.
const RAMPED: Settings = Settings {
    trip: Trip::Count(2, 2),
    ramp_up: Some(3),
    ..PLAIN
};
const QUICK: Settings = Settings {
    ramp_up: Some(1),
    ..PLAIN
};

/// The share of calls that a ramp-up admits at once.
const SHARE: f64 = 0.25;

impl Settings {
    fn config(&self) -> BreakerConfig {
        let trip = match self.trip {
            Trip::Run(failures) => TripPolicy::ConsecutiveFailures {
                failures,
                within: None,
            },
            Trip::RunWithin(failures, within) => TripPolicy::ConsecutiveFailures {
                failures,
                within: Some(span(within)),
            },
            Trip::Count(failures, within) => TripPolicy::FailureCount {
                failures,
                within: span(within),
                reset_on_success: false,
            },
            Trip::Half(minimum_calls, window) => TripPolicy::FailureRate {
                rate: 0.5,
                minimum_calls,
                window: Window::Calls(window),
                slow_call: None,
            },
            Trip::Pair(lookback) => TripPolicy::Custom(Arc::new(Pair(span(lookback)))),
        };
        let mut builder = BreakerConfig::builder()
            .trip(trip)
            .call_timeout(span(1))
            .break_duration(span(self.break_duration))
            .jitter(if self.jitter { 0.5 } else { 0.0 })
            .probe_timeout(span(self.probe_timeout))
            .max_probes(self.max_probes)
            .successes_to_close(self.successes_to_close)
            .max_inconclusive(self.max_inconclusive);
        if let Some((factor, max)) = self.backoff {
            let factor = f64::from(u32::try_from(factor).unwrap());
            builder = builder.backoff(Backoff::new(factor, span(max)));
        }
        if let Some(duration) = self.ramp_up {
            builder = builder.ramp_up(RampUp::new(span(duration), SHARE));
        }
        builder.build().unwrap()
    }

    // R22, in microseconds; the jitter is a half.
    fn length(&self, attempt: u32, random: bool) -> u64 {
        let grown = match self.backoff {
            Some((factor, max)) => (self.break_duration * factor.pow(attempt)).min(max),
            None => self.break_duration,
        };
        let more = if self.jitter && random { UNIT / 2 } else { 0 };
        grown * (UNIT + more)
    }

    // R36; without one it is over as soon as it began
    fn ramp_end(&self, since: u64) -> u64 {
        since + self.ramp_up.unwrap_or(0) * UNIT
    }

    // R3
    fn longest(&self) -> u64 {
        let grown = self.backoff.map_or(self.break_duration, |(_, max)| max);
        grown * (UNIT + if self.jitter { UNIT / 2 } else { 0 })
    }

    // R16
    fn lease(&self, timeout: u64) -> u64 {
        if timeout > 1 {
            self.probe_timeout.max(2 * timeout) * UNIT
        } else {
            self.probe_timeout * UNIT
        }
    }

    /// R17, R18: what a closed window comes to with one more call, and whether that trips.
    fn counted(&self, memory: &Memory, failed: bool, now: u64) -> (Memory, bool) {
        let young = |failures: &[u64]| {
            let young = failures.iter().filter(|past| now - **past < self.within());
            let mut young: Vec<_> = young.copied().collect();
            young.push(now);
            young
        };
        let mut memory = memory.clone();
        let trips = match (&mut memory, self.trip) {
            (Memory::Run { length, newest }, Trip::Run(failures)) => {
                *length = if failed { *length + 1 } else { 0 };
                *newest = if failed { now } else { *newest };
                *length >= failures
            }
            (Memory::Instants(instants), Trip::RunWithin(..)) if !failed => {
                instants.clear();
                false
            }
            (Memory::Instants(_), _) if !failed => false,
            (
                Memory::Instants(instants),
                Trip::RunWithin(failures, _) | Trip::Count(failures, _),
            ) => {
                *instants = young(instants);
                instants.len() >= failures as usize
            }
            (Memory::Instants(instants), Trip::Pair(_)) => {
                *instants = young(instants);
                instants.windows(2).any(|pair| pair[0] == pair[1])
            }
            (Memory::Calls(calls), Trip::Half(minimum, window)) => {
                calls.seen += 1;
                calls.samples = (calls.samples + 1).min(window.into());
                calls.failures.extend(failed.then_some(calls.seen));
                let out = calls.seen - calls.samples;
                calls.failures.retain(|call| *call > out);
                calls.newest = now;
                calls.samples >= minimum.into() && 2 * calls.failures.len() as u64 >= calls.samples
            }
            _ => panic!("{memory:?} is not for {:?}", self.trip),
        };
        (memory, trips)
    }

    fn within(&self) -> u64 {
        match self.trip {
            Trip::Run(_) | Trip::Half(..) => 0,
            Trip::RunWithin(_, within) | Trip::Count(_, within) | Trip::Pair(within) => {
                within * UNIT
            }
        }
    }
}

fn span(units: u64) -> Duration {
    Duration::from_micros(units * UNIT)
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

// ---------------------------------------------------------------------------------------------------
// A world, and one moment of it.

#[derive(Debug, Clone)]
struct World {
    /// Those that the operator chooses from; the first is in force at the start.
    settings: Vec<Settings>,
    configs: Vec<BreakerConfig>,
    /// How many calls are under way at most.
    callers: usize,
    /// The call timeouts that callers bring, in units.
    timeouts: Vec<u64>,
    /// How many units the clock goes back at most.
    back: u64,
    /// The ttls of orders, in units; empty for a world without orders.
    ttls: Vec<Option<u64>>,
    /// Whether the process begins anew.
    restarts: bool,
    /// How many timers are kept armed; without any, a timer fires at any moment.
    armed: usize,
    fault: Option<Fault>,
}

impl World {
    fn new(settings: &[Settings], callers: usize) -> Self {
        Self {
            settings: settings.to_vec(),
            configs: settings.iter().map(Settings::config).collect(),
            callers,
            timeouts: vec![1],
            back: 1,
            ttls: Vec::new(),
            restarts: false,
            armed: 0,
            fault: None,
        }
    }

    fn timeouts(mut self, timeouts: &[u64]) -> Self {
        self.timeouts = timeouts.to_vec();
        self
    }

    fn back(mut self, units: u64) -> Self {
        self.back = units;
        self
    }

    fn orders(mut self, ttls: &[Option<u64>]) -> Self {
        self.ttls = ttls.to_vec();
        self
    }

    fn restarts(mut self) -> Self {
        self.restarts = true;
        self
    }

    fn armed(mut self, timers: usize) -> Self {
        self.armed = timers;
        self
    }

    fn with_fault(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Everything is over so long after the newest instant.
    fn horizon(&self) -> u64 {
        let spans = self.settings.iter().flat_map(|settings| {
            let leases = self.timeouts.iter().map(|timeout| settings.lease(*timeout));
            let ramp_up = settings.ramp_end(0);
            leases.chain([settings.longest(), settings.within(), ramp_up])
        });
        let ttls = self.ttls.iter().flatten().map(|ttl| ttl * UNIT);
        let longest = spans.chain(ttls).max().unwrap();
        (longest.div_ceil(UNIT) + 1) * UNIT
    }

    fn jitters(&self) -> bool {
        self.settings.iter().any(|settings| settings.jitter)
    }

    fn ramps(&self) -> bool {
        self.settings
            .iter()
            .any(|settings| settings.ramp_up.is_some())
    }
}

/// A call that was admitted and did not end.
#[derive(Debug, Clone)]
struct Call {
    permit: Arc<Permit>,
    /// The circuit that admits it once more.
    from: Arc<Circuit>,
    asked: u64,
    timeout: u64,
    lease_end: u64,
    /// The state changed, or a reset came, since it was admitted. (Not read off an epoch.)
    stale: bool,
    /// Nobody will ever settle it.
    lost: bool,
}

impl Call {
    fn probe(&self) -> bool {
        self.permit.is_probe()
    }

    /// Whether it holds a slot of this round.
    fn leased(&self, now: u64) -> bool {
        self.probe() && !self.stale && self.lease_end > now
    }

    /// The permit itself.
    fn permit(&self) -> Permit {
        RANDOM.set(0.0);
        let mut from = Circuit::clone(&self.from);
        let permit = from.try_acquire_for(span(self.timeout), at(self.asked));
        let permit = permit.expect("admitted before");
        assert_eq!(permit, *self.permit);
        permit
    }
}

/// A timer as a shell sets one for the end of each break and order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: u64,
    epoch: u64,
}

#[derive(Clone)]
struct State {
    circuit: Arc<Circuit>,
    view: Arc<View>,
    clock: u64,
    /// The settings in force.
    present: usize,
    calls: Vec<Call>,
    timers: Vec<Timer>,
    /// The laws that the step to here broke, a bit each.
    broken: u32,
    /// What tells it from others.
    key: Vec<i32>,
}

impl State {
    fn keeps(&self, law: Law) -> bool {
        self.broken & (1 << law as u32) == 0
    }

    fn expect(&mut self, law: Law, holds: bool) {
        if !holds {
            self.broken |= 1 << law as u32;
        }
    }

    fn state(&self) -> CircuitState {
        self.circuit.record().state()
    }

    /// The instant that a step taken now counts as (R3).
    fn now(&self) -> u64 {
        self.clock.max(self.view.newest)
    }

    fn leased(&self, now: u64) -> usize {
        self.calls.iter().filter(|call| call.leased(now)).count()
    }

    fn first_lease_end(&self, now: u64) -> Option<u64> {
        let leased = self.calls.iter().filter(|call| call.leased(now));
        leased.map(|call| call.lease_end).min()
    }

    /// Sorts what has no order and forgets what can never matter again, then tells the moment in numbers
    /// relative to the newest instant.
    fn settle_down(&mut self, world: &World) {
        let newest = self.view.newest;
        self.calls.retain(|call| !call.lost || call.leased(newest));
        let tell = |call: &Call| {
            let left = if call.stale || !call.probe() {
                -i32::from(call.stale)
            } else {
                units(call.lease_end.saturating_sub(newest)) + 1
            };
            [left, i32::from(call.lost)]
        };
        self.calls.sort_by_key(tell);
        let since = |past: u64| units(newest - past.min(newest));
        let until = |future: u64| units(future.saturating_sub(newest));
        let mut key = vec![
            units((self.clock + world.back * UNIT).saturating_sub(newest)),
            self.present as i32,
            self.broken as i32,
            // Beyond some number a break grows no more.
            self.view.attempt.min(4) as i32,
        ];
        let tell_memory = |key: &mut Vec<i32>, memory: &Memory| match memory {
            Memory::Run { length, .. } => key.extend([0, *length as i32]),
            Memory::Instants(instants) => {
                let within = units(world.horizon());
                key.push(1);
                key.extend(instants.iter().map(|past| since(*past).min(within)));
            }
            Memory::Calls(calls) => {
                key.push(5);
                key.extend(calls.failed().into_iter().map(i32::from));
            }
        };
        match &self.view.phase {
            Phase::Closed(memory) => tell_memory(&mut key, memory),
            Phase::Ramping {
                since: begun,
                memory,
            } => {
                // Before the memory, whose end nothing marks.
                key.extend([6, since(*begun)]);
                tell_memory(&mut key, memory);
            }
            Phase::Open { until: deadline } => key.extend([2, until(*deadline)]),
            Phase::HalfOpen { round, .. } => {
                key.extend([3, round.successes as i32, round.inconclusive as i32]);
                let mut leases: Vec<_> = (round.slots.iter())
                    .map(|slot| until(slot.lease_end))
                    .filter(|left| *left > 0)
                    .collect();
                leases.sort_unstable();
                key.extend(leases);
            }
            Phase::Forced {
                kind, until: end, ..
            } => {
                key.extend([4, *kind as i32, end.map_or(-1, until)]);
            }
        }
        key.push(-2);
        key.extend(self.calls.iter().flat_map(tell));
        key.push(-2);
        let reach = i64::from(units(world.back * UNIT));
        for timer in &self.timers {
            let left = (timer.at as i64 - newest as i64) / (UNIT as i64 / 2);
            key.push(left.max(-reach) as i32);
            key.push(i32::from(timer.epoch == self.view.epoch));
        }
        self.key = key;
    }
}

/// In halves, which is what a jitter of a half makes.
fn units(micros: u64) -> i32 {
    (micros / (UNIT / 2)) as i32
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.key.hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = |micros: u64| (micros as f64 - START as f64) / UNIT as f64;
        write!(f, "clock {} {:?}", since(self.clock), self.view)?;
        for call in &self.calls {
            write!(
                f,
                " {:?} stale {} lost {}",
                call.permit, call.stale, call.lost
            )?;
        }
        write!(f, " timers {:?} broken {:b}", self.timers, self.broken)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Outcome(Outcome),
    /// The caller went away and said so (R10).
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Forward,
    Backward,
    Acquire {
        timeout: u64,
        random: bool,
    },
    End {
        call: usize,
        end: End,
        random: bool,
    },
    /// The permit is gone, and nobody says so.
    Lose(usize),
    /// A timer fires that was set for whatever, whenever.
    Timer,
    /// An armed timer fires; once more, perhaps.
    Armed {
        timer: usize,
        again: bool,
    },
    Force(Kind, Option<u64>),
    Release,
    Reset,
    Reconfigure(usize),
    ActorRestart,
    ProcessRestart,
}

// ---------------------------------------------------------------------------------------------------
// One step of the world: what the real circuit does with it, and what it must have done.

/// What the circuit answered.
#[derive(Debug)]
enum Answer {
    None,
    Admitted,
    Refused(Refused),
    Settled(Settlement),
}

/// Everything the laws of a step look at.
struct Step<'a> {
    world: &'a World,
    before: &'a State,
    /// What every step begins with: the end of an order or a ramp-up whose time is over. Otherwise as before.
    begun: View,
    now: u64,
    action: Action,
    answer: Answer,
    /// Since the step began, the end of an order not among them.
    events: Vec<Transition>,
    calls: Calls,
}

impl World {
    fn start(&self) -> State {
        let config = self.configs[0].clone();
        let mut circuit = Circuit::with_random(config.clone(), random(), at(START));
        if !self.jitters() {
            let mut record = serde_json::to_value(circuit.record()).unwrap();
            record["epoch"] = FIRST_EPOCH.into();
            let record = serde_json::from_value(record).unwrap();
            circuit = Circuit::restore_with_random(config, record, random(), at(START));
        }
        let mut state = State {
            view: Arc::new(View::of(circuit.record())),
            circuit: Arc::new(circuit),
            clock: START,
            present: 0,
            calls: Vec::new(),
            timers: Vec::new(),
            broken: 0,
            key: Vec::new(),
        };
        state.settle_down(self);
        state
    }

    fn step(&self, before: &State, action: Action) -> State {
        let mut next = before.clone();
        match action {
            Action::Forward => next.clock += UNIT,
            Action::Backward => next.clock -= UNIT,
            Action::Lose(call) => next.calls[call].lost = true,
            _ => self.ask_circuit(before, action, &mut next),
        }
        next.settle_down(self);
        next
    }

    /// What the circuit does, and whatever fault there is; with the counters from before.
    fn act(&self, before: &State, action: Action, next: &mut State) -> (Asked, Calls) {
        let clock = at(before.clock);
        let mut circuit = Circuit::clone(&before.circuit);
        let mut calls_before = circuit.snapshot(clock).calls;
        let mut answer = Answer::None;
        let mut admitted = None;
        match action {
            Action::Forward | Action::Backward | Action::Lose(_) => {}
            Action::Acquire { timeout, random } => {
                RANDOM.set(if random { 1.0 } else { 0.0 });
                match circuit.try_acquire_for(span(timeout), clock) {
                    Ok(permit) => {
                        admitted = Some((permit, timeout));
                        answer = Answer::Admitted;
                    }
                    Err(refused) => answer = Answer::Refused(refused),
                }
            }
            Action::End { call, end, random } => {
                let permit = next.calls.remove(call).permit();
                RANDOM.set(if random { 1.0 } else { 0.0 });
                let settlement = match end {
                    End::Outcome(outcome) => circuit.settle(permit, outcome, clock),
                    End::Gone => circuit.reclaim(permit, clock),
                };
                answer = Answer::Settled(settlement);
            }
            Action::Timer => circuit.advance(clock),
            Action::Armed { timer, again } => {
                circuit.advance(clock);
                if !again {
                    next.timers.remove(timer);
                }
            }
            Action::Force(kind, ttl) => {
                let reason = format!("{ttl:?}");
                let ttl = ttl.map(span);
                let forced = match kind {
                    Kind::Open => circuit.force_open(ttl, reason, clock),
                    Kind::Closed => circuit.force_closed(ttl, reason, clock),
                };
                forced.unwrap();
            }
            Action::Release => circuit.release(clock),
            Action::Reset => circuit.reset(clock),
            Action::Reconfigure(other) => {
                circuit.reconfigure(self.configs[other].clone(), clock);
                next.present = other;
            }
            // The shell loses its timers and the message at hand; what that one did to the circuit is
            // another action.
            Action::ActorRestart => next.timers.clear(),
            Action::ProcessRestart => {
                let written = serde_json::to_string(circuit.record()).unwrap();
                let record = serde_json::from_str(&written).unwrap();
                let config = self.configs[next.present].clone();
                circuit = Circuit::restore_with_random(config, record, random(), clock);
                calls_before = Calls::default();
                next.timers.clear();
            }
        }
        let events = std::iter::from_fn(|| circuit.pop_transition()).collect();
        let mut asked = Asked {
            circuit,
            answer,
            admitted,
            events,
        };
        if let Some(fault) = self.fault {
            fault.spoil(self, before, action, &mut asked);
        }
        (asked, calls_before)
    }

    fn ask_circuit(&self, before: &State, action: Action, next: &mut State) {
        let clock = at(before.clock);
        let (asked, calls_before) = self.act(before, action, next);
        let Asked {
            circuit,
            answer,
            admitted,
            mut events,
        } = asked;

        let now = before.now();
        if circuit.record() != before.circuit.record() {
            next.view = Arc::new(View::of(circuit.record()));
        }
        let calls = since(circuit.snapshot(clock).calls, calls_before);
        next.circuit = Arc::new(circuit);

        // The end of an order, which may come before whatever else the step does.
        let begins = !matches!(action, Action::ActorRestart | Action::ProcessRestart);
        let mut begun = View::clone(&before.view);
        if begins && let Some(over) = begun.after_ramp(&self.settings[before.present], now) {
            begun = over;
        }
        if begins && before.view.order_is_over(now) {
            begun = after_order(self, before, now);
            let expired = (!events.is_empty()).then(|| events.remove(0));
            let to = state_of(&begun);
            let told = expired.is_some_and(|event| {
                event.cause == Cause::Expired
                    && (event.from, event.to) == (before.state(), to)
                    && (event.epoch, event.at) == (begun.epoch, at(now))
            });
            next.expect(Law::Events, told);
            for call in &mut next.calls {
                call.stale = true;
            }
        }
        let step = Step {
            world: self,
            before,
            begun,
            now,
            action,
            answer,
            events,
            calls,
        };
        step.judge(next);

        let forgets = matches!(action, Action::Reset | Action::ProcessRestart);
        if forgets || !step.events.is_empty() {
            for call in &mut next.calls {
                call.stale = true;
            }
        }
        if let Some((permit, timeout)) = admitted {
            next.calls.push(Call {
                lease_end: now + self.settings[before.present].lease(timeout),
                permit: Arc::new(permit),
                from: Arc::clone(&before.circuit),
                asked: before.clock,
                timeout,
                stale: false,
                lost: false,
            });
            let settings = self.settings[before.present];
            let at_once = next.leased(now) <= settings.max_probes as usize;
            next.expect(Law::MaxProbes, at_once);
        }
        if let Some(deadline) = next.circuit.next_deadline() {
            let timer = Timer {
                at: deadline.as_micros(),
                epoch: next.view.epoch,
            };
            if next.timers.len() < self.armed && !next.timers.contains(&timer) {
                next.timers.push(timer);
                next.timers.sort_unstable();
            }
        }
    }
}

/// What became of the calls in one step.
fn since(after: Calls, before: Calls) -> Calls {
    let mut calls = after;
    calls.successes = calls.successes.wrapping_sub(before.successes);
    calls.failures = calls.failures.wrapping_sub(before.failures);
    calls.ignored = calls.ignored.wrapping_sub(before.ignored);
    calls.late = calls.late.wrapping_sub(before.late);
    calls.rejected = calls.rejected.wrapping_sub(before.rejected);
    calls.lost_probes = 0;
    calls
}

fn state_of(view: &View) -> CircuitState {
    match &view.phase {
        Phase::Closed(_) | Phase::Ramping { .. } => Closed,
        Phase::Open { .. } => Open,
        Phase::HalfOpen { .. } => HalfOpen,
        Phase::Forced {
            kind: Kind::Open, ..
        } => ForcedOpen,
        Phase::Forced { .. } => ForcedClosed,
    }
}

fn nothing(settings: &Settings) -> Memory {
    match settings.trip {
        Trip::Run(_) => Memory::Run {
            length: 0,
            newest: 0,
        },
        Trip::RunWithin(..) | Trip::Count(..) | Trip::Pair(_) => Memory::Instants(Vec::new()),
        Trip::Half(..) => Memory::Calls(LastCalls::default()),
    }
}

fn empty(settings: &Settings) -> Phase {
    Phase::Closed(nothing(settings))
}

/// R36: what probes close it to.
fn recovered(settings: &Settings, now: u64) -> Phase {
    match settings.ramp_up {
        Some(_) => Phase::Ramping {
            since: now,
            memory: nothing(settings),
        },
        None => empty(settings),
    }
}

/// R23: what an order becomes when its time is over.
fn after_order(world: &World, before: &State, now: u64) -> View {
    let phase = match &before.view.phase {
        Phase::Forced {
            kind: Kind::Open,
            until: Some(until),
            ..
        } => Phase::Open { until: *until },
        _ => empty(&world.settings[before.present]),
    };
    View {
        phase,
        epoch: before.view.epoch + 1,
        attempt: before.view.attempt,
        newest: now,
    }
}

/// Whether two windows come to the same at `now`.
fn same_window(settings: &Settings, one: &Memory, other: &Memory, now: u64) -> bool {
    match (one, other) {
        (Memory::Run { length, .. }, Memory::Run { length: then, .. }) => length == then,
        (Memory::Instants(failures), Memory::Instants(then)) => {
            let young = |all: &[u64]| -> Vec<u64> {
                let young = all.iter().filter(|past| now - **past < settings.within());
                young.copied().collect()
            };
            young(failures) == young(then)
        }
        (Memory::Calls(calls), Memory::Calls(then)) => calls.failed() == then.failed(),
        _ => false,
    }
}

impl Step<'_> {
    fn settings(&self) -> &Settings {
        &self.world.settings[self.before.present]
    }

    fn begun_state(&self) -> CircuitState {
        state_of(&self.begun)
    }

    /// Whether a call was admitted before the state changed last.
    fn stale(&self, call: &Call) -> bool {
        call.stale || self.begun.epoch != self.before.view.epoch
    }

    /// The probes that hold a slot, but for one.
    fn leased_beside(&self, one: Option<usize>) -> usize {
        let calls = self.before.calls.iter().enumerate();
        let leased = calls.filter(|(index, call)| Some(*index) != one && call.leased(self.now));
        leased.count()
    }

    fn judge(&self, next: &mut State) {
        self.judge_events(next);
        self.judge_accounts(next);
        let restored = self.action == Action::ProcessRestart;
        next.expect(
            Law::Newest,
            restored || next.view.newest >= self.before.view.newest,
        );
        // An order stands, unless it is the operator who speaks.
        let orders = matches!(self.action, Action::Force(..) | Action::Release);
        if !orders && let Phase::Forced { .. } = self.begun.phase {
            next.expect(Law::OrderOutranks, next.view.phase == self.begun.phase);
        }
        // A break stands, unless it is ended or cut.
        if let (Phase::Open { until }, Phase::Open { until: then }) =
            (&self.begun.phase, &next.view.phase)
        {
            let cut = matches!(self.action, Action::Reconfigure(_)) || restored;
            let longest = self.now + self.world.settings[next.present].longest();
            let longest = if restored {
                self.before.clock + self.world.settings[next.present].longest()
            } else {
                longest
            };
            let due = if cut { longest.min(*until) } else { *until };
            next.expect(Law::DeadlineStays, *then == due);
        }
        match self.action {
            Action::Acquire { timeout, random } => self.judge_acquire(timeout, random, next),
            Action::End { call, end, random } => self.judge_end(call, end, random, next),
            Action::Timer | Action::Armed { .. } => {
                next.expect(Law::TimerDecidesNothing, *next.view == self.begun);
            }
            Action::Force(..) | Action::Release | Action::Reset | Action::Reconfigure(_) => {
                self.judge_operator(next);
            }
            Action::ActorRestart => next.expect(Law::Restart, next.view == self.before.view),
            Action::ProcessRestart => self.judge_process_restart(next),
            Action::Forward | Action::Backward | Action::Lose(_) => {}
        }
    }

    // R1, R25
    fn judge_events(&self, next: &mut State) {
        let from = self.begun_state();
        let to = state_of(&next.view);
        let restored = self.action == Action::ProcessRestart;
        // The state does not end with it.
        let ramp_end = match &next.view.phase {
            Phase::Ramping { since, .. } => Some(at(self.settings().ramp_end(*since))),
            _ => None,
        };
        let recovers = matches!(self.events.as_slice(), [event] if event.cause == Cause::Recovered);
        let ramped = matches!(self.begun.phase, Phase::Ramping { .. });
        next.expect(Law::RampUp, ramp_end.is_none() || recovers || ramped);
        let legal = match self.events.as_slice() {
            [] => from == to || restored,
            [event] => {
                let legal = match (event.cause, event.from, event.to) {
                    // A success can be the call that fills the minimum of a rate.
                    (Cause::Tripped, Closed, Open) => {
                        let rated = matches!(self.settings().trip, Trip::Half(..));
                        self.action_ends(Outcome::Failure)
                            || rated && self.action_ends(Outcome::Success)
                    }
                    (Cause::ProbeDue, Open, HalfOpen) => {
                        matches!(self.action, Action::Acquire { .. })
                    }
                    (Cause::ProbeFailed, HalfOpen, Open) => self.action_ends(Outcome::Failure),
                    (Cause::Inconclusive, HalfOpen, Open) => self.action_ends(Outcome::Ignored),
                    (Cause::Recovered, HalfOpen, Closed) => self.action_ends(Outcome::Success),
                    (Cause::Forced, from, ForcedOpen | ForcedClosed) => {
                        from != event.to && matches!(self.action, Action::Force(..))
                    }
                    (Cause::Released, ForcedOpen | ForcedClosed, Closed) => {
                        self.action == Action::Release
                    }
                    (Cause::Reset, Open | HalfOpen, Closed) => self.action == Action::Reset,
                    _ => false,
                };
                legal
                    && !restored
                    && (event.from, event.to) == (from, to)
                    && event.at == at(self.now)
                    && event.epoch == next.view.epoch
                    && event.evidence.until.or(ramp_end) == next.circuit.next_deadline()
                    && event.evidence.attempt == next.view.attempt
            }
            _ => false,
        };
        next.expect(Law::Events, legal);
        let forgets = matches!(self.action, Action::Reset | Action::ProcessRestart);
        let epoch = next.view.epoch;
        next.expect(
            Law::Epoch,
            if forgets || from != to {
                epoch > self.begun.epoch
            } else {
                epoch == self.begun.epoch
            },
        );
    }

    fn action_ends(&self, with: Outcome) -> bool {
        matches!(self.action, Action::End { end: End::Outcome(outcome), .. } if outcome == with)
    }

    // R10
    fn judge_accounts(&self, next: &mut State) {
        let mut calls = Calls::default();
        match (&self.answer, self.action) {
            (Answer::Refused(_), _) => calls.rejected = 1,
            (Answer::Settled(Settlement::Late), _) => calls.late = 1,
            (Answer::Settled(_), Action::End { end, .. }) => match end {
                End::Outcome(Outcome::Success) => calls.successes = 1,
                End::Outcome(Outcome::Failure) => calls.failures = 1,
                _ => calls.ignored = 1,
            },
            _ => {}
        }
        next.expect(Law::Accounts, self.calls == calls);
    }

    // R6, R7, R9, R36
    fn judge_acquire(&self, timeout: u64, random: bool, next: &mut State) {
        let settings = self.settings();
        let now = self.now;
        let refused = match &self.answer {
            Answer::Refused(refused) => Some(refused),
            _ => None,
        };
        let lease_end = now + settings.lease(timeout);
        let mut expected = self.begun.with_newest(now);
        let mut refusal = None;
        match &mut expected.phase {
            Phase::Closed(_) => {}
            Phase::Ramping { since, .. } => {
                if random {
                    let rest = (settings.ramp_end(*since) - now).min(1_000_000);
                    refusal = Some((Law::RampUp, Reason::RampUp, Some(rest)));
                }
            }
            Phase::Open { until } if now < *until => {
                refusal = Some((Law::OpenHolds, Reason::Open, Some(*until - now)));
            }
            Phase::Open { until } => {
                expected.phase = Phase::HalfOpen {
                    due: *until,
                    round: Round::default(),
                };
                expected.epoch += 1;
            }
            Phase::HalfOpen { round, .. } => {
                let held = self.leased_beside(None);
                let waits = round.inconclusive >= settings.max_inconclusive && held > 0;
                if held >= settings.max_probes as usize || waits {
                    let rest = self.before.first_lease_end(now).unwrap() - now;
                    let rest = rest.min(1_000_000);
                    refusal = Some((Law::MaxProbes, Reason::ProbesInUse, Some(rest)));
                }
            }
            Phase::Forced { kind, until, .. } => {
                if *kind == Kind::Open {
                    let rest = until.map(|until| until - now);
                    refusal = Some((Law::OrderOutranks, Reason::ForcedOpen, rest));
                }
            }
        }
        if let Some((law, reason, retry_after)) = refusal {
            next.expect(law, refused.is_some());
            if let Some(refused) = refused {
                let retry_after = retry_after.map(Duration::from_micros);
                next.expect(
                    Law::Rejection,
                    refused.reason() == reason
                        && refused.retry_after() == retry_after
                        && refused.epoch() == self.begun.epoch
                        && *next.view == self.begun,
                );
            }
            return;
        }
        let law = match self.begun_state() {
            Open => Law::OpenHolds,
            HalfOpen => Law::MaxProbes,
            Closed => Law::RampUp,
            _ => Law::OrderOutranks,
        };
        if let Phase::HalfOpen { round, .. } = &mut expected.phase {
            round.slots.retain(|slot| slot.lease_end > now);
            let id = next.view.slots().last().map_or(u64::MAX, |slot| slot.id);
            next.expect(law, round.slots.iter().all(|slot| slot.id != id));
            round.slots.push(Slot { id, lease_end });
        }
        next.expect(law, refused.is_none() && *next.view == expected);
    }

    // R11 to R17
    fn judge_end(&self, index: usize, end: End, random: bool, next: &mut State) {
        let settings = self.settings();
        let now = self.now;
        let call = &self.before.calls[index];
        let counted = matches!(self.answer, Answer::Settled(Settlement::Counted));
        let mut expected = self.begun.with_newest(now);
        if self.stale(call) {
            next.expect(Law::LateChangesNothing, !counted && *next.view == expected);
            return;
        }
        let held = call.leased(now);
        let others = self.leased_beside(Some(index));
        let mut open = None;
        match (&mut expected.phase, end) {
            (
                Phase::Closed(memory) | Phase::Ramping { memory, .. },
                End::Outcome(outcome @ (Outcome::Success | Outcome::Failure)),
            ) => {
                let (counted, trips) = settings.counted(memory, outcome == Outcome::Failure, now);
                open = trips.then_some(0);
                if let Phase::Closed(then) | Phase::Ramping { memory: then, .. } = &next.view.phase
                {
                    // How the window is written down is its own business; here, what it comes to.
                    let same = same_window(settings, &counted, then, now);
                    *memory = then.clone();
                    next.expect(Law::Outcome, same);
                }
            }
            (Phase::HalfOpen { round, .. }, end) => {
                // Its own slot and no other. One that is over may have been passed on before.
                if let Phase::HalfOpen { round: then, .. } = &next.view.phase {
                    let (kept, freed): (Vec<_>, Vec<_>) =
                        (round.slots.drain(..)).partition(|slot| then.slots.contains(slot));
                    round.slots = kept;
                    let own = match freed.as_slice() {
                        [] => !held,
                        [freed] => freed.lease_end == call.lease_end,
                        _ => false,
                    };
                    next.expect(Law::MaxProbes, own);
                }
                match end {
                    End::Outcome(Outcome::Success) => {
                        round.successes += 1;
                        round.inconclusive = 0;
                        if round.successes >= settings.successes_to_close {
                            expected.phase = recovered(settings, now);
                            expected.attempt = 0;
                            expected.epoch += 1;
                        }
                    }
                    End::Outcome(Outcome::Failure) => open = Some(self.begun.attempt + 1),
                    End::Outcome(_) if held => {
                        round.inconclusive += 1;
                        if round.inconclusive >= settings.max_inconclusive && others == 0 {
                            open = Some(self.begun.attempt);
                        }
                    }
                    End::Outcome(_) | End::Gone => {}
                }
            }
            _ => {}
        }
        if let Some(attempt) = open {
            expected = View {
                phase: Phase::Open {
                    until: now + settings.length(attempt, random),
                },
                epoch: expected.epoch + 1,
                attempt,
                newest: now,
            };
        }
        next.expect(Law::Outcome, counted && *next.view == expected);
    }

    // R23, R24, R35
    fn judge_operator(&self, next: &mut State) {
        let now = self.now;
        let settings = &self.world.settings[next.present];
        let mut expected = self.begun.with_newest(now);
        let forced = matches!(self.begun.phase, Phase::Forced { .. });
        match self.action {
            Action::Force(kind, ttl) => {
                let same = matches!(&self.begun.phase, Phase::Forced { kind: present, .. } if *present == kind);
                expected = View {
                    phase: Phase::Forced {
                        kind,
                        until: ttl.map(|ttl| now + ttl * UNIT),
                        reason: format!("{ttl:?}"),
                    },
                    epoch: self.begun.epoch + u64::from(!same),
                    attempt: 0,
                    newest: now,
                };
            }
            Action::Release if !forced => expected.newest = self.begun.newest,
            Action::Release | Action::Reset => {
                expected.epoch += 1;
                expected.attempt = 0;
                if !forced || self.action == Action::Release {
                    expected.phase = empty(settings);
                }
            }
            Action::Reconfigure(_) => match &mut expected.phase {
                Phase::Open { until } => *until = (*until).min(now + settings.longest()),
                phase @ Phase::Closed(_) => *phase = empty(settings),
                Phase::Ramping { since, memory } => {
                    *memory = nothing(settings);
                    if settings.ramp_end(*since) <= now {
                        expected.phase = empty(settings);
                    }
                }
                Phase::HalfOpen { .. } | Phase::Forced { .. } => {}
            },
            _ => {}
        }
        next.expect(Law::Operator, *next.view == expected);
    }

    // R29
    fn judge_process_restart(&self, next: &mut State) {
        let now = self.before.clock;
        let settings = self.settings();
        let before = &self.before.view;
        let memory_holds = |before: &Memory, then: &Memory| match (before, then) {
            (Memory::Run { length, .. }, Memory::Run { length: then, .. }) => length == then,
            (Memory::Calls(calls), Memory::Calls(then)) => {
                calls.failed() == then.failed() && then.newest == calls.newest.min(now)
            }
            (Memory::Instants(failures), Memory::Instants(then)) => {
                // What is too old by now stays, for the clock may have been ahead (R3).
                let failures: Vec<_> = failures.iter().map(|past| (*past).min(now)).collect();
                failures == *then
            }
            _ => false,
        };
        let phase_holds = match (&before.phase, &next.view.phase) {
            (Phase::Closed(memory), Phase::Closed(then)) => memory_holds(memory, then),
            (
                Phase::Ramping { since, memory },
                Phase::Ramping {
                    since: then,
                    memory: remembered,
                },
            ) => (*since).min(now) == *then && memory_holds(memory, remembered),
            (Phase::Open { until }, Phase::Open { until: then }) => {
                (*until).min(now + settings.longest()) == *then
            }
            (Phase::HalfOpen { due, .. }, Phase::Open { until }) => *until == (*due).min(now),
            (before @ Phase::Forced { .. }, then @ Phase::Forced { .. }) => before == then,
            _ => false,
        };
        next.expect(
            Law::Restart,
            phase_holds
                && next.view.attempt == before.attempt
                && next.view.newest == before.newest.min(now),
        );
    }
}

// ---------------------------------------------------------------------------------------------------
// The laws of a state.

// R8
fn looking_tells(_: &World, state: &State) -> bool {
    let clock = at(state.clock);
    // Whom a ramp-up refuses is not known before it is drawn.
    RANDOM.set(0.0);
    let peek = state.circuit.peek(clock);
    let snapshot = state.circuit.snapshot(clock);
    let mut asked = Circuit::clone(&state.circuit);
    asked.advance(clock);
    let met = asked.record().state();
    let refused = asked.try_acquire(clock).err();
    peek.state == met
        && peek.refusal == refused.map(|refused| refused.reason())
        && peek.retry_after == refused.and_then(|refused| refused.retry_after())
        && peek.probe_due == (met == Open && refused.is_none())
        && (snapshot.state, snapshot.probe_due) == (peek.state, peek.probe_due)
        && snapshot.retry_after == peek.retry_after
}

impl World {
    // R2
    fn is_consistent(&self, state: &State) -> bool {
        let view = &state.view;
        let now = state.now();
        let most = |of: fn(&Settings) -> u32| self.settings.iter().map(of).max().unwrap();
        let snapshot = state.circuit.snapshot(at(state.clock));
        let mut holds = state.keeps(Law::Consistent)
            && state.circuit.config() == &self.configs[state.present]
            && (snapshot.epoch, snapshot.attempt) == (view.epoch, view.attempt)
            && state.circuit.record().state() == state_of(view);
        match &view.phase {
            Phase::Closed(memory) | Phase::Ramping { memory, .. } => {
                let failures = match memory {
                    Memory::Run { length, newest } => {
                        holds &= *length == 0 || *newest <= view.newest;
                        u64::from(*length)
                    }
                    Memory::Instants(failures) => {
                        holds &= failures.is_sorted();
                        holds &= failures.iter().all(|past| *past <= view.newest);
                        failures.len() as u64
                    }
                    Memory::Calls(calls) => {
                        holds &= calls.slow.is_empty() && calls.newest <= view.newest;
                        holds &= snapshot.samples == calls.samples;
                        calls.failed().into_iter().filter(|failed| *failed).count() as u64
                    }
                };
                holds &= view.attempt == 0 && snapshot.failures <= failures;
                let settings = &self.settings[state.present];
                // What trips does not stay closed.
                holds &= match settings.trip {
                    Trip::Run(most) | Trip::RunWithin(most, _) | Trip::Count(most, _) => {
                        failures < most.into()
                    }
                    Trip::Half(minimum, _) => {
                        snapshot.samples < minimum.into() || 2 * failures < snapshot.samples
                    }
                    // A process whose clock is behind brings failures together (R29); the next one trips.
                    Trip::Pair(_) => true,
                };
                let (mut deadline, mut share) = (None, None);
                if let Phase::Ramping { since, .. } = &view.phase {
                    let end = settings.ramp_end(*since);
                    holds &= *since <= view.newest && view.newest < end;
                    deadline = Some(at(end));
                    let passed = (now - since) as f64 / (end - since) as f64;
                    share = (now < end).then_some(SHARE + (1.0 - SHARE) * passed);
                }
                holds &= state.circuit.next_deadline() == deadline;
                holds &= snapshot.ramp_share == share;
            }
            Phase::Open { until } => {
                let longest = self.settings.iter().map(Settings::longest).max().unwrap();
                holds &= *until <= view.newest + longest;
                holds &= state.circuit.next_deadline() == Some(at(*until));
            }
            Phase::HalfOpen { due, round } => {
                let ids: BTreeSet<_> = round.slots.iter().map(|slot| slot.id).collect();
                holds &= ids.len() == round.slots.len() && *due <= view.newest;
                holds &= round.successes < most(|settings| settings.successes_to_close);
                holds &= state.circuit.next_deadline().is_none();
                // The slots are those of the probes that the world knows of, no more, no fewer.
                let mut slots: Vec<_> = (round.slots.iter())
                    .map(|slot| slot.lease_end)
                    .filter(|end| *end > view.newest)
                    .collect();
                let held = state.calls.iter().filter(|call| call.leased(view.newest));
                let mut leases: Vec<_> = held.map(|call| call.lease_end).collect();
                slots.sort_unstable();
                leases.sort_unstable();
                holds &= slots == leases
                    && leases.len() <= most(|settings| settings.max_probes) as usize;
                holds &= snapshot.probes_in_flight as usize == state.leased(now);
            }
            Phase::Forced { until, reason, .. } => {
                holds &= view.attempt == 0 && state.circuit.next_deadline() == until.map(at);
                let stands = until.is_none_or(|until| now < until);
                holds &= snapshot.reason.as_deref() == stands.then_some(reason.as_str());
            }
        }
        // The epochs of calls tell what the world knows: whether something changed since.
        holds
            && state
                .calls
                .iter()
                .all(|call| (call.permit.epoch() != view.epoch) == call.stale)
    }

    /// Nobody ever settles again; a caller comes when it is told to. It is admitted by the time the longest
    /// break or lease is over, exactly when it was told and not a microsecond before.
    fn recovers(&self, state: &State) -> bool {
        if !matches!(state.state(), Open | HalfOpen) {
            return true;
        }
        let begin = state.now();
        let longest = self.settings.iter().flat_map(|settings| {
            let leases = self.timeouts.iter().map(|timeout| settings.lease(*timeout));
            leases.chain([settings.longest()])
        });
        let bound = begin + longest.max().unwrap();
        let mut now = begin;
        let mut circuit = Circuit::clone(&state.circuit);
        loop {
            let refused = match circuit.try_acquire(at(now)) {
                Ok(permit) => return permit.is_probe() && now <= bound,
                Err(refused) => refused,
            };
            let wait = refused.retry_after().unwrap();
            let wait = u64::try_from(wait.as_micros()).unwrap();
            if wait == 0 || now + wait > bound {
                return false;
            }
            let mut early = circuit.clone();
            if early.try_acquire(at(now + wait - 1)).is_ok() {
                return false;
            }
            now += wait;
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken != 0 {
            return;
        }
        let newest = state.view.newest;
        if state.clock < newest + self.horizon() {
            actions.push(Action::Forward);
        }
        if state.clock + self.back * UNIT > newest {
            actions.push(Action::Backward);
        }
        let under_way = state.calls.iter().filter(|call| !call.lost).count();
        if under_way < self.callers {
            let randoms: &[bool] = if self.ramps() {
                &[false, true]
            } else {
                &[false]
            };
            for timeout in &self.timeouts {
                actions.extend(randoms.iter().map(|random| Action::Acquire {
                    timeout: *timeout,
                    random: *random,
                }));
            }
        }
        let randoms: &[bool] = if self.jitters() {
            &[false, true]
        } else {
            &[false]
        };
        for (call, one) in state.calls.iter().enumerate() {
            if one.lost {
                continue;
            }
            for random in randoms {
                for end in [
                    End::Outcome(Outcome::Success),
                    End::Outcome(Outcome::Failure),
                    End::Outcome(Outcome::Ignored),
                    End::Gone,
                ] {
                    actions.push(Action::End {
                        call,
                        end,
                        random: *random,
                    });
                }
            }
            actions.push(Action::Lose(call));
        }
        if self.armed == 0 {
            actions.push(Action::Timer);
        }
        for (timer, one) in state.timers.iter().enumerate() {
            if one.at <= state.clock {
                actions.push(Action::Armed { timer, again: true });
                actions.push(Action::Armed {
                    timer,
                    again: false,
                });
            }
        }
        for ttl in &self.ttls {
            actions.push(Action::Force(Kind::Open, *ttl));
            actions.push(Action::Force(Kind::Closed, *ttl));
        }
        if !self.ttls.is_empty() {
            actions.push(Action::Release);
        }
        actions.push(Action::Reset);
        for other in 0..self.settings.len() {
            if other != state.present {
                actions.push(Action::Reconfigure(other));
            }
        }
        actions.push(Action::ActorRestart);
        // A process whose clock is behind leaves the end of an order where it stands (R29); one that began
        // anew on and on, each time further behind, would make this no finite world.
        let reach = state.clock + self.horizon();
        let in_reach = match &state.view.phase {
            Phase::Forced { until, .. } => until.is_none_or(|until| until <= reach),
            _ => true,
        };
        if self.restarts && in_reach {
            actions.push(Action::ProcessRestart);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        Some(self.step(last, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = laws();
        properties.extend(sights());
        properties
    }
}

// ---------------------------------------------------------------------------------------------------
// Faults that the laws must see.

/// What a faulty step can change.
struct Asked {
    circuit: Circuit,
    answer: Answer,
    admitted: Option<(Permit, u64)>,
    events: Vec<Transition>,
}

/// A way in which a breaker, or what is around it, is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A timer closes the circuit whatever break it was set for.
    StaleTimerCloses,
    /// A timer that was set for another break begins this one's half-open round.
    StaleTimerBeginsRound,
    /// A timer that comes twice begins the break anew.
    DoubledTimerReopens,
    /// A timer lifts an order before its time.
    TimerLiftsOrder,
    /// A late success closes.
    LateSuccessApplied,
    /// A late failure of a call moves the deadline, as in the two-field note.
    LateFailureExtends,
    /// A rejection moves the deadline.
    RejectionExtends,
    /// The deadline is looked at with a clock that runs ahead.
    AdmitsEarly,
    /// The first call at the deadline is still rejected.
    AdmitsLate,
    /// Half-open admits all, as in actor-ts.
    HalfOpenAdmitsAll,
    /// A success frees the slot of another probe as well, as in `RedisX`.
    SuccessFreesAnother,
    /// A lost probe holds its slot for ever.
    LostProbeNeverReturns,
    /// An outcome counts twice.
    CountsTwice,
    /// A reset lifts an order.
    ResetLiftsOrder,
    /// A restart of the actor forgets what the circuit knew.
    RestartForgets,
    /// A restart of the process begins a break anew.
    RestoreReopens,
    /// An order that is repeated keeps its old end.
    RepeatedOrderKeepsEnd,
    /// An event is told twice.
    EventTwice,
    /// An event is lost.
    EventLost,
    /// An epoch is given out twice.
    EpochReused,
    /// The record follows a clock that goes back.
    FollowsClockBack,
    /// `retry_after` is a microsecond short.
    RetryTooEarly,
    /// A probe that fails does not open.
    ProbeFailureIgnored,
    /// A rate is told of failures alone.
    RateMissesSuccess,
    /// A ramp-up admits all.
    RampUpAdmitsAll,
    /// A ramp-up goes on at its very end.
    RampUpTooLong,
    /// A timer ends a ramp-up before its time.
    TimerEndsRampUp,
    /// A reset begins a ramp-up.
    ResetRampsUp,
}

/// Each fault, the law that sees it, and after how many steps at the soonest.
const FAULTS: [(Fault, &str, usize); 28] = [
    (Fault::StaleTimerCloses, "TimerDecidesNothing", 7),
    (Fault::StaleTimerBeginsRound, "TimerDecidesNothing", 7),
    (Fault::DoubledTimerReopens, "DeadlineStays", 5),
    (Fault::TimerLiftsOrder, "OrderOutranks", 2),
    (Fault::LateSuccessApplied, "LateChangesNothing", 3),
    (Fault::LateFailureExtends, "DeadlineStays", 5),
    (Fault::RejectionExtends, "DeadlineStays", 4),
    (Fault::AdmitsEarly, "OpenHolds", 4),
    (Fault::AdmitsLate, "OpenHolds", 5),
    (Fault::HalfOpenAdmitsAll, "MaxProbes", 5),
    (Fault::SuccessFreesAnother, "MaxProbes", 6),
    (Fault::LostProbeNeverReturns, "Recovers", 4),
    (Fault::CountsTwice, "Accounts", 2),
    (Fault::ResetLiftsOrder, "OrderOutranks", 2),
    (Fault::RestartForgets, "Restart", 1),
    (Fault::RestoreReopens, "Restart", 4),
    (Fault::RepeatedOrderKeepsEnd, "Operator", 3),
    (Fault::EventTwice, "Events", 1),
    (Fault::EventLost, "Events", 1),
    (Fault::EpochReused, "Epoch", 2),
    (Fault::FollowsClockBack, "Newest", 3),
    (Fault::RetryTooEarly, "Rejection", 3),
    (Fault::ProbeFailureIgnored, "Outcome", 5),
    (Fault::RateMissesSuccess, "Outcome", 2),
    (Fault::RampUpAdmitsAll, "RampUp", 6),
    (Fault::RampUpTooLong, "RampUp", 7),
    (Fault::TimerEndsRampUp, "TimerDecidesNothing", 6),
    (Fault::ResetRampsUp, "RampUp", 1),
];

/// A circuit as it would be with another record, of the same epoch; it is not half-open.
fn edited(circuit: &Circuit, now: Timestamp, edit: impl FnOnce(&mut serde_json::Value)) -> Circuit {
    let mut record = serde_json::to_value(circuit.record()).unwrap();
    // Restoring raises it.
    record["epoch"] = (circuit.record().epoch() - 1).into();
    edit(&mut record);
    let record = serde_json::from_value(record).unwrap();
    Circuit::restore_with_random(circuit.config().clone(), record, random(), now)
}

impl Fault {
    /// Undoes or adds what a breaker with this fault would not or also do.
    #[expect(clippy::too_many_lines, reason = "a row for each fault")]
    fn spoil(self, world: &World, before: &State, action: Action, asked: &mut Asked) {
        let clock = at(before.clock);
        let restrained = before.clock + world.settings[before.present].longest();
        let reopened = |circuit: &Circuit| {
            edited(circuit, clock, |record| {
                record["phase"]["open"]["until"] = restrained.into();
            })
        };
        let state = asked.circuit.record().state();
        let late = matches!(asked.answer, Answer::Settled(Settlement::Late));
        let counted = matches!(asked.answer, Answer::Settled(Settlement::Counted));
        let refused = match &asked.answer {
            Answer::Refused(refused) => Some(*refused),
            _ => None,
        };
        let is_stale = |timer: usize| before.timers[timer].epoch != before.view.epoch;
        match (self, action) {
            (Self::StaleTimerCloses, Action::Armed { timer, .. })
                if is_stale(timer) && state == Open =>
            {
                asked.circuit.reset(clock);
            }
            (Self::StaleTimerBeginsRound, Action::Armed { timer, .. })
                if is_stale(timer) && state == Open =>
            {
                let due = asked.circuit.next_deadline().unwrap();
                let permit = asked.circuit.try_acquire(due).unwrap();
                asked.circuit.reclaim(permit, due);
            }
            (Self::DoubledTimerReopens, Action::Armed { .. }) if state == Open => {
                asked.circuit = reopened(&asked.circuit);
            }
            (Self::TimerLiftsOrder, Action::Timer) => asked.circuit.release(clock),
            (Self::LateSuccessApplied, Action::End { end, .. })
                if late && end == End::Outcome(Outcome::Success) =>
            {
                asked.circuit.reset(clock);
            }
            (Self::LateFailureExtends, Action::End { end, .. })
                if late && state == Open && end == End::Outcome(Outcome::Failure) =>
            {
                asked.circuit = reopened(&asked.circuit);
            }
            (Self::RejectionExtends, Action::Acquire { .. })
                if refused.is_some() && state == Open =>
            {
                asked.circuit = reopened(&asked.circuit);
            }
            (Self::AdmitsEarly, Action::Acquire { timeout, .. })
                if refused.is_some() && state == Open =>
            {
                if let Ok(permit) = asked.circuit.try_acquire(clock + span(1)) {
                    asked.admitted = Some((permit, timeout));
                    asked.answer = Answer::Admitted;
                }
            }
            (Self::AdmitsLate, Action::Acquire { .. }) if before.state() == Open => {
                asked.circuit = Circuit::clone(&before.circuit);
                let early = at(before.clock - 1);
                if let Err(refused) = asked.circuit.try_acquire(early) {
                    asked.admitted = None;
                    asked.answer = Answer::Refused(refused);
                    asked.events.clear();
                }
            }
            (Self::HalfOpenAdmitsAll, Action::Acquire { timeout, .. })
                if refused.is_some() && state == HalfOpen =>
            {
                let mut later = asked.circuit.clone();
                let later = later.try_acquire(clock + span(world.horizon())).unwrap();
                asked.admitted = Some((later, timeout));
                asked.answer = Answer::Admitted;
            }
            (Self::SuccessFreesAnother, Action::End { call, end, .. })
                if counted && state == HalfOpen && end == End::Outcome(Outcome::Success) =>
            {
                let mut calls = before.calls.iter().enumerate();
                let another =
                    calls.find(|(index, other)| *index != call && other.leased(before.now()));
                if let Some((_, another)) = another {
                    asked.circuit.reclaim(another.permit(), clock);
                }
            }
            (Self::LostProbeNeverReturns, Action::Acquire { timeout, .. })
                if refused.is_none() && state == HalfOpen =>
            {
                asked.circuit = Circuit::clone(&before.circuit);
                let permit = asked.circuit.try_acquire_for(Duration::MAX, clock).unwrap();
                asked.admitted = Some((permit, timeout));
            }
            (
                Self::CountsTwice,
                Action::End {
                    call,
                    end: End::Outcome(outcome),
                    ..
                },
            ) if counted => {
                asked
                    .circuit
                    .settle(before.calls[call].permit(), outcome, clock);
            }
            (Self::ResetLiftsOrder, Action::Reset) => asked.circuit.release(clock),
            (Self::RestartForgets, Action::ActorRestart) => {
                asked.circuit = Circuit::new(asked.circuit.config().clone(), clock);
            }
            (Self::RestoreReopens, Action::ProcessRestart) if state == Open => {
                asked.circuit = reopened(&asked.circuit);
            }
            (Self::RepeatedOrderKeepsEnd, Action::Force(..)) if asked.events.is_empty() => {
                asked.circuit = Circuit::clone(&before.circuit);
            }
            (Self::EventTwice, _) => asked.events.extend(asked.events.first().cloned()),
            (Self::EventLost, _) => asked.events.clear(),
            (Self::EpochReused, Action::End { .. })
                if !asked.events.is_empty() && state == Open =>
            {
                let before = before.view.epoch;
                asked.circuit = edited(&asked.circuit, clock, |record| {
                    record["epoch"] = (before - 1).into();
                });
            }
            (Self::FollowsClockBack, Action::End { .. })
                if before.clock < before.view.newest && state == Open =>
            {
                asked.circuit = edited(&asked.circuit, clock, |_| ());
            }
            (Self::RetryTooEarly, Action::Acquire { .. }) if state == Open => {
                let mut later = asked.circuit.clone();
                let later = later.try_acquire(at(before.now() + 1));
                asked.answer = later.map_or_else(Answer::Refused, |_| Answer::Admitted);
            }
            (Self::ProbeFailureIgnored, Action::End { call, end, .. })
                if before.state() == HalfOpen
                    && counted
                    && end == End::Outcome(Outcome::Failure) =>
            {
                asked.circuit = Circuit::clone(&before.circuit);
                asked.circuit.reclaim(before.calls[call].permit(), clock);
                asked.events.clear();
            }
            (Self::RateMissesSuccess, Action::End { call, end, .. })
                if before.state() == Closed && counted && end == End::Outcome(Outcome::Success) =>
            {
                asked.circuit = Circuit::clone(&before.circuit);
                asked.circuit.reclaim(before.calls[call].permit(), clock);
                asked.events.clear();
            }
            (Self::RampUpAdmitsAll, Action::Acquire { timeout, .. })
                if refused.is_some() && state == Closed =>
            {
                RANDOM.set(0.0);
                asked.admitted = Some((asked.circuit.try_acquire(clock).unwrap(), timeout));
                asked.answer = Answer::Admitted;
            }
            (Self::RampUpTooLong, Action::Acquire { random: true, .. })
                if matches!(before.view.phase, Phase::Ramping { .. }) && refused.is_none() =>
            {
                asked.circuit = Circuit::clone(&before.circuit);
                let early = at(before.clock - 1);
                if let Err(refused) = asked.circuit.try_acquire(early) {
                    asked.admitted = None;
                    asked.answer = Answer::Refused(refused);
                }
            }
            (Self::TimerEndsRampUp, Action::Timer)
                if matches!(before.view.phase, Phase::Ramping { .. }) =>
            {
                asked.circuit = edited(&asked.circuit, clock, |record| {
                    let ramping = &record["phase"]["ramping"]["memory"];
                    if !ramping.is_null() {
                        record["phase"] = serde_json::json!({ "closed": ramping });
                    }
                });
            }
            (Self::ResetRampsUp, Action::Reset) if state == Closed => {
                asked.circuit = edited(&asked.circuit, clock, |record| {
                    let memory = &record["phase"]["closed"];
                    let ramping = serde_json::json!({ "since": before.now(), "memory": memory });
                    record["phase"] = serde_json::json!({ "ramping": ramping });
                });
            }
            _ => {}
        }
    }
}

// ---------------------------------------------------------------------------------------------------
// The worlds.

/// The shortest way to a state that breaks the law.
fn shortest(world: &World, law: &str) -> Option<Vec<Action>> {
    let law = laws().into_iter().find(|one| one.name == law).unwrap();
    let mut known = HashSet::from([world.start().key]);
    let mut open = VecDeque::from([(world.start(), Vec::new())]);
    while let Some((state, way)) = open.pop_front() {
        if !(law.condition)(world, &state) {
            return Some(way);
        }
        for (action, next) in world.next_steps(&state) {
            if known.insert(next.key.clone()) {
                let mut way = way.clone();
                way.push(action);
                open.push_back((next, way));
            }
        }
    }
    None
}

fn large() -> bool {
    std::env::var("CIRCUIT_EXHAUSTIVE").is_ok_and(|bounds| bounds == "large")
}

/// Every law holds in every state of this world; returns how many there are.
#[track_caller]
fn states_of(name: &str, world: World) -> usize {
    let threads = if large() { 2 } else { 1 };
    let checker = world.checker().threads(threads).spawn_bfs().join();
    let found = checker.unique_state_count();
    println!(
        "{name}: {found} states, {} steps, {} deep",
        checker.state_count(),
        checker.max_depth()
    );
    for law in laws() {
        if let Some(path) = checker.discovery(law.name) {
            panic!("{name}: {} is broken: {:#?}", law.name, path.into_vec());
        }
    }
    for sight in sights() {
        let seen = checker.discovery(sight.name).is_some();
        assert!(seen, "{name}: never seen: {}", sight.name);
    }
    found
}

#[test]
fn one_probe() {
    let world = World::new(&[PLAIN], 3).timeouts(&[1, 2]).back(2).restarts();
    assert_eq!(states_of("one probe", world), 2_240);
}

#[test]
fn two_probes() {
    assert_eq!(states_of("two probes", World::new(&[PAIRS], 3)), 15_780);
}

#[test]
fn orders() {
    let world = World::new(&[PLAIN], 2).orders(&[None, Some(2)]).restarts();
    assert_eq!(states_of("orders", world), 710);
}

#[test]
fn other_settings() {
    let world = World::new(&[PLAIN, PAIRS], 2).orders(&[Some(2)]);
    assert_eq!(states_of("other settings", world), 19_890);
}

#[test]
fn growing_breaks() {
    assert_eq!(
        states_of("growing breaks", World::new(&[GROWING], 2)),
        3_690
    );
}

// R17, R18
#[test]
fn rate_of_the_last_calls() {
    let world = World::new(&[HALF], 2).restarts();
    assert_eq!(states_of("rate of the last calls", world), 740);
}

// R18
#[test]
fn rule_of_ones_own() {
    let world = World::new(&[PAIR], 2).restarts();
    assert_eq!(states_of("rule of one's own", world), 1_716);
}

#[test]
fn armed_timers() {
    let world = World::new(&[PLAIN], 2).orders(&[Some(3)]).armed(2);
    assert_eq!(states_of("armed timers", world), 7_812);
}

// R36
#[test]
fn ramping_up() {
    let world = World::new(&[RAMPED, QUICK, PLAIN], 2)
        .orders(&[Some(2)])
        .restarts();
    assert_eq!(states_of("ramping up", world), 3_636);
}

// R17, R36: what a rate and a rule of one's own remember goes on while calls ramp up.
#[test]
fn ramping_up_under_a_rate_and_a_rule() {
    let rated = Settings {
        ramp_up: Some(3),
        ..HALF
    };
    let ruled = Settings {
        ramp_up: Some(1),
        ..PAIR
    };
    let world = World::new(&[rated, ruled], 2).orders(&[Some(2)]).restarts();
    assert_eq!(states_of("ramping up, rate and rule", world), 4_332);
}

/// What looks alike goes on alike: long random ways, far from those on which the states were found, meet no state
/// that was not found.
#[test]
fn states_that_look_alike_go_on_alike() {
    let seed = std::env::var("CIRCUIT_SEED").map_or_else(
        |_| fastrand::u64(..),
        |seed| seed.parse().expect("a number"),
    );
    println!("CIRCUIT_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let orders = World::new(&[PLAIN], 2).orders(&[None, Some(2)]);
    let ramping = World::new(&[RAMPED, QUICK, PLAIN], 2).restarts();
    for world in [orders.restarts(), World::new(&[GROWING], 2), ramping] {
        let mut known = HashSet::from([world.start().key]);
        let mut open = vec![world.start()];
        while let Some(state) = open.pop() {
            let next = world.next_states(&state).into_iter();
            open.extend(next.filter(|next| known.insert(next.key.clone())));
        }
        let mut state = world.start();
        let mut met = HashSet::new();
        for step in 0..20_000 {
            let mut actions = Vec::new();
            world.actions(&state, &mut actions);
            // What empties the record would else come too often to get anywhere.
            let empties = |action: &Action| matches!(action, Action::Reset | Action::Force(..));
            actions.retain(|action| !empties(action) || random.u8(..) < 8);
            let Some(action) = random.choice(&actions).copied() else {
                continue;
            };
            state = world.step(&state, action);
            assert!(
                known.contains(&state.key),
                "step {step}, {action:?}: {state:?}"
            );
            met.insert(state.key.clone());
        }
        assert!(met.len() > 100, "{}", met.len());
    }
}

/// See the header for what it takes.
#[test]
fn large_worlds() {
    if !large() {
        println!("skipped: CIRCUIT_EXHAUSTIVE is not large");
        return;
    }
    let three = Settings {
        trip: Trip::Count(3, 3),
        max_probes: 3,
        ..PAIRS
    };
    let growing = Settings {
        jitter: false,
        ..GROWING
    };
    let both = [None, Some(2)];
    let three_probes = World::new(&[three], 5).timeouts(&[1, 2]).back(2);
    let three_settings = World::new(&[PLAIN, PAIRS, growing], 4).timeouts(&[1, 2]);
    let three_timers = World::new(&[PAIRS], 3).orders(&[None, Some(3)]);
    let many_callers = World::new(&[GROWING], 5).orders(&[Some(3)]).back(2);
    let worlds = [
        ("three probes", three_probes.orders(&both).restarts()),
        ("three settings", three_settings.orders(&both).restarts()),
        ("three timers", three_timers.restarts().armed(3)),
        ("many callers", many_callers),
    ];
    let states = worlds.map(|(name, world)| states_of(name, world));
    assert_eq!(states, [342_592, 313_500, 155_310, 19_904]);
}

#[test]
fn faults_are_seen() {
    for (fault, law, steps) in FAULTS {
        let settings = match fault {
            Fault::SuccessFreesAnother => PAIRS,
            Fault::RateMissesSuccess => HALF,
            Fault::RampUpAdmitsAll
            | Fault::RampUpTooLong
            | Fault::TimerEndsRampUp
            | Fault::ResetRampsUp => QUICK,
            _ => PLAIN,
        };
        let armed = match fault {
            Fault::StaleTimerCloses | Fault::StaleTimerBeginsRound | Fault::DoubledTimerReopens => {
                2
            }
            _ => 0,
        };
        // A timer of an order that ended would show the fault sooner, and less of a break's.
        let ttls: &[_] = if armed > 0 { &[] } else { &[Some(2)] };
        let world = World::new(&[settings], 2).orders(ttls).restarts();
        let way = shortest(&world.armed(armed).with_fault(fault), law);
        let way = way.unwrap_or_else(|| panic!("{fault:?} does not break {law}"));
        println!("{fault:?} breaks {law}: {way:?}");
        assert_eq!(way.len(), steps, "{fault:?}");
    }
}
