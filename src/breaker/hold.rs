//! An ask that may wait inside the breaker until its target is well again.
//! How those who wait are kept and released is decided by `actor/holding.rs`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use actix::{Message, Recipient};
use pin_project_lite::pin_project;
use tokio::sync::oneshot;

use super::ask::ending;
use super::permit::can_wake;
use super::settle::ask_for_fold;
use super::{AskFuture, Breaker, Classifier, GuardedAsk};
use crate::actor::{AskParcel, Parcel};
use crate::config::Hold;
use crate::error::AskError;
use crate::gate::{Flags, OnItsWay, Word};
use crate::hold::Seat;
use crate::message::{Ask, Bring};
use crate::report::CallSpan;

/// Where a message goes that may wait.
pub(super) enum Way {
    /// Straight to its target, admitted as the word shows.
    Straight(Word),
    /// As one that may not wait.
    AsEver,
    /// Into the breaker's care.
    Care(OnItsWay),
    /// Nowhere: too many are on their way into its care.
    Full { capacity: u32 },
}

impl Breaker {
    /// Finds where a message goes that may wait. Behind those that wait already, whatever the state.
    pub(super) fn way(&self) -> Way {
        let gate = self.gate();
        // In this order: what was on its way is seen in the word, or has reached its target.
        let is_first = !gate.has_questions();
        let word = gate.load();
        if is_first && word.passes() && !word.has(Flags::WAITING) {
            return Way::Straight(word);
        }
        self.way_when_restrained()
    }

    #[cold]
    fn way_when_restrained(&self) -> Way {
        let gate = self.gate();
        if !self.is_guarding() {
            return Way::AsEver;
        }
        let Some(Hold { capacity, .. }) = gate.config().hold() else {
            return Way::AsEver;
        };
        if let Some(question) = gate.ask_to_hold(capacity) {
            return Way::Care(question);
        }
        // The actor counts it, and tells.
        gate.leave(|letters| {
            let left = letters.left();
            left.turned_away = left.turned_away.saturating_add(1);
        });
        ask_for_fold(self.addr(), gate);
        Way::Full { capacity }
    }

    pub(super) fn bring(&self, parcel: Box<dyn Parcel>, question: OnItsWay) {
        self.addr().do_send(Bring { parcel, question });
    }
}

pin_project! {
    /// The future of [`Guarded::send_or_hold`](super::Guarded::send_or_hold).
    ///
    /// Resolves to `Result<M::Result, AskError>`. It is to be polled on a thread with a tokio runtime.
    /// Once it is ready it stays pending when polled again.
    #[must_use = "dropped, it takes back a message that waits"]
    pub struct HeldAsk<M>
    where
        M: Message,
        M: Send,
        M: 'static,
        M::Result: Send,
    {
        #[pin]
        stage: Stage<M>,
    }
}

pin_project! {
    #[project = StageProj]
    enum Stage<M>
    where
        M: Message,
        M: Send,
        M: 'static,
        M::Result: Send,
    {
        // As an ask that may not wait.
        Sent {
            #[pin]
            ask: GuardedAsk<M>,
        },
        // In the breaker's care.
        Care {
            care: Care<M::Result>,
        },
        Decided {
            error: Option<AskError>,
        },
    }
}

/// The caller's end of an ask in the breaker's care.
struct Care<R> {
    breaker: Breaker,
    span: CallSpan,
    seat: Arc<Seat>,
    reply: oneshot::Receiver<Result<R, AskError>>,
}

impl<R> Care<R> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<R, AskError>> {
        let Self { span, reply, .. } = self;
        let reply = ready!(span.run(|| Pin::new(reply).poll(cx)));
        // The breaker went away with the message.
        let result = reply.unwrap_or(Err(AskError::Closed));
        span.end(ending(&result));
        Poll::Ready(result)
    }
}

/// The caller goes away: its message leaves the queue.
impl<R> Drop for Care<R> {
    fn drop(&mut self) {
        let Some(place) = self.seat.abandon() else {
            return;
        };
        let gate = self.breaker.gate();
        gate.leave(|letters| letters.left().places.push(place));
        // A thread whose locals are being destroyed can wake nobody: the next message finds the letter.
        if can_wake() {
            ask_for_fold(self.breaker.addr(), gate);
        }
    }
}

impl<M> HeldAsk<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    pub(super) fn new(
        breaker: &Breaker,
        target: &Recipient<M>,
        message: M,
        classify: Classifier<M::Result>,
        call_timeout: Option<std::time::Duration>,
    ) -> Self {
        let stage = match breaker.way() {
            Way::Straight(word) => Stage::Sent {
                ask: AskFuture::passed(breaker, target, message, classify, call_timeout, word),
            },
            Way::AsEver => Stage::Sent {
                ask: AskFuture::new(breaker, target, message, classify, call_timeout),
            },
            Way::Care(question) => {
                let mut ask = Ask::with(target.clone(), message, classify);
                ask.call_timeout = call_timeout;
                let (sender, reply) = oneshot::channel();
                let seat = Arc::new(Seat::default());
                let parcel = AskParcel::new(ask, Arc::clone(&seat), sender);
                breaker.bring(Box::new(parcel), question);
                Stage::Care {
                    care: Care {
                        breaker: breaker.clone(),
                        span: CallSpan::new(breaker.name()),
                        seat,
                        reply,
                    },
                }
            }
            Way::Full { capacity } => Stage::Decided {
                error: Some(AskError::HoldFull { capacity }),
            },
        };
        Self { stage }
    }
}

impl<M> Future for HeldAsk<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    type Output = Result<M::Result, AskError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let output = match this.stage.as_mut().project() {
            StageProj::Sent { ask } => return ask.poll(cx),
            StageProj::Care { care } => ready!(care.poll(cx)),
            StageProj::Decided { error } => match error.take() {
                Some(error) => Err(error),
                None => return Poll::Pending,
            },
        };
        this.stage.set(Stage::Decided { error: None });
        Poll::Ready(output)
    }
}

impl<M> fmt::Debug for HeldAsk<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_care = matches!(self.stage, Stage::Care { .. });
        f.debug_struct("HeldAsk")
            .field("in_care", &in_care)
            .finish_non_exhaustive()
    }
}
