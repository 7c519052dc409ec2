//! How the end of a call reaches the record, and what its caller waits for.
//! What it does there is decided by the circuit.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix::Addr;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use super::Breaker;
use super::nested::rejection_in;
use crate::actor::BreakerActor;
use crate::caught::{caught, quietly};
use crate::circuit::{Permit, SPARED};
use crate::gate::{End, Flags, Gate, Took, Word};
use crate::message::{Sampled, Settle};
use crate::outcome::{Classify, Outcome};
use crate::report;

/// How long a caller waits for the breaker to take note of an outcome. Only a blocked arbiter takes so
/// long; the outcome counts later then (R21).
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// What a reply amounts to. User code runs here: a panic of it makes the call a failure.
#[inline]
pub(crate) fn judge<'g, R>(
    gate: impl FnOnce() -> &'g Arc<Gate>,
    classify: &(impl Classify<R> + ?Sized),
    reply: &R,
) -> Outcome {
    match caught(|| classify.classify(reply)) {
        Ok(Outcome::Failure) => judge_failure(gate(), classify, reply),
        Ok(outcome) => outcome,
        Err(cause) => classifier_panicked(gate(), &cause),
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
    end: impl Into<End>,
) -> Receipt {
    let end = end.into();
    let Some(owed) = gate.owe() else {
        // Too many are under way: the arbiter is blocked, or callers do not wait.
        let epoch = permit.epoch();
        gate.leave(|letters| {
            if permit.is_probe() {
                letters.end(permit, end);
            } else {
                letters.add(epoch, end);
            }
        });
        // Those under way may all have been handled meanwhile.
        ask_for_fold(breaker, gate);
        return Receipt(None);
    };
    let (done, receipt) = oneshot::channel();
    breaker.do_send(Settle {
        permit,
        end,
        done: Some(done),
        _owed: Some(owed),
    });
    Receipt(Some(receipt))
}

/// Settles a call that the breaker made itself, and waits until that is decided and published.
pub(crate) async fn settle(
    breaker: &Addr<BreakerActor>,
    gate: &Arc<Gate>,
    permit: Permit,
    outcome: Outcome,
    took: Took,
) {
    // Where slowness counts, the permit knows since when the call runs.
    if permit.is_spared() {
        return;
    }
    let is_plain = !permit.is_probe() && took.is_usual() && gate.slow_call().is_none();
    if is_plain
        && outcome == Outcome::Success
        && note_success(|| breaker, gate, gate.load(), permit.epoch())
    {
        return;
    }
    let end = End::new(outcome, took);
    Settled::waiting(send(breaker, gate, permit, end)).await;
}

/// Takes note of a success without a message, where that is enough: it belongs to the present epoch,
/// and at most a stripe has to count it.
#[inline]
fn note_success<'a>(
    breaker: impl FnOnce() -> &'a Addr<BreakerActor>,
    gate: &Gate,
    word: Word,
    epoch: u64,
) -> bool {
    if word.epoch() != epoch || word.has(Flags::TELL) {
        return false;
    }
    if word.has(Flags::TALLY) {
        gate.tally(epoch);
        if gate.load_after_tally().has(Flags::REPORT) {
            ask_for_fold(breaker(), gate);
        }
    } else {
        gate.meter().success();
    }
    true
}

/// Sends word that there are successes to be looked at, unless that is under way.
#[cold]
pub(super) fn ask_for_fold(breaker: &Addr<BreakerActor>, gate: &Gate) {
    if gate.begin_sampling() {
        breaker.do_send(Sampled);
    }
}

/// Comes back when the actor has decided and published.
#[derive(Debug)]
pub(crate) struct Receipt(Option<oneshot::Receiver<()>>);

impl Breaker {
    /// Settles a call that was admitted by reading the gate. `None` where there is nothing to wait for,
    /// as after most successes.
    #[inline]
    pub(crate) fn settle_passed(
        &self,
        epoch: u64,
        outcome: Outcome,
        took: Took,
    ) -> Option<Receipt> {
        let gate = &self.inner.gate;
        let word = gate.load();
        let is_plain = outcome == Outcome::Success && took.is_usual();
        if is_plain && note_success(|| self.addr(), gate, word, epoch) {
            return None;
        }
        self.settle_noted(word, epoch, outcome, took)
    }

    /// Settles a call whose end is of note: it failed, was ignored, comes late or changes the record.
    #[inline(never)]
    fn settle_noted(
        &self,
        word: Word,
        epoch: u64,
        outcome: Outcome,
        took: Took,
    ) -> Option<Receipt> {
        if epoch == SPARED {
            return None;
        }
        let gate = &self.inner.gate;
        if word.epoch() != epoch {
            gate.count_late();
            return None;
        }
        if outcome == Outcome::Ignored {
            gate.count_ignored();
            return None;
        }
        Some(self.send_ending(Permit::closed(epoch), End::new(outcome, took)))
    }

    pub(super) fn send_ending(&self, permit: Permit, end: impl Into<End>) -> Receipt {
        let receipt = send(self.addr(), &self.inner.gate, permit, end);
        if !self.inner.mailbox.is_connected() {
            self.warn_unguarded();
        }
        receipt
    }
}

/// Resolves when the breaker has taken note of an outcome: from then on it rejects what it should.
///
/// The outcome counts whether or not this is awaited. It takes at most 100 ms, even when the breaker's
/// arbiter is blocked or gone. It is to be polled on a thread with a tokio runtime.
#[derive(Debug)]
#[must_use = "the outcome counts without it; await it to be sure that the breaker has taken note"]
pub struct Settled {
    receipt: Option<oneshot::Receiver<()>>,
    patience: Patience,
}

/// How long a caller waits for its receipt.
#[derive(Debug)]
enum Patience {
    /// It has not looked yet.
    Unasked,
    /// It let others run once. An actor on the same arbiter has its turn then, and a timer, which
    /// costs more than all the rest, is never set.
    Yielded,
    Limited(Pin<Box<Sleep>>),
}

impl Settled {
    pub(super) fn waiting(receipt: Receipt) -> Self {
        Self {
            receipt: receipt.0,
            patience: Patience::Unasked,
        }
    }

    pub(super) fn now() -> Self {
        Self::waiting(Receipt(None))
    }
}

impl Patience {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self, Self::Unasked) {
            *self = Self::Yielded;
            quietly(|| cx.waker().wake_by_ref());
            return Poll::Pending;
        }
        if matches!(self, Self::Yielded) {
            *self = Self::Limited(Box::pin(sleep(LONGEST_WAIT)));
        }
        match self {
            Self::Limited(limit) => limit.as_mut().poll(cx),
            Self::Unasked | Self::Yielded => Poll::Pending,
        }
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
            ready!(this.patience.poll_end(cx));
        }
        this.receipt = None;
        Poll::Ready(())
    }
}
