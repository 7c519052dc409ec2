//! What handles do by the gate alone: they read its word, and leave what they count.

use std::sync::Arc;
use std::time::Duration;

use actix_circuit_breaker::{CircuitState, Outcome, Reason, Timestamp, TripPolicy};

use super::model::{Model, Next, keep};
use super::parts::{At, Leave, Mail, Recipe, ending, question};
use super::script::{Op, Way};
use super::witness::{Answer, Seen};

/// How long before the end of a break handles look at the clock by themselves.
const AHEAD: Duration = Duration::from_millis(50);

impl Model {
    pub(super) fn gate(&self, seen: &Seen, ticking: bool) -> Next {
        let state = self.state();
        let mut model = self.clone();
        match seen.op {
            Op::State => {
                let shown = matches!(seen.answer, Answer::State(shown) if shown == state);
                return keep(shown, model, At::Over);
            }
            Op::Trap => {
                model.trap = Some(seen.answered);
                return vec![(model, At::Over)];
            }
            Op::Tick(time) => {
                model.before.push((model.now, seen.answered));
                model.now = model.now + Duration::from_millis(time.into());
                return vec![(model, At::Over)];
            }
            _ => {}
        }
        let reason = match state {
            CircuitState::Closed | CircuitState::ForcedClosed => return model.passed(seen),
            CircuitState::HalfOpen => return vec![(model, question(seen.op))],
            CircuitState::Open => Reason::Open,
            _ => Reason::ForcedOpen,
        };
        let until = self.circuit.next_deadline();
        let mut next = Next::new();
        // With timers, a handle looks at the clock only when the end of a break was told to be near.
        let told = |ahead| until.is_some_and(|until| until <= self.published + ahead);
        let due = state == CircuitState::Open && told(Duration::ZERO);
        let looks = !self.timers || told(AHEAD);
        let over = due || looks && until.is_some_and(|until| until <= self.now);
        // The clock is read after the word: time may have passed in between.
        if over || looks && ticking {
            next.push((model.clone(), question(seen.op)));
        }
        if !over && is_rejection(seen, reason, self.circuit.record().epoch(), until) {
            model.rejected += 1;
            next.push((model, At::Over));
        }
        next
    }

    pub(super) fn state(&self) -> CircuitState {
        self.circuit.record().state()
    }

    /// Reads the gate and goes, whatever it says.
    pub(super) fn passed(self, seen: &Seen) -> Next {
        let leave = match self.state() {
            // As the gate does it: without a clock, so an order whose time is over stays as it is.
            CircuitState::Closed | CircuitState::ForcedClosed => {
                Leave::Direct(Recipe(Arc::new((self.circuit.clone(), Timestamp::ZERO))))
            }
            _ => Leave::Ghost(self.circuit.record().epoch()),
        };
        self.admitted(seen, leave)
    }

    pub(super) fn admitted(mut self, seen: &Seen, leave: Leave) -> Next {
        let is_orphan = matches!(leave, Leave::Mediated(_));
        let fits = match seen.answer {
            Answer::Admitted { probe } => {
                probe.is_none_or(|probe| probe == matches!(leave, Leave::Probe(_)))
            }
            Answer::Dropped { orphan } => orphan == is_orphan,
            _ => false,
        };
        let at = match (seen.op, &leave) {
            (Op::Call(way, end), _) => ending(way, &leave, end),
            // The caller went away: what the actor grants it comes back.
            (Op::Early(Way::Future | Way::Permit), Leave::Probe(recipe)) => {
                At::Drop(recipe.clone(), false)
            }
            // A permit that was there at once, and is dropped at once.
            (Op::Early(Way::Permit), _) if matches!(seen.answer, Answer::Admitted { .. }) => {
                At::Note(leave.clone(), Outcome::Ignored)
            }
            _ => At::Over,
        };
        let keeps = matches!(seen.op, Op::Begin(_)) || matches!(seen.op, Op::Early(_)) && is_orphan;
        if keeps && let Op::Begin(way) | Op::Early(way) = seen.op {
            self.calls.insert(seen.call, (way, leave));
        }
        keep(fits, self, at)
    }

    /// The end of a call meets the gate, as far as that can take note of it.
    pub(super) fn note(&self, leave: &Leave, outcome: Outcome) -> Next {
        let mut model = self.clone();
        let present = self.circuit.record().epoch() == leave.epoch();
        let message = At::Mail(Mail::Settle(leave.clone(), outcome));
        let mediated = matches!(leave, Leave::Mediated(_));
        match outcome {
            _ if !present && mediated => vec![(model, message)],
            _ if !present => {
                model.late += 1;
                vec![(model, At::Over)]
            }
            Outcome::Success if self.timers && self.is_rated() => {
                vec![(model, At::Tally(leave.clone()))]
            }
            Outcome::Success => {
                let (tells, may_not) = self.tells();
                let mut next = Next::new();
                if tells {
                    next.push((model.clone(), message));
                }
                if may_not {
                    next.push((model, At::Over));
                }
                next
            }
            Outcome::Ignored if !mediated => {
                model.ignored += 1;
                vec![(model, At::Over)]
            }
            _ => vec![(model, message)],
        }
    }

    /// A success is counted in the epoch that it belongs to, or as late.
    pub(super) fn tally(&self, leave: &Leave) -> Next {
        let mut model = self.clone();
        match leave.recipe() {
            Some(recipe) if leave.epoch() == self.circuit.record().epoch() => {
                model.tallies.push(recipe.clone());
            }
            _ => model.late += 1,
        }
        vec![(model, At::Over)]
    }

    fn is_rated(&self) -> bool {
        let trip = self.circuit.config().trip();
        self.state() == CircuitState::Closed && matches!(trip, TripPolicy::FailureRate { .. })
    }

    /// Whether a success may be told to the actor, and whether it may not.
    fn tells(&self) -> (bool, bool) {
        if self.state() != CircuitState::Closed {
            return (false, true);
        }
        let forgets = match self.circuit.config().trip() {
            TripPolicy::FailureRate { .. } => return (true, false),
            TripPolicy::ConsecutiveFailures { .. } => true,
            TripPolicy::FailureCount {
                reset_on_success, ..
            } => *reset_on_success,
            _ => false,
        };
        // Failures that have left the window may be in the memory still, with nothing to show for it.
        let remembers = self.circuit.snapshot(self.now).failures > 0;
        (forgets, !forgets || !remembers)
    }
}

pub(super) fn is_rejection(
    seen: &Seen,
    reason: Reason,
    epoch: u64,
    until: Option<Timestamp>,
) -> bool {
    match seen.answer {
        Answer::Rejected {
            reason: got,
            epoch: of,
            until: at,
        } => (got, of, at) == (reason, epoch, until),
        Answer::Dropped { orphan } => !orphan,
        _ => false,
    }
}
