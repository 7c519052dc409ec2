//! What a guarded future does at each poll.
//! Small, since what most calls never need is made when the future is first found waiting.

#![expect(
    clippy::inline_always,
    reason = "counted: with what it needs outlined or inlined, a closed call takes 69 instructions, not 136"
)]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix::dev::Request;
use pin_project_lite::pin_project;

use crate::actor::BreakerActor;
use crate::breaker::nested::rejected;
use crate::breaker::timer::CallTimer;
use crate::breaker::{Breaker, Permit, Receipt, Settled, UnderWay, judge};
use crate::error::CallError;
use crate::gate::{Admission, End, OnItsWay, Took};
use crate::message::{Acquire, Grant};
use crate::outcome::{Classify, Outcome};
use crate::report::CallSpan;

type Done<T, E> = Result<T, CallError<E>>;

/// A handle, borrowed or held, or what it is found by.
pub(crate) trait Handle {
    fn breaker(&self) -> &Breaker;

    #[inline(always)]
    fn admit(&self) -> Admission {
        self.breaker().admit()
    }

    /// Settles a call that passed and was done at its first poll.
    #[inline(always)]
    fn settle_passed(&self, epoch: u64, outcome: Outcome, took: Took) -> Option<Receipt> {
        self.breaker().settle_passed(epoch, outcome, took)
    }

    /// The epoch of a call that passed and goes on.
    #[inline]
    fn pin(&self, epoch: u64) -> u64 {
        epoch
    }
}

impl Handle for &Breaker {
    fn breaker(&self) -> &Breaker {
        self
    }
}

impl Handle for Breaker {
    fn breaker(&self) -> &Breaker {
        self
    }
}

pin_project! {
    pub(crate) struct GuardedFuture<H, F: Future, C> {
        pub(crate) handle: H,
        classify: C,
        #[pin]
        future: F,
        stage: Stage<F::Output>,
    }
}

/// Where a call stands between two polls.
enum Stage<R> {
    New,
    Waiting(Pin<Box<Wait<R>>>),
    Done,
}

pin_project! {
    /// A call that was not done at its first poll.
    struct Wait<R> {
        span: CallSpan,
        #[pin]
        phase: Phase<R>,
    }
}

pin_project! {
    #[project = PhaseProj]
    enum Phase<R> {
        // The mailbox decides whether the call may be made.
        Acquiring {
            #[pin]
            request: Request<BreakerActor, Acquire>,
            limit: Duration,
            #[pin]
            timer: CallTimer,
        },
        // The future is found waiting.
        Running {
            leave: Leave,
            limit: Duration,
            // A probe's time counts from its admission (R16).
            spent: Duration,
            #[pin]
            timer: CallTimer,
        },
        // The result waits until the breaker has taken note of it; without one the call timed out.
        Settling {
            result: Option<R>,
            limit: Duration,
            settled: Settled,
        },
    }
}

/// Leave to poll the future.
enum Leave {
    /// Admitted by reading the gate.
    Passed { epoch: u64, under_way: UnderWay },
    /// A probe, until it is settled. Its permit knows what to do when it is dropped.
    Probe(Option<Permit>),
}

impl Leave {
    fn passed(breaker: &Breaker, epoch: u64) -> Self {
        Self::Passed {
            epoch,
            under_way: UnderWay::of(breaker, epoch),
        }
    }

    /// Settles the call; `None` where there is nothing to wait for.
    /// `waited` tells for how long it was waited for.
    fn settle(
        &mut self,
        breaker: &Breaker,
        outcome: Outcome,
        took: Took,
        waited: impl FnOnce() -> Option<Duration>,
    ) -> Option<Settled> {
        match self {
            Self::Passed { epoch, under_way } => {
                under_way.end(waited);
                breaker
                    .settle_passed(*epoch, outcome, took)
                    .map(Settled::waiting)
            }
            Self::Probe(permit) => {
                let permit = permit.take()?;
                breaker.gate().meter().measure(waited);
                Some(permit.settle(End::new(outcome, took)))
            }
        }
    }
}

/// Makes a panic of the guarded future a failure; on the stack only while that is polled. Nobody can
/// wait in mid-unwind; the outcome counts without.
struct Bomb<S: FnMut()>(S);

impl<S: FnMut()> Drop for Bomb<S> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[inline]
fn poll_armed<F: Future>(
    future: Pin<&mut F>,
    cx: &mut Context<'_>,
    settle_failure: impl FnMut(),
) -> Poll<F::Output> {
    let bomb = Bomb(settle_failure);
    let polled = future.poll(cx);
    std::mem::forget(bomb);
    polled
}

impl<R> Stage<R> {
    /// Ends a call that never had to wait, whose stage holds nothing to be dropped.
    #[inline]
    fn end_at_once(&mut self) {
        std::mem::forget(std::mem::replace(self, Self::Done));
    }
}

impl<H, F, T, E, C> GuardedFuture<H, F, C>
where
    H: Handle,
    F: Future<Output = Result<T, E>>,
    E: 'static,
    C: Classify<Result<T, E>>,
{
    pub(crate) const fn new(handle: H, future: F, classify: C) -> Self {
        Self {
            handle,
            classify,
            future,
            stage: Stage::New,
        }
    }

    /// The first poll, which is the only one for a future that is ready at once. What it does for a
    /// success and for a rejection is meant to be inlined; the rest is not.
    #[inline(always)]
    fn start(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done<T, E>> {
        let this = self.as_mut().project();
        let handle = this.handle;
        let epoch = match handle.admit() {
            Admission::Pass(word) => word.epoch(),
            Admission::Reject(rejection) => {
                this.stage.end_at_once();
                return Poll::Ready(Err(rejected(rejection)));
            }
            Admission::Ask(question) => return self.acquire(question, cx),
        };
        let settle_failure = || drop(handle.settle_passed(epoch, Outcome::Failure, Took::Usual));
        match poll_armed(this.future, cx, settle_failure) {
            Poll::Ready(result) => {
                let outcome = judge(|| handle.breaker().gate(), this.classify, &result);
                match handle.settle_passed(epoch, outcome, Took::Usual) {
                    None => {
                        this.stage.end_at_once();
                        Poll::Ready(result.map_err(CallError::Failed))
                    }
                    Some(receipt) => self.wait(Some(result), Settled::waiting(receipt), cx),
                }
            }
            Poll::Pending => self.run(epoch, cx),
        }
    }

    #[cold]
    fn acquire(
        mut self: Pin<&mut Self>,
        question: OnItsWay,
        cx: &mut Context<'_>,
    ) -> Poll<Done<T, E>> {
        let breaker = self.handle.breaker();
        let limit = breaker.gate().call_timeout();
        let phase = Phase::Acquiring {
            request: breaker.addr().send(Acquire {
                call_timeout: limit,
                _question: question,
            }),
            limit,
            timer: CallTimer::new(),
        };
        self.as_mut().enter(phase);
        self.resume(cx)
    }

    #[inline(never)]
    fn run(mut self: Pin<&mut Self>, epoch: u64, cx: &mut Context<'_>) -> Poll<Done<T, E>> {
        let breaker = self.handle.breaker();
        let limit = breaker.gate().call_timeout();
        let slow_call = breaker.gate().slow_call();
        let leave = Leave::passed(breaker, self.handle.pin(epoch));
        self.as_mut().enter(Phase::Running {
            leave,
            limit,
            spent: Duration::ZERO,
            timer: CallTimer::new(),
        });
        // The future has just been polled; what is left of this poll is to arm the timer.
        if let Stage::Waiting(wait) = self.as_mut().project().stage
            && let PhaseProj::Running { timer, .. } = wait.as_mut().project().phase.project()
        {
            ready!(timer.poll(cx, limit, slow_call));
        }
        self.resume(cx)
    }

    #[cold]
    fn wait(
        mut self: Pin<&mut Self>,
        result: Option<Result<T, E>>,
        settled: Settled,
        cx: &mut Context<'_>,
    ) -> Poll<Done<T, E>> {
        self.as_mut().enter(Phase::Settling {
            result,
            limit: Duration::ZERO,
            settled,
        });
        self.resume(cx)
    }

    fn enter(self: Pin<&mut Self>, phase: Phase<Result<T, E>>) {
        let this = self.project();
        let span = CallSpan::new(this.handle.breaker().name());
        *this.stage = Stage::Waiting(Box::pin(Wait { span, phase }));
    }

    /// Every poll after the first.
    #[inline(never)]
    fn resume(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done<T, E>> {
        let mut this = self.project();
        let Stage::Waiting(wait) = this.stage else {
            return Poll::Pending;
        };
        let breaker = this.handle.breaker();
        let wait = wait.as_mut().project();
        let mut phase = wait.phase;
        let done = wait.span.run(|| {
            loop {
                let next = match phase.as_mut().project() {
                    PhaseProj::Acquiring {
                        request,
                        limit,
                        timer,
                    } => {
                        let limit = *limit;
                        let granted = match request.poll(cx) {
                            Poll::Ready(granted) => granted,
                            Poll::Pending => {
                                ready!(timer.poll(cx, limit, None));
                                return Poll::Ready(Err(CallError::Timeout(limit)));
                            }
                        };
                        let mut spent = Duration::ZERO;
                        let leave = match granted {
                            Ok(Ok(Grant::Probe(held))) => {
                                spent = breaker.gate().spent(&held);
                                Leave::Probe(Some(Permit::probe(breaker.clone(), held)))
                            }
                            Ok(Ok(Grant::Closed(permit))) => Leave::passed(breaker, permit.epoch()),
                            Ok(Err(rejection)) => return Poll::Ready(Err(rejected(rejection))),
                            // The breaker is gone or lost the question: it guards nothing.
                            Err(_) => Leave::passed(breaker, breaker.gate().load().epoch()),
                        };
                        Phase::Running {
                            leave,
                            limit,
                            spent,
                            timer: CallTimer::new(),
                        }
                    }
                    PhaseProj::Running {
                        leave,
                        limit,
                        spent,
                        mut timer,
                    } => {
                        let limit = *limit;
                        let left = limit.saturating_sub(*spent);
                        let settle_failure =
                            || drop(leave.settle(breaker, Outcome::Failure, Took::Usual, || None));
                        let polled = poll_armed(this.future.as_mut(), cx, settle_failure);
                        let (result, outcome, took) = match polled {
                            Poll::Ready(result) => {
                                let outcome = judge(|| breaker.gate(), this.classify, &result);
                                (Some(result), outcome, timer.took())
                            }
                            Poll::Pending => {
                                let slow_call = breaker.gate().slow_call();
                                ready!(timer.as_mut().poll(cx, left, slow_call));
                                (None, Outcome::Failure, Took::TooLong)
                            }
                        };
                        let waited = || Some(timer.waited(left)?.saturating_add(*spent));
                        let settled = leave
                            .settle(breaker, outcome, took, waited)
                            .unwrap_or_else(Settled::now);
                        Phase::Settling {
                            result,
                            limit,
                            settled,
                        }
                    }
                    PhaseProj::Settling {
                        result,
                        limit,
                        settled,
                    } => {
                        ready!(Pin::new(settled).poll(cx));
                        let done = match result.take() {
                            Some(result) => result.map_err(CallError::Failed),
                            None => Err(CallError::Timeout(*limit)),
                        };
                        return Poll::Ready(done);
                    }
                };
                phase.set(next);
            }
        });
        if let Poll::Ready(result) = &done {
            wait.span.end(name_of(result));
            *this.stage = Stage::Done;
        }
        done
    }
}

impl<H, F, T, E, C> Future for GuardedFuture<H, F, C>
where
    H: Handle,
    F: Future<Output = Result<T, E>>,
    E: 'static,
    C: Classify<Result<T, E>>,
{
    type Output = Done<T, E>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done<T, E>> {
        match self.stage {
            Stage::New => self.start(cx),
            Stage::Waiting(_) | Stage::Done => self.resume(cx),
        }
    }
}

/// How a call ended, in a word for its span.
fn name_of<T, E>(result: &Done<T, E>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(CallError::Rejected(_)) => "rejected",
        Err(CallError::Timeout(_)) => "timeout",
        Err(CallError::Failed(_)) => "failed",
    }
}
