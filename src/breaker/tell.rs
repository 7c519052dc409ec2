//! Messages without a reply through a breaker: delivered, handed back, or left to wait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix::Message;
use actix::dev::SendError;
use tokio::sync::oneshot;

use super::hold::Way;
use super::{Breaker, Settled, Target};
use crate::actor::TellParcel;
use crate::error::{Rejected, TellError};
use crate::gate::{Admission, OnItsWay, Took, Word};
use crate::outcome::Outcome;

/// The future of [`Breaker::tell`] and [`Breaker::tell_or_hold`].
///
/// Resolves to `Result<(), TellError<M>>` once it is known whether the message is in its target's mailbox. It
/// is to be polled on a thread with a tokio runtime. Once it is ready it stays pending when polled again.
#[must_use = "a message that is not delivered is handed back here"]
pub struct Tell<M> {
    stage: Stage<M>,
}

/// Nothing in it is pinned.
impl<M> Unpin for Tell<M> {}

enum Stage<M> {
    /// Known; the breaker may still have to take note.
    Settling {
        result: Option<Result<(), TellError<M>>>,
        settled: Settled,
    },
    /// In the breaker's care.
    Care(oneshot::Receiver<Result<(), TellError<M>>>),
}

impl<M> Tell<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    pub(super) fn new<T: Target<M>>(breaker: &Breaker, target: &T, message: M) -> Self {
        match breaker.admit() {
            Admission::Pass(word) => Self::straight(breaker, target, message, word),
            Admission::Reject(rejected) => Self::rejected(rejected, message),
            Admission::Ask(question) => Self::in_care(breaker, target, message, false, question),
        }
    }

    pub(super) fn or_hold<T: Target<M>>(breaker: &Breaker, target: &T, message: M) -> Self {
        match breaker.way() {
            Way::Straight(word) => Self::straight(breaker, target, message, word),
            Way::AsEver => Self::new(breaker, target, message),
            Way::Care(question) => Self::in_care(breaker, target, message, true, question),
            Way::Full { capacity } => Self::known(Err(TellError::HoldFull { capacity, message })),
        }
    }

    fn straight<T: Target<M>>(breaker: &Breaker, target: &T, message: M, word: Word) -> Self {
        let epoch = word.epoch();
        match target.try_send(message) {
            // That a mailbox takes a message says nothing of what becomes of it: no sample.
            Ok(()) => Self::known(Ok(())),
            Err(SendError::Full(message)) => {
                let receipt = breaker.settle_passed(epoch, Outcome::Ignored, Took::Usual);
                Self::settling(
                    Err(TellError::Full(message)),
                    receipt.map_or_else(Settled::now, Settled::waiting),
                )
            }
            Err(SendError::Closed(message)) => {
                let receipt = breaker.settle_passed(epoch, Outcome::Failure, Took::Usual);
                Self::settling(
                    Err(TellError::Closed(message)),
                    receipt.map_or_else(Settled::now, Settled::waiting),
                )
            }
        }
    }

    fn rejected(rejected: Rejected, message: M) -> Self {
        Self::known(Err(TellError::Rejected { rejected, message }))
    }

    fn known(result: Result<(), TellError<M>>) -> Self {
        Self::settling(result, Settled::now())
    }

    fn settling(result: Result<(), TellError<M>>, settled: Settled) -> Self {
        Self {
            stage: Stage::Settling {
                result: Some(result),
                settled,
            },
        }
    }

    #[cold]
    fn in_care<T: Target<M>>(
        breaker: &Breaker,
        target: &T,
        message: M,
        may_wait: bool,
        question: OnItsWay,
    ) -> Self {
        let (done, result) = oneshot::channel();
        let parcel = TellParcel::new(target.to_recipient(), message, may_wait, done);
        breaker.bring(Box::new(parcel), question);
        Self {
            stage: Stage::Care(result),
        }
    }
}

impl<M> Future for Tell<M> {
    type Output = Result<(), TellError<M>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let result = match &mut this.stage {
            Stage::Settling { result, settled } => {
                ready!(Pin::new(settled).poll(cx));
                result.take()
            }
            // A parcel answers even when it is dropped, so there is always a result.
            Stage::Care(result) => ready!(Pin::new(result).poll(cx)).ok(),
        };
        let Some(result) = result else {
            return Poll::Pending;
        };
        this.stage = Stage::Settling {
            result: None,
            settled: Settled::now(),
        };
        Poll::Ready(result)
    }
}

impl<M> fmt::Debug for Tell<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_care = matches!(self.stage, Stage::Care(_));
        f.debug_struct("Tell")
            .field("in_care", &in_care)
            .finish_non_exhaustive()
    }
}
