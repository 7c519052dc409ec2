//! Makes calls in all the ways there are, and ends them.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix::Addr;
use actix_circuit_breaker::message::Ask;
use actix_circuit_breaker::{AskError, CallError, Outcome, Permit};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tokio::sync::oneshot;

use super::caller::{Got, Parked, Plot, Shared};
use super::script::{End, Op, Way};
use super::stage::{Job, Plan, Target, Told, panic_quietly};
use super::witness::Answer;

impl Shared {
    /// Makes a call; its answer, and whether effects may follow that.
    pub(super) async fn call(self: Arc<Self>, op: Op, plot: Plot, began: u64) -> (Answer, bool) {
        let (call, way) = (plot.call, plot.way);
        let plan = match op {
            Op::Call(_, end) => Plan::Now(end),
            _ => Plan::Later(plot.later),
        };
        let token = Arc::new(());
        let mut parked = Parked {
            way,
            latch: Some(plot.latch),
            cancel: None,
            done: None,
            token: Arc::downgrade(&token),
            _target: plot.target.clone(),
        };
        if way == Way::Permit {
            drop(token);
            return self.permit(op, call, parked, plan, began).await;
        }
        let (seen, mut was_seen) = oneshot::channel();
        let mut future = self.make(way, plot.target, Job { seen, plan }, token);
        match op {
            Op::Call(_, end) => {
                let got = future.await;
                let seen = was_seen.try_recv().is_ok();
                let open = way == Way::Future && end == End::Panic;
                let answer = self.admission(&got, seen, began);
                if matches!(answer, Answer::Admitted { .. }) {
                    self.check_end(way, end, &got);
                }
                self.ended.lock().unwrap().push((call, parked));
                (answer, open)
            }
            Op::Early(_) => {
                let got = futures::poll!(&mut future);
                drop(future);
                let answer = match got {
                    Poll::Ready(got) => self.admission(&got, false, began),
                    Poll::Pending => Answer::Dropped { orphan: false },
                };
                // Until it is seen or dropped unseen, nobody knows.
                parked.done = Some(seen_as_done(was_seen));
                self.ended.lock().unwrap().push((call, parked));
                (answer, true)
            }
            _ => {
                let got = tokio::select! {
                    biased;
                    seen = &mut was_seen => seen.err().map(|_| None),
                    got = &mut future => Some(Some(got)),
                };
                let got = match got {
                    None => None,
                    // The job is gone, unseen: an answer will come.
                    Some(None) => Some(future.as_mut().await),
                    Some(got) => got,
                };
                if let Some(got) = got {
                    self.ended.lock().unwrap().push((call, parked));
                    return (self.admission(&got, false, began), false);
                }
                let (cancel, cancelled) = oneshot::channel();
                let (done, got) = oneshot::channel();
                parked.cancel = Some(cancel);
                parked.done = Some(got);
                actix::spawn(async move {
                    let got = tokio::select! {
                        biased;
                        // Dropped with the script, it is no order.
                        Ok(()) = cancelled => Got::Gone,
                        got = &mut future => got,
                    };
                    drop(future);
                    drop(done.send(got));
                });
                self.parked.lock().unwrap().insert(call, parked);
                (Answer::Admitted { probe: None }, false)
            }
        }
    }

    /// A call's future, in all ways but by a permit.
    fn make(
        &self,
        way: Way,
        target: Addr<Target>,
        job: Job,
        token: Arc<()>,
    ) -> LocalBoxFuture<'static, Got> {
        let breaker = &self.breaker;
        let hangs = matches!(job.plan, Plan::Now(End::Hang));
        let short = Duration::from_millis(1);
        let classify = move |told: &Told| {
            // Kept as long as this is.
            assert!(Arc::strong_count(&token) > 0);
            told.0
        };
        match way {
            Way::Ask => Box::pin(breaker.ask_with(&target, job, classify).map(got)),
            Way::Guard => {
                let mut guard = breaker.guard_with(target.recipient(), classify);
                if hangs {
                    guard = guard.call_timeout(short);
                }
                Box::pin(guard.send(job).map(got))
            }
            Way::Message => {
                let mut ask = Ask::with(target.recipient(), job, classify);
                if hangs {
                    ask = ask.call_timeout(short);
                }
                let request = breaker.addr().send(ask);
                Box::pin(request.map(|result| result.map_or(Got::Lost, got)))
            }
            Way::Future | Way::Permit => {
                let work = async move {
                    _ = job.seen.send(());
                    match job.plan.end().await {
                        End::Panic => panic_quietly(),
                        End::Bad => Err(Outcome::Failure),
                        end => Ok(end.outcome()),
                    }
                };
                let judge = |result: &Result<Outcome, Outcome>| match result {
                    Ok(outcome) | Err(outcome) => *outcome,
                };
                let call = breaker.clone().into_call_with(work, judge);
                let call = std::panic::AssertUnwindSafe(call).catch_unwind();
                Box::pin(call.map(|result| match result {
                    Err(_) => Got::Panicked,
                    Ok(Ok(outcome) | Err(CallError::Failed(outcome))) => Got::Reply(outcome),
                    Ok(Err(CallError::Rejected(rejected))) => Got::Rejected(rejected),
                    Ok(Err(_)) => Got::Timeout,
                }))
            }
        }
    }

    async fn permit(
        self: Arc<Self>,
        op: Op,
        call: u64,
        mut parked: Parked,
        plan: Plan,
        began: u64,
    ) -> (Answer, bool) {
        let mut future = Box::pin(self.breaker.acquire());
        let early = matches!(op, Op::Early(_));
        let acquired = if early {
            match futures::poll!(&mut future) {
                Poll::Ready(acquired) => acquired,
                Poll::Pending => {
                    drop(future);
                    return (Answer::Dropped { orphan: false }, true);
                }
            }
        } else {
            future.await
        };
        let permit = match acquired {
            Ok(permit) => permit,
            Err(AskError::Rejected(rejected)) => {
                return (
                    self.admission(&Got::Rejected(rejected), false, began),
                    false,
                );
            }
            Err(error) => {
                self.fault(format!("acquire: {error}"));
                return (Answer::Lost, false);
            }
        };
        let probe = Some(permit.is_probe());
        match (op, plan) {
            (Op::Call(_, end), _) => {
                let open = settle(permit, end).await;
                (Answer::Admitted { probe }, open)
            }
            (Op::Early(_), _) => {
                drop(permit);
                (Answer::Admitted { probe }, true)
            }
            (_, plan) => {
                let (done, got) = oneshot::channel();
                parked.done = Some(got);
                actix::spawn(async move {
                    settle(permit, plan.end().await).await;
                    drop(done.send(Got::Gone));
                });
                self.parked.lock().unwrap().insert(call, parked);
                (Answer::Admitted { probe }, false)
            }
        }
    }

    /// Ends a call that waits.
    pub(super) async fn finish(
        self: Arc<Self>,
        call: u64,
        mut parked: Parked,
        end: End,
    ) -> (Answer, bool) {
        let end = parked.way.fit(end, true);
        let latch = parked.latch.take().unwrap();
        let Some(done) = parked.done.take() else {
            // In the breaker's care; its caller is gone.
            if end == End::Gone {
                parked.latch = Some(latch);
                self.parked.lock().unwrap().insert(call, parked);
                return (Answer::Nothing, false);
            }
            _ = latch.send(end);
            self.ended.lock().unwrap().push((call, parked));
            return (Answer::Done, true);
        };
        if end == End::Gone && parked.way != Way::Permit {
            if let Some(cancel) = parked.cancel.take() {
                _ = cancel.send(());
            }
            drop(done.await);
            if parked.way.has_target() && parked.token.strong_count() > 0 {
                parked.latch = Some(latch);
                self.parked.lock().unwrap().insert(call, parked);
            }
            return (Answer::Done, false);
        }
        _ = latch.send(end);
        let got = done.await;
        if parked.way != Way::Permit {
            match &got {
                Ok(got) => self.check_end(parked.way, end, got),
                Err(_) => self.fault(format!("the caller of {call} is gone")),
            }
        }
        let open = match parked.way {
            Way::Permit => matches!(end, End::Panic | End::Careless),
            Way::Future => end == End::Panic,
            _ => false,
        };
        self.ended.lock().unwrap().push((call, parked));
        (Answer::Done, open)
    }
}

fn got(result: Result<Told, AskError>) -> Got {
    match result {
        Ok(Told(outcome)) => Got::Reply(outcome),
        Err(AskError::Rejected(rejected)) => Got::Rejected(rejected),
        Err(AskError::Timeout(_)) => Got::Timeout,
        Err(_) => Got::Closed,
    }
}

/// Passes word on that a job was seen.
fn seen_as_done(seen: oneshot::Receiver<()>) -> oneshot::Receiver<Got> {
    let (done, got) = oneshot::channel();
    actix::spawn(async move {
        if seen.await.is_ok() {
            drop(done.send(Got::Gone));
        }
    });
    got
}

/// Ends a permit; tells whether effects may follow.
async fn settle(permit: Permit, end: End) -> bool {
    match end {
        End::Good => permit.success().await,
        End::Neutral => permit.ignore().await,
        End::Gone => drop(permit),
        End::Careless => drop(permit.failure()),
        End::Panic => {
            let holder = move || {
                let _held = permit;
                panic_quietly()
            };
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(
                holder,
            )));
        }
        _ => permit.failure().await,
    }
    matches!(end, End::Panic | End::Careless)
}
