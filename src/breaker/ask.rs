//! A guarded ask: straight to the target while closed, rejected here while open, else by the breaker.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix::{MailboxError, Message};
use pin_project_lite::pin_project;

use super::timer::CallTimer;
use super::{Breaker, Settled, Target, Tracked, judge};
use crate::error::{AskError, Rejected};
use crate::gate::{Admission, OnItsWay, Took, Word};
use crate::message::Ask;
use crate::outcome::{ByReply, Classify, Outcome};
use crate::report::CallSpan;

/// How much longer than the target a caller waits for a breaker that makes the ask itself: only for one
/// whose arbiter is blocked.
const GRACE: Duration = Duration::from_millis(100);

type Mediated<R> = Pin<Box<dyn Future<Output = Result<R, AskError>> + Send>>;

pin_project! {
    /// The future of a guarded ask, made by [`Breaker::ask`] and [`Guarded::send`](super::Guarded::send).
    ///
    /// Resolves to `Result<M::Result, AskError>`. It is to be polled on a thread with a tokio runtime,
    /// as every actix arbiter has. Once it is ready it stays pending when polled again.
    #[must_use = "the message is sent, but its outcome counts only if the future is awaited"]
    pub struct AskFuture<T, M, C = ByReply>
    where
        T: Target<M>,
        M: Message,
        M: Send,
        M::Result: Send,
    {
        breaker: Tracked,
        classify: Option<C>,
        call_timeout: Option<Duration>,
        span: CallSpan,
        #[pin]
        stage: Stage<T::Request, M::Result>,
    }
}

pin_project! {
    #[project = StageProj]
    enum Stage<Q, R> {
        // Sent straight to the target, admitted in an epoch.
        Asking {
            epoch: u64,
            #[pin]
            request: Q,
            #[pin]
            timer: CallTimer,
        },
        // The reply waits until the breaker has taken note of it.
        Settling {
            result: Option<Result<R, AskError>>,
            settled: Settled,
        },
        Rejected {
            rejected: Option<Rejected>,
        },
        // The breaker makes the ask.
        Mediated {
            reply: Mediated<R>,
        },
        Done,
    }
}

impl<T, M, C> AskFuture<T, M, C>
where
    T: Target<M>,
    M: Message + Send + 'static,
    M::Result: Send,
    C: Classify<M::Result> + Send + 'static,
{
    #[inline]
    pub(super) fn new(
        breaker: &Breaker,
        target: &T,
        message: M,
        classify: C,
        call_timeout: Option<Duration>,
    ) -> Self {
        match breaker.admit() {
            // Made where it stays, as far as may be: it is not small.
            Admission::Pass(word) => Self {
                span: CallSpan::new(breaker.name()),
                breaker: Tracked::asking(breaker, word.epoch()),
                classify: Some(classify),
                call_timeout,
                stage: Stage::Asking {
                    epoch: word.epoch(),
                    request: target.send(message),
                    timer: CallTimer::new(),
                },
            },
            Admission::Reject(rejected) => Self {
                span: CallSpan::new(breaker.name()),
                breaker: Tracked::idle(breaker),
                classify: None,
                call_timeout: None,
                stage: Stage::Rejected {
                    rejected: Some(rejected),
                },
            },
            Admission::Ask(question) => Self {
                span: CallSpan::new(breaker.name()),
                breaker: Tracked::idle(breaker),
                classify: None,
                call_timeout: None,
                stage: Stage::Mediated {
                    reply: mediate(breaker, question, target, message, classify, call_timeout),
                },
            },
        }
    }
}

/// How an ask ended, for its span.
pub(super) fn ending<R>(result: &Result<R, AskError>) -> &'static str {
    match result {
        Ok(_) => "replied",
        Err(AskError::Rejected(_)) => "rejected",
        Err(AskError::Timeout(_)) => "timeout",
        Err(AskError::Closed) => "closed",
        Err(AskError::HoldExpired(_)) => "expired",
        Err(AskError::HoldFull { .. }) => "full",
    }
}

/// Sends the ask to the breaker's actor now, to be made by it.
#[cold]
fn mediate<T, M, C>(
    breaker: &Breaker,
    question: OnItsWay,
    target: &T,
    message: M,
    classify: C,
    call_timeout: Option<Duration>,
) -> Mediated<M::Result>
where
    T: Target<M>,
    M: Message + Send + 'static,
    M::Result: Send,
    C: Classify<M::Result> + Send + 'static,
{
    let call_timeout = call_timeout.unwrap_or_else(|| breaker.gate().call_timeout());
    let mut ask = Ask::with(target.to_recipient(), message, classify).call_timeout(call_timeout);
    ask.question = Some(question);
    let request = breaker.addr().send(ask);
    Box::pin(async move {
        let longest = call_timeout.saturating_add(GRACE);
        match tokio::time::timeout(longest, request).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(AskError::Closed),
            Err(_) => Err(AskError::Timeout(call_timeout)),
        }
    })
}

impl<T, M, C> AskFuture<T, M, C>
where
    T: Target<M>,
    M: Message + Send + 'static,
    M::Result: Send,
    C: Classify<M::Result> + Send + 'static,
{
    /// Asks the target as a breaker that showed `word` lets it.
    pub(super) fn passed(
        breaker: &Breaker,
        target: &T,
        message: M,
        classify: C,
        call_timeout: Option<Duration>,
        word: Word,
    ) -> Self {
        Self {
            span: CallSpan::new(breaker.name()),
            breaker: Tracked::asking(breaker, word.epoch()),
            classify: Some(classify),
            call_timeout,
            stage: Stage::Asking {
                epoch: word.epoch(),
                request: target.send(message),
                timer: CallTimer::new(),
            },
        }
    }
}

impl<T, M, C> Future for AskFuture<T, M, C>
where
    T: Target<M>,
    M: Message + Send + 'static,
    M::Result: Send,
    C: Classify<M::Result>,
{
    type Output = Result<M::Result, AskError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.span.is_none() {
            self.advance(cx)
        } else {
            self.advance_in_span(cx)
        }
    }
}

impl<T, M, C> AskFuture<T, M, C>
where
    T: Target<M>,
    M: Message + Send + 'static,
    M::Result: Send,
    C: Classify<M::Result>,
{
    #[cold]
    fn advance_in_span(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<M::Result, AskError>> {
        let span = std::mem::replace(self.as_mut().project().span, CallSpan::none());
        let polled = span.run(|| self.as_mut().advance(cx));
        if let Poll::Ready(result) = &polled {
            span.end(ending(result));
        }
        *self.project().span = span;
        polled
    }

    /// Goes on with an ask that went straight to its target.
    #[inline]
    fn advance(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<M::Result, AskError>> {
        let mut this = self.as_mut().project();
        let StageProj::Asking {
            epoch,
            request,
            mut timer,
        } = this.stage.as_mut().project()
        else {
            return self.advance_rarely(cx);
        };
        let (result, outcome) = match request.poll(cx) {
            Poll::Ready(Ok(reply)) => {
                let outcome = match this.classify {
                    Some(classify) => judge(|| this.breaker.gate(), classify, &reply),
                    None => Outcome::Failure,
                };
                (Ok(reply), outcome)
            }
            Poll::Ready(Err(MailboxError::Closed | MailboxError::Timeout)) => {
                (Err(AskError::Closed), Outcome::Failure)
            }
            Poll::Pending => {
                let gate = this.breaker.gate();
                let limit = *this.call_timeout.get_or_insert_with(|| gate.call_timeout());
                ready!(timer.as_mut().poll(cx, limit, gate.slow_call()));
                (Err(AskError::Timeout(limit)), Outcome::Failure)
            }
        };
        let took = match &result {
            Err(AskError::Timeout(_)) => Took::TooLong,
            _ => timer.took(),
        };
        let limit = *this.call_timeout;
        this.breaker.end(|| timer.waited(limit?));
        let receipt = this.breaker.settle_passed(*epoch, outcome, took);
        if let Some(receipt) = receipt {
            this.stage.set(Stage::Settling {
                result: Some(result),
                settled: Settled::waiting(receipt),
            });
            return self.advance_rarely(cx);
        }
        this.stage.set(Stage::Done);
        Poll::Ready(result)
    }

    /// Goes on with any other ask.
    #[inline(never)]
    fn advance_rarely(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<M::Result, AskError>> {
        let mut this = self.project();
        let output = match this.stage.as_mut().project() {
            StageProj::Settling { result, settled } => {
                ready!(Pin::new(settled).poll(cx));
                match result.take() {
                    Some(result) => result,
                    None => return Poll::Pending,
                }
            }
            StageProj::Rejected { rejected } => match rejected.take() {
                Some(rejected) => Err(AskError::Rejected(rejected)),
                None => return Poll::Pending,
            },
            StageProj::Mediated { reply } => ready!(reply.as_mut().poll(cx)),
            StageProj::Asking { .. } | StageProj::Done => return Poll::Pending,
        };
        this.stage.set(Stage::Done);
        Poll::Ready(output)
    }
}

impl<T, M, C> fmt::Debug for AskFuture<T, M, C>
where
    T: Target<M>,
    M: Message + Send,
    M::Result: Send,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskFuture")
            .field("breaker", &self.breaker.name())
            .finish_non_exhaustive()
    }
}
