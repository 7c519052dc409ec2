//! One actor and its mailbox across all its lives, touched only under `catch_unwind`.
//! When to start a next life is left to the supervising future.

use std::{
    pin::Pin,
    task::{self, Poll, Waker},
    thread,
};

use actix::{
    Actor, ActorContext, ActorState, AsyncContext, Context, Supervised, dev::ContextFut,
    fut::ActorFuture,
};

use crate::caught::caught;

/// Why a life ended.
#[derive(Debug)]
pub(super) enum Cause {
    Stopped,
    Panicked(String),
}

impl Cause {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Stopped => "stopped",
            Self::Panicked(text) => text,
        }
    }
}

/// `None` once it has ended for good.
pub(super) struct Life<A>(Option<ContextFut<A, Context<A>>>)
where
    A: Actor<Context = Context<A>> + Supervised;

impl<A> Life<A>
where
    A: Actor<Context = Context<A>> + Supervised,
{
    pub(super) fn new(ctx: Context<A>, actor: A) -> Self {
        Self(Some(ctx.into_future(actor)))
    }

    /// Runs the actor. After `Ready` only [`restart`](Self::restart) or [`end`](Self::end) may
    /// follow: a future that panicked is still there, and must not be polled again.
    pub(super) fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<Cause> {
        let Some(fut) = &mut self.0 else {
            return Poll::Ready(Cause::Stopped);
        };
        match caught(|| Pin::new(fut).poll(cx)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(Cause::Stopped),
            Err(text) => Poll::Ready(Cause::Panicked(text)),
        }
    }

    /// Starts the next life; `Ok(false)` when no address is left to start it for.
    ///
    /// It drops the futures of the life before, then calls `restarting`. Both may panic, and both
    /// leave behind something that can be restarted once more: a future is out of the list before
    /// its destructor runs.
    pub(super) fn restart(&mut self) -> Result<bool, Cause> {
        let Some(fut) = &mut self.0 else {
            return Ok(false);
        };
        caught(|| fut.restart()).map_err(Cause::Panicked)
    }

    pub(super) fn connected(&mut self) -> bool {
        self.0.as_mut().is_some_and(|fut| fut.ctx().connected())
    }

    /// Ends the actor for good: the hooks that are still due, then its `Drop`.
    pub(super) fn end(&mut self) {
        let Some(mut fut) = self.0.take() else {
            return;
        };
        if fut.ctx().state() != ActorState::Stopped && !thread::panicking() {
            let ctx = fut.ctx();
            ctx.stop();
            ctx.wait(Terminate);
            let mut cx = task::Context::from_waker(Waker::noop());
            drop(caught(|| Pin::new(&mut fut).poll(&mut cx)));
        }
        // `ContextFut::drop` polls an actor that is not stopped. A hook panicking there would have
        // the actor dropped in mid-unwind, where the panic of a destructor aborts the process.
        fut.ctx().terminate();
        drop(caught(|| drop(fut)));
    }
}

/// An arbiter that stops drops the supervising future wherever it is.
impl<A> Drop for Life<A>
where
    A: Actor<Context = Context<A>> + Supervised,
{
    fn drop(&mut self) {
        self.end();
    }
}

/// Takes the word of an actor whose `stopping` answers `Running::Continue` at its end. Waited for,
/// it comes before the mailbox, and `stopped` is called within the same poll.
struct Terminate;

impl<A> ActorFuture<A> for Terminate
where
    A: Actor<Context = Context<A>>,
{
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        _: &mut A,
        ctx: &mut Context<A>,
        _: &mut task::Context<'_>,
    ) -> Poll<()> {
        ctx.terminate();
        Poll::Ready(())
    }
}
