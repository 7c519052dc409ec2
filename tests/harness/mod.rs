//! Actors and helpers that the tests of the actor shell share.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::{
    AskError, Breaker, BreakerConfig, BreakerConfigBuilder, Breakers, BreakersBuilder, Cause,
    CircuitState, Clock, ManualClock, Snapshot, StateChanged, SystemClock, Timestamp, TripPolicy,
    Window,
};
use tokio::sync::oneshot;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The break of [`consecutive`] and [`rate`].
pub(crate) const BREAK: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Oops(pub(crate) u32);

impl fmt::Display for Oops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oops {}", self.0)
    }
}

impl std::error::Error for Oops {}

pub(crate) type Answer = Result<u32, Oops>;

pub(crate) const BAD: Oops = Oops(7);

/// What the target is to do.
#[derive(Debug, Message)]
#[rtype(result = "Answer")]
pub(crate) enum Job {
    Good,
    Bad,
    /// Panics in the handler: the target is gone.
    Panic,
    /// Never answers.
    Hang,
    Late(Duration, Answer),
    /// Answers when the test says what.
    Latch(oneshot::Receiver<Answer>),
    /// Stops the target without an answer.
    Stop,
}

pub(crate) fn latch() -> (oneshot::Sender<Answer>, Job) {
    let (sender, receiver) = oneshot::channel();
    (sender, Job::Latch(receiver))
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Counter(Arc<AtomicUsize>);

impl Counter {
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn sub(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Whoever is asked; counts what reached it.
pub(crate) struct Target {
    pub(crate) seen: Counter,
}

impl Actor for Target {
    type Context = Context<Self>;
}

impl Supervised for Target {}

impl Handler<Job> for Target {
    // In the actor's care, as a reply that needs its state: it goes down with the actor.
    type Result = ResponseActFuture<Self, Answer>;

    fn handle(&mut self, job: Job, ctx: &mut Context<Self>) -> Self::Result {
        self.seen.add();
        if matches!(job, Job::Stop) {
            ctx.stop();
        }
        let answer = async move {
            match job {
                Job::Good => Ok(1),
                Job::Bad => Err(BAD),
                Job::Panic => panic!("trap in the target"),
                Job::Late(after, answer) => {
                    tokio::time::sleep(after).await;
                    answer
                }
                Job::Latch(receiver) => receiver.await.unwrap_or(Err(Oops(0))),
                Job::Hang | Job::Stop => std::future::pending().await,
            }
        };
        Box::pin(answer.into_actor(self))
    }
}

pub(crate) fn target() -> (Addr<Target>, Counter) {
    let seen = Counter::default();
    let actor = Target { seen: seen.clone() };
    (actor.start(), seen)
}

/// A breaker and its target, both on this arbiter.
pub(crate) struct World {
    pub(crate) breakers: Breakers,
    pub(crate) breaker: Breaker,
    pub(crate) target: Addr<Target>,
    pub(crate) seen: Counter,
}

thread_local! {
    static PAUSED: Cell<bool> = const { Cell::new(false) };
}

/// Pauses tokio's time on this thread, once: each test has a thread of its own.
pub(crate) fn pause() {
    if !PAUSED.replace(true) {
        tokio::time::pause();
    }
}

/// On paused time.
pub(crate) fn world(config: BreakerConfigBuilder) -> World {
    pause();
    world_of(Breakers::builder(), config)
}

pub(crate) fn world_of(builder: BreakersBuilder, config: BreakerConfigBuilder) -> World {
    let breakers = builder.start();
    let breaker = breakers.create("b", config.build().unwrap()).unwrap();
    let (target, seen) = target();
    World {
        breakers,
        breaker,
        target,
        seen,
    }
}

/// On a clock of the test's own, and on paused time.
pub(crate) fn manual(config: BreakerConfigBuilder) -> (ManualClock, World) {
    pause();
    let clock = ManualClock::new();
    let builder = Breakers::builder().clock(Arc::new(clock.clone()));
    (clock, world_of(builder, config))
}

impl World {
    pub(crate) async fn ask(&self, job: Job) -> Result<Answer, AskError> {
        self.breaker.ask(&self.target, job).await
    }

    pub(crate) async fn good(&self) {
        assert_eq!(self.ask(Job::Good).await, Ok(Ok(1)));
    }

    pub(crate) async fn bad(&self) {
        assert_eq!(self.ask(Job::Bad).await, Ok(Err(BAD)));
    }

    /// Fails until the breaker is open.
    pub(crate) async fn trip(&self) {
        for _ in 0..100 {
            if self.breaker.state() == CircuitState::Open {
                return;
            }
            self.bad().await;
        }
        panic!("{:?} did not trip", self.breaker);
    }

    pub(crate) async fn snapshot(&self) -> Snapshot {
        self.breaker.snapshot().await.unwrap()
    }

    pub(crate) fn state(&self) -> CircuitState {
        self.breaker.state()
    }

    pub(crate) async fn rejected(&self) -> actix_circuit_breaker::Rejected {
        match self.ask(Job::Good).await {
            Err(AskError::Rejected(rejected)) => rejected,
            other => panic!("not rejected but {other:?}"),
        }
    }

    /// Subscribes an actor of its own.
    pub(crate) async fn record(&self) -> (Addr<Recorder>, Told) {
        let told = Told::default();
        let recorder = Recorder(told.clone()).start();
        self.breaker.subscribe(recorder.clone()).await.unwrap();
        (recorder, told)
    }
}

/// Trips at a run of that many failures; a break of 10 s, a call timeout of 1 s.
pub(crate) fn consecutive(failures: u32) -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures,
            within: None,
        })
        .break_duration(BREAK)
        .call_timeout(SECOND)
}

pub(crate) fn count(failures: u32, within: Duration) -> BreakerConfigBuilder {
    consecutive(1).trip(TripPolicy::FailureCount {
        failures,
        within,
        reset_on_success: false,
    })
}

pub(crate) fn rate(rate: f64, minimum_calls: u32, window: Window) -> BreakerConfigBuilder {
    consecutive(1).trip(TripPolicy::FailureRate {
        rate,
        minimum_calls,
        window,
        slow_call: None,
    })
}

/// Lets paused time pass; everything that can run runs first.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Lets all that can run on this arbiter run.
pub(crate) async fn quiet() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Polls once.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// What a subscriber was told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<StateChanged>>>);

impl Told {
    pub(crate) fn push(&self, event: StateChanged) {
        self.0.lock().unwrap().push(event);
    }

    pub(crate) fn all(&self) -> Vec<StateChanged> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn causes(&self) -> Vec<Cause> {
        self.all().iter().map(|event| event.cause).collect()
    }

    pub(crate) fn seqs(&self) -> Vec<u64> {
        self.all().iter().map(|event| event.seq).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn last(&self) -> StateChanged {
        self.all().pop().unwrap()
    }
}

/// A subscriber that writes down what it is told.
pub(crate) struct Recorder(pub(crate) Told);

impl Actor for Recorder {
    type Context = Context<Self>;
}

impl Handler<StateChanged> for Recorder {
    type Result = ();

    fn handle(&mut self, event: StateChanged, _: &mut Context<Self>) {
        self.0.push(event);
    }
}

/// The machine's clock, which panics once when it is told to: the way to have a breaker's own actor
/// panic over the next message.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trap {
    clock: SystemClock,
    set: Arc<AtomicBool>,
}

impl Trap {
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }
}

impl Clock for Trap {
    fn now(&self) -> Timestamp {
        assert!(!self.set.swap(false, Ordering::SeqCst), "trap in the clock");
        self.clock.now()
    }
}
