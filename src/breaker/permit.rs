//! Leave to make one call by oneself, and to say how it went.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix::dev::Request;
use pin_project_lite::pin_project;

use super::settle::Receipt;
use super::timer::CallTimer;
use super::{Breaker, Settled, UnderWay};
use crate::actor::BreakerActor;
use crate::circuit::{self, Ending, SPARED};
use crate::clock::Timestamp;
use crate::error::AskError;
use crate::gate::{Admission, End, Flags, Held, Took, end_of_drop};
use crate::message::{self, Collect, Grant};
use crate::outcome::Outcome;

/// Leave to make one call, from [`Breaker::acquire`]; settled once, by one of its methods or by `Drop`.
///
/// Dropped unsettled, it means that the caller went away: no outcome, and a probe's slot is free at
/// once. Dropped while its thread panics, it means that the call failed.
#[must_use = "a permit that is dropped gives no outcome"]
pub struct Permit {
    breaker: Breaker,
    leave: Option<Leave>,
}

enum Leave {
    Passed {
        epoch: u64,
        /// Read only where the policy has a limit on slow calls.
        since: Option<Timestamp>,
        under_way: UnderWay,
    },
    Probe(Held),
}

impl Permit {
    fn passed(breaker: Breaker, epoch: u64) -> Self {
        let gate = breaker.gate();
        let since = gate.slow_call().map(|_| gate.clock().now());
        Self {
            leave: Some(Leave::Passed {
                epoch,
                since,
                under_way: UnderWay::of(&breaker, epoch),
            }),
            breaker,
        }
    }

    pub(super) fn probe(breaker: Breaker, held: Held) -> Self {
        Self {
            breaker,
            leave: Some(Leave::Probe(held)),
        }
    }

    /// Tells whether the call is a probe.
    pub fn is_probe(&self) -> bool {
        matches!(self.leave, Some(Leave::Probe(_)))
    }

    /// Settles the call as a success, now; the future tells when the breaker has taken note.
    pub fn success(self) -> Settled {
        self.settle(of(Outcome::Success))
    }

    /// Settles the call as a failure, now; the future tells when the breaker has taken note.
    pub fn failure(self) -> Settled {
        self.settle(of(Outcome::Failure))
    }

    /// Settles the call as one that says nothing about the target, now.
    pub fn ignore(self) -> Settled {
        self.settle(of(Outcome::Ignored))
    }

    pub(super) fn settle(mut self, end: impl Into<End>) -> Settled {
        let end = end.into();
        if can_wake() {
            self.end(end).map_or_else(Settled::now, Settled::waiting)
        } else {
            self.leave_word(end);
            Settled::now()
        }
    }

    /// Ends the call without waking anybody: the actor finds it before its next message.
    fn leave_word(&mut self, end: End) {
        let gate = self.breaker.gate();
        match self.leave.take() {
            None => {}
            Some(Leave::Probe(mut held)) => {
                if let Some(permit) = held.take() {
                    gate.leave(|letters| letters.end(permit, end));
                }
            }
            Some(Leave::Passed {
                epoch,
                mut under_way,
                ..
            }) => {
                under_way.end(|| None);
                if epoch != SPARED {
                    gate.leave(|letters| letters.add(epoch, end));
                }
            }
        }
    }

    fn end(&mut self, end: End) -> Option<Receipt> {
        match self.leave.take()? {
            Leave::Probe(mut held) => {
                let permit = held.take()?;
                Some(self.breaker.send_ending(permit, end))
            }
            Leave::Passed {
                epoch,
                since,
                mut under_way,
            } => {
                under_way.end(|| None);
                let (outcome, took) = match end.ending {
                    Ending::Outcome { outcome, slow } if slow => (outcome, Took::Slow),
                    Ending::Outcome { outcome, .. } => (outcome, Took::Usual),
                    Ending::Gone => (Outcome::Ignored, Took::Usual),
                };
                match since {
                    // The circuit compares the times.
                    Some(since) if outcome != Outcome::Ignored => {
                        let word = self.breaker.gate().load();
                        if word.epoch() == epoch && word.has(Flags::TALLY.with(Flags::TELL)) {
                            let permit = circuit::Permit::closed_since(epoch, since);
                            return Some(self.breaker.send_ending(permit, end));
                        }
                        self.breaker.settle_passed(epoch, outcome, took)
                    }
                    _ => self.breaker.settle_passed(epoch, outcome, took),
                }
            }
        }
    }
}

/// An ending that is slow only if its age says so.
fn of(outcome: Outcome) -> Ending {
    Ending::Outcome {
        outcome,
        slow: false,
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let ending = end_of_drop();
        match &self.leave {
            None => {}
            // The slot is found by the next message; no caller is waiting for it.
            Some(Leave::Probe(_)) if ending == Ending::Gone => {}
            Some(Leave::Probe(_)) => {
                self.leave = None;
                // A failure opens the circuit, which subscribers should hear of now. But a thread
                // whose locals are being destroyed can wake nobody.
                if can_wake() {
                    self.breaker.addr().do_send(Collect);
                }
            }
            Some(Leave::Passed { .. }) => {
                // To note that a caller went away wakes nobody.
                if ending == Ending::Gone || can_wake() {
                    drop(self.end(ending.into()));
                } else {
                    self.leave_word(ending.into());
                }
            }
        }
    }
}

/// Whether this thread's runtime, if it has one, can still be told to wake a task.
pub(crate) fn can_wake() -> bool {
    match tokio::runtime::Handle::try_current() {
        Ok(_) => true,
        Err(error) => !error.is_thread_local_destroyed(),
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("breaker", &self.breaker.name())
            .field("probe", &self.is_probe())
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of [`Breaker::acquire`]. Once it is ready it stays pending when polled again.
    ///
    /// Where the breaker has to be asked, it is to be polled on a thread with a tokio runtime.
    #[must_use = "futures do nothing unless polled"]
    pub struct AcquireFuture {
        breaker: Breaker,
        #[pin]
        stage: Stage,
    }
}

pin_project! {
    #[project = StageProj]
    enum Stage {
        Decided { result: Option<Result<Permit, AskError>> },
        Asked {
            #[pin]
            request: Request<BreakerActor, message::Acquire>,
            limit: Duration,
            #[pin]
            timer: CallTimer,
        },
    }
}

impl AcquireFuture {
    pub(super) fn new(breaker: &Breaker) -> Self {
        let decided = |result| Stage::Decided {
            result: Some(result),
        };
        let stage = match breaker.admit() {
            Admission::Pass(word) => decided(Ok(Permit::passed(breaker.clone(), word.epoch()))),
            Admission::Reject(rejected) => decided(Err(AskError::Rejected(rejected))),
            Admission::Ask(question) => {
                let limit = breaker.gate().call_timeout();
                Stage::Asked {
                    request: breaker.addr().send(message::Acquire {
                        call_timeout: limit,
                        _question: question,
                    }),
                    limit,
                    timer: CallTimer::new(),
                }
            }
        };
        Self {
            breaker: breaker.clone(),
            stage,
        }
    }
}

impl Future for AcquireFuture {
    type Output = Result<Permit, AskError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let result = match this.stage.as_mut().project() {
            StageProj::Decided { result } => match result.take() {
                Some(result) => return Poll::Ready(result),
                None => return Poll::Pending,
            },
            StageProj::Asked {
                request,
                limit,
                timer,
            } => match request.poll(cx) {
                Poll::Ready(Ok(Ok(Grant::Probe(held)))) => {
                    Ok(Permit::probe(this.breaker.clone(), held))
                }
                Poll::Ready(Ok(Ok(Grant::Closed(permit)))) => {
                    Ok(Permit::passed(this.breaker.clone(), permit.epoch()))
                }
                Poll::Ready(Ok(Err(rejected))) => Err(AskError::Rejected(rejected)),
                // The breaker is gone or lost the question: it guards nothing.
                Poll::Ready(Err(_)) => {
                    let epoch = this.breaker.gate().load().epoch();
                    Ok(Permit::passed(this.breaker.clone(), epoch))
                }
                Poll::Pending => {
                    ready!(timer.poll(cx, *limit, None));
                    Err(AskError::Timeout(*limit))
                }
            },
        };
        this.stage.set(Stage::Decided { result: None });
        Poll::Ready(result)
    }
}

impl fmt::Debug for AcquireFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireFuture")
            .field("breaker", &self.breaker.name())
            .finish_non_exhaustive()
    }
}
