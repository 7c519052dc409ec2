//! Several owners of breakers in one test, each as another process would be, around one store; and a store
//! that fails as it is told to.

#![allow(dead_code, reason = "each file of tests uses a part of it")]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that fails fails the test"
)]
#![allow(clippy::disallowed_methods, reason = "what takes too long is given up")]

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::{ForceOpen, GetSnapshot};
use actix_circuit_breaker::store::{Action, Answer, Change, Forced, SharedPhase, Step, View};
use actix_circuit_breaker::{
    Breaker, BreakerConfig, BreakerConfigBuilder, Breakers, BreakersBuilder, CallError,
    CircuitState, Clock, Exported, ManualClock, MemoryStore, Reason, StateChanged, Store,
    StoreError, StoreEvent, Timestamp, Transitions, TripPolicy, TripRule, Window,
};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The break of every policy here.
pub(crate) const BREAK: Duration = Duration::from_secs(10);

/// The name of the breaker in every process.
pub(crate) const NAME: &str = "upstream";

pub(crate) fn count(failures: u32) -> BreakerConfigBuilder {
    with_trip(TripPolicy::FailureCount {
        failures,
        within: Duration::from_secs(60),
        reset_on_success: false,
    })
}

pub(crate) fn consecutive(failures: u32) -> BreakerConfigBuilder {
    with_trip(TripPolicy::ConsecutiveFailures {
        failures,
        within: None,
    })
}

pub(crate) fn rate(rate: f64, minimum_calls: u32) -> BreakerConfigBuilder {
    with_trip(TripPolicy::FailureRate {
        rate,
        minimum_calls,
        window: Window::Time(Duration::from_secs(100)),
        slow_call: None,
    })
}

/// Trips at three failures.
struct Three;

impl TripRule for Three {
    fn trips(&self, failures: &[Timestamp], _now: Timestamp) -> bool {
        failures.len() >= 3
    }

    fn lookback(&self) -> Duration {
        Duration::from_secs(60)
    }
}

pub(crate) fn custom_three() -> BreakerConfigBuilder {
    with_trip(TripPolicy::Custom(Arc::new(Three)))
}

fn with_trip(trip: TripPolicy) -> BreakerConfigBuilder {
    BreakerConfig::builder().trip(trip).break_duration(BREAK)
}

pub(crate) fn order(reason: &str) -> ForceOpen {
    ForceOpen::new(reason)
}

/// Lets everything run that can.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Lets messages between actors come to their ends.
async fn rest() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// Has this thread's timers go at a quarter of real time, so that a server has as long as it needs on a busy machine,
/// and what is to be given up is given up all the same.
pub(crate) fn slow_time() {
    timers_at(0.25);
}

/// Has this thread's timers go at four times real time, so that rests are short.
pub(crate) fn fast_time() {
    timers_at(4.0);
}

fn timers_at(pace: f64) {
    tokio::time::pause();
    drop(actix::spawn(async move {
        let mut seen = std::time::Instant::now();
        loop {
            std::thread::sleep(Duration::from_micros(50));
            let now = std::time::Instant::now();
            // Where the whole machine stood still, so did servers.
            let passed = (now - seen).min(Duration::from_millis(5));
            tokio::time::advance(passed.mul_f64(pace)).await;
            seen = now;
        }
    }));
}

/// Waits until it is so, whatever timers do.
async fn look_until(mut is_so: impl FnMut() -> bool) {
    let mut looks = 0;
    while !is_so() {
        looks += 1;
        assert!(looks < 300_000, "waited for too long");
        std::thread::sleep(Duration::from_micros(50));
        tokio::task::yield_now().await;
    }
}

/// Waits until it is so; the test fails if that takes very long.
pub(crate) async fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited for too long"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A clock that a test moves, and that can be made to panic once, which restarts who reads it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TestClock {
    time: ManualClock,
    trap: Arc<AtomicBool>,
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        assert!(!self.trap.swap(false, Ordering::SeqCst), "the clock's trap");
        self.time.now()
    }

    fn drives_timers(&self) -> bool {
        false
    }
}

/// How a [`FaultyStore`] behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    Good,
    /// Answers an error at once.
    Refuses,
    /// Does nothing and never answers.
    Hangs,
    /// Does what it should and never answers.
    Swallows,
    Slow(Duration),
}

/// A store that fails as it is told to.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn Store>,
    /// What makes it forget a record.
    forget: Arc<dyn Fn(&str) + Send + Sync>,
    /// Lives as long as the store.
    kept: Arc<dyn Any + Send + Sync>,
    manner: Arc<Mutex<Manner>>,
    muted: Arc<AtomicBool>,
    steps: Arc<AtomicU64>,
    /// How many questions were not answered yet.
    under_way: Arc<AtomicU64>,
    marks: Option<Arc<Marks>>,
}

/// By which it is known that everything told before was heard: changes of a breaker that no process has.
struct Marks {
    breaker: Arc<str>,
    config: BreakerConfig,
    last: AtomicU64,
    version: AtomicU64,
    /// The last that each listener has heard.
    heard: Mutex<Vec<Weak<AtomicU64>>>,
}

impl Marks {
    /// Has the store tell of one more.
    async fn make(&self, store: &dyn Store) {
        let mark = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        loop {
            let action = Action::Force {
                kind: Forced::Closed,
                ttl: None,
                reason: mark.to_string().into(),
            };
            let now = Timestamp::from_micros(1);
            let step = Step::new(0, self.version.load(Ordering::SeqCst), now, action);
            let Ok(view) = store.step(&self.breaker, &self.config, step).await else {
                return;
            };
            self.version.store(view.record.version, Ordering::SeqCst);
            if view.answer == Answer::Done {
                return;
            }
        }
    }

    fn are_heard(&self) -> bool {
        let last = self.last.load(Ordering::SeqCst);
        let mut heard = self.heard.lock().unwrap();
        heard.retain(|one| one.strong_count() > 0);
        let mut heard = heard.iter().filter_map(Weak::upgrade);
        heard.all(|one| one.load(Ordering::SeqCst) == last)
    }

    /// The number of the mark, if the change is one.
    fn read(&self, change: &Change) -> Option<u64> {
        match change {
            Change::Made { breaker, view, .. } if *breaker == self.breaker => {
                match &view.record.phase {
                    SharedPhase::Forced { reason, .. } => reason.parse().ok(),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyStore({:?})", self.inner)
    }
}

impl FaultyStore {
    pub(crate) fn new() -> Self {
        let memory = MemoryStore::new();
        let kept = memory.clone();
        Self {
            forget: Arc::new(move |breaker| kept.forget(breaker)),
            ..Self::around(memory)
        }
    }

    pub(crate) fn around(inner: impl Store) -> Self {
        Self {
            inner: Arc::new(inner),
            forget: Arc::new(|_| panic!("nobody said how")),
            kept: Arc::new(()),
            manner: Arc::new(Mutex::new(Manner::Good)),
            muted: Arc::default(),
            steps: Arc::default(),
            under_way: Arc::default(),
            marks: None,
        }
    }

    /// Around one that is elsewhere, so that what it does takes a while. The time there is not used: the processes
    /// of a fleet share a clock. The breaker of that name is not for tests; in a cluster it has to be on the node
    /// that has the one of the tests, since nodes tell in no common order.
    pub(crate) fn remote(inner: impl Store, mark: &str) -> Self {
        let marks = Marks {
            breaker: mark.into(),
            config: count(1).build().unwrap(),
            last: AtomicU64::new(0),
            version: AtomicU64::new(0),
            heard: Mutex::default(),
        };
        Self {
            marks: Some(Arc::new(marks)),
            ..Self::around(inner)
        }
    }

    pub(crate) fn forgetting(mut self, forget: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.forget = Arc::new(forget);
        self
    }

    /// Keeps a server, say, as long as the store lives.
    pub(crate) fn keeping(mut self, kept: impl Any + Send + Sync) -> Self {
        self.kept = Arc::new(kept);
        self
    }

    /// Waits until everything is answered and heard that was asked and told so far, and what comes of it.
    pub(crate) async fn settle(&self) {
        let Some(marks) = &self.marks else {
            return settle().await;
        };
        loop {
            let before = self.steps();
            rest().await;
            look_until(|| self.is_answered()).await;
            loop {
                marks.make(&*self.inner).await;
                // Who begins to listen only now does not hear it.
                let mut looks = 0;
                look_until(|| {
                    looks += 1;
                    looks > 500 || marks.are_heard()
                })
                .await;
                if marks.are_heard() {
                    break;
                }
            }
            rest().await;
            if self.steps() == before && self.is_answered() {
                return;
            }
        }
    }

    fn is_answered(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
    }

    fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub(crate) fn refuse(&self) {
        self.set(Manner::Refuses);
    }

    pub(crate) fn hang(&self) {
        self.set(Manner::Hangs);
    }

    pub(crate) fn swallow_answers(&self) {
        self.set(Manner::Swallows);
    }

    pub(crate) fn slow(&self, by: Duration) {
        self.set(Manner::Slow(by));
    }

    pub(crate) fn recover(&self) {
        self.set(Manner::Good);
    }

    /// Tells nobody of changes any more.
    pub(crate) fn mute(&self) {
        self.muted.store(true, Ordering::SeqCst);
    }

    pub(crate) fn forget(&self, breaker: &str) {
        (self.forget)(breaker);
    }

    /// Counts what is under way until it is over, or given up.
    fn counted<T>(&self, made: impl Future<Output = T> + Send + 'static) -> BoxFuture<'static, T> {
        struct UnderWay(Arc<AtomicU64>);
        impl Drop for UnderWay {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let under_way = UnderWay(Arc::clone(&self.under_way));
        async move {
            let _under_way = under_way;
            made.await
        }
        .boxed()
    }

    /// How many steps it was asked for.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }
}

impl Store for FaultyStore {
    fn step(
        &self,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: Step,
    ) -> BoxFuture<'static, Result<View, StoreError>> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        let manner = *self.manner.lock().unwrap();
        let made = match manner {
            Manner::Good => self.inner.step(breaker, config, step),
            Manner::Refuses => async { Err(StoreError::Refused("no".into())) }.boxed(),
            Manner::Hangs => std::future::pending().boxed(),
            Manner::Swallows => {
                let made = self.inner.step(breaker, config, step);
                async {
                    drop(made.await);
                    std::future::pending().await
                }
                .boxed()
            }
            Manner::Slow(by) => {
                let made = self.inner.step(breaker, config, step);
                async move {
                    tokio::time::sleep(by).await;
                    made.await
                }
                .boxed()
            }
        };
        self.counted(made)
    }

    fn contact(&self) -> BoxFuture<'static, Result<Option<Timestamp>, StoreError>> {
        let manner = *self.manner.lock().unwrap();
        let found = match manner {
            Manner::Good | Manner::Slow(_) => self.inner.contact(),
            Manner::Refuses => async { Err(StoreError::Refused("no".into())) }.boxed(),
            Manner::Hangs | Manner::Swallows => std::future::pending().boxed(),
        };
        let is_elsewhere = self.marks.is_some();
        self.counted(async move { Ok(found.await?.filter(|_| !is_elsewhere)) })
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let muted = Arc::clone(&self.muted);
        let marks = self.marks.clone();
        let heard = Arc::default();
        if let Some(marks) = &marks {
            marks.heard.lock().unwrap().push(Arc::downgrade(&heard));
        }
        let told = self.inner.changes();
        stream::StreamExt::boxed(told.filter(move |change| {
            let mark = marks.as_ref().and_then(|marks| marks.read(change));
            if let Some(mark) = mark {
                heard.store(mark, Ordering::SeqCst);
            }
            let is_passed_on = mark.is_none() && !muted.load(Ordering::SeqCst);
            async move { is_passed_on }
        }))
    }
}

/// One owner of breakers, as a process of its own would be.
pub(crate) struct Process {
    pub(crate) breakers: Breakers,
    pub(crate) breaker: Breaker,
    clock: TestClock,
    _watcher: Addr<Watcher>,
    told: Arc<Mutex<Vec<StoreEvent>>>,
}

/// The end of a call that hangs.
pub(crate) type Ends = oneshot::Sender<Result<(), &'static str>>;

type Outcome = Result<(), CallError<&'static str>>;

impl Process {
    pub(crate) fn state(&self) -> CircuitState {
        self.breaker.state()
    }

    pub(crate) async fn call_failing(&self) -> Outcome {
        self.breaker.call(async { Err("foo") }).await
    }

    #[track_caller]
    pub(crate) fn fails(&self) -> impl Future<Output = ()> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            let result = self.call_failing().await;
            assert_eq!(result, Err(CallError::Failed("foo")), "{caller}");
        }
    }

    #[track_caller]
    pub(crate) fn succeeds(&self) -> impl Future<Output = ()> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            let result: Outcome = self.breaker.call(async { Ok(()) }).await;
            assert_eq!(result, Ok(()), "{caller}");
        }
    }

    #[track_caller]
    pub(crate) fn rejected(&self) -> impl Future<Output = Reason> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            let result: Outcome = self.breaker.call(async { Ok(()) }).await;
            match result {
                Err(CallError::Rejected(rejected)) => rejected.reason(),
                other => panic!("not rejected but {other:?} at {caller}"),
            }
        }
    }

    /// A call that ends when the test says so. The sender is closed if the call was never made.
    pub(crate) fn hangs(&self) -> (JoinHandle<Outcome>, Ends) {
        let (ends, end) = oneshot::channel();
        let breaker = self.breaker.clone();
        let call = actix::spawn(async move { breaker.call(async { end.await.unwrap() }).await });
        (call, ends)
    }

    pub(crate) fn events(&self) -> Events {
        Events(self.breaker.transitions())
    }

    pub(crate) fn store_events(&self) -> StoreEvents {
        StoreEvents(Arc::clone(&self.told))
    }

    /// Has whoever reads the clock next panic.
    pub(crate) fn set_trap(&self) {
        self.clock.trap.store(true, Ordering::SeqCst);
    }

    /// Has the breaker's actor panic over a message that matters to nobody, and be restarted.
    pub(crate) async fn restart_actor(&self) {
        self.set_trap();
        drop(self.breaker.addr().send(GetSnapshot).await);
    }
}

/// What a process's breaker told of itself.
pub(crate) struct Events(Transitions);

impl Events {
    /// The changes since it was asked last, without the present state.
    pub(crate) fn take(&mut self) -> Vec<StateChanged> {
        let mut events = Vec::new();
        while let Some(Some(event)) = self.0.next().now_or_never() {
            let event = event.unwrap();
            if event.from != event.to {
                events.push(event);
            }
        }
        events
    }
}

/// What a process told of its store.
pub(crate) struct StoreEvents(Arc<Mutex<Vec<StoreEvent>>>);

impl StoreEvents {
    /// All that were not taken.
    pub(crate) fn seen(&self) -> Vec<StoreEvent> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn take(&self) -> Vec<StoreEvent> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Watcher(Arc<Mutex<Vec<StoreEvent>>>);

impl Actor for Watcher {
    type Context = Context<Self>;
}

impl Handler<StoreEvent> for Watcher {
    type Result = ();

    fn handle(&mut self, event: StoreEvent, _: &mut Context<Self>) {
        self.0.lock().unwrap().push(event);
    }
}

/// Several of them around one store.
pub(crate) struct Fleet {
    pub(crate) store: FaultyStore,
    config: BreakerConfig,
    time: ManualClock,
    processes: Vec<Process>,
    build: fn(BreakersBuilder) -> BreakersBuilder,
}

impl Fleet {
    pub(crate) async fn share(
        store: FaultyStore,
        processes: usize,
        config: BreakerConfigBuilder,
    ) -> Self {
        Self::share_with(store, processes, config, |builder| builder).await
    }

    /// Starts them, and waits until all of them share.
    pub(crate) async fn share_with(
        store: FaultyStore,
        processes: usize,
        config: BreakerConfigBuilder,
        build: fn(BreakersBuilder) -> BreakersBuilder,
    ) -> Self {
        let fleet = Self::around(store, processes, config, build);
        fleet.until_joined().await;
        fleet
    }

    pub(crate) fn around(
        store: FaultyStore,
        processes: usize,
        config: BreakerConfigBuilder,
        build: fn(BreakersBuilder) -> BreakersBuilder,
    ) -> Self {
        let mut fleet = Self {
            store,
            config: config.build().unwrap(),
            time: ManualClock::default(),
            processes: Vec::new(),
            build,
        };
        fleet.time.advance(Duration::from_secs(1_000_000));
        for _ in 0..processes {
            fleet.add();
        }
        fleet
    }

    /// Waits until everything is answered and heard, and what comes of it.
    pub(crate) async fn settle(&self) {
        self.store.settle().await;
    }

    /// Waits until all of them share.
    pub(crate) async fn until_joined(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            self.settle().await;
            let mut joined = true;
            for process in &self.processes {
                let sharing = process.breaker.snapshot().await.unwrap().sharing;
                joined &= sharing.is_some_and(|sharing| sharing.joined);
            }
            if joined {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "waited for too long"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Starts one more.
    pub(crate) fn add(&mut self) {
        self.start(None);
    }

    /// Starts one more that goes on with what another wrote down.
    pub(crate) fn add_restored(&mut self, written: Exported) {
        self.start(Some(written));
    }

    fn start(&mut self, written: Option<Exported>) {
        let clock = TestClock {
            time: self.time.clone(),
            trap: Arc::default(),
        };
        let builder = Breakers::builder()
            .clock(Arc::new(clock.clone()))
            .store(self.store.clone());
        let breakers = (self.build)(builder).start();
        if let Some(written) = written {
            assert_eq!(breakers.restore(written), 1);
        }
        let breaker = breakers.create(NAME, self.config.clone()).unwrap();
        let told = Arc::default();
        let watcher = Watcher(Arc::clone(&told)).start();
        breakers.subscribe_store(watcher.downgrade().recipient());
        self.processes.push(Process {
            breakers,
            breaker,
            clock,
            _watcher: watcher,
            told,
        });
    }

    /// Ends one, without a word to anybody.
    pub(crate) fn kill(&mut self, index: usize) {
        drop(self.processes.remove(index));
    }

    pub(crate) fn process(&self, index: usize) -> &Process {
        &self.processes[index]
    }

    pub(crate) fn three(&self) -> [&Process; 3] {
        [0, 1, 2].map(|index| self.process(index))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter()
    }

    pub(crate) fn states(&self) -> Vec<CircuitState> {
        self.all().map(Process::state).collect()
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.time.advance(time);
    }

    /// Whether the process knows its store to be away.
    pub(crate) fn is_away(&self, index: usize) -> bool {
        let told = self.process(index).told.lock().unwrap();
        let last = told
            .iter()
            .rev()
            .find(|event| !matches!(event, StoreEvent::Corrupt { .. }));
        matches!(last, Some(StoreEvent::Degraded { .. }))
    }
}
