//! Whether the circuit explains what was seen: some order of the points of each batch's steps, in keeping
//! with who was answered before who began, leads to the answers, the events and the snapshots seen.

use std::collections::HashSet;

use actix_circuit_breaker::{Cause, CircuitState, StateChanged};

use super::model::Model;
use super::parts::At;
use super::script::Op;
use super::witness::{Batch, History};

/// Says what cannot be explained.
pub(crate) fn explain(history: &History) -> Result<(), String> {
    if let Some(fault) = history.faults.first() {
        return Err(fault.clone());
    }
    log(history)?;
    // More than one course may explain what was seen so far; what comes may tell.
    let mut models = vec![Model::new(history.config.clone(), history.timers)];
    for (index, batch) in history.batches.iter().enumerate() {
        let mut search = Search::new(batch);
        for model in models {
            search.begin(model);
        }
        if search.found.is_empty() {
            let far = search.far;
            return Err(format!(
                "batch {index} cannot be explained beyond {far} events\n{batch}"
            ));
        }
        models = search.found;
    }
    Ok(())
}

/// R25: what holds of every log, whatever led to it.
fn log(history: &History) -> Result<(), String> {
    let first = &history.present;
    let is_first = (first.cause, first.seq, first.from) == (Cause::Present, 0, first.to);
    check(is_first, || format!("not the present state: {first:?}"))?;
    let mut last = first;
    for event in history.batches.iter().flat_map(|batch| &batch.events) {
        let follows = event.seq == last.seq + 1
            && event.from == last.to
            && event.from != event.to
            && event.epoch > last.epoch
            && event.at >= last.at
            && is_legal(event);
        check(follows, || format!("{event:?} follows {last:?}"))?;
        last = event;
    }
    Ok(())
}

/// Whether that cause may lead from there to there.
fn is_legal(event: &StateChanged) -> bool {
    use CircuitState::{Closed, ForcedClosed, ForcedOpen, HalfOpen, Open};
    match (event.cause, event.from, event.to) {
        (Cause::Tripped, Closed, Open)
        | (Cause::ProbeDue, Open, HalfOpen)
        | (Cause::ProbeFailed | Cause::Inconclusive, HalfOpen, Open)
        | (Cause::Recovered, HalfOpen, Closed)
        | (Cause::Forced, _, ForcedOpen | ForcedClosed)
        | (Cause::Released, ForcedOpen | ForcedClosed, Closed)
        | (Cause::Expired, ForcedOpen, Open)
        | (Cause::Expired, ForcedClosed, Closed) => true,
        (Cause::Reset, from, Closed) => matches!(from, Open | HalfOpen),
        _ => false,
    }
}

fn check(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}

/// One batch, in all its orders.
struct Search<'a> {
    batch: &'a Batch,
    /// Where the search was before.
    known: HashSet<String>,
    /// The models at the end, and their keys.
    found: Vec<Model>,
    ends: HashSet<String>,
    /// How many events came at best.
    far: usize,
}

impl<'a> Search<'a> {
    fn new(batch: &'a Batch) -> Self {
        Self {
            batch,
            known: HashSet::new(),
            found: Vec::new(),
            ends: HashSet::new(),
            far: 0,
        }
    }

    fn begin(&mut self, mut model: Model) {
        model.begin(self.batch);
        let seen = self.batch.seen.iter();
        let at: Vec<_> = seen.map(|seen| model.first(seen)).collect();
        self.go(&model, &at);
    }

    fn go(&mut self, model: &Model, at: &[At]) {
        let keys: Vec<_> = at.iter().map(At::key).collect();
        if !self.known.insert(format!("{} {keys:?}", model.key())) {
            return;
        }
        self.far = self.far.max(model.told());
        if at.iter().all(At::is_over)
            && let Some(end) = model.clone().ended(self.batch)
            && self.ends.insert(end.key())
        {
            self.found.push(end);
        }
        for model in model
            .back(self.batch)
            .into_iter()
            .chain(model.wake(self.batch))
        {
            self.go(&model, at);
        }
        let seen = &self.batch.seen;
        let ticking = at
            .iter()
            .zip(seen)
            .any(|(at, seen)| matches!(seen.op, Op::Tick(_)) && !at.is_over());
        // Whoever was answered has no point left when another begins.
        let answered = at.iter().zip(seen).filter(|(at, _)| !at.is_over());
        let first_answer = answered.map(|(_, seen)| seen.answered).min();
        for (index, step) in seen.iter().enumerate() {
            if at[index].is_over() || first_answer.is_some_and(|answered| answered < step.began) {
                continue;
            }
            for (model, next) in model.next(step, &at[index], ticking, self.batch) {
                let mut at = at.to_vec();
                at[index] = next;
                self.go(&model, &at);
            }
        }
    }
}
