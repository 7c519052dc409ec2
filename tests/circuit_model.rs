//! The circuit against a slow, obvious model written from the rules alone, and against properties that
//! need no model. What each single (state, input) pair does is in `circuit_table.rs`.
//!
//! The model keeps every sample and every probe it has ever been told of and works everything out anew
//! at each question; only the rules are shared with the crate, no code.
//!
//! A failing run prints the smallest case it found and, above it, the seed. Set it again to replay:
//! `PROPTEST_RNG_SEED=… cargo test --test circuit_model`. `PROPTEST_CASES=20000` searches longer.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::match_same_arms,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test, the numbers are small, and a row stands for a rule"
)]

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_circuit_breaker::circuit::{
    Calls, Cause, Circuit, CircuitState, Lifetime, Permit, Reason, Record, Settlement, Transition,
};
use actix_circuit_breaker::{
    Backoff, BreakerConfig, Outcome, RampUp, RandomSource, SlowCall, Timestamp, TripPolicy,
    TripRule, Window,
};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};

const SECOND: u64 = 1_000_000;

/// What the injected random source answers, in turn. Exact in a double, as is every share below.
const RANDOM: [f64; 5] = [0.0, 1.0, 0.5, 0.25, 0.75];

// ---------------------------------------------------------------------------------------------------
// Settings, in numbers of `unit` microseconds.

#[derive(Debug, Clone, PartialEq)]
enum Policy {
    Consecutive {
        failures: u32,
        within: Option<u64>,
    },
    Count {
        failures: u32,
        within: u64,
        reset: bool,
    },
    RateOfCalls {
        rate: f64,
        minimum: u32,
        calls: u32,
        slow: Option<(u64, f64)>,
    },
    RateOfTime {
        rate: f64,
        minimum: u32,
        span: u64,
        slow: Option<(u64, f64)>,
    },
    Custom {
        lookback: u64,
        reset: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
struct Settings {
    unit: u64,
    policy: Policy,
    call_timeout: u64,
    break_duration: u64,
    backoff: Option<(f64, u64)>,
    jitter: f64,
    max_probes: u32,
    successes_to_close: u32,
    probe_timeout: Option<u64>,
    max_inconclusive: u32,
    /// Duration and initial share.
    ramp_up: Option<(u64, f64)>,
}

/// Trips on three failures, two of them at one instant.
#[derive(Debug)]
struct Pair {
    lookback: Duration,
    reset: bool,
}

fn pair_trips(failures: &[u64]) -> bool {
    failures.len() >= 3 && failures.windows(2).any(|pair| pair[0] == pair[1])
}

impl TripRule for Pair {
    fn trips(&self, failures: &[Timestamp], now: Timestamp) -> bool {
        assert_eq!(
            failures.last(),
            Some(&now),
            "the present failure comes last"
        );
        let failures: Vec<_> = failures.iter().map(|at| at.as_micros()).collect();
        pair_trips(&failures)
    }

    fn lookback(&self) -> Duration {
        self.lookback
    }

    fn reset_on_success(&self) -> bool {
        self.reset
    }
}

impl Settings {
    fn micros(&self, units: u64) -> u64 {
        units * self.unit
    }

    fn span(&self, units: u64) -> Duration {
        Duration::from_micros(self.micros(units))
    }

    fn policy(&self) -> TripPolicy {
        let slow_call = |slow: Option<(u64, f64)>| {
            slow.map(|(duration, rate)| SlowCall::new(self.span(duration), rate))
        };
        match self.policy {
            Policy::Consecutive { failures, within } => TripPolicy::ConsecutiveFailures {
                failures,
                within: within.map(|within| self.span(within)),
            },
            Policy::Count {
                failures,
                within,
                reset,
            } => TripPolicy::FailureCount {
                failures,
                within: self.span(within),
                reset_on_success: reset,
            },
            Policy::RateOfCalls {
                rate,
                minimum,
                calls,
                slow,
            } => TripPolicy::FailureRate {
                rate,
                minimum_calls: minimum,
                window: Window::Calls(calls),
                slow_call: slow_call(slow),
            },
            Policy::RateOfTime {
                rate,
                minimum,
                span,
                slow,
            } => TripPolicy::FailureRate {
                rate,
                minimum_calls: minimum,
                window: Window::Time(self.span(span)),
                slow_call: slow_call(slow),
            },
            Policy::Custom { lookback, reset } => TripPolicy::Custom(Arc::new(Pair {
                lookback: self.span(lookback),
                reset,
            })),
        }
    }

    /// The config, with `trip` as its policy: a custom rule is equal to the same object alone.
    fn config(&self, trip: TripPolicy) -> BreakerConfig {
        let mut builder = BreakerConfig::builder()
            .trip(trip)
            .call_timeout(self.span(self.call_timeout))
            .break_duration(self.span(self.break_duration))
            .jitter(self.jitter)
            .max_probes(self.max_probes)
            .successes_to_close(self.successes_to_close)
            .max_inconclusive(self.max_inconclusive);
        if let Some((factor, max)) = self.backoff {
            builder = builder.backoff(Backoff::new(factor, self.span(max)));
        }
        if let Some(timeout) = self.probe_timeout {
            builder = builder.probe_timeout(self.span(timeout));
        }
        if let Some((duration, share)) = self.ramp_up {
            builder = builder.ramp_up(RampUp::new(self.span(duration), share));
        }
        builder.build().expect("valid settings")
    }

    fn slow_after(&self) -> Option<u64> {
        match self.policy {
            Policy::RateOfCalls { slow, .. } | Policy::RateOfTime { slow, .. } => {
                slow.map(|(duration, _)| self.micros(duration))
            }
            _ => None,
        }
    }

    // R16
    fn lease(&self, timeout: u64) -> u64 {
        let own = self
            .probe_timeout
            .unwrap_or(self.break_duration.max(2 * self.call_timeout));
        if timeout > self.call_timeout {
            self.micros(own.max(2 * timeout))
        } else {
            self.micros(own)
        }
    }

    // R3
    fn longest_break(&self) -> u64 {
        let longest = self.backoff.map_or(self.break_duration, |(_, max)| max);
        (self.micros(longest) as f64 * (1.0 + self.jitter)) as u64
    }

    // R22
    fn break_length(&self, attempt: u32, random: f64) -> u64 {
        let mut length = self.micros(self.break_duration) as f64;
        if let Some((factor, max)) = self.backoff {
            length =
                (length * factor.powi(attempt.try_into().unwrap())).min(self.micros(max) as f64);
        }
        (length * (1.0 + self.jitter * random)) as u64
    }

    // R31
    fn margin(&self) -> u64 {
        let hour = 3600 * SECOND;
        let lookback = match self.policy {
            Policy::Consecutive { within, .. } => within.map_or(hour, |within| self.micros(within)),
            Policy::Count { within, .. } => self.micros(within),
            Policy::RateOfCalls { .. } => hour,
            Policy::RateOfTime { span, .. } => self.micros(span),
            Policy::Custom { lookback, .. } => self.micros(lookback),
        };
        2 * self.longest_break().max(lookback).max(self.lease(0)) + 60 * SECOND
    }
}

// ---------------------------------------------------------------------------------------------------
// The model.

#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    at: u64,
    failed: bool,
    slow: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Stand {
    Closed,
    Open {
        until: u64,
    },
    HalfOpen {
        due: u64,
    },
    Forced {
        open: bool,
        until: Option<u64>,
        reason: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Vote {
    Success,
    Inconclusive,
}

#[derive(Debug, Clone)]
struct ModelProbe {
    id: usize,
    lease_end: u64,
    given_back: bool,
}

#[derive(Debug, Clone)]
struct ModelPermit {
    id: usize,
    epoch: u64,
    admitted: u64,
    probe: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Event {
    cause: Cause,
    from: CircuitState,
    to: CircuitState,
    at: u64,
    epoch: u64,
    until: Option<u64>,
    attempt: u32,
    reason: Option<String>,
    counts: (u64, u64, u64),
    votes: (u32, u32),
}

impl From<Transition> for Event {
    fn from(transition: Transition) -> Self {
        let evidence = transition.evidence;
        Self {
            cause: transition.cause,
            from: transition.from,
            to: transition.to,
            at: transition.at.as_micros(),
            epoch: transition.epoch,
            until: evidence.until.map(Timestamp::as_micros),
            attempt: evidence.attempt,
            reason: evidence.reason.map(|reason| reason.to_string()),
            counts: (evidence.failures, evidence.slow_calls, evidence.samples),
            votes: (evidence.successes, evidence.inconclusive),
        }
    }
}

struct Model {
    settings: Settings,
    stand: Stand,
    epoch: u64,
    attempt: u32,
    newest: u64,
    /// When the last recovery was, if its ramp-up was not seen to end.
    recovered: Option<u64>,
    /// Every sample since the window was last emptied, oldest first, none ever dropped.
    samples: Vec<Sample>,
    /// Every probe of this round.
    probes: Vec<ModelProbe>,
    /// Every vote of this round.
    votes: Vec<Vote>,
    calls: Calls,
    drawn: usize,
    permits: usize,
    events: Vec<Event>,
}

#[derive(Debug, PartialEq)]
struct Refusal {
    reason: Reason,
    retry_after: Option<u64>,
}

impl Model {
    fn new(settings: Settings, now: u64) -> Self {
        Self {
            settings,
            stand: Stand::Closed,
            epoch: now,
            attempt: 0,
            newest: now,
            recovered: None,
            samples: Vec::new(),
            probes: Vec::new(),
            votes: Vec::new(),
            calls: Calls::default(),
            drawn: 0,
            permits: 0,
            events: Vec::new(),
        }
    }

    fn state(&self) -> CircuitState {
        match &self.stand {
            Stand::Closed => CircuitState::Closed,
            Stand::Open { .. } => CircuitState::Open,
            Stand::HalfOpen { .. } => CircuitState::HalfOpen,
            Stand::Forced { open: true, .. } => CircuitState::ForcedOpen,
            Stand::Forced { open: false, .. } => CircuitState::ForcedClosed,
        }
    }

    fn until(&self) -> Option<u64> {
        match &self.stand {
            Stand::Open { until } => Some(*until),
            Stand::Forced { until, .. } => *until,
            _ => None,
        }
    }

    fn go(&mut self, stand: Stand, cause: Cause, now: u64) {
        let counts = if cause == Cause::Tripped {
            self.counts(now)
        } else {
            (0, 0, 0)
        };
        let votes = match cause {
            Cause::ProbeFailed | Cause::Inconclusive | Cause::Recovered => self.tally(),
            _ => (0, 0),
        };
        let from = self.state();
        self.stand = stand;
        self.recovered =
            (cause == Cause::Recovered && self.settings.ramp_up.is_some()).then_some(now);
        self.samples.clear();
        self.probes.clear();
        self.votes.clear();
        self.epoch += 1;
        if self.state() == from {
            return;
        }
        self.events.push(Event {
            cause,
            from,
            to: self.state(),
            at: now,
            epoch: self.epoch,
            until: self.until(),
            attempt: self.attempt,
            reason: match &self.stand {
                Stand::Forced { reason, .. } => Some(reason.clone()),
                _ => None,
            },
            counts,
            votes,
        });
    }

    /// R22
    fn start_break(&mut self, attempt: u32, cause: Cause, now: u64) {
        let mut random = 0.0;
        if self.settings.jitter > 0.0 {
            random = self.draw();
        }
        self.attempt = attempt;
        let until = now + self.settings.break_length(attempt, random);
        self.go(Stand::Open { until }, cause, now);
    }

    fn draw(&mut self) -> f64 {
        self.drawn += 1;
        RANDOM[(self.drawn - 1) % RANDOM.len()]
    }

    /// R36: when the ramp-up is over.
    fn ramp_end(&self) -> Option<u64> {
        let (duration, _) = self.settings.ramp_up?;
        Some(self.recovered? + self.settings.micros(duration))
    }

    /// R36
    fn share(&self, now: u64) -> Option<f64> {
        let (duration, share) = self.settings.ramp_up?;
        let passed = now - self.recovered?;
        let duration = self.settings.micros(duration);
        (passed < duration).then(|| share + (1.0 - share) * (passed as f64 / duration as f64))
    }

    /// R36
    fn ramp_refusal(&mut self, now: u64) -> Option<Refusal> {
        let share = self.share(now)?;
        if share >= 1.0 || self.draw() < share {
            return None;
        }
        Some(Refusal {
            reason: Reason::RampUp,
            retry_after: Some((self.ramp_end()? - now).min(SECOND)),
        })
    }

    fn order_is_over(&self, now: u64) -> bool {
        matches!(&self.stand, Stand::Forced { until: Some(until), .. } if *until <= now)
    }

    /// R3, R8, R23, R36
    fn begin(&mut self, now: u64) -> u64 {
        let now = now.max(self.newest);
        if self.recovered.is_some() && self.share(now).is_none() {
            self.newest = now;
            self.recovered = None;
        }
        if self.order_is_over(now) {
            self.newest = now;
            if let Stand::Forced {
                open: true,
                until: Some(until),
                ..
            } = self.stand
            {
                self.go(Stand::Open { until }, Cause::Expired, now);
            } else {
                self.go(Stand::Closed, Cause::Expired, now);
            }
        }
        now
    }

    fn held(&self, now: u64) -> Vec<&ModelProbe> {
        self.probes
            .iter()
            .filter(|probe| !probe.given_back && probe.lease_end > now)
            .collect()
    }

    /// Successes of the round, and inconclusive probes since the last of them.
    fn tally(&self) -> (u32, u32) {
        let successes = self
            .votes
            .iter()
            .filter(|vote| **vote == Vote::Success)
            .count();
        let inconclusive = self
            .votes
            .iter()
            .rev()
            .take_while(|vote| **vote == Vote::Inconclusive)
            .count();
        (successes as u32, inconclusive as u32)
    }

    /// R6, R7, R9, R15
    fn refusal(&self, now: u64) -> Option<Refusal> {
        match &self.stand {
            Stand::Closed | Stand::Forced { open: false, .. } => None,
            Stand::Open { until } => (now < *until).then(|| Refusal {
                reason: Reason::Open,
                retry_after: Some(until - now),
            }),
            Stand::HalfOpen { .. } => {
                let held = self.held(now);
                let free = held.len() < self.settings.max_probes as usize;
                let waits = self.tally().1 >= self.settings.max_inconclusive && !held.is_empty();
                if free && !waits {
                    return None;
                }
                let first = held
                    .iter()
                    .map(|probe| probe.lease_end - now)
                    .min()
                    .unwrap();
                Some(Refusal {
                    reason: Reason::ProbesInUse,
                    retry_after: Some(first.min(SECOND)),
                })
            }
            Stand::Forced {
                open: true, until, ..
            } => Some(Refusal {
                reason: Reason::ForcedOpen,
                retry_after: until.map(|until| until - now),
            }),
        }
    }

    fn acquire(&mut self, timeout: u64, now: u64) -> Result<ModelPermit, Refusal> {
        let now = self.begin(now);
        if let Some(refusal) = self.refusal(now).or_else(|| self.ramp_refusal(now)) {
            self.calls.rejected += 1;
            return Err(refusal);
        }
        self.newest = now;
        if let Stand::Open { until } = self.stand {
            self.go(Stand::HalfOpen { due: until }, Cause::ProbeDue, now);
        }
        let id = self.permits;
        self.permits += 1;
        let probe = self.state() == CircuitState::HalfOpen;
        if probe {
            // R16: slots whose lease is over are passed on; from here on they are nobody's.
            for over in &mut self.probes {
                if !over.given_back && over.lease_end <= now {
                    over.given_back = true;
                    self.calls.lost_probes += 1;
                }
            }
            let lease_end = now + self.settings.lease(timeout);
            self.probes.push(ModelProbe {
                id,
                lease_end,
                given_back: false,
            });
        }
        Ok(ModelPermit {
            id,
            epoch: self.epoch,
            admitted: now,
            probe,
        })
    }

    /// `None` as the outcome: the caller is gone (R10).
    fn settle(&mut self, permit: &ModelPermit, outcome: Option<Outcome>, now: u64) -> Settlement {
        let slow = self.settings.slow_after().is_some_and(|slow| {
            now.max(self.newest) - permit.admitted.min(now.max(self.newest)) >= slow
        });
        let now = self.begin(now);
        self.newest = now;
        if permit.epoch != self.epoch {
            self.calls.late += 1;
            return Settlement::Late; // R11
        }
        match outcome {
            // R18: a slow success of a probe is a failure.
            Some(Outcome::Success) if slow && permit.probe => self.calls.failures += 1,
            Some(Outcome::Success) => self.calls.successes += 1,
            Some(Outcome::Failure) => self.calls.failures += 1,
            _ => self.calls.ignored += 1,
        }
        if permit.probe {
            self.settle_probe(permit, outcome, slow, now);
        } else if self.state() == CircuitState::Closed {
            let failed = match outcome {
                Some(Outcome::Success) => false,
                Some(Outcome::Failure) => true,
                _ => return Settlement::Counted,
            };
            self.samples.push(Sample {
                at: now,
                failed,
                slow,
            });
            if self.trips(now) {
                self.start_break(0, Cause::Tripped, now); // R17
            }
        }
        Settlement::Counted
    }

    fn settle_probe(
        &mut self,
        permit: &ModelPermit,
        outcome: Option<Outcome>,
        slow: bool,
        now: u64,
    ) {
        let held_it = self.held(now).iter().any(|probe| probe.id == permit.id);
        for probe in &mut self.probes {
            if probe.id == permit.id {
                probe.given_back = true;
            }
        }
        match outcome {
            Some(Outcome::Success) if !slow => {
                self.votes.push(Vote::Success); // R13
                if self.tally().0 >= self.settings.successes_to_close {
                    self.attempt = 0;
                    self.go(Stand::Closed, Cause::Recovered, now);
                }
            }
            Some(Outcome::Success | Outcome::Failure) => {
                self.start_break(self.attempt + 1, Cause::ProbeFailed, now); // R14, R18
            }
            Some(_) if held_it => {
                self.votes.push(Vote::Inconclusive); // R15
                if self.tally().1 >= self.settings.max_inconclusive && self.held(now).is_empty() {
                    self.start_break(self.attempt, Cause::Inconclusive, now);
                }
            }
            _ => {}
        }
    }

    /// The samples that count at `now`, by R4, R17 and R18.
    fn window(&self, now: u64) -> Vec<Sample> {
        let settings = &self.settings;
        let failures = |within: Option<u64>, forget: bool| -> Vec<Sample> {
            let begin = match self.samples.iter().rposition(|sample| !sample.failed) {
                Some(success) if forget => success + 1,
                _ => 0,
            };
            self.samples[begin..]
                .iter()
                .filter(|sample| sample.failed)
                .filter(|sample| {
                    within.is_none_or(|within| now - sample.at < settings.micros(within))
                })
                .copied()
                .collect()
        };
        let newest = |mut samples: Vec<Sample>, most: usize| {
            samples.split_off(samples.len().saturating_sub(most))
        };
        match settings.policy {
            Policy::Consecutive { within, .. } => failures(within, true),
            Policy::Count { within, reset, .. } => failures(Some(within), reset),
            Policy::Custom { lookback, reset } => newest(failures(Some(lookback), reset), 100),
            Policy::RateOfCalls { calls, .. } => newest(self.samples.clone(), calls as usize),
            Policy::RateOfTime { span, .. } => {
                let span = settings.micros(span);
                let width = span.div_ceil(10);
                self.samples
                    .iter()
                    .filter(|sample| now - sample.at / width * width < span)
                    .copied()
                    .collect()
            }
        }
    }

    /// Failures, slow calls, all.
    fn counts(&self, now: u64) -> (u64, u64, u64) {
        if self.stand != Stand::Closed {
            return (0, 0, 0);
        }
        let window = self.window(now);
        let failures = window.iter().filter(|sample| sample.failed).count() as u64;
        let slow = window.iter().filter(|sample| sample.slow).count() as u64;
        (failures, slow, window.len() as u64)
    }

    fn trips(&self, now: u64) -> bool {
        let (failed, slow, all) = self.counts(now);
        match self.settings.policy {
            Policy::Consecutive { failures, .. } | Policy::Count { failures, .. } => {
                failed >= failures.into()
            }
            Policy::RateOfCalls {
                rate,
                minimum,
                slow: limit,
                ..
            }
            | Policy::RateOfTime {
                rate,
                minimum,
                slow: limit,
                ..
            } => {
                all >= minimum.into()
                    && (failed as f64 / all as f64 >= rate
                        || limit.is_some_and(|(_, limit)| slow as f64 / all as f64 >= limit))
            }
            Policy::Custom { .. } => {
                let asked = self.samples.last().is_some_and(|sample| sample.failed);
                let failures: Vec<_> = self.window(now).iter().map(|sample| sample.at).collect();
                asked && pair_trips(&failures)
            }
        }
    }

    // R23
    fn force(&mut self, open: bool, ttl: Option<u64>, reason: &str, now: u64) {
        let now = self.begin(now);
        self.newest = now;
        let order = Stand::Forced {
            open,
            until: ttl.map(|ttl| now + ttl),
            reason: reason.to_owned(),
        };
        match &self.stand {
            Stand::Forced { open: present, .. } if *present == open => self.stand = order,
            _ => {
                self.attempt = 0;
                self.go(order, Cause::Forced, now);
            }
        }
    }

    // R23
    fn release(&mut self, now: u64) {
        let now = self.begin(now);
        if matches!(self.stand, Stand::Forced { .. }) {
            self.newest = now;
            self.attempt = 0;
            self.go(Stand::Closed, Cause::Released, now);
        }
    }

    // R24
    fn reset(&mut self, now: u64) {
        let now = self.begin(now);
        self.newest = now;
        self.attempt = 0;
        if matches!(self.stand, Stand::Forced { .. }) {
            self.epoch += 1;
        } else {
            self.go(Stand::Closed, Cause::Reset, now);
        }
    }

    // R35
    fn reconfigure(&mut self, settings: &Settings, now: u64) {
        let now = self.begin(now);
        if *settings == self.settings {
            return;
        }
        self.newest = now;
        if settings.policy != self.settings.policy {
            self.samples.clear();
        }
        self.settings = settings.clone();
        if self.recovered.is_some() && self.share(now).is_none() {
            self.recovered = None; // R36
        }
        if let Stand::Open { until } = &mut self.stand {
            *until = (*until).min(now + self.settings.longest_break());
        }
    }

    // R29, R3
    fn restore(&mut self, now: u64) {
        self.newest = self.newest.min(now);
        self.epoch = (self.epoch + 1).max(now);
        self.calls = Calls::default();
        for sample in &mut self.samples {
            sample.at = sample.at.min(now);
        }
        self.probes.clear();
        self.votes.clear();
        self.recovered = self.recovered.map(|recovered| recovered.min(now));
        match &mut self.stand {
            Stand::Open { until } => *until = (*until).min(now + self.settings.longest_break()),
            Stand::HalfOpen { due } => {
                self.stand = Stand::Open {
                    until: (*due).min(now),
                }
            }
            Stand::Closed | Stand::Forced { .. } => {}
        }
    }

    // R31, R36; a rate policy's newest sample counts, whatever its outcome.
    fn lifetime(&self, now: u64) -> Lifetime {
        let margin = self.settings.margin();
        let end = match &self.stand {
            Stand::Closed => {
                let window = self.window(now).last().map(|sample| sample.at + margin);
                let ramp = self.share(now).and_then(|_| self.ramp_end());
                match window.into_iter().chain(ramp).max() {
                    None => return Lifetime::None,
                    Some(end) => end,
                }
            }
            Stand::Open { until } => until + margin,
            Stand::HalfOpen { due } => {
                self.probes
                    .iter()
                    .filter(|probe| !probe.given_back)
                    .map(|probe| probe.lease_end)
                    .fold(*due, u64::max)
                    + margin
            }
            Stand::Forced { until: None, .. } => return Lifetime::Forever,
            Stand::Forced {
                open: false,
                until: Some(until),
                ..
            } => *until,
            Stand::Forced {
                open: true,
                until: Some(until),
                ..
            } => until + margin,
        };
        Lifetime::For(Duration::from_micros(
            end.saturating_sub(now.max(self.newest)),
        ))
    }
}

// ---------------------------------------------------------------------------------------------------
// Inputs.

#[derive(Debug, Clone)]
enum Input {
    Acquire,
    AcquireFor(u64),
    /// Acquire, and settle at once if admitted.
    Call(Outcome),
    Settle(Index, Outcome),
    Reclaim(Index),
    /// The permit is thrown away: only its lease frees its slot.
    Lose(Index),
    Forward(u64, i64),
    Backward(u64, i64),
    /// To the end of the break or of the order, or so many microseconds beside it.
    ToDeadline(i64),
    ForceOpen(Option<u64>),
    ForceClosed(Option<u64>),
    Release,
    Reset,
    Reconfigure(usize),
    Restore,
    Advance,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Failure),
        2 => Just(Outcome::Success),
        2 => Just(Outcome::Ignored),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    let ttl = || proptest::option::of(1..30_u64);
    prop_oneof![
        12 => Just(Input::Acquire),
        3 => (0..20_u64).prop_map(Input::AcquireFor),
        14 => outcome().prop_map(Input::Call),
        14 => (any::<Index>(), outcome()).prop_map(|(which, outcome)| Input::Settle(which, outcome)),
        3 => any::<Index>().prop_map(Input::Reclaim),
        2 => any::<Index>().prop_map(Input::Lose),
        8 => (0..12_u64, -1..=1_i64).prop_map(|(units, beside)| Input::Forward(units, beside)),
        1 => (12..200_u64, -1..=1_i64).prop_map(|(units, beside)| Input::Forward(units, beside)),
        2 => (0..12_u64, -1..=1_i64).prop_map(|(units, beside)| Input::Backward(units, beside)),
        8 => (-1..=1_i64).prop_map(Input::ToDeadline),
        1 => ttl().prop_map(Input::ForceOpen),
        1 => ttl().prop_map(Input::ForceClosed),
        1 => Just(Input::Release),
        1 => Just(Input::Reset),
        2 => (0..3_usize).prop_map(Input::Reconfigure),
        1 => Just(Input::Restore),
        2 => Just(Input::Advance),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let rate = || prop_oneof![Just(0.25), Just(0.5), Just(0.6), Just(1.0)];
    let slow = || proptest::option::of((1..4_u64, prop_oneof![Just(0.5), Just(0.75)]));
    prop_oneof![
        (1..4_u32, proptest::option::of(1..20_u64))
            .prop_map(|(failures, within)| Policy::Consecutive { failures, within }),
        (1..5_u32, 1..20_u64, any::<bool>()).prop_map(|(failures, within, reset)| Policy::Count {
            failures,
            within,
            reset
        }),
        (rate(), 1..5_u32, 0..6_u32, slow()).prop_map(|(rate, minimum, more, slow)| {
            Policy::RateOfCalls {
                rate,
                minimum,
                calls: minimum + more,
                slow,
            }
        }),
        (rate(), 1..5_u32, 1..40_u64, slow()).prop_map(|(rate, minimum, span, slow)| {
            Policy::RateOfTime {
                rate,
                minimum,
                span,
                slow,
            }
        }),
        (1..20_u64, any::<bool>()).prop_map(|(lookback, reset)| Policy::Custom { lookback, reset }),
    ]
}

/// Settings whose breaks are whole microseconds after every backoff, so that rounding, which the rules
/// leave open, does not matter here.
fn settings(unit: u64) -> impl Strategy<Value = Settings> {
    let factor = prop_oneof![Just(1.0), Just(1.5), Just(2.0), Just(3.0)];
    (
        policy(),
        4..7_u64,
        proptest::option::of((factor, prop_oneof![Just(16_u64), Just(40), Just(80)])),
        prop_oneof![3 => Just(0.0), 1 => Just(0.25), 1 => Just(0.5), 1 => Just(1.0)],
        1..4_u32,
        1..5_u32,
        proptest::option::of(7..20_u64),
        1..4_u32,
        proptest::option::of((1..30_u64, prop_oneof![Just(0.125), Just(0.5), Just(1.0)])),
    )
        .prop_map(
            move |(
                policy,
                call_timeout,
                backoff,
                jitter,
                max_probes,
                successes_to_close,
                probe_timeout,
                max_inconclusive,
                ramp_up,
            )| Settings {
                unit,
                policy,
                call_timeout,
                break_duration: 16,
                backoff,
                jitter,
                max_probes,
                successes_to_close,
                probe_timeout,
                max_inconclusive,
                ramp_up,
            },
        )
}

/// The settings in turn: the first; the same with another policy; wholly others. The unit is four
/// microseconds, where every edge is met by chance, or so long that leases exceed a second (R9).
fn cases() -> impl Strategy<Value = ([Settings; 3], Vec<Input>)> {
    prop_oneof![Just(4_u64), Just(200_000)].prop_flat_map(|unit| {
        let three =
            (settings(unit), policy(), settings(unit)).prop_map(|(first, policy, other)| {
                [first.clone(), Settings { policy, ..first }, other]
            });
        (three, proptest::collection::vec(input(), 1..90))
    })
}

/// Cases that recover often: the first probe decides, and the first settings ramp up.
fn recovering() -> impl Strategy<Value = ([Settings; 3], Vec<Input>)> {
    let ramp_up = (1..30_u64, prop_oneof![Just(0.125), Just(0.5)]);
    (cases().boxed(), ramp_up).prop_map(|((mut settings, inputs), ramp_up)| {
        for one in &mut settings {
            one.successes_to_close = 1;
        }
        settings[0].ramp_up = Some(ramp_up);
        (settings, inputs)
    })
}

// ---------------------------------------------------------------------------------------------------
// A circuit with its clock and the permits it has given out.

struct Turns(AtomicUsize);

impl RandomSource for Turns {
    fn uniform(&self) -> f64 {
        RANDOM[self.0.fetch_add(1, Ordering::SeqCst) % RANDOM.len()]
    }
}

#[derive(Debug)]
enum Answer {
    None,
    Admitted {
        probe: bool,
        epoch: u64,
    },
    Refused {
        reason: Reason,
        retry_after: Option<Duration>,
        epoch: u64,
    },
    Settled(Settlement),
}

struct World {
    settings: [Settings; 3],
    policies: Vec<TripPolicy>,
    present: usize,
    circuit: Circuit,
    random: Arc<Turns>,
    clock: u64,
    outstanding: Vec<(Permit, usize)>,
    given_out: usize,
}

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

impl World {
    fn new(settings: [Settings; 3]) -> Self {
        let clock = 1_000_000_000;
        // A custom rule is equal to the same object alone, so equal settings share one.
        let mut policies: Vec<TripPolicy> = Vec::new();
        for one in &settings {
            let same = settings
                .iter()
                .position(|other| other.policy == one.policy)
                .unwrap();
            let policy = policies.get(same).cloned();
            policies.push(policy.unwrap_or_else(|| one.policy()));
        }
        let config = settings[0].config(policies[0].clone());
        let random = Arc::new(Turns(AtomicUsize::new(0)));
        Self {
            circuit: Circuit::with_random(config, random.clone(), at(clock)),
            random,
            settings,
            policies,
            present: 0,
            clock,
            outstanding: Vec::new(),
            given_out: 0,
        }
    }

    fn unit(&self) -> u64 {
        self.settings[0].unit
    }

    fn now(&self) -> Timestamp {
        at(self.clock)
    }

    fn span(&self, units: u64) -> Duration {
        Duration::from_micros(units * self.unit())
    }

    fn config(&self, which: usize) -> BreakerConfig {
        self.settings[which].config(self.policies[which].clone())
    }

    fn pick(&self, which: Index) -> Option<usize> {
        (!self.outstanding.is_empty()).then(|| which.index(self.outstanding.len()))
    }

    fn acquire(&mut self, timeout: Option<u64>) -> Answer {
        let now = self.now();
        let answer = match timeout {
            None => self.circuit.try_acquire(now),
            Some(timeout) => self.circuit.try_acquire_for(self.span(timeout), now),
        };
        match answer {
            Ok(permit) => {
                let (probe, epoch) = (permit.is_probe(), permit.epoch());
                self.outstanding.push((permit, self.given_out));
                self.given_out += 1;
                Answer::Admitted { probe, epoch }
            }
            Err(refused) => Answer::Refused {
                reason: refused.reason(),
                retry_after: refused.retry_after(),
                epoch: refused.epoch(),
            },
        }
    }

    /// Tells whether the rules say exactly what a restored circuit does. A closed one that has seen later
    /// than `now` is left alone: whether a failure that was out of the window comes back in is open, and of
    /// no matter.
    fn can_restore(&self) -> bool {
        let record = self.circuit.record();
        self.now() >= record.newest() || record.state() != CircuitState::Closed
    }

    fn restore(&mut self) {
        let text = serde_json::to_string(self.circuit.record()).expect("a record is written");
        let record: Record = serde_json::from_str(&text).expect("and read");
        assert_eq!(&record, self.circuit.record());
        let (config, now) = (self.config(self.present), self.now());
        self.circuit = Circuit::restore_with_random(config, record, self.random.clone(), now);
    }

    fn move_clock(&mut self, input: &Input) {
        let offset = |units: u64, beside: i64| (units * self.unit()).saturating_add_signed(beside);
        self.clock = match *input {
            Input::Forward(units, beside) => self.clock + offset(units, beside),
            Input::Backward(units, beside) => self.clock - offset(units, beside),
            Input::ToDeadline(beside) => match self.circuit.next_deadline() {
                Some(deadline) => deadline.as_micros().saturating_add_signed(beside),
                None => self.clock + 4 * self.unit(),
            },
            _ => self.clock,
        };
    }

    /// Does the input and returns the answers, in order.
    fn apply(&mut self, input: &Input) -> Vec<Answer> {
        let now = self.now();
        match input {
            Input::Acquire => vec![self.acquire(None)],
            Input::AcquireFor(timeout) => vec![self.acquire(Some(*timeout))],
            Input::Call(outcome) => {
                let mut answers = vec![self.acquire(None)];
                if matches!(answers[0], Answer::Admitted { .. }) {
                    let (permit, _) = self.outstanding.pop().unwrap();
                    answers.push(Answer::Settled(self.circuit.settle(permit, *outcome, now)));
                }
                answers
            }
            Input::Settle(which, outcome) => match self.pick(*which) {
                Some(which) => {
                    let (permit, _) = self.outstanding.swap_remove(which);
                    vec![Answer::Settled(self.circuit.settle(permit, *outcome, now))]
                }
                None => vec![],
            },
            Input::Reclaim(which) => match self.pick(*which) {
                Some(which) => {
                    let (permit, _) = self.outstanding.swap_remove(which);
                    vec![Answer::Settled(self.circuit.reclaim(permit, now))]
                }
                None => vec![],
            },
            Input::Lose(which) => {
                if let Some(which) = self.pick(*which) {
                    drop(self.outstanding.swap_remove(which));
                }
                vec![]
            }
            Input::Forward(..) | Input::Backward(..) | Input::ToDeadline(..) => {
                self.move_clock(input);
                vec![]
            }
            Input::ForceOpen(ttl) => {
                let ttl = ttl.map(|ttl| self.span(ttl));
                self.circuit
                    .force_open(ttl, "an order", now)
                    .expect("a valid ttl");
                vec![Answer::None]
            }
            Input::ForceClosed(ttl) => {
                let ttl = ttl.map(|ttl| self.span(ttl));
                self.circuit
                    .force_closed(ttl, "an order", now)
                    .expect("a valid ttl");
                vec![Answer::None]
            }
            Input::Release => {
                self.circuit.release(now);
                vec![Answer::None]
            }
            Input::Reset => {
                self.circuit.reset(now);
                vec![Answer::None]
            }
            Input::Reconfigure(which) => {
                self.circuit.reconfigure(self.config(*which), now);
                self.present = *which;
                vec![Answer::None]
            }
            Input::Restore => {
                if self.can_restore() {
                    self.restore();
                }
                vec![Answer::None]
            }
            Input::Advance => {
                self.circuit.advance(now);
                vec![Answer::None]
            }
        }
    }

    fn transitions(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.circuit.pop_transition())
            .map(Event::from)
            .collect()
    }
}

// ---------------------------------------------------------------------------------------------------
// The circuit against the model.

struct Both {
    world: World,
    model: Model,
    permits: Vec<Option<ModelPermit>>,
}

impl Both {
    /// Does the input in the model, with the circuit's answers to compare with.
    fn follow(
        &mut self,
        input: &Input,
        picked: Option<usize>,
        answers: &[Answer],
        restores: bool,
        now: u64,
    ) {
        let expect = |answer: &Answer, expected: &Result<ModelPermit, Refusal>, epoch: u64| match (
            answer, expected,
        ) {
            (Answer::Admitted { probe, epoch: of }, Ok(permit)) => {
                assert_eq!((*probe, *of), (permit.probe, permit.epoch));
            }
            (
                Answer::Refused {
                    reason,
                    retry_after,
                    epoch: of,
                },
                Err(refusal),
            ) => {
                assert_eq!(*reason, refusal.reason);
                assert_eq!(*retry_after, refusal.retry_after.map(Duration::from_micros));
                assert_ne!(*retry_after, Some(Duration::ZERO), "R9");
                assert_eq!(*of, epoch);
            }
            _ => panic!("the circuit: {answer:?}, the model: {expected:?}"),
        };
        let model = &mut self.model;
        let unit = model.settings.unit;
        match input {
            Input::Acquire | Input::AcquireFor(_) | Input::Call(_) => {
                let timeout = match input {
                    Input::AcquireFor(timeout) => *timeout,
                    _ => model.settings.call_timeout,
                };
                let expected = model.acquire(timeout, now);
                expect(&answers[0], &expected, model.epoch);
                if let Ok(permit) = expected {
                    if let Input::Call(outcome) = input {
                        let settled = model.settle(&permit, Some(*outcome), now);
                        let Answer::Settled(answer) = answers[1] else {
                            panic!("not settled")
                        };
                        assert_eq!(answer, settled);
                        self.permits.push(None);
                    } else {
                        self.permits.push(Some(permit));
                    }
                }
            }
            Input::Settle(..) | Input::Reclaim(_) => {
                if let Some(picked) = picked {
                    let permit = self.permits[picked].take().expect("settled once");
                    let outcome = match input {
                        Input::Settle(_, outcome) => Some(*outcome),
                        _ => None,
                    };
                    let settled = model.settle(&permit, outcome, now);
                    let Answer::Settled(answer) = answers[0] else {
                        panic!("not settled")
                    };
                    assert_eq!(answer, settled);
                }
            }
            Input::ForceOpen(ttl) => model.force(true, ttl.map(|ttl| ttl * unit), "an order", now),
            Input::ForceClosed(ttl) => {
                model.force(false, ttl.map(|ttl| ttl * unit), "an order", now);
            }
            Input::Release => model.release(now),
            Input::Reset => model.reset(now),
            Input::Reconfigure(which) => {
                let settings = self.world.settings[*which].clone();
                model.reconfigure(&settings, now);
            }
            Input::Restore => {
                if restores {
                    model.restore(now);
                }
            }
            Input::Advance => {
                model.begin(now);
            }
            Input::Lose(_) | Input::Forward(..) | Input::Backward(..) | Input::ToDeadline(_) => {}
        }
    }

    fn step(&mut self, input: &Input) {
        let now = self.world.clock;
        let picked = match input {
            Input::Settle(which, _) | Input::Reclaim(which) | Input::Lose(which) => self
                .world
                .pick(*which)
                .map(|which| self.world.outstanding[which].1),
            _ => None,
        };
        let restores = self.world.can_restore();
        let answers = self.world.apply(input);
        self.follow(input, picked, &answers, restores, now);
        self.compare();
    }

    fn compare(&mut self) {
        let events = std::mem::take(&mut self.model.events);
        assert_eq!(self.world.transitions(), events);

        let (circuit, model) = (&self.world.circuit, &self.model);
        let record = circuit.record().clone();
        assert_eq!(record.state(), model.state());
        assert_eq!(record.epoch(), model.epoch);
        assert_eq!(record.attempt(), model.attempt);
        assert_eq!(record.newest(), at(model.newest));
        let deadline = model.until().or(model.ramp_end());
        assert_eq!(circuit.next_deadline(), deadline.map(at));

        let clock = self.world.now();
        let now = self.world.clock.max(model.newest);
        let over = model.order_is_over(now);
        let state = match (over, model.state()) {
            (true, CircuitState::ForcedOpen) => CircuitState::Open,
            (true, _) => CircuitState::Closed,
            (false, state) => state,
        };
        let refusal = if over { None } else { model.refusal(now) };
        let due = state == CircuitState::Open && refusal.is_none();

        let peek = circuit.peek(clock);
        assert_eq!(peek.state, state);
        assert_eq!(peek.probe_due, due);
        assert_eq!(peek.refusal, refusal.as_ref().map(|refusal| refusal.reason));
        let retry_after = refusal
            .and_then(|refusal| refusal.retry_after)
            .map(Duration::from_micros);
        assert_eq!(peek.retry_after, retry_after);

        let snapshot = circuit.snapshot(clock);
        assert_eq!(snapshot.at, at(now));
        assert_eq!(snapshot.state, state);
        assert_eq!(snapshot.probe_due, due);
        assert_eq!(snapshot.retry_after, retry_after);
        assert_eq!(snapshot.epoch, model.epoch);
        assert_eq!(snapshot.attempt, model.attempt);
        let shown = !(over && state == CircuitState::Closed);
        assert_eq!(snapshot.until, model.until().filter(|_| shown).map(at));
        assert_eq!(snapshot.ramp_share, model.share(now));
        let order = !over && matches!(model.stand, Stand::Forced { .. });
        assert_eq!(snapshot.reason.as_deref(), order.then_some("an order"));
        assert_eq!(
            (snapshot.failures, snapshot.slow_calls, snapshot.samples),
            model.counts(now),
            "failures, slow calls, samples"
        );
        assert_eq!(snapshot.probes_in_flight as usize, model.held(now).len());
        assert_eq!((snapshot.successes, snapshot.inconclusive), model.tally());
        assert_eq!(snapshot.calls, model.calls);

        // Behind the newest instant the rules leave a lifetime open.
        if self.world.clock >= model.newest {
            assert_eq!(circuit.lifetime(clock), model.lifetime(now));
        }
        // R8: looking changes nothing.
        assert_eq!(circuit.record(), &record);
    }
}

/// So many cases, unless `PROPTEST_CASES` says otherwise; prints the seed.
fn cases_and_seed(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(RandomState::new().hash_one(cases));
    }
    if let RngSeed::Fixed(seed) = config.rng_seed {
        println!("PROPTEST_RNG_SEED={seed}");
    }
    config
}

proptest! {
    #![proptest_config(cases_and_seed(600))]

    /// R1 to R4, R6 to R9, R11 to R18, R22 to R25, R28, R29, R31, R35, R36
    #[test]
    fn the_circuit_does_what_the_model_does((settings, inputs) in cases()) {
        let world = World::new(settings.clone());
        let model = Model::new(settings[0].clone(), world.clock);
        let mut both = Both { world, model, permits: Vec::new() };
        both.compare();
        for input in &inputs {
            both.step(input);
        }
    }

    /// R36, from a round of probes on
    #[test]
    fn a_recovering_circuit_does_what_the_model_does((settings, inputs) in recovering()) {
        let world = World::new(settings.clone());
        let model = Model::new(settings[0].clone(), world.clock);
        let mut both = Both { world, model, permits: Vec::new() };
        // The end of a forced open is a break that is over (R23).
        both.step(&Input::ForceOpen(Some(1)));
        both.step(&Input::Forward(1, 0));
        both.step(&Input::Call(Outcome::Success));
        assert_eq!(both.model.recovered, Some(both.world.clock));
        for input in &inputs {
            both.step(input);
        }
    }
}

proptest! {
    #![proptest_config(cases_and_seed(150))]

    /// R7, R13, R16, FAILURE_CASES 16, 20, 38
    #[test]
    fn probes_under_a_running_lease_never_exceed_max_probes((settings, inputs) in cases()) {
        let [first, second, third] = settings;
        let second = Settings { policy: second.policy, ..first.clone() };
        let third = Settings { policy: third.policy, ..first.clone() };
        let mut world = World::new([first.clone(), second, third]);
        // Every probe that was admitted and neither settled nor reclaimed: id, epoch, end of lease.
        let mut running: Vec<(usize, u64, u64)> = Vec::new();
        for input in &inputs {
            let ended = match input {
                Input::Settle(which, _) | Input::Reclaim(which) => world.pick(*which),
                _ => None,
            };
            if let Some(ended) = ended {
                let ended = world.outstanding[ended].1;
                running.retain(|(id, ..)| *id != ended);
            }
            let timeout = match input {
                Input::AcquireFor(timeout) => *timeout,
                _ => first.call_timeout,
            };
            let answers = world.apply(input);
            let now = world.clock.max(world.circuit.record().newest().as_micros());
            if let [Answer::Admitted { probe: true, epoch }] = answers[..] {
                running.push((world.given_out - 1, epoch, now + first.lease(timeout)));
            }
            let epoch = world.circuit.record().epoch();
            let held = running.iter().filter(|(_, of, end)| *of == epoch && *end > now).count();
            prop_assert!(held <= first.max_probes as usize, "{held} held");
            prop_assert_eq!(world.circuit.snapshot(at(now)).probes_in_flight as usize, held);
        }
    }

    /// R6, R8, R12
    #[test]
    fn an_open_circuit_admits_nothing_before_its_deadline_and_then_a_probe((settings, inputs) in cases()) {
        let mut world = World::new(settings);
        for input in &inputs {
            let before = world.circuit.record().clone();
            let now = at(world.clock.max(before.newest().as_micros()));
            let answers = world.apply(input);
            if before.state() != CircuitState::Open {
                continue;
            }
            let due = before.restrained_until().expect("open until some time") <= now;
            match answers.first() {
                Some(Answer::Admitted { probe, .. }) => prop_assert!(due && *probe),
                Some(Answer::Refused { reason, .. }) => {
                    prop_assert!(!due);
                    prop_assert_eq!(*reason, Reason::Open);
                }
                Some(Answer::Settled(settlement)) => {
                    prop_assert_eq!(*settlement, Settlement::Late);
                    prop_assert_eq!(world.circuit.record().state(), CircuitState::Open);
                    prop_assert_eq!(
                        world.circuit.record().restrained_until(),
                        before.restrained_until()
                    );
                }
                _ => {}
            }
        }
    }

    /// R9
    #[test]
    fn a_rejection_leaves_no_trace_but_its_count((settings, inputs) in cases()) {
        let mut world = World::new(settings);
        for input in &inputs {
            let before = world.circuit.record().clone();
            let calls = world.circuit.snapshot(world.now()).calls;
            world.transitions();
            if let [Answer::Refused { retry_after, .. }] = world.apply(input)[..] {
                prop_assert_ne!(retry_after, Some(Duration::ZERO));
                prop_assert_eq!(world.circuit.record(), &before);
                prop_assert_eq!(world.transitions(), vec![]);
                let mut counted = world.circuit.snapshot(world.now()).calls;
                prop_assert_eq!(counted.rejected, calls.rejected + 1);
                counted.rejected = calls.rejected;
                prop_assert_eq!(counted, calls);
            }
        }
    }

    /// R25, R23
    #[test]
    fn events_follow_each_other_as_the_diagram_allows((settings, inputs) in cases()) {
        use CircuitState::{Closed, ForcedClosed, ForcedOpen, HalfOpen, Open};
        let mut world = World::new(settings);
        let mut state = Closed;
        for input in &inputs {
            world.apply(input);
            for event in world.transitions() {
                prop_assert_eq!(event.from, state, "{:?}", event);
                prop_assert_ne!(event.from, event.to, "{:?}", event);
                let legal = match event.cause {
                    Cause::Tripped => (event.from, event.to) == (Closed, Open),
                    Cause::ProbeDue => (event.from, event.to) == (Open, HalfOpen),
                    Cause::ProbeFailed | Cause::Inconclusive => {
                        (event.from, event.to) == (HalfOpen, Open)
                    }
                    Cause::Recovered => (event.from, event.to) == (HalfOpen, Closed),
                    Cause::Forced => matches!(event.to, ForcedOpen | ForcedClosed),
                    Cause::Released => {
                        matches!(event.from, ForcedOpen | ForcedClosed) && event.to == Closed
                    }
                    Cause::Expired => matches!(
                        (event.from, event.to),
                        (ForcedOpen, Open) | (ForcedClosed, Closed)
                    ),
                    Cause::Reset => matches!(event.from, Open | HalfOpen) && event.to == Closed,
                    _ => false,
                };
                prop_assert!(legal, "{:?}", event);
                state = event.to;
            }
            // R29: in another process, without an event.
            if matches!(input, Input::Restore) && state == HalfOpen && world.can_restore() {
                state = Open;
            }
            prop_assert_eq!(world.circuit.record().state(), state);
        }
    }

    /// R1, R24, R29
    #[test]
    fn the_epoch_grows_with_every_change_of_state_and_is_never_reused((settings, inputs) in cases()) {
        let mut world = World::new(settings);
        let mut newest = world.circuit.record().epoch();
        for input in &inputs {
            let before = world.circuit.record().clone();
            let restores = matches!(input, Input::Restore) && world.can_restore();
            world.apply(input);
            let events = world.transitions();
            for event in &events {
                prop_assert!(event.epoch > newest, "{:?} after epoch {}", event, newest);
                newest = event.epoch;
            }
            let record = world.circuit.record();
            prop_assert!(record.epoch() >= newest);
            let raises = !events.is_empty()
                || matches!(input, Input::Reset)
                || restores;
            prop_assert_eq!(record.epoch() > before.epoch(), raises, "{:?}", input);
            newest = record.epoch();
        }
    }

    /// R10, R15, R16, R23: whatever was lost, cancelled or ignored before
    #[test]
    fn once_breaks_and_leases_are_over_a_call_is_admitted((settings, inputs) in cases()) {
        let mut world = World::new(settings);
        for input in &inputs {
            world.apply(input);
        }
        if world.circuit.next_deadline().is_none() {
            world.circuit.release(world.now()); // an order without an end
        }
        world.clock = world.clock.max(world.circuit.record().newest().as_micros());
        world.clock += world.unit() * 1_000;
        let answer = world.acquire(None);
        prop_assert!(matches!(answer, Answer::Admitted { .. }), "{:?}", answer);
    }

    /// R22
    #[test]
    fn a_break_is_never_shorter_than_its_length_nor_longer_than_the_jitter_allows(
        jitter in 0.0..=1.0_f64,
        random in prop_oneof![
            -2.0..3.0_f64,
            Just(f64::NAN),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
        ],
    ) {
        let length = 30 * SECOND;
        let config = BreakerConfig::builder()
            .trip(TripPolicy::ConsecutiveFailures { failures: 1, within: None })
            .break_duration(Duration::from_micros(length))
            .jitter(jitter)
            .build()
            .unwrap();
        let now = at(5);
        let mut circuit = Circuit::with_random(config, Arc::new(move || random), now);
        let permit = circuit.try_acquire(now).unwrap();
        circuit.settle(permit, Outcome::Failure, now);
        let until = circuit.next_deadline().unwrap().as_micros() - 5;
        let longest = (length as f64 * (1.0 + jitter)) as u64;
        prop_assert!((length..=longest).contains(&until), "{until}");
        if random >= 1.0 {
            prop_assert_eq!(until, longest);
        }
        if random <= 0.0 || random.is_nan() {
            prop_assert_eq!(until, length);
        }
    }
}

/// The tests above would hold vacuously if their inputs led nowhere.
#[test]
fn the_inputs_reach_every_cause_refusal_and_settlement() {
    let mut runner = TestRunner::deterministic();
    let mut seen: HashMap<String, u32> = HashMap::new();
    for _ in 0..400 {
        let (settings, inputs) = cases().new_tree(&mut runner).unwrap().current();
        let policy = format!("{:?}", settings[0].policy);
        let policy = policy.split(' ').next().unwrap().to_owned();
        let mut world = World::new(settings);
        for input in &inputs {
            for answer in world.apply(input) {
                let name = match answer {
                    Answer::None => continue,
                    Answer::Admitted { probe, .. } => format!("admitted, probe: {probe}"),
                    Answer::Refused { reason, .. } => format!("refused: {reason}"),
                    Answer::Settled(settlement) => format!("{settlement:?}"),
                };
                *seen.entry(name).or_default() += 1;
            }
            for event in world.transitions() {
                let mut name = format!("{}: {} to {}", event.cause, event.from, event.to);
                if event.cause == Cause::Tripped {
                    name = format!("{name} by {policy}");
                }
                *seen.entry(name).or_default() += 1;
            }
        }
    }
    println!("{seen:#?}");
    for name in [
        "admitted, probe: false",
        "admitted, probe: true",
        "refused: open",
        "refused: half-open with all probes in use",
        "refused: forced open",
        "refused: ramping up",
        "Counted",
        "Late",
        "tripped: closed to open by Consecutive",
        "tripped: closed to open by Count",
        "tripped: closed to open by RateOfCalls",
        "tripped: closed to open by RateOfTime",
        "tripped: closed to open by Custom",
        "probe due: open to half-open",
        "probe failed: half-open to open",
        "inconclusive: half-open to open",
        "recovered: half-open to closed",
        "forced: closed to forced open",
        "forced: open to forced closed",
        "forced: half-open to forced open",
        "forced: forced open to forced closed",
        "forced: forced closed to forced open",
        "released: forced open to closed",
        "released: forced closed to closed",
        "expired: forced open to open",
        "expired: forced closed to closed",
        "reset: open to closed",
        "reset: half-open to closed",
    ] {
        assert!(
            seen.get(name).is_some_and(|times| *times >= 3),
            "hardly ever: {name}"
        );
    }
}
