//! The circuit: every transition rule, and nothing else.
//! It knows no clock, lock, runtime, actor or subscriber; the actor in `actor.rs` owns one.
//!
//! Each step takes `now`, changes the whole [`Record`] at once, and leaves the [`Transition`]s it made
//! to be fetched with [`Circuit::pop_transition`]. It can be used without actix:
//!
//! ```
//! use std::time::Duration;
//! use actix_circuit_breaker::{BreakerConfig, TripPolicy, Timestamp};
//! use actix_circuit_breaker::circuit::{Cause, Circuit, CircuitState};
//! use actix_circuit_breaker::Outcome;
//!
//! let config = BreakerConfig::builder()
//!     .trip(TripPolicy::ConsecutiveFailures { failures: 1, within: None })
//!     .break_duration(Duration::from_secs(10))
//!     .build()?;
//! let now = Timestamp::ZERO;
//! let mut circuit = Circuit::new(config, now);
//!
//! let permit = circuit.try_acquire(now).expect("closed");
//! circuit.settle(permit, Outcome::Failure, now);
//! let refused = circuit.try_acquire(now).unwrap_err();
//! assert_eq!(refused.retry_after(), Some(Duration::from_secs(10)));
//! assert_eq!(circuit.pop_transition().unwrap().cause, Cause::Tripped);
//!
//! let probe = circuit.try_acquire(now + Duration::from_secs(10)).expect("due");
//! assert!(probe.is_probe());
//! circuit.settle(probe, Outcome::Success, now + Duration::from_secs(11));
//! assert_eq!(circuit.record().state(), CircuitState::Closed);
//! # Ok::<(), actix_circuit_breaker::ConfigError>(())
//! ```
#![doc = include_str!("circuit/rules.md")]

mod counting;
mod lifetime;
mod news;
mod order;
mod outside;
mod permit;
mod probe;
mod ramp;
mod record;
mod refused;
mod replica;
mod settlement;
pub(crate) mod shared;
mod sharing;
mod since;
mod snapshot;
mod state;
mod stored;
mod transition;
mod window;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use lifetime::Lifetime;
pub use permit::Permit;
pub(crate) use permit::SPARED;
pub use record::Record;
pub use refused::{Reason, Refused};
pub(crate) use replica::{Request, Terms, Ticket};
pub(crate) use settlement::Ending;
pub use settlement::{Panicked, Settlement};
pub(crate) use since::Since;
pub use snapshot::{Calls, Peek, Snapshot};
pub use state::CircuitState;
pub(crate) use stored::Stored;
pub use transition::{Cause, Evidence, Transition};

use crate::clock::Timestamp;
use crate::config::BreakerConfig;
use crate::outcome::Outcome;
use crate::random::{RandomSource, ThreadRandom, draw};
use news::News;
use order::{Order, OrderKind};
use probe::Round;
use record::Phase;
use sharing::Sharing;
use window::{Counts, Memory, Sample, Verdict};

/// The state machine of one breaker.
///
/// A clone goes its own way from where it was made, which answers what would happen if; a permit is
/// settled with one of the two.
#[derive(Clone)]
pub struct Circuit {
    config: BreakerConfig,
    random: Arc<dyn RandomSource>,
    record: Record,
    next_slot: u64,
    calls: Calls,
    news: News,
    since: Since,
    sharing: Sharing,
}

impl fmt::Debug for Circuit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Circuit")
            .field("config", &self.config)
            .field("record", &self.record)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl Circuit {
    /// Makes a closed circuit whose epochs begin at `now`.
    pub fn new(config: BreakerConfig, now: Timestamp) -> Self {
        Self::with_random(config, Arc::new(ThreadRandom), now)
    }

    /// Makes a closed circuit with a random source of one's own for the jitter and the ramp-up.
    pub fn with_random(
        config: BreakerConfig,
        random: Arc<dyn RandomSource>,
        now: Timestamp,
    ) -> Self {
        let record = Record {
            phase: Phase::Closed(Memory::new(&config)),
            epoch: now.as_micros(),
            attempt: 0,
            newest: now,
        };
        Self::from_record(config, random, record)
    }

    fn from_record(config: BreakerConfig, random: Arc<dyn RandomSource>, record: Record) -> Self {
        Self {
            config,
            random,
            record,
            next_slot: 0,
            calls: Calls::default(),
            news: News::default(),
            since: Since::default(),
            sharing: Sharing::default(),
        }
    }

    // Admission.

    /// Asks for leave to make one call (R6, R7, R36).
    ///
    /// # Errors
    ///
    /// Returns [`Refused`] while open, while all probes are in use, while forced open, and for the share
    /// of calls that a ramp-up does not admit yet.
    pub fn try_acquire(&mut self, now: Timestamp) -> Result<Permit, Refused> {
        self.try_acquire_for(self.config.call_timeout(), now)
    }

    /// Asks for leave to make one call whose own timeout is `call_timeout`; a probe that may take
    /// longer than the config's calls gets a longer lease (R16).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_for(
        &mut self,
        call_timeout: Duration,
        now: Timestamp,
    ) -> Result<Permit, Refused> {
        let admitted = self.try_acquire_or_wait(call_timeout, now);
        if admitted.is_err() {
            self.calls.rejected = self.calls.rejected.saturating_add(1);
        }
        admitted
    }

    /// Asks for one that waits if it is refused: that is no rejection, and not counted.
    pub(crate) fn try_acquire_or_wait(
        &mut self,
        call_timeout: Duration,
        now: Timestamp,
    ) -> Result<Permit, Refused> {
        let now = self.begin(now);
        if let Some(probe) = self.admit_by_leave(now)? {
            return Ok(probe);
        }
        if let Some(refused) = self.refusal(now).or_else(|| self.ramp_refusal(now)) {
            return Err(refused);
        }
        Ok(self.admit(self.config.lease(call_timeout), now))
    }

    /// Admits a call that is not refused; a probe takes the first slot for `lease`.
    fn admit(&mut self, lease: Duration, now: Timestamp) -> Permit {
        self.record.newest = now;
        if let Phase::Open { until } = self.record.phase {
            let round = Phase::HalfOpen {
                due: until,
                round: Round::default(),
            };
            self.enter(round, Cause::ProbeDue, Evidence::default(), now);
        }
        let slot = match &mut self.record.phase {
            Phase::HalfOpen { round, .. } => {
                let id = self.next_slot;
                self.next_slot = id.wrapping_add(1);
                let lost = round.take(id, now + lease, now);
                self.calls.lost_probes = self.calls.lost_probes.saturating_add(lost);
                Some(id)
            }
            Phase::Closed(_) | Phase::Ramping { .. } | Phase::Open { .. } | Phase::Forced(_) => {
                None
            }
        };
        Permit {
            epoch: self.record.epoch,
            admitted: now,
            slot,
        }
    }

    // Outcomes.

    /// Settles a call. Under a policy with a limit on slow calls, the time since admission tells
    /// whether the call was slow.
    pub fn settle(&mut self, permit: Permit, outcome: Outcome, now: Timestamp) -> Settlement {
        let ending = Ending::Outcome {
            outcome,
            slow: false,
        };
        self.end(permit, ending, now)
    }

    /// Takes back the permit of a caller that went away: its slot is free at once, and there is no
    /// vote (R10).
    pub fn reclaim(&mut self, permit: Permit, now: Timestamp) -> Settlement {
        self.end(permit, Ending::Gone, now)
    }

    /// The one place where the end of a call meets the record.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "settling consumes the permit, so that none is settled twice"
    )]
    pub(crate) fn end(&mut self, permit: Permit, ending: Ending, now: Timestamp) -> Settlement {
        let now = self.begin(now);
        self.record.newest = now;
        let Permit {
            epoch,
            admitted,
            slot,
        } = permit;
        if epoch != self.record.epoch {
            return self.late();
        }
        let ending = self.aged(ending, admitted, now, slot.is_some());
        match (&mut self.record.phase, slot) {
            (Phase::Closed(_) | Phase::Ramping { .. }, None) => self.end_while_closed(ending, now),
            (Phase::HalfOpen { .. }, Some(slot)) => {
                if !self.settle_there(slot, ending, now) {
                    self.end_probe(slot, ending, now);
                }
            }
            (
                Phase::Forced(Order {
                    kind: OrderKind::Closed,
                    ..
                }),
                None,
            ) => {}
            // No other phase gives out permits, so none of its epoch can come back.
            _ => return self.late(),
        }
        let counter = match ending {
            Ending::Outcome { outcome, .. } => match outcome {
                Outcome::Success => &mut self.calls.successes,
                Outcome::Failure => &mut self.calls.failures,
                Outcome::Ignored => &mut self.calls.ignored,
            },
            Ending::Gone => &mut self.calls.ignored,
        };
        *counter = counter.saturating_add(1);
        Settlement::Counted
    }

    /// An ending that is slow if the time since admission says so; a slow success of a probe is a failure
    /// (R18).
    fn aged(&self, ending: Ending, admitted: Timestamp, now: Timestamp, probe: bool) -> Ending {
        let (Ending::Outcome { outcome, slow }, Some(limit)) = (ending, self.config.slow_call())
        else {
            return ending;
        };
        let slow = slow || admitted.is_over(limit.duration, now);
        let outcome = match outcome {
            Outcome::Success if probe && slow => Outcome::Failure,
            outcome => outcome,
        };
        Ending::Outcome { outcome, slow }
    }

    fn end_while_closed(&mut self, ending: Ending, now: Timestamp) {
        if self.record_there(ending, now) {
            return;
        }
        let Ending::Outcome { outcome, slow } = ending else {
            return;
        };
        let failed = match outcome {
            Outcome::Success => false,
            Outcome::Failure => true,
            Outcome::Ignored => return,
        };
        if let Some(memory) = self.record.phase.memory_mut() {
            let verdict = memory.add(Sample { failed, slow }, &self.config, now);
            self.act_on(verdict, now);
        }
    }

    fn end_probe(&mut self, slot: u64, ending: Ending, now: Timestamp) {
        let Phase::HalfOpen { round, .. } = &mut self.record.phase else {
            return;
        };
        let held = round.give_back(slot, now);
        let Ending::Outcome { outcome, .. } = ending else {
            return;
        };
        let cause = match outcome {
            Outcome::Success => {
                if round.succeed() < self.config.successes_to_close() {
                    return;
                }
                Cause::Recovered
            }
            Outcome::Failure => Cause::ProbeFailed,
            Outcome::Ignored => {
                let limit = self.config.max_inconclusive();
                if !held || round.shrug() < limit || round.held(now) > 0 {
                    return;
                }
                Cause::Inconclusive
            }
        };
        let evidence = Evidence {
            successes: round.successes(),
            inconclusive: round.inconclusive(),
            ..Evidence::default()
        };
        match cause {
            Cause::Recovered => self.close(cause, evidence, now),
            Cause::ProbeFailed => {
                self.open(self.record.attempt.saturating_add(1), cause, evidence, now);
            }
            _ => self.open(self.record.attempt, cause, evidence, now),
        }
    }

    fn late(&mut self) -> Settlement {
        self.calls.late = self.calls.late.saturating_add(1);
        Settlement::Late
    }

    fn act_on(&mut self, verdict: Verdict, now: Timestamp) {
        match verdict {
            Verdict::Stay => {}
            Verdict::RulePanicked => self.news.push_panicked(Panicked::TripRule),
            Verdict::Trip => {
                let Counts {
                    failures,
                    slow,
                    samples,
                } = self.counts(now);
                let evidence = Evidence {
                    failures,
                    slow_calls: slow,
                    samples,
                    ..Evidence::default()
                };
                self.open(0, Cause::Tripped, evidence, now);
            }
        }
    }

    fn counts(&self, now: Timestamp) -> Counts {
        self.record
            .phase
            .memory()
            .map_or_else(Counts::default, |memory| memory.counts(&self.config, now))
    }

    // Time.

    /// Ends an order or a ramp-up whose time is over, and moves nothing else (R28). For timers; calling it
    /// late, twice or never costs nothing, since every step looks at the time itself.
    pub fn advance(&mut self, now: Timestamp) {
        self.begin(now);
    }

    /// Returns when a break, an order or a ramp-up ends by itself, which is when a timer is of use.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.record.phase.until().or_else(|| self.ramp_end())
    }

    /// Begins a step: `now` is never older than the newest instant seen (R3), and an order or a ramp-up
    /// whose time is over ends first (R8, R36).
    fn begin(&mut self, now: Timestamp) -> Timestamp {
        let now = now.max(self.record.newest);
        self.end_ramp(now);
        if let Phase::Forced(order) = &self.record.phase
            && order.is_over(now)
        {
            let next = self.after_order(order);
            self.record.newest = now;
            self.enter(next, Cause::Expired, Evidence::default(), now);
        }
        now
    }

    /// What follows when the time of an order is over: time alone never closes, so a forced open
    /// becomes a break that is over (R23).
    fn after_order(&self, order: &Order) -> Phase {
        match (order.kind, order.until) {
            (OrderKind::Open, Some(until)) => Phase::Open { until },
            _ => Phase::Closed(Memory::new(&self.config)),
        }
    }

    // Transitions: `open` and `close` say what else changes with the phase, `enter` changes it.

    fn open(&mut self, attempt: u32, cause: Cause, evidence: Evidence, now: Timestamp) {
        let random = if self.config.jitter() > 0.0 {
            self.draw()
        } else {
            0.0
        };
        self.record.attempt = attempt;
        let until = now + self.config.break_length(attempt, random);
        self.enter(Phase::Open { until }, cause, evidence, now);
    }

    fn close(&mut self, cause: Cause, evidence: Evidence, now: Timestamp) {
        self.record.attempt = 0;
        let memory = Memory::new(&self.config);
        let phase = if cause == Cause::Recovered && self.config.ramp_up().is_some() {
            Phase::Ramping { since: now, memory }
        } else {
            Phase::Closed(memory)
        };
        self.enter(phase, cause, evidence, now);
    }

    /// The one place that changes the phase: with a new epoch, and a transition if the state changed.
    fn enter(&mut self, phase: Phase, cause: Cause, evidence: Evidence, now: Timestamp) {
        let from = self.record.state();
        self.record.phase = phase;
        self.record.epoch = self.epoch_after(cause, now);
        self.note_own_change(cause, now);
        let to = self.record.state();
        if from == to {
            return;
        }
        self.since.note(from, to, now);
        let transition = Transition {
            from,
            to,
            cause,
            at: now,
            epoch: self.record.epoch,
            evidence: self.complete(evidence),
        };
        self.note_last(&transition);
        self.news.push_transition(transition);
    }

    /// Adds what the present record knows.
    fn complete(&self, mut evidence: Evidence) -> Evidence {
        evidence.attempt = self.record.attempt;
        evidence.until = self.record.phase.until();
        evidence.reason = self.reason();
        evidence
    }

    fn reason(&self) -> Option<Arc<str>> {
        match &self.record.phase {
            Phase::Forced(order) => Some(Arc::clone(&order.reason)),
            _ => None,
        }
    }

    /// A number in [0, 1], asked for only where it decides something; 0 from a source that panics.
    fn draw(&mut self) -> f64 {
        draw(&*self.random).unwrap_or_else(|| {
            self.news.push_panicked(Panicked::RandomSource);
            0.0
        })
    }

    /// Returns the record, for tests and for writing it down.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns the settings in force.
    pub fn config(&self) -> &BreakerConfig {
        &self.config
    }
}

/// The epoch after `epoch`.
fn next_epoch(epoch: u64) -> u64 {
    epoch.saturating_add(1).min(Timestamp::MAX.as_micros())
}
