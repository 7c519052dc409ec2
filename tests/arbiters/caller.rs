//! Takes the steps of a script, on whichever arbiter they are, and writes down their answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use actix::Addr;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    Breaker, Clock, Outcome, Rejected, StateChanged, SystemClock, Transitions,
};
use futures::StreamExt;
use tokio::sync::oneshot;

use super::script::{End, Op, Way, configs};
use super::stage::{Listener, Target, TrapClock};
use super::witness::{Answer, OPEN_END, Seen};

/// A caller waits for the breaker's receipt no longer than 100 ms: what took so long may have effects
/// after its answer.
const SLOW: Duration = Duration::from_millis(90);

/// What a call came to.
pub(super) enum Got {
    Rejected(Rejected),
    Lost,
    Closed,
    Timeout,
    Reply(Outcome),
    Panicked,
    Gone,
}

/// A call that waits for its end.
pub(super) struct Parked {
    pub(super) way: Way,
    pub(super) latch: Option<oneshot::Sender<End>>,
    pub(super) cancel: Option<oneshot::Sender<()>>,
    pub(super) done: Option<oneshot::Receiver<Got>>,
    /// Is there as long as somebody may settle the call.
    pub(super) token: Weak<()>,
    pub(super) _target: Addr<Target>,
}

/// What is needed to make a call.
pub(super) struct Plot {
    pub(super) call: u64,
    pub(super) way: Way,
    pub(super) target: Addr<Target>,
    pub(super) latch: oneshot::Sender<End>,
    pub(super) later: oneshot::Receiver<End>,
}

/// What all arbiters share.
pub(super) struct Shared {
    pub(super) breaker: Breaker,
    pub(super) clock: Arc<TrapClock>,
    pub(super) real: SystemClock,
    pub(super) stamps: AtomicU64,
    pub(super) parked: Mutex<BTreeMap<u64, Parked>>,
    /// Calls that are over for their callers; the breaker may have to settle them still.
    pub(super) ended: Mutex<Vec<(u64, Parked)>>,
    pub(super) streams: Mutex<Vec<(Transitions, Vec<StateChanged>)>>,
    pub(super) faults: Mutex<Vec<String>>,
    /// The rejections of this batch, by the stamps of their steps.
    pub(super) rejected: Mutex<BTreeMap<u64, Rejected>>,
}

/// What has to be ready before a step is taken.
pub(super) enum Props {
    None,
    Call(Box<Plot>),
    Finish(Option<(u64, Box<Parked>)>),
    Listener(Addr<Listener>),
}

impl Shared {
    fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn fault(&self, fault: String) {
        self.faults.lock().unwrap().push(fault);
    }

    pub(super) async fn take(self: Arc<Self>, op: Op, props: Props) -> Seen {
        let call = match &props {
            Props::Call(plot) => plot.call,
            Props::Finish(Some((call, _))) => *call,
            _ => u64::MAX,
        };
        let started = self.real.now();
        let began = self.stamp();
        let (answer, open) = Arc::clone(&self).answer(op, props, began).await;
        let slow = self.real.now().since(started) >= SLOW;
        let answered = self.stamp();
        Seen {
            op,
            call,
            began,
            answered: if open || slow { OPEN_END } else { answered },
            answer,
        }
    }

    /// The answer, and whether effects may follow it.
    async fn answer(self: Arc<Self>, op: Op, props: Props, began: u64) -> (Answer, bool) {
        let breaker = &self.breaker;
        let span = |ttl: u32| Duration::from_millis(ttl.into());
        let answer = match (op, props) {
            (Op::Call(..) | Op::Begin(_) | Op::Early(_), Props::Call(plot)) => {
                return self.call(op, *plot, began).await;
            }
            (Op::Finish(_, end), Props::Finish(Some((call, parked)))) => {
                return self.finish(call, *parked, end).await;
            }
            (Op::Trap, _) => {
                self.clock.set.store(true, Ordering::SeqCst);
                Answer::Done
            }
            (Op::ForceOpen(ttl), _) => {
                let order = ForceOpen::new("script");
                let order = ttl.map_or(order.clone(), |ttl| order.ttl(span(ttl)));
                done(breaker.force_open(order).await)
            }
            (Op::ForceClosed(ttl), _) => {
                let order = ForceClosed::new("script");
                let order = ttl.map_or(order.clone(), |ttl| order.ttl(span(ttl)));
                done(breaker.force_closed(order).await)
            }
            (Op::Release, _) => done(breaker.release().await),
            (Op::Reset, _) => done(breaker.reset().await),
            (Op::Reconfigure(index), _) => {
                done(breaker.reconfigure(configs()[index].clone()).await)
            }
            (Op::Subscribe(_), Props::Listener(listener)) => {
                done(breaker.subscribe(listener).await)
            }
            (Op::Stream, _) => {
                let mut stream = breaker.transitions();
                match stream.next().await {
                    Some(Ok(present)) => {
                        let mut streams = self.streams.lock().unwrap();
                        streams.push((stream, vec![present.clone()]));
                        Answer::Present(Box::new(present))
                    }
                    Some(Err(lagged)) => {
                        self.fault(format!("a new stream {lagged}"));
                        Answer::Lost
                    }
                    None => Answer::Lost,
                }
            }
            (Op::Look, _) => match breaker.snapshot().await {
                Ok(snapshot) => Answer::Look(Box::new(snapshot.circuit)),
                Err(_) => Answer::Lost,
            },
            (Op::State, _) => Answer::State(breaker.state()),
            (Op::Tick(time), _) => {
                self.clock.clock.advance(span(time));
                Answer::Done
            }
            _ => Answer::Nothing,
        };
        (answer, false)
    }

    pub(super) fn admission(&self, got: &Got, seen: bool, began: u64) -> Answer {
        match got {
            Got::Rejected(rejected) => {
                let mut all = self.rejected.lock().unwrap();
                all.insert(began, rejected.clone());
                Answer::Rejected {
                    reason: rejected.reason(),
                    epoch: rejected.epoch(),
                    until: None,
                }
            }
            Got::Lost => Answer::Lost,
            Got::Closed if !seen => Answer::Lost,
            _ => Answer::Admitted { probe: None },
        }
    }

    /// R10: the caller gets what its call came to.
    pub(super) fn check_end(&self, way: Way, end: End, got: &Got) {
        let fits = match end {
            End::Good | End::Bad | End::Neutral => {
                matches!(got, Got::Reply(outcome) if *outcome == end.outcome())
            }
            End::Panic if way == Way::Future => matches!(got, Got::Panicked),
            End::Panic | End::Stop => matches!(got, Got::Closed),
            End::Hang => matches!(got, Got::Timeout),
            End::Gone | End::Careless => true,
        };
        if !fits {
            let got = match got {
                Got::Reply(outcome) => format!("reply {outcome}"),
                Got::Rejected(rejected) => format!("{rejected}"),
                Got::Lost => "lost".into(),
                Got::Closed => "closed".into(),
                Got::Timeout => "timeout".into(),
                Got::Panicked => "panicked".into(),
                Got::Gone => "gone".into(),
            };
            self.fault(format!("a call by {way:?} ended {end:?}: {got}"));
        }
    }
}

fn done<R, E>(result: Result<R, E>) -> Answer {
    result.map_or(Answer::Lost, |_| Answer::Done)
}
