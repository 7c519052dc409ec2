//! Replicas of one record under a network that delays, loses and cuts, clocks that differ, and a store that
//! forgets: whatever happens, they agree in the end, and a fleet that nothing happened to keeps its promises.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::struct_excessive_bools,
    reason = "a test may fail"
)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{Request, Terms, Ticket};
use crate::circuit::record::Phase;
use crate::circuit::shared::{Step, View};
use crate::circuit::{Circuit, CircuitState, Ending, Permit, Stored};
use crate::clock::Timestamp;
use crate::config::{Backoff, BreakerConfig, RampUp};
use crate::outcome::Outcome;
use crate::policy::{SlowCall, TripPolicy, Window};

const PROCESSES: usize = 3;
const MS: Duration = Duration::from_millis(1);

/// What may go wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Weather {
    cuts: bool,
    forgets: bool,
    orders: bool,
    min_reporters: u32,
    strict: bool,
}

/// One process, and what is on its way from and to it.
struct Process {
    circuit: Circuit,
    ahead: i64,
    joined: bool,
    out: VecDeque<Request>,
    answers: VecDeque<(Ticket, View)>,
    told: VecDeque<View>,
    in_flight: Vec<Permit>,
    /// How many calls wait for leave.
    waiting: u32,
    events: Vec<(CircuitState, CircuitState, u64)>,
}

struct Fleet {
    random: fastrand::Rng,
    weather: Weather,
    config: BreakerConfig,
    time: Timestamp,
    kept: Option<Stored>,
    processes: Vec<Process>,
    /// Whether anything happened that promises do not hold through.
    disturbed: bool,
}

impl Fleet {
    fn new(seed: u64, weather: Weather, config: BreakerConfig) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let time = Timestamp::from_micros(1_000_000_000_000_000);
        let hour: i64 = 3_600_000_000;
        let processes = (1..=PROCESSES)
            .map(|process| {
                let ahead = random.i64(-hour..=hour);
                let now = super::moved(time, ahead.saturating_neg());
                let drawn = random.f64();
                let source = Arc::new(move || drawn);
                let terms = Terms {
                    process: u64::try_from(process).unwrap(),
                    life: 0,
                    min_reporters: weather.min_reporters,
                    strict: weather.strict,
                    ahead,
                };
                Process {
                    circuit: Circuit::with_random(config.clone(), source, now).sharing(terms, None),
                    ahead,
                    joined: false,
                    out: VecDeque::new(),
                    answers: VecDeque::new(),
                    told: VecDeque::new(),
                    in_flight: Vec::new(),
                    waiting: 0,
                    events: Vec::new(),
                }
            })
            .collect();
        let mut fleet = Self {
            random,
            weather,
            config,
            time,
            kept: None,
            processes,
            disturbed: false,
        };
        for index in 0..PROCESSES {
            fleet.join(index);
        }
        fleet.deliver_all();
        fleet
    }

    fn now(&self, index: usize) -> Timestamp {
        super::moved(self.time, self.processes[index].ahead.saturating_neg())
    }

    /// A step of one process, as its actor makes it.
    fn act<R>(&mut self, index: usize, act: impl FnOnce(&mut Circuit, Timestamp) -> R) -> R {
        let now = self.now(index);
        let process = &mut self.processes[index];
        let result = act(&mut process.circuit, now);
        while process.waiting > 0 && !process.circuit.needs_leave(now) {
            process.waiting -= 1;
            if let Ok(permit) = process.circuit.try_acquire(now) {
                process.in_flight.push(permit);
            }
        }
        if process.waiting == 0 {
            process.circuit.return_leaves(now);
        }
        let most = if process.circuit.asks_first() {
            usize::try_from(process.waiting).unwrap()
        } else {
            usize::from(process.waiting > 0)
        };
        while process.circuit.leaves_asked_for() < most && process.circuit.needs_leave(now) {
            process.circuit.ask_for_leave(Duration::from_secs(5), now);
        }
        while let Some(request) = process.circuit.pop_request() {
            process.out.push_back(request);
        }
        while let Some(made) = process.circuit.pop_transition() {
            process.events.push((made.from, made.to, made.epoch));
        }
        result
    }

    fn call(&mut self, index: usize) {
        let now = self.now(index);
        let process = &mut self.processes[index];
        if process.circuit.needs_leave(now) {
            process.waiting += 1;
            self.act(index, |_, _| ());
            return;
        }
        let admitted = self.act(index, Circuit::try_acquire);
        if let Ok(permit) = admitted {
            self.processes[index].in_flight.push(permit);
        }
    }

    fn end(&mut self, index: usize) {
        let count = self.processes[index].in_flight.len();
        if count == 0 {
            return;
        }
        let which = self.random.usize(0..count);
        let permit = self.processes[index].in_flight.swap_remove(which);
        let ending = match self.random.u8(0..10) {
            0 => Ending::Gone,
            1 => outcome(Outcome::Ignored),
            2..=4 => outcome(Outcome::Success),
            _ => outcome(Outcome::Failure),
        };
        self.act(index, |circuit, now| circuit.end(permit, ending, now));
    }

    /// The store makes the oldest step that a process asked for.
    fn make(&mut self, index: usize) {
        let Some(Request { ticket, step }) = self.processes[index].out.pop_front() else {
            return;
        };
        let view = self.make_step(&step);
        self.processes[index].answers.push_back((ticket, view));
    }

    fn make_step(&mut self, step: &Step) -> View {
        // No two steps of a server are made within one microsecond.
        self.time = self.time + Duration::from_micros(1);
        let done = Stored::step(&mut self.kept, &self.config, step);
        if done.is_news {
            for (index, process) in self.processes.iter_mut().enumerate() {
                if u64::try_from(index).unwrap() + 1 != step.process {
                    process.told.push_back(done.view.clone());
                }
            }
        }
        done.view
    }

    fn answer(&mut self, index: usize) {
        if let Some((ticket, view)) = self.processes[index].answers.pop_front() {
            self.act(index, |circuit, now| {
                circuit.answer(ticket, Some(view), now);
            });
        }
    }

    fn tell(&mut self, index: usize) {
        if let Some(view) = self.processes[index].told.pop_front() {
            self.act(index, |circuit, now| circuit.hear(view, now));
        }
    }

    fn join(&mut self, index: usize) {
        let process = &mut self.processes[index];
        process.joined = true;
        let ahead = process.ahead;
        self.act(index, |circuit, now| circuit.join(ahead, now));
    }

    /// The store cannot be reached any more; what is on its way may still arrive there, answers do not.
    fn cut(&mut self, index: usize) {
        self.disturbed = true;
        self.processes[index].joined = false;
        let out = std::mem::take(&mut self.processes[index].out);
        for Request { step, .. } in out {
            if self.random.bool() {
                self.make_step(&step);
            }
        }
        let process = &mut self.processes[index];
        process.answers.clear();
        if self.random.bool() {
            process.told.clear();
        }
        self.act(index, Circuit::cut);
    }

    fn order(&mut self, index: usize) {
        let kind = self.random.u8(0..5);
        let ttl = self.random.bool().then(|| MS * self.random.u32(1..20_000));
        self.act(index, |circuit, now| match kind {
            0 => drop(circuit.force_open(ttl, "order", now)),
            1 => drop(circuit.force_closed(ttl, "order", now)),
            2 | 3 => circuit.release(now),
            _ => circuit.reset(now),
        });
    }

    fn deliver_all(&mut self) {
        for round in 0.. {
            assert!(round < 1_000, "they ask and ask");
            let mut quiet = true;
            for index in 0..PROCESSES {
                let process = &self.processes[index];
                quiet &=
                    process.out.is_empty() && process.answers.is_empty() && process.told.is_empty();
                self.make(index);
                self.answer(index);
                self.tell(index);
            }
            if quiet {
                return;
            }
        }
    }

    fn something(&mut self) {
        let index = self.random.usize(0..PROCESSES);
        match self.random.u8(0..100) {
            0..=24 => self.call(index),
            25..=44 => self.end(index),
            45..=59 => self.make(index),
            60..=74 => self.answer(index),
            75..=84 => self.tell(index),
            85..=88 => self.time = self.time + MS * self.random.u32(1..50),
            89..=90 => self.time = self.time + MS * self.random.u32(1..12_000),
            91 => self.act(index, Circuit::refresh),
            92..=94 if self.weather.orders => self.order(index),
            95 if self.weather.forgets => {
                self.disturbed = true;
                self.kept = None;
            }
            96 if self.weather.cuts && self.processes[index].joined => self.cut(index),
            97..=99 if !self.processes[index].joined => self.join(index),
            _ => {}
        }
    }

    /// R7: in the whole fleet, as long as nothing came between it and the store.
    fn check_probes(&self) {
        if self.disturbed || self.weather.min_reporters > 1 {
            return;
        }
        let Some(kept) = &self.kept else { return };
        let version = kept.version();
        let running = self.processes.iter().flat_map(|process| {
            let now = super::moved(self.time, process.ahead.saturating_neg());
            process.in_flight.iter().filter(move |permit| {
                let Phase::HalfOpen { round, .. } = &process.circuit.record.phase else {
                    return false;
                };
                // Those whose lease is over have passed their slot on.
                let holds = permit.slot.is_some_and(|slot| round.holds(slot, now));
                holds && permit.epoch == version
            })
        });
        let most = usize::try_from(self.config.max_probes()).unwrap();
        assert!(running.count() <= most, "more probes than slots");
    }

    /// In the end everybody shows the same.
    fn check_agreement(&mut self) {
        for _ in 0..3 {
            for index in 0..PROCESSES {
                self.processes[index].waiting = 0;
                if !self.processes[index].joined {
                    self.join(index);
                }
                self.deliver_all();
                self.act(index, Circuit::refresh);
                self.deliver_all();
            }
        }
        let record = match &self.kept {
            Some(kept) => kept.share(self.time),
            None => return self.check_closed(),
        };
        for process in &self.processes {
            if process.circuit.sharing_status().unwrap().alone {
                assert!(self.weather.min_reporters > 1);
                continue;
            }
            let shown = process
                .circuit
                .record()
                .state_at(super::moved(self.time, process.ahead.saturating_neg()));
            let there = match record.phase.state() {
                // Each ends it by itself.
                CircuitState::ForcedOpen if kept_order_is_over(&record, self.time) => {
                    CircuitState::Open
                }
                CircuitState::ForcedClosed if kept_order_is_over(&record, self.time) => {
                    CircuitState::Closed
                }
                state => state,
            };
            assert_eq!(shown, there, "{record:#?} {:#?}", process.circuit);
        }
    }

    fn check_closed(&self) {
        for process in &self.processes {
            if !process.circuit.sharing_status().unwrap().alone {
                let now = super::moved(self.time, process.ahead.saturating_neg());
                let shown = process.circuit.record().state_at(now);
                assert_eq!(shown, CircuitState::Closed, "{:#?}", process.circuit);
            }
        }
    }

    /// R25: each process tells a story without holes, under numbers that grow.
    fn check_events(&self) {
        for process in &self.processes {
            for pair in process.events.windows(2) {
                assert_eq!(pair[0].1, pair[1].0, "{:?}", process.events);
                assert!(pair[0].2 < pair[1].2, "{:?}", process.events);
            }
        }
    }
}

fn kept_order_is_over(record: &crate::circuit::shared::SharedRecord, now: Timestamp) -> bool {
    match record.phase {
        crate::circuit::shared::SharedPhase::Forced { until, .. } => {
            until.is_some_and(|until| until <= now)
        }
        _ => false,
    }
}

fn outcome(outcome: Outcome) -> Ending {
    Ending::Outcome {
        outcome,
        slow: false,
    }
}

fn config(random: &mut fastrand::Rng) -> BreakerConfig {
    let within = Duration::from_secs(5);
    let trip = match random.u8(0..5) {
        0 => TripPolicy::ConsecutiveFailures {
            failures: 3,
            within: None,
        },
        1 => TripPolicy::FailureCount {
            failures: 4,
            within,
            reset_on_success: random.bool(),
        },
        2 => TripPolicy::FailureRate {
            rate: 0.5,
            minimum_calls: 4,
            window: Window::Calls(8),
            slow_call: None,
        },
        3 => TripPolicy::FailureRate {
            rate: 0.5,
            minimum_calls: 4,
            window: Window::Time(within),
            slow_call: Some(SlowCall::new(Duration::from_secs(1), 0.5)),
        },
        _ => TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: Some(within),
        },
    };
    let mut config = BreakerConfig::builder()
        .trip(trip)
        .break_duration(Duration::from_secs(2))
        .max_probes(random.u32(1..4))
        .successes_to_close(random.u32(1..4))
        .max_inconclusive(random.u32(1..3));
    if random.bool() {
        config = config.jitter(0.5).backoff(Backoff {
            factor: 2.0,
            max: Duration::from_secs(8),
        });
    }
    if random.bool() {
        config = config.ramp_up(RampUp::new(Duration::from_secs(3), 0.5));
    }
    config.build().unwrap()
}

fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let weather = Weather {
        cuts: random.bool(),
        forgets: random.u8(0..4) == 0,
        orders: random.bool(),
        min_reporters: if random.u8(0..4) == 0 { 2 } else { 1 },
        strict: random.u8(0..4) == 0,
    };
    let config = config(&mut random);
    let mut fleet = Fleet::new(seed, weather, config);
    for _ in 0..300 {
        fleet.something();
        fleet.check_probes();
    }
    fleet.check_agreement();
    fleet.check_events();
}

// R34 and the promises of the module.
#[test]
fn replicas_agree_in_the_end_whatever_happens() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let runs = number("REPLICA_RUNS").unwrap_or(3_000);
    let seeds = number("REPLICA_SEED").map_or(0..runs, |seed| seed..seed + 1);
    for seed in seeds {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "REPLICA_SEED={seed}");
    }
}
