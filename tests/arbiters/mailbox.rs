//! What the breaker's actor does, one message at a time.

use std::sync::Arc;
use std::time::Duration;

use actix_circuit_breaker::circuit::{Circuit, Refused, Snapshot};
use actix_circuit_breaker::{Evidence, Outcome, Timestamp, TripPolicy, Window};

use super::gate::is_rejection;
use super::model::{Model, Next, keep};
use super::parts::{At, Leave, Letter, Mail, Recipe};
use super::script::{End, Op, configs};
use super::witness::{Answer, Batch, Seen};

impl Model {
    /// A message is handled, is lost to a panic, or was withdrawn.
    pub(super) fn handle(&self, seen: &Seen, mail: &Mail, batch: &Batch) -> Next {
        let mut next = Next::new();
        let dropped = matches!(seen.answer, Answer::Dropped { .. });
        if dropped && matches!(mail, Mail::Acquire | Mail::Ask) {
            let skipped = matches!(seen.answer, Answer::Dropped { orphan: false });
            next.extend(keep(skipped, self.clone(), At::Over));
        }
        if self.away {
            return next;
        }
        if let Some(set) = self.trap {
            let mut model = self.clone();
            model.panic();
            let lost = matches!(seen.answer, Answer::Lost);
            match mail {
                Mail::Acquire if dropped => next.push((model, At::Over)),
                Mail::Acquire => next.push((model, At::Unguarded)),
                Mail::Ask | Mail::Plain => next.extend(keep(
                    lost || matches!(seen.answer, Answer::Dropped { orphan: false }),
                    model,
                    At::Over,
                )),
                Mail::Settle(..) | Mail::Collect => next.push((model, At::Over)),
            }
            // A step that began before the trap was set may end after it.
            if seen.began > set {
                return next;
            }
        }
        for now in self.times(Some(seen.began)) {
            let mut model = self.clone();
            model.take_in(now);
            let at = model.decide(seen, mail, now);
            if let Some((mut model, at)) = at.into_iter().next()
                && model.tell(batch)
            {
                next.push((model, at));
            }
        }
        next
    }

    /// What the clock may have shown to a step that is published now.
    pub(super) fn times(&self, began: Option<u64>) -> Vec<Timestamp> {
        let before = self.before.iter();
        let mut times: Vec<_> = before
            .filter(|(_, over)| began.is_none_or(|began| *over > began))
            .map(|(time, _)| *time)
            .collect();
        times.push(self.now);
        times.dedup();
        times
    }

    pub(super) fn panic(&mut self) {
        self.trap = None;
        self.away = true;
        self.restarts += 1;
    }

    /// The actor is back: its first step takes in what was left.
    pub(crate) fn back(&self, batch: &Batch) -> Vec<Self> {
        if !self.away {
            return Vec::new();
        }
        let mut next = Vec::new();
        if self.trap.is_some() {
            let mut model = self.clone();
            model.panic();
            next.push(model);
        }
        for now in self.times(None) {
            let mut model = self.clone();
            model.take_in(now);
            if model.tell(batch) {
                model.away = false;
                next.push(model);
            }
        }
        next
    }

    pub(super) fn take_in(&mut self, now: Timestamp) {
        self.published = now;
        self.fold(now);
        for letter in std::mem::take(&mut self.letters) {
            match letter {
                Letter::Gone(recipe) => self.circuit.reclaim(recipe.permit(), now),
                Letter::Failed(recipe) => {
                    self.circuit.settle(recipe.permit(), Outcome::Failure, now)
                }
            };
        }
    }

    /// Looks at the successes that the gate counted, together: those after one that trips belong to it.
    pub(super) fn fold(&mut self, now: Timestamp) {
        let rated = matches!(self.circuit.config().trip(), TripPolicy::FailureRate { .. });
        let epoch = self.circuit.record().epoch();
        self.folded = self.tallies.len() > 1;
        for recipe in std::mem::take(&mut self.tallies) {
            if rated && self.circuit.record().epoch() == epoch {
                self.circuit.settle(recipe.permit(), Outcome::Success, now);
            } else {
                self.counted += 1;
            }
        }
    }

    /// The actor takes a step by itself: asked to look at successes, or by a timer.
    pub(crate) fn wake(&self, batch: &Batch) -> Vec<Self> {
        // No script takes as long as a timer does, but one that is set again after a restart.
        let ticks = matches!(
            self.circuit.config().trip(),
            TripPolicy::FailureRate {
                window: Window::Time(_),
                ..
            }
        );
        let rings = ticks || self.restarts > 0 && self.circuit.next_deadline().is_some();
        if !self.timers || self.away || self.tallies.is_empty() && !rings {
            return Vec::new();
        }
        let mut next = Vec::new();
        if self.trap.is_some() {
            let mut model = self.clone();
            model.panic();
            next.push(model);
        }
        for now in self.times(None) {
            let mut model = self.clone();
            model.take_in(now);
            if rings {
                model.circuit.advance(now);
            }
            if model.tell(batch) {
                next.push(model);
            }
        }
        next
    }

    fn decide(&mut self, seen: &Seen, mail: &Mail, now: Timestamp) -> Next {
        match mail {
            Mail::Acquire | Mail::Ask => {
                let recipe = Recipe(Arc::new((self.circuit.clone(), now)));
                match self.circuit.try_acquire(now) {
                    Err(refused) => {
                        let fits = is_refusal(seen, refused, now);
                        keep(fits, self.clone(), At::Over)
                    }
                    Ok(permit) => {
                        let leave = match mail {
                            Mail::Ask => Leave::Mediated(recipe),
                            _ if permit.is_probe() => Leave::Probe(recipe),
                            _ => Leave::Direct(recipe),
                        };
                        self.clone().admitted(seen, leave)
                    }
                }
            }
            Mail::Settle(leave, outcome) => {
                self.hung += u64::from(matches!(seen.op, Op::Call(_, End::Hang)));
                if let Some(recipe) = leave.recipe() {
                    self.circuit.settle(recipe.permit(), *outcome, now);
                } else {
                    self.circuit.advance(now);
                    self.late += 1;
                }
                vec![(self.clone(), At::Over)]
            }
            Mail::Collect => vec![(self.clone(), At::Over)],
            Mail::Plain => {
                let fits = self.plain(seen, now);
                keep(fits, self.clone(), At::Over)
            }
        }
    }

    fn plain(&mut self, seen: &Seen, now: Timestamp) -> bool {
        let span = |ttl: Option<u32>| ttl.map(|ttl| Duration::from_millis(ttl.into()));
        let done = matches!(seen.answer, Answer::Done);
        match seen.op {
            Op::ForceOpen(ttl) => done && self.circuit.force_open(span(ttl), "script", now).is_ok(),
            Op::ForceClosed(ttl) => {
                done && self.circuit.force_closed(span(ttl), "script", now).is_ok()
            }
            Op::Release => {
                self.circuit.release(now);
                done
            }
            Op::Reset => {
                self.circuit.reset(now);
                done
            }
            Op::Reconfigure(index) => {
                self.circuit.reconfigure(configs()[index].clone(), now);
                self.config = Some(index);
                done
            }
            Op::Look => match &seen.answer {
                Answer::Look(shown) => {
                    let mut snapshot = self.circuit.snapshot(now);
                    snapshot.calls.successes += self.counted;
                    uncounted(shown) == uncounted(&snapshot)
                }
                _ => false,
            },
            Op::Subscribe(_) | Op::Stream => match &seen.answer {
                Answer::Present(present) => {
                    // What this very step changed is told before.
                    let waiting = self.circuit.clone();
                    let seq = self.seq + transitions(waiting);
                    let state = self.state();
                    (present.from, present.to) == (state, state)
                        && present.epoch == self.circuit.record().epoch()
                        && present.seq == seq
                        && present.at == now.max(self.circuit.record().newest())
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// The events of a step are the next that were seen.
    pub(super) fn tell(&mut self, batch: &Batch) -> bool {
        while let Some(transition) = self.circuit.pop_transition() {
            self.seq += 1;
            let fits = batch.events.get(self.told).is_some_and(|event| {
                event.seq == self.seq
                    && (event.from, event.to) == (transition.from, transition.to)
                    && (event.cause, event.at) == (transition.cause, transition.at)
                    && event.epoch == transition.epoch
                    && self.fits(&event.evidence, transition.evidence)
            });
            if !fits {
                return false;
            }
            self.told += 1;
        }
        true
    }

    fn fits(&self, seen: &Evidence, mut evidence: Evidence) -> bool {
        if seen.slow_calls <= self.hung && seen.slow_calls <= evidence.failures {
            evidence.slow_calls = seen.slow_calls;
        }
        // Those after the success that tripped are told with it.
        if self.folded {
            evidence.failures = seen.failures;
            evidence.samples = seen.samples;
        }
        *seen == evidence
    }
}

fn is_refusal(seen: &Seen, refused: Refused, now: Timestamp) -> bool {
    let until = refused.retry_after().map(|rest| now + rest);
    is_rejection(seen, refused.reason(), refused.epoch(), until)
}

/// Without what the gate counts, which others may be counting just now, and without timeouts' slowness.
fn uncounted(snapshot: &Snapshot) -> Snapshot {
    let mut snapshot = snapshot.clone();
    snapshot.calls.rejected = 0;
    snapshot.calls.ignored = 0;
    snapshot.calls.late = 0;
    snapshot.slow_calls = 0;
    snapshot
}

fn transitions(mut circuit: Circuit) -> u64 {
    let mut count = 0;
    while circuit.pop_transition().is_some() {
        count += 1;
    }
    count
}
