//! What has to hold of a play whatever the circuit does: who is told, and that all accounts add up.

use actix_circuit_breaker::Outcome;
use futures::{FutureExt, StreamExt};

use super::play::Play;
use super::script::{Kind, Op};
use super::stage::Subscriber;
use super::witness::{Answer, Batch, Seen};

impl Play<'_> {
    /// R25, R26: everybody who lives is told of everything, whatever became of the others.
    pub(super) async fn told(&mut self) {
        let events: Vec<_> = self
            .history
            .batches
            .iter()
            .flat_map(|batch| &batch.events)
            .collect();
        for subscriber in &mut self.subscribers {
            loop {
                let told = subscriber.told();
                let blocked = subscriber.kind == Kind::Slow && subscriber.go_on.is_some();
                let Some(first) = told.first() else { break };
                let due = events.iter().filter(|event| event.seq > first.seq);
                let due: Vec<_> = due.copied().collect();
                let got: Vec<_> = told[1..].iter().collect();
                if !due.starts_with(&got) {
                    self.shared.fault(format!("told {got:#?}, not {due:#?}"));
                    break;
                }
                let gone = !subscriber.lives() && !subscriber.addr.connected();
                let all = got.len() == due.len() && subscriber.lives();
                if all || blocked || gone {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        for (stream, told) in &mut *self.shared.streams.lock().unwrap() {
            while let Some(Some(Ok(event))) = stream.next().now_or_never() {
                told.push(event);
            }
            let first = told[0].seq;
            let due = events.iter().filter(|event| event.seq > first);
            if !told[1..].iter().eq(due.copied()) {
                self.shared.fault(format!("a stream was told {told:#?}"));
            }
        }
    }

    /// R7, R10: when all calls have ended no slot is taken, unless the end was lost with a panic of the actor.
    pub(super) fn slots(&self) {
        if let Some(Batch { end, .. }) = self.history.batches.last()
            && end.restarts == 0
            && end.probes_in_flight > 0
        {
            self.shared
                .fault(format!("{} slots leaked", end.probes_in_flight));
        }
    }

    /// R10, R26: what has to add up at the end.
    pub(super) async fn accounts(&mut self) {
        let streams = self.shared.streams.lock().unwrap().len() + 1;
        let snapshot = self.shared.breaker.snapshot().await.unwrap();
        if snapshot.missed_events > 0 {
            self.shared
                .fault(format!("{} events missed", snapshot.missed_events));
        }
        let told = |one: &&Subscriber| !one.told().is_empty();
        // One that died over the last event is found to be gone by the next.
        let last = |one: &&Subscriber| {
            one.lives()
                || one.told().last().is_some_and(|event| {
                    self.history
                        .batches
                        .last()
                        .and_then(|batch| batch.events.last())
                        == Some(event)
                })
        };
        let all = self.subscribers.iter().filter(told);
        let living = all.clone().filter(|one| one.lives()).count() + streams;
        let perhaps = all.filter(last).count() + streams;
        if !(living..=perhaps).contains(&snapshot.subscribers) {
            self.shared
                .fault(format!("{} told, not {living}", snapshot.subscribers));
        }
        // A panic of the actor costs the end of a call, too, if that was the message.
        let traps = snapshot.restarts > 0;
        let calls = snapshot.calls;
        let failed: u64 = self.count(settles_as_failure);
        let once = calls.failures <= failed && failed <= calls.failures + calls.late;
        let settled = calls.failures + calls.late + calls.ignored + calls.successes;
        if !(traps || once && settled <= self.calls) {
            let all = self.calls;
            self.shared
                .fault(format!("{failed} of {all} calls failed, {calls:?}"));
        }
        let rejected = self.count(|seen| matches!(seen.answer, Answer::Rejected { .. }));
        let unknown = self.count(|seen| matches!(seen.answer, Answer::Dropped { .. }));
        if !(rejected..=rejected + unknown).contains(&calls.rejected) {
            self.shared
                .fault(format!("{rejected} calls rejected, {calls:?}"));
        }
    }

    fn count(&self, is: impl Fn(&Seen) -> bool) -> u64 {
        let seen = self.history.batches.iter().flat_map(|batch| &batch.seen);
        seen.filter(|seen| is(seen)).count().try_into().unwrap()
    }
}

/// Whether a step ended a call in a way that has to be counted: as a failure, or as late.
fn settles_as_failure(seen: &Seen) -> bool {
    match (seen.op, &seen.answer) {
        (Op::Call(_, end), Answer::Admitted { .. }) | (Op::Finish(_, end), Answer::Done) => {
            end.outcome() == Outcome::Failure
        }
        _ => false,
    }
}
