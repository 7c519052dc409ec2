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
use crate::gate::{Flags, Gate};
use crate::message::{Sampled, Settle};
use crate::outcome::{Classify, Outcome};
use crate::report;

/// How long a caller waits for the breaker to take note of an outcome. Only a blocked arbiter takes so
/// long; the outcome counts later then (R21).
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// What a reply amounts to. User code runs here: a panic of it makes the call a failure.
pub(crate) fn judge<R>(gate: &Gate, classify: &(impl Classify<R> + ?Sized), reply: &R) -> Outcome {
    let judged = caught(|| match classify.classify(reply) {
        Outcome::Failure if is_own_rejection(gate, classify, reply) => Outcome::Ignored,
        outcome => outcome,
    });
    judged.unwrap_or_else(|cause| {
        report::classifier_panicked(gate.name(), &cause);
        Outcome::Failure
    })
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
        drop(letters);
        // Those under way may all have been handled meanwhile.
        if gate.begin_sampling() {
            breaker.do_send(Sampled);
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
        let gate = &self.inner.gate;
        let word = gate.load();
        if word.epoch() != epoch {
            gate.count_late();
            return None;
        }
        match outcome {
            Outcome::Success if !slow && !word.has(Flags::TELL) => {
                if word.has(Flags::TALLY) {
                    self.tally(epoch);
                }
                None
            }
            Outcome::Ignored => {
                gate.count_ignored();
                None
            }
            Outcome::Success | Outcome::Failure => {
                Some(self.send_ending(Permit::closed(epoch), Ending::Outcome { outcome, slow }))
            }
        }
    }

    #[inline]
    fn tally(&self, epoch: u64) {
        let gate = &self.inner.gate;
        gate.tally(epoch);
        if gate.load_after_tally().has(Flags::REPORT) && gate.begin_sampling() {
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
