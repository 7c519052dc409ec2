//! A guarded future of one key, which looks its member up only if there is something to be found.
//! What it does at each poll is in `breaker/call/guarded.rs`.

#![expect(clippy::inline_always, reason = "as `breaker/call.rs`")]

use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::Shared;
use crate::breaker::{Breaker, GuardedFuture, Handle, Receipt};
use crate::error::CallError;
use crate::gate::{Admission, Took, Word};
use crate::outcome::{ByReply, Classify, Outcome};

pin_project! {
    /// The future of [`Family::call`](super::Family::call), which borrows the family and the key.
    ///
    /// Where it has to wait, it is to be polled on a thread with a tokio runtime.
    #[must_use = "futures do nothing unless polled"]
    pub struct FamilyCall<'f, F: Future, C = ByReply> {
        #[pin]
        guarded: GuardedFuture<Sought<'f>, F, C>,
    }
}

/// A key whose member is looked up when it is needed.
struct Sought<'f> {
    family: &'f Arc<Shared>,
    key: &'f str,
    member: OnceCell<Breaker>,
}

impl Sought<'_> {
    #[inline(never)]
    fn admit_member(&self) -> Admission {
        self.breaker().admit()
    }

    #[inline(never)]
    fn settle_member(&self, epoch: u64, outcome: Outcome, took: Took) -> Option<Receipt> {
        self.breaker().settle_passed(self.pin(epoch), outcome, took)
    }
}

impl Handle for Sought<'_> {
    fn breaker(&self) -> &Breaker {
        self.member.get_or_init(|| self.family.breaker(self.key))
    }

    #[inline(always)]
    fn admit(&self) -> Admission {
        if self.family.table.knows_nothing_of(self.key) {
            Admission::Pass(Word::UNKNOWN)
        } else {
            self.admit_member()
        }
    }

    #[inline(always)]
    fn settle_passed(&self, epoch: u64, outcome: Outcome, took: Took) -> Option<Receipt> {
        if epoch == Word::UNKNOWN.epoch()
            && outcome == Outcome::Success
            && self.family.table.forgets_nothing_of(self.key)
        {
            self.family.meter.success();
            return None;
        }
        self.settle_member(epoch, outcome, took)
    }

    /// The member was closed and empty when the call began. If it has been anything else since, the call
    /// comes too late to count.
    #[inline]
    fn pin(&self, epoch: u64) -> u64 {
        if epoch == Word::UNKNOWN.epoch() {
            self.breaker().born()
        } else {
            epoch
        }
    }
}

impl<'f, F, T, E, C> FamilyCall<'f, F, C>
where
    F: Future<Output = Result<T, E>>,
    E: 'static,
    C: Classify<Result<T, E>>,
{
    pub(super) const fn new(family: &'f Arc<Shared>, key: &'f str, future: F, classify: C) -> Self {
        let sought = Sought {
            family,
            key,
            member: OnceCell::new(),
        };
        Self {
            guarded: GuardedFuture::new(sought, future, classify),
        }
    }
}

impl<F, T, E, C> Future for FamilyCall<'_, F, C>
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

impl<F: Future, C> fmt::Debug for FamilyCall<'_, F, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FamilyCall")
            .field("family", &self.guarded.handle.family.name)
            .field("key", &self.guarded.handle.key)
            .finish_non_exhaustive()
    }
}
