//! The shell as its guarantees describe it, around the pure circuit: a gate that repeats the circuit's
//! last word, a mailbox whose messages are one step each, a letterbox, and an actor that may panic.
//! Each point of a step is atomic; in which order points come is for `explain` to find.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix_circuit_breaker::circuit::Circuit;
use actix_circuit_breaker::{BreakerConfig, Timestamp};

use super::parts::{At, Leave, Letter, Mail, Recipe, ending};
use super::script::{End, Op, Way};
use super::witness::{Answer, Batch, Seen};

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

    /// R17: whether the actor has done by itself what it has to. Of successes that the gate counted it need
    /// not know, unless they trip.
    fn is_idle(&self, batch: &Batch) -> bool {
        let mut asked = self.clone();
        asked.fold(self.now);
        (self.state(), asked.state()) == (batch.idle, batch.idle)
    }

    /// Whether this is how the batch ended, after the two snapshots that are taken when all is quiet;
    /// the model goes on from there.
    pub(crate) fn ended(mut self, batch: &Batch) -> Option<Self> {
        // A step is told before the next message is handled; a timer may ring whenever.
        if !self.timers && self.told > batch.prompt {
            return None;
        }
        if self.restarts == 0 && !self.is_idle(batch) {
            return None;
        }
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

pub(super) fn keep(fits: bool, model: Model, at: At) -> Next {
    if fits { vec![(model, at)] } else { Vec::new() }
}
