//! Plays a script over real arbiters and writes down what is seen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_circuit_breaker::{
    Breakers, CircuitState, Clock, ManualClock, StateChanged, SystemClock, Timestamp, Transitions,
};
use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::sync::{oneshot, watch};

use super::caller::{Plot, Props, Shared};
use super::script::{End, HOME, Kind, Op, Step, configs};
use super::stage::{Halt, Stage, Subscriber, Target, TrapClock, restarts};
use super::witness::{Answer, Batch, History, Seen};

/// Nothing takes so long.
const STUCK: Duration = Duration::from_secs(20);

/// One script being played.
pub(super) struct Play<'a> {
    pub(super) stage: &'a Stage,
    pub(super) shared: Arc<Shared>,
    pub(super) random: Arc<AtomicU64>,
    pub(super) log: Transitions,
    pub(super) watch: watch::Receiver<CircuitState>,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) calls: u64,
    /// For a script that does not come to its end.
    pub(super) doing: String,
    pub(super) history: History,
}

/// Plays it.
pub(crate) async fn play(stage: &Stage, config: usize, timers: bool, script: &[Step]) -> History {
    let clock = Arc::new(TrapClock {
        clock: ManualClock::new(),
        set: AtomicBool::new(false),
        thread: stage.thread,
        timers,
    });
    let random = Arc::new(AtomicU64::new(0));
    let source = Arc::clone(&random);
    let breakers = Breakers::builder()
        .clock(Arc::clone(&clock) as Arc<dyn Clock>)
        .random(Arc::new(move || {
            f64::from_bits(source.load(Ordering::Relaxed))
        }))
        .restart(restarts())
        .start_in_arbiter(&stage.home.handle());
    let config = configs()[config % configs().len()].clone();
    let breaker = breakers.create("b", config.clone()).unwrap();
    let mut log = breaker.transitions();
    let present = log.next().await.unwrap().unwrap();
    let mut play = Play {
        stage,
        random,
        log,
        watch: breaker.watch(),
        subscribers: Vec::new(),
        calls: 0,
        doing: String::new(),
        history: History {
            config,
            timers,
            present,
            batches: Vec::new(),
            faults: Vec::new(),
        },
        shared: Arc::new(Shared {
            breaker,
            clock,
            real: SystemClock::new(),
            stamps: AtomicU64::new(0),
            parked: Mutex::default(),
            ended: Mutex::default(),
            streams: Mutex::default(),
            faults: Mutex::default(),
            rejected: Mutex::default(),
        }),
    };
    if tokio::time::timeout(STUCK, play.all(script)).await.is_err() {
        let stuck = format!("no end came while {}", play.doing);
        play.shared.fault(stuck);
    }
    let mut history = play.history;
    history
        .faults
        .append(&mut play.shared.faults.lock().unwrap());
    history
}

impl Play<'_> {
    async fn all(&mut self, script: &[Step]) {
        let mut batch = Vec::new();
        for step in script {
            match step {
                Step::Then(time) => {
                    self.batch(&std::mem::take(&mut batch)).await;
                    let time = Duration::from_millis((*time).into());
                    self.shared.clock.clock.advance(time);
                }
                step => batch.push(*step),
            }
        }
        self.batch(&batch).await;
        // All that waits ends, a few at a time.
        loop {
            let waiting = self.shared.parked.lock().unwrap().len().min(4);
            if waiting == 0 {
                break;
            }
            let good = (0..waiting).map(|call| Step::On(0, Op::Finish(call, End::Good)));
            self.batch(&good.collect::<Vec<_>>()).await;
        }
        self.slots();
        for subscriber in &mut self.subscribers {
            drop(subscriber.go_on.take());
        }
        // Two more changes: the first tells who is there still.
        self.batch(&[Step::On(0, Op::ForceOpen(None))]).await;
        self.batch(&[Step::On(0, Op::ForceClosed(None))]).await;
        self.accounts().await;
    }

    /// Plays the steps at the same time, and waits until all is quiet.
    async fn batch(&mut self, steps: &[Step]) {
        let number = self.history.batches.len();
        self.doing = format!("playing {steps:?}, batch {number}");
        let random = [0.0, 1.0, 0.25, 0.5][number % 4];
        self.random.store(f64::to_bits(random), Ordering::Relaxed);
        let now = self.shared.clock.clock.now();
        let mut seen = Vec::new();
        for chain in self.chains(steps) {
            seen.push(chain);
        }
        let mut all = Vec::new();
        for chain in seen {
            all.extend(chain.await.unwrap_or_default());
        }
        self.doing = format!("waiting until {all:?} is quiet");
        self.settled(&mut all).await;
        self.stage.turns().await;
        let idle = self.shared.breaker.state();
        // What was sent before is handled before, and told; the trap may cost the first of them.
        while self.shared.breaker.snapshot().await.is_err() {}
        let mut events = self.news();
        let prompt = events.len();
        let end = self.shared.breaker.snapshot().await.unwrap();
        events.extend(self.news());
        self.complete(&mut all).await;
        self.history.batches.push(Batch {
            now,
            random,
            seen: all,
            events,
            prompt,
            idle,
            state: self.shared.breaker.state(),
            watched: *self.watch.borrow_and_update(),
            end,
        });
        self.doing = format!("telling of batch {number}");
        self.told().await;
    }

    /// Starts the steps; each chain is done one after another.
    fn chains(&mut self, steps: &[Step]) -> Vec<oneshot::Receiver<Vec<Seen>>> {
        let waiting: Vec<_> = self.shared.parked.lock().unwrap().keys().copied().collect();
        let mut chains: Vec<(u8, Vec<(Op, Props)>)> = Vec::new();
        for step in steps {
            let (arbiter, op) = match *step {
                Step::On(arbiter, op) => (Some(arbiter), op),
                Step::And(op) => (None, op),
                Step::Then(_) => continue,
            };
            let on = arbiter.or(chains.last().map(|(on, _)| *on)).unwrap_or(0);
            let (op, props) = self.props(op, on, &waiting);
            match chains.last_mut() {
                Some((_, chain)) if arbiter.is_none() => chain.push((op, props)),
                _ => chains.push((on, vec![(op, props)])),
            }
        }
        let mut done = Vec::new();
        for (on, chain) in chains {
            let shared = Arc::clone(&self.shared);
            let (tell, told) = oneshot::channel();
            done.push(told);
            let work = Box::new(move || {
                Box::pin(async move {
                    let mut seen = Vec::new();
                    for (op, props) in chain {
                        seen.push(Arc::clone(&shared).take(op, props).await);
                    }
                    drop(tell.send(seen));
                }) as LocalBoxFuture<'static, ()>
            });
            self.stage.run(on, work);
        }
        done
    }

    /// Gets ready what a step needs; the step as it can be taken.
    fn props(&mut self, op: Op, on: u8, waiting: &[u64]) -> (Op, Props) {
        let arbiter = self.stage.arbiter((on + 1) % (HOME + 1));
        match op {
            Op::Call(way, _) | Op::Begin(way) | Op::Early(way) => {
                self.calls += 1;
                let (latch, later) = oneshot::channel();
                let plot = Plot {
                    call: self.calls,
                    way,
                    target: Target::start(arbiter, self.calls.is_multiple_of(2)),
                    latch,
                    later,
                };
                let op = match op {
                    Op::Call(way, end) => Op::Call(way, way.fit(end, false)),
                    op => op,
                };
                (op, Props::Call(Box::new(plot)))
            }
            Op::Finish(which, end) => {
                let mut parked = self.shared.parked.lock().unwrap();
                let call = waiting.get(which % waiting.len().max(1));
                let found = call.and_then(|call| Some((*call, parked.remove(call)?)));
                let end = found
                    .as_ref()
                    .map_or(end, |(_, call)| call.way.fit(end, true));
                let found = found.map(|(call, parked)| (call, Box::new(parked)));
                (Op::Finish(which, end), Props::Finish(found))
            }
            Op::Subscribe(kind) => {
                let subscriber = Subscriber::start(kind, arbiter);
                let addr = subscriber.addr.clone();
                self.subscribers.push(subscriber);
                (op, Props::Listener(addr))
            }
            Op::Kill(which) => {
                // Not one that comes just now.
                let plain = |one: &&mut Subscriber| {
                    one.kind == Kind::Plain && !one.killed && !one.told().is_empty()
                };
                let mut alive: Vec<_> = self.subscribers.iter_mut().filter(plain).collect();
                let which = which % alive.len().max(1);
                if let Some(one) = alive.get_mut(which) {
                    one.killed = true;
                    one.addr.do_send(Halt);
                }
                (op, Props::None)
            }
            op => (op, Props::None),
        }
    }

    /// What the log tells next.
    fn news(&mut self) -> Vec<StateChanged> {
        let mut events = Vec::new();
        while let Some(Some(event)) = self.log.next().now_or_never() {
            match event {
                Ok(event) => events.push(event),
                Err(lagged) => self.shared.fault(format!("the log {lagged}")),
            }
        }
        events
    }

    /// Waits until whoever could settle a call has done so, or it is in the breaker's care.
    async fn settled(&mut self, all: &mut [Seen]) {
        let ended = std::mem::take(&mut *self.shared.ended.lock().unwrap());
        for (call, mut parked) in ended {
            let mut orphan = false;
            while parked.token.strong_count() > 0 && !orphan {
                let seen = parked.done.as_mut().map(oneshot::Receiver::try_recv);
                orphan = matches!(seen, Some(Ok(_)));
                tokio::task::yield_now().await;
            }
            if orphan {
                parked.done = None;
                for seen in all.iter_mut().filter(|seen| seen.call == call) {
                    seen.answer = Answer::Dropped { orphan };
                }
                self.shared.parked.lock().unwrap().insert(call, parked);
            }
        }
    }

    /// Adds to the answers what is known only when all is quiet.
    async fn complete(&mut self, all: &mut [Seen]) {
        let clock = &self.shared.clock.clock;
        let now = clock.now();
        let rejected = std::mem::take(&mut *self.shared.rejected.lock().unwrap());
        // All is quiet, so nobody else reads the clock: what is left, from the beginning, is until when.
        clock.set(Timestamp::ZERO);
        for (began, rejected) in rejected {
            for seen in all.iter_mut().filter(|seen| seen.began == began) {
                if let Answer::Rejected { until, .. } = &mut seen.answer {
                    *until = rejected.retry_after().map(|rest| Timestamp::ZERO + rest);
                }
            }
        }
        clock.set(now);
        // The first that a new subscriber is told.
        let new = all
            .iter_mut()
            .filter(|seen| matches!(seen.op, Op::Subscribe(_)));
        let known = self.subscribers.len();
        let new: Vec<_> = new.collect();
        let first = known - new.len();
        for (seen, subscriber) in new.into_iter().zip(&self.subscribers[first..]) {
            if matches!(seen.answer, Answer::Lost) {
                continue;
            }
            while subscriber.told().is_empty() {
                tokio::task::yield_now().await;
            }
            seen.answer = Answer::Present(Box::new(subscriber.told()[0].clone()));
        }
    }
}
