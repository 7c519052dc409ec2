//! Guards a future of a result: the two futures that callers get.
//! What they do at each poll is in `call/guarded.rs`.

#![expect(
    clippy::inline_always,
    reason = "counted: with what it needs outlined or inlined, a closed call takes 69 instructions, not 136"
)]

mod guarded;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::Breaker;
use crate::error::CallError;
use crate::outcome::{ByReply, Classify};
pub(crate) use guarded::{GuardedFuture, Handle};

pin_project! {
    /// The future of [`Breaker::call`], which borrows the handle.
    ///
    /// Where it has to wait, it is to be polled on a thread with a tokio runtime.
    #[must_use = "futures do nothing unless polled"]
    pub struct Call<'b, F: Future, C = ByReply> {
        #[pin]
        guarded: GuardedFuture<&'b Breaker, F, C>,
    }
}

pin_project! {
    /// The future of [`Breaker::into_call`], which holds the handle.
    ///
    /// Where it has to wait, it is to be polled on a thread with a tokio runtime.
    #[must_use = "futures do nothing unless polled"]
    pub struct IntoCall<F: Future, C = ByReply> {
        #[pin]
        guarded: GuardedFuture<Breaker, F, C>,
    }
}

impl<'b, F, T, E, C> Call<'b, F, C>
where
    F: Future<Output = Result<T, E>>,
    E: 'static,
    C: Classify<Result<T, E>>,
{
    pub(super) const fn new(breaker: &'b Breaker, future: F, classify: C) -> Self {
        Self {
            guarded: GuardedFuture::new(breaker, future, classify),
        }
    }
}

impl<F, T, E, C> IntoCall<F, C>
where
    F: Future<Output = Result<T, E>>,
    E: 'static,
    C: Classify<Result<T, E>>,
{
    pub(super) const fn new(breaker: Breaker, future: F, classify: C) -> Self {
        Self {
            guarded: GuardedFuture::new(breaker, future, classify),
        }
    }
}

impl<F, T, E, C> Future for Call<'_, F, C>
where
    F: Future<Output = Result<T, E>>,
    E: 'static,
    C: Classify<Result<T, E>>,
{
    type Output = Result<T, CallError<E>>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().guarded.poll(cx)
    }
}

impl<F, T, E, C> Future for IntoCall<F, C>
where
    F: Future<Output = Result<T, E>>,
    E: 'static,
    C: Classify<Result<T, E>>,
{
    type Output = Result<T, CallError<E>>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().guarded.poll(cx)
    }
}

impl<F: Future, C> fmt::Debug for Call<'_, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("breaker", &self.guarded.handle.name())
            .finish_non_exhaustive()
    }
}

impl<F: Future, C> fmt::Debug for IntoCall<F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoCall")
            .field("breaker", &self.guarded.handle.name())
            .finish_non_exhaustive()
    }
}
