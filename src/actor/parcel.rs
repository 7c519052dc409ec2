//! A message in the breaker's care, whatever its type: how it is sent, and how it comes back.
//! When either happens is decided by `actor/holding.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::dev::SendError;
use actix::{Addr, Message, Recipient};
use tokio::sync::oneshot;

use super::BreakerActor;
use super::handlers::errand;
use crate::caught::{Quiet, caught, quietly};
use crate::circuit::Permit;
use crate::error::{AskError, Rejected, TellError};
use crate::event::DropReason;
use crate::gate::Gate;
use crate::hold::Seat;
use crate::message::Ask;
use crate::outcome::Outcome;

/// A message in the breaker's care.
pub(crate) trait Parcel: Send {
    /// Where it waits, if its caller may go away and take it along.
    fn seat(&self) -> Option<&Seat>;

    /// Whether it may wait.
    fn may_wait(&self) -> bool;

    /// How long its target may take, where that is not the breaker's own call timeout.
    fn call_timeout(&self) -> Option<Duration>;

    /// Sends it to its target. What is known of the outcome at once comes back, to be settled.
    fn send(self: Box<Self>, sending: Sending<'_>) -> Option<Delivery>;

    /// Gives it back to its caller. `false` if nobody waits for it.
    fn give_up(self: Box<Self>, why: &GivenUp) -> bool;
}

/// What it takes to send a message.
pub(crate) struct Sending<'a> {
    pub(super) gate: &'a Arc<Gate>,
    pub(super) breaker: Addr<BreakerActor>,
    pub(super) permit: Permit,
    pub(super) call_timeout: Duration,
    /// To be set when the call fails.
    pub(super) failed: &'a Arc<AtomicBool>,
}

/// A message that was delivered or not, with nothing more to come.
pub(crate) struct Delivery {
    pub(super) permit: Permit,
    /// `None` where it says nothing.
    pub(super) outcome: Option<Outcome>,
    pub(super) answer: Answer,
}

/// Tells the caller, once that is settled. What comes back is why the message was dropped, if it was.
pub(super) type Answer = Box<dyn FnOnce() -> Option<DropReason> + Send>;

/// Why a message was not sent.
pub(crate) enum GivenUp {
    Rejected(Rejected),
    Expired(Duration),
    Full(u32),
}

/// An ask in the breaker's care.
pub(crate) struct AskParcel<M>
where
    M: Message + Send,
    M::Result: Send,
{
    ask: Ask<M>,
    seat: Arc<Seat>,
    reply: oneshot::Sender<Result<M::Result, AskError>>,
}

impl<M> AskParcel<M>
where
    M: Message + Send,
    M::Result: Send,
{
    pub(crate) fn new(
        ask: Ask<M>,
        seat: Arc<Seat>,
        reply: oneshot::Sender<Result<M::Result, AskError>>,
    ) -> Self {
        Self { ask, seat, reply }
    }
}

impl<M> Parcel for AskParcel<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn seat(&self) -> Option<&Seat> {
        Some(&self.seat)
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn call_timeout(&self) -> Option<Duration> {
        self.ask.call_timeout
    }

    fn send(self: Box<Self>, sending: Sending<'_>) -> Option<Delivery> {
        let Self { ask, reply, .. } = *self;
        let failed = Arc::clone(sending.failed);
        let note = move |outcome| {
            if outcome == Outcome::Failure {
                failed.store(true, Ordering::Relaxed);
            }
        };
        let Sending {
            gate,
            breaker,
            permit,
            call_timeout,
            ..
        } = sending;
        let result = errand(ask, permit, Arc::clone(gate), breaker, call_timeout, note);
        actix::spawn(async move {
            let result = result.await;
            // A caller that went away gets nothing, and its waker may panic.
            quietly(|| drop(reply.send(result)));
        });
        None
    }

    fn give_up(self: Box<Self>, why: &GivenUp) -> bool {
        let Self { ask, reply, .. } = *self;
        let error = match why {
            GivenUp::Rejected(rejected) => AskError::Rejected(rejected.clone()),
            GivenUp::Expired(ttl) => AskError::HoldExpired(*ttl),
            GivenUp::Full(capacity) => AskError::HoldFull {
                capacity: *capacity,
            },
        };
        drop(ask);
        caught(|| reply.send(Err(error)).is_ok()).unwrap_or(false)
    }
}

/// A message without a reply in the breaker's care.
pub(crate) struct TellParcel<M: Message + Send>
where
    M::Result: Send,
{
    target: Recipient<M>,
    message: Quiet<M>,
    may_wait: bool,
    done: Option<oneshot::Sender<Result<(), TellError<M>>>>,
}

impl<M> TellParcel<M>
where
    M: Message + Send,
    M::Result: Send,
{
    pub(crate) fn new(
        target: Recipient<M>,
        message: M,
        may_wait: bool,
        done: oneshot::Sender<Result<(), TellError<M>>>,
    ) -> Self {
        Self {
            target,
            message: Quiet::new(message),
            may_wait,
            done: Some(done),
        }
    }
}

/// Tells a caller what became of its message. `false` if nobody waits for that.
fn tell<M>(
    done: Option<oneshot::Sender<Result<(), TellError<M>>>>,
    result: Result<(), TellError<M>>,
) -> bool {
    let unheard = match done {
        Some(done) => caught(|| done.send(result)).unwrap_or(Ok(())),
        None => Err(result),
    };
    let heard = unheard.is_ok();
    // The message in it is the user's.
    quietly(|| drop(unheard));
    heard
}

impl<M> Parcel for TellParcel<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    // It is of no concern to a message without a reply whether its caller is still there.
    fn seat(&self) -> Option<&Seat> {
        None
    }

    fn may_wait(&self) -> bool {
        self.may_wait
    }

    fn call_timeout(&self) -> Option<Duration> {
        None
    }

    fn send(mut self: Box<Self>, sending: Sending<'_>) -> Option<Delivery> {
        let permit = sending.permit;
        let message = self.message.take()?;
        let done = self.done.take();
        let sent = caught(|| self.target.try_send(message));
        let (outcome, result, dropped) = match sent {
            // All there is to know of the target, so a probe takes it; a closed window learns nothing.
            Ok(Ok(())) => (permit.is_probe().then_some(Outcome::Success), Ok(()), None),
            Ok(Err(SendError::Full(message))) => (
                Some(Outcome::Ignored),
                Err(TellError::Full(message)),
                Some(DropReason::TargetFull),
            ),
            Ok(Err(SendError::Closed(message))) => (
                Some(Outcome::Failure),
                Err(TellError::Closed(message)),
                Some(DropReason::TargetClosed),
            ),
            // What panicked is the waker of the target's arbiter: the message is in its mailbox.
            Err(_) => (Some(Outcome::Ignored), Ok(()), None),
        };
        if outcome == Some(Outcome::Failure) {
            sending.failed.store(true, Ordering::Relaxed);
        }
        Some(Delivery {
            permit,
            outcome,
            answer: Box::new(move || {
                let heard = tell(done, result);
                dropped.filter(|_| !heard)
            }),
        })
    }

    fn give_up(mut self: Box<Self>, why: &GivenUp) -> bool {
        let Some(message) = self.message.take() else {
            return true;
        };
        let error = match why {
            GivenUp::Rejected(rejected) => TellError::Rejected {
                rejected: rejected.clone(),
                message,
            },
            GivenUp::Expired(ttl) => TellError::HoldExpired { ttl: *ttl, message },
            GivenUp::Full(capacity) => TellError::HoldFull {
                capacity: *capacity,
                message,
            },
        };
        tell(self.done.take(), Err(error))
    }
}

/// A message that is dropped with its breaker goes back to its caller.
impl<M> Drop for TellParcel<M>
where
    M: Message + Send,
    M::Result: Send,
{
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            tell(self.done.take(), Err(TellError::Closed(message)));
        }
    }
}
