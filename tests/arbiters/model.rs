//! The shell as its guarantees describe it, around the pure circuit: a gate that repeats the circuit's
//! last word, a mailbox whose messages are one step each, a letterbox, and an actor that may panic.
//! Each point of a step is atomic; in which order points come is for `explain` to find.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix_circuit_breaker::circuit::Circuit;
use actix_circuit_breaker::{BreakerConfig, CircuitState, Outcome, Reason, Timestamp, TripPolicy};

use super::parts::{At, Leave, Letter, Mail, Recipe, ending, question};
use super::script::{End, Op, Way};
use super::witness::{Answer, Batch, Seen};

/// How long before the end of a break handles look at the clock by themselves.
const AHEAD: Duration = Duration::from_millis(50);

/// What may come next, if the answer of the step allows it.
pub(super) type Next = Vec<(Model, At)>;

#[derive(Clone)]
pub(crate) struct Model {
    pub(super) circuit: Circuit,
    /// Which of the settings it was given last.
    pub(super) config: Option<usize>,
    /// Whether handles count on timers.
    pub(super) timers: bool,
    /// When the gate was told last.
    pub(super) published: Timestamp,
    /// Successes that the gate counted and the actor has not looked at.
    pub(super) tallies: Vec<Recipe>,
    /// Successes that the actor counted and the circuit was not asked about.
    pub(super) counted: u64,
    /// Whether the present step looked at several of them together.
    pub(super) folded: bool,
    pub(super) random: Arc<AtomicU64>,
    pub(super) now: Timestamp,
    /// The times before, with the stamp at which each was surely over: a step reads the clock when it
    /// begins, and is seen when it is published.
    pub(super) before: Vec<(Timestamp, u64)>,
    pub(super) letters: Vec<Letter>,
    /// The stamp at which the trap was surely set.
    pub(super) trap: Option<u64>,
    pub(super) away: bool,
    pub(super) restarts: u64,
    /// Counted by the gate.
    pub(super) rejected: u64,
    pub(super) ignored: u64,
    pub(super) late: u64,
    pub(super) seq: u64,
    /// How many calls have timed out.
    pub(super) hung: u64,
    /// How many of the batch's events are accounted for.
    pub(super) told: usize,
    pub(super) calls: BTreeMap<u64, (Way, Leave)>,
}

impl Model {
    pub(crate) fn new(config: BreakerConfig, timers: bool) -> Self {
        let random = Arc::new(AtomicU64::new(0));
        let source = Arc::clone(&random);
        let uniform = move || f64::from_bits(source.load(Ordering::Relaxed));
        Self {
            circuit: Circuit::with_random(config, Arc::new(uniform), Timestamp::ZERO),
            config: None,
            timers,
            published: Timestamp::ZERO,
            tallies: Vec::new(),
            counted: 0,
            folded: false,
            random,
            now: Timestamp::ZERO,
            before: Vec::new(),
            letters: Vec::new(),
            trap: None,
            away: false,
            restarts: 0,
            rejected: 0,
            ignored: 0,
            late: 0,
            seq: 0,
            hung: 0,
            told: 0,
            calls: BTreeMap::new(),
        }
    }

    /// What tells one from another.
    pub(crate) fn key(&self) -> String {
        let calls: Vec<_> = self
            .calls
            .iter()
            .map(|(call, (_, leave))| (call, leave.key()))
            .collect();
        let letters: Vec<_> = self.letters.iter().map(Letter::key).collect();
        format!(
            "{:?} {} {} {:?} {:?} {:?} {:?} {:?} {letters:?} {:?} {} {} {} {} {} {} {} {calls:?}",
            self.published,
            self.counted,
            self.tallies.len(),
            self.config,
            self.circuit.record(),
            self.circuit.snapshot(Timestamp::ZERO).calls,
            self.now,
            self.before,
            self.trap,
            self.away,
            self.restarts,
            self.rejected,
            self.ignored,
            self.late,
            self.hung,
            self.told,
        )
    }

    pub(crate) fn told(&self) -> usize {
        self.told
    }

    pub(crate) fn begin(&mut self, batch: &Batch) {
        self.now = batch.now;
        self.random.store(batch.random.to_bits(), Ordering::Relaxed);
        self.told = 0;
        self.before.clear();
    }

    /// Where a step begins.
    pub(crate) fn first(&self, seen: &Seen) -> At {
        if matches!(seen.answer, Answer::Nothing) {
            return At::Over;
        }
        match seen.op {
            Op::Call(Way::Message, _) | Op::Begin(Way::Message) | Op::Early(Way::Message) => {
                At::Mail(Mail::Ask)
            }
            Op::Finish(_, end) => match self.calls.get(&seen.call) {
                Some((way, leave)) => ending(*way, leave, end),
                None => At::Over,
            },
            Op::Kill(_) => At::Over,
            Op::Call(..) | Op::Begin(_) | Op::Early(_) | Op::State | Op::Trap | Op::Tick(_) => {
                At::Gate
            }
            _ => At::Mail(Mail::Plain),
        }
    }

    /// What may follow from a step's next point.
    pub(crate) fn next(&self, seen: &Seen, at: &At, ticking: bool, batch: &Batch) -> Next {
        match at {
            At::Over => Vec::new(),
            At::Gate => self.gate(seen, ticking),
            At::Unguarded => self.clone().passed(seen),
            At::Note(leave, outcome) => self.note(leave, *outcome),
            At::Tally(leave) => self.tally(leave),
            At::Drop(recipe, panicking) => {
                let mut model = self.clone();
                if *panicking {
                    model.letters.push(Letter::Failed(recipe.clone()));
                    vec![(model, At::Mail(Mail::Collect))]
                } else {
                    model.letters.push(Letter::Gone(recipe.clone()));
                    vec![(model, At::Over)]
                }
            }
            At::Mail(mail) => self.handle(seen, mail, batch),
        }
    }

    fn gate(&self, seen: &Seen, ticking: bool) -> Next {
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
    fn passed(self, seen: &Seen) -> Next {
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
            (Op::Early(Way::Call | Way::Permit), Leave::Probe(recipe)) => {
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
    fn note(&self, leave: &Leave, outcome: Outcome) -> Next {
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
    fn tally(&self, leave: &Leave) -> Next {
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

    /// Whether this is how the batch ended, after the two snapshots that are taken when all is quiet;
    /// the model goes on from there.
    pub(crate) fn ended(mut self, batch: &Batch) -> Option<Self> {
        if self.trap.is_some() {
            self.panic();
        }
        self.away = false;
        self.take_in(self.now);
        if !self.tell(batch) || self.told != batch.events.len() {
            return None;
        }
        let mut snapshot = self.circuit.snapshot(self.now);
        // A timeout is slow, too (R18), which the circuit cannot be told from outside the crate.
        let slow = batch.end.slow_calls;
        if slow <= self.hung && slow <= snapshot.failures {
            snapshot.slow_calls = slow;
        }
        snapshot.calls.successes += self.counted;
        snapshot.calls.rejected += self.rejected;
        snapshot.calls.ignored += self.ignored;
        snapshot.calls.late += self.late;
        let same = snapshot == batch.end.circuit
            && self.restarts == batch.end.restarts
            && *self.circuit.config() == batch.end.config
            && self.state() == batch.state
            && self.state() == batch.watched;
        for seen in &batch.seen {
            // A call whose caller went away may run on in the breaker's care.
            let runs_on = matches!(self.calls.get(&seen.call), Some((_, Leave::Mediated(_))));
            if let Op::Finish(_, end) = seen.op
                && !(runs_on && end == End::Gone)
            {
                self.calls.remove(&seen.call);
            }
        }
        same.then_some(self)
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

pub(super) fn keep(fits: bool, model: Model, at: At) -> Next {
    if fits { vec![(model, at)] } else { Vec::new() }
}
