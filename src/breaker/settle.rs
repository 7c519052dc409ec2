//! How the end of a call reaches the record, and what its caller waits for.
//! What it does there is decided by the circuit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix::Addr;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::Breaker;
use super::nested::rejection_in;
use crate::actor::BreakerActor;
use crate::caught::caught;
use crate::circuit::{Ending, Permit};
use crate::gate::{Flags, Gate, Word};
use crate::message::{Sampled, Settle};
use crate::outcome::{Classify, Outcome};
use crate::report;

/// How long a caller waits for the breaker to take note of an outcome. Only a blocked arbiter takes so
/// long; the outcome counts later then (R21).
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// What a reply amounts to. User code runs here: a panic of it makes the call a failure.
#[inline]
pub(crate) fn judge<R>(gate: &Gate, classify: &(impl Classify<R> + ?Sized), reply: &R) -> Outcome {
    match caught(|| classify.classify(reply)) {
        Ok(Outcome::Failure) => judge_failure(gate, classify, reply),
        Ok(outcome) => outcome,
        Err(cause) => classifier_panicked(gate, &cause),
    }
}

/// A failure is none if it is this breaker's own rejection, from inside the call.
#[inline(never)]
fn judge_failure<R>(gate: &Gate, classify: &(impl Classify<R> + ?Sized), reply: &R) -> Outcome {
    match caught(|| is_own_rejection(gate, classify, reply)) {
        Ok(true) => Outcome::Ignored,
        Ok(false) => Outcome::Failure,
        Err(cause) => classifier_panicked(gate, &cause),
    }
}

#[cold]
fn classifier_panicked(gate: &Gate, cause: &str) -> Outcome {
    report::classifier_panicked(gate.name(), cause);
    Outcome::Failure
}

fn is_own_rejection<R>(gate: &Gate, classify: &(impl Classify<R> + ?Sized), reply: &R) -> bool {
    classify
        .error(reply)
        .and_then(rejection_in)
        .is_some_and(|rejected| gate.rejected(rejected))
}

/// Sends the end of a call to the actor. The outcome counts whatever becomes of the receipt.
pub(super) fn send(
    breaker: &Addr<BreakerActor>,
    gate: &Arc<Gate>,
    permit: Permit,
    ending: Ending,
) -> Receipt {
    let Some(owed) = gate.owe() else {
        // Too many are under way: the arbiter is blocked, or callers do not wait.
        let epoch = permit.epoch();
        let mut letters = gate.letters();
        if permit.is_probe() {
            letters.end(permit, ending);
        } else {
            letters.add(epoch, ending);
        }
        return Receipt(None);
    };
    let (done, receipt) = oneshot::channel();
    breaker.do_send(Settle {
        permit,
        ending,
        done: Some(done),
        _owed: Some(owed),
    });
    Receipt(Some(receipt))
}

/// Settles a call and waits until that is decided and published.
pub(crate) async fn settle(
    breaker: &Addr<BreakerActor>,
    gate: &Arc<Gate>,
    permit: Permit,
    ending: Ending,
) {
    Settled::waiting(send(breaker, gate, permit, ending)).await;
}

/// Comes back when the actor has decided and published.
#[derive(Debug)]
pub(super) struct Receipt(Option<oneshot::Receiver<()>>);

impl Breaker {
    /// Settles a call that was admitted by reading the gate. `None` where there is nothing to wait for,
    /// as after most successes.
    #[inline]
    pub(super) fn settle_passed(
        &self,
        epoch: u64,
        outcome: Outcome,
        slow: bool,
    ) -> Option<Receipt> {
        let word = self.inner.gate.load();
        if outcome != Outcome::Success || slow || word.epoch() != epoch || word.has(Flags::TELL) {
            return self.settle_noted(word, epoch, outcome, slow);
        }
        if word.has(Flags::TALLY) {
            self.tally(epoch);
        }
        None
    }

    /// Settles a call whose end is of note: it failed, was ignored, comes late or changes the record.
    #[inline(never)]
    fn settle_noted(
        &self,
        word: Word,
        epoch: u64,
        outcome: Outcome,
        slow: bool,
    ) -> Option<Receipt> {
        let gate = &self.inner.gate;
        if word.epoch() != epoch {
            gate.count_late();
            return None;
        }
        if outcome == Outcome::Ignored {
            gate.count_ignored();
            return None;
        }
        Some(self.send_ending(Permit::closed(epoch), Ending::Outcome { outcome, slow }))
    }

    #[inline]
    fn tally(&self, epoch: u64) {
        let gate = &self.inner.gate;
        gate.tally(epoch);
        if gate.load_after_tally().has(Flags::REPORT) {
            self.report();
        }
    }

    #[cold]
    fn report(&self) {
        if self.inner.gate.begin_sampling() {
            self.inner.address.do_send(Sampled);
        }
    }

    pub(super) fn send_ending(&self, permit: Permit, ending: Ending) -> Receipt {
        let receipt = send(&self.inner.address, &self.inner.gate, permit, ending);
        if !self.inner.address.connected() {
            self.warn_unguarded();
        }
        receipt
    }
}

/// Resolves when the breaker has taken note of an outcome: from then on it rejects what it should.
///
/// The outcome counts whether or not this is awaited. It takes at most 100 ms, even when the breaker's
/// arbiter is blocked or gone.
#[derive(Debug)]
#[must_use = "the outcome counts without it; await it to be sure that the breaker has taken note"]
pub struct Settled {
    receipt: Option<oneshot::Receiver<()>>,
    limit: Option<Pin<Box<Sleep>>>,
}

impl Settled {
    pub(super) fn waiting(receipt: Receipt) -> Self {
        Self {
            receipt: receipt.0,
            limit: None,
        }
    }

    pub(super) fn now() -> Self {
        Self::waiting(Receipt(None))
    }
}

impl Future for Settled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(receipt) = &mut this.receipt else {
            return Poll::Ready(());
        };
        // An error means that the actor is gone or lost the message: there is nothing to wait for.
        if Pin::new(receipt).poll(cx).is_pending() {
            let limit = this
                .limit
                .get_or_insert_with(|| Box::pin(sleep(LONGEST_WAIT)));
            if limit.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        this.receipt = None;
        Poll::Ready(())
    }
}
