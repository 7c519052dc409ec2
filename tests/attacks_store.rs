//! Faults that were found by attacking breakers that share their records: stores that misbehave, and what is
//! lost, given back or made anew while a store is there or away.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "panics are among what is tested, and a test may fail"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests wait, and see that nothing takes long"
)]

mod fleet;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::store::{
    Action, Answer, CallId, Change, Consistency, Forced, ProbeEnding, Sample, SharedPhase, Step,
    View,
};
use actix_circuit_breaker::{
    BreakerConfig, BreakerConfigBuilder, Breakers, BreakersBuilder, CallError, CircuitState, Clock,
    Hold, MemoryStore, RampUp, Reason, StateChanged, Store, StoreError, StoreEvent, SystemClock,
    Timestamp,
};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};

use fleet::*;

const SECOND: Duration = Duration::from_secs(1);

type OnStep = dyn Fn(Step, &dyn Fn(Step) -> View) -> BoxFuture<'static, Result<View, StoreError>>
    + Send
    + Sync;
type OnContact =
    dyn Fn() -> BoxFuture<'static, Result<Option<Timestamp>, StoreError>> + Send + Sync;
type OnChanges = dyn Fn(BoxStream<'static, Change>) -> BoxStream<'static, Change> + Send + Sync;

/// A store of a user's, around the one in memory.
#[derive(Clone, Default)]
struct Odd {
    inner: MemoryStore,
    step: Arc<Mutex<Option<Arc<OnStep>>>>,
    contact: Arc<Mutex<Option<Arc<OnContact>>>>,
    changes: Option<Arc<OnChanges>>,
    contacts: Arc<AtomicU64>,
    _trap: Option<Arc<Trap>>,
}

impl Odd {
    fn on_step(
        &self,
        step: impl Fn(Step, &dyn Fn(Step) -> View) -> BoxFuture<'static, Result<View, StoreError>>
        + Send
        + Sync
        + 'static,
    ) {
        *self.step.lock().unwrap() = Some(Arc::new(step));
    }

    fn on_contact(
        &self,
        contact: impl Fn() -> BoxFuture<'static, Result<Option<Timestamp>, StoreError>>
        + Send
        + Sync
        + 'static,
    ) {
        *self.contact.lock().unwrap() = Some(Arc::new(contact));
    }

    fn on_changes(
        mut self,
        changes: impl Fn(BoxStream<'static, Change>) -> BoxStream<'static, Change>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.changes = Some(Arc::new(changes));
        self
    }

    /// Views are as something makes them.
    fn spoil(&self, spoil: impl Fn(&mut View) + Send + Sync + 'static) {
        self.on_step(move |step, make| {
            let mut view = make(step);
            spoil(&mut view);
            std::future::ready(Ok(view)).boxed()
        });
    }

    fn mend(&self) {
        *self.step.lock().unwrap() = None;
        *self.contact.lock().unwrap() = None;
    }

    fn contacts(&self) -> u64 {
        self.contacts.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Odd")
    }
}

impl Store for Odd {
    fn step(
        &self,
        breaker: &Arc<str>,
        config: &BreakerConfig,
        step: Step,
    ) -> BoxFuture<'static, Result<View, StoreError>> {
        let hook = self.step.lock().unwrap().clone();
        match hook {
            Some(hook) => hook(step, &|step| {
                let made = self.inner.step(breaker, config, step);
                made.now_or_never().unwrap().unwrap()
            }),
            None => self.inner.step(breaker, config, step),
        }
    }

    fn contact(&self) -> BoxFuture<'static, Result<Option<Timestamp>, StoreError>> {
        self.contacts.fetch_add(1, Ordering::SeqCst);
        let hook = self.contact.lock().unwrap().clone();
        hook.map_or_else(|| self.inner.contact(), |hook| hook())
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let told = self.inner.changes();
        match &self.changes {
            Some(hook) => hook(told),
            None => told,
        }
    }
}

/// Timers fire when nothing else can run.
fn stop_time() {
    thread_local!(static STOPPED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    if !STOPPED.replace(true) {
        tokio::time::pause();
    }
}

async fn fleet_of(odd: &Odd, processes: usize, config: BreakerConfigBuilder) -> Fleet {
    stop_time();
    Fleet::share(FaultyStore::around(odd.clone()), processes, config).await
}

/// As for a call that hangs because nobody answers it.
async fn soon<T>(made: impl Future<Output = T>) -> T {
    let made = tokio::time::timeout(20 * SECOND, made).await;
    made.expect("nobody answers")
}

async fn is_joined(process: &Process) -> bool {
    let snapshot = soon(process.breaker.snapshot()).await.unwrap();
    snapshot.sharing.unwrap().joined
}

/// Panics when it is dropped.
struct Trap;

impl Drop for Trap {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a destructor of the store's");
    }
}

// Stores that misbehave.

/// What of a store panics.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Panics {
    Step,
    StepsFuture,
    StepsDrop,
}

fn panicking(odd: &Odd, what: Panics) {
    odd.on_step(move |_, _| match what {
        Panics::Step => panic!("a step"),
        Panics::StepsFuture => async { panic!("a step's future") }.boxed(),
        Panics::StepsDrop => {
            let trap = Trap;
            async move {
                let _trap = &trap;
                std::future::pending().await
            }
            .boxed()
        }
    });
}

// Case 161: as one that is away does.
#[actix::test]
async fn a_store_that_panics_in_a_step_costs_no_call_and_no_probe() {
    for what in [Panics::Step, Panics::StepsFuture, Panics::StepsDrop] {
        let odd = Odd::default();
        let fleet = fleet_of(&odd, 1, count(2)).await;
        let process = fleet.process(0);
        panicking(&odd, what);
        soon(process.fails()).await;
        soon(process.fails()).await;
        fleet.settle().await;
        assert_eq!(process.state(), CircuitState::Open, "{what:?}");
        // Found again meanwhile, so that the probe is asked for.
        odd.mend();
        tokio::time::sleep(10 * SECOND).await;
        assert!(is_joined(process).await, "{what:?}");
        panicking(&odd, what);
        fleet.pass(BREAK);
        soon(process.succeeds()).await;
        fleet.settle().await;
        assert_eq!(process.state(), CircuitState::Closed, "{what:?}");
        odd.mend();
        tokio::time::sleep(10 * SECOND).await;
        assert!(is_joined(process).await, "{what:?}");
        let snapshot = process.breaker.snapshot().await.unwrap();
        assert_eq!(snapshot.restarts, 0, "{what:?}");
    }
}

#[actix::test]
async fn a_store_that_panics_when_it_is_looked_for_is_looked_for_again() {
    let odd = Odd::default();
    odd.on_contact(|| panic!("contact"));
    let fleet = fleet_of(&odd, 1, count(2)).await;
    tokio::time::sleep(5 * SECOND).await;
    odd.on_contact(|| async { panic!("contact's future") }.boxed());
    tokio::time::sleep(5 * SECOND).await;
    assert!(fleet.is_away(0));
    assert!(!is_joined(fleet.process(0)).await);
    odd.mend();
    tokio::time::sleep(5 * SECOND).await;
    assert!(is_joined(fleet.process(0)).await);
}

#[actix::test]
async fn a_store_that_panics_while_it_tells_of_changes_is_still_looked_at() {
    for at_once in [true, false] {
        let odd = Odd::default().on_changes(move |_| {
            assert!(!at_once, "changes");
            stream::once(async { panic!("a change") }).boxed()
        });
        let fleet = fleet_of(&odd, 2, count(1)).await;
        fleet.process(0).fails().await;
        fleet.settle().await;
        tokio::time::sleep(6 * SECOND).await;
        assert_eq!(fleet.states(), [CircuitState::Open; 2]);
    }
}

// The store is looked for after 100 ms, then up to every 2 s: also one that can be found and makes no steps.
#[actix::test]
async fn a_store_that_is_there_and_makes_no_step_is_not_asked_all_the_time() {
    for hangs in [false, true] {
        let odd = Odd::default();
        let fleet = fleet_of(&odd, 1, count(2)).await;
        odd.on_step(move |_, _| {
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Err(StoreError::Unreadable("no".into()))
            }
            .boxed()
        });
        fleet.process(0).fails().await;
        let before = odd.contacts();
        tokio::time::sleep(60 * SECOND).await;
        let contacts = odd.contacts() - before;
        assert!((20..=45).contains(&contacts), "{contacts} in a minute");
        let told = fleet.process(0).store_events().take();
        let losses = told
            .iter()
            .filter(|event| matches!(event, StoreEvent::Degraded { .. }));
        let losses = losses.count();
        assert!(losses <= 45, "{losses} losses in a minute");
        odd.mend();
        tokio::time::sleep(5 * SECOND).await;
        assert!(is_joined(fleet.process(0)).await);
    }
}

#[actix::test]
async fn a_store_that_never_stops_telling_leaves_the_others_their_turn() {
    let odd = Odd::default().on_changes(|_| {
        // One thread has all of it: who never lets go would be found out by the run's own limit.
        let told = std::iter::repeat_with(|| Change::Missed).take(3_000_000);
        stream::iter(told).boxed()
    });
    let fleet = fleet_of(&odd, 2, count(2)).await;
    let started = std::time::Instant::now();
    for _ in 0..100 {
        fleet.process(0).succeeds().await;
        settle().await;
    }
    assert!(started.elapsed() < 5 * SECOND, "{:?}", started.elapsed());
}

#[actix::test]
async fn a_store_that_panics_when_it_is_dropped_hits_nobody() {
    stop_time();
    for handle_last in [false, true] {
        let odd = Odd {
            _trap: Some(Arc::new(Trap)),
            ..Odd::default()
        };
        let contacts = Arc::clone(&odd.contacts);
        let breakers = Breakers::builder().store(odd).start();
        let breaker = breakers.create(NAME, count(1).build().unwrap()).unwrap();
        tokio::time::sleep(SECOND).await;
        if handle_last {
            drop(breakers);
            tokio::time::sleep(10 * SECOND).await;
            drop(breaker);
        } else {
            drop(breaker);
            drop(breakers);
        }
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(Arc::strong_count(&contacts), 1);
    }
}

type Spoil = fn(&mut View);

/// What no store should say.
const SPOILT: [(&str, Spoil); 11] = [
    ("version", |view| view.record.version = u64::MAX),
    ("revision", |view| view.record.revision = u64::MAX),
    ("no version", |view| view.record.version = 0),
    ("regression", |view| {
        view.record.version = view.record.version.saturating_sub(1_000_000);
        view.record.revision = 0;
    }),
    ("attempt", |view| view.record.attempt = u32::MAX),
    ("times", |view| {
        view.record.newest = Timestamp::MAX;
        match &mut view.record.phase {
            SharedPhase::Open { until } => *until = Timestamp::MAX,
            SharedPhase::HalfOpen { due, .. } => *due = Timestamp::MAX,
            _ => {}
        }
    }),
    ("refused", |view| view.answer = Answer::Refused),
    ("done", |view| view.answer = Answer::Done),
    ("stale", |view| view.answer = Answer::Stale),
    ("known", |view| view.answer = Answer::Known),
    ("always half-open", |view| {
        view.record.phase = SharedPhase::HalfOpen {
            due: Timestamp::ZERO,
            probes: Vec::new(),
            successes: u32::MAX,
            inconclusive: u32::MAX,
        };
    }),
];

#[actix::test]
async fn whatever_a_store_says_callers_are_answered_and_it_is_not_asked_without_end() {
    for (what, spoil) in SPOILT {
        let odd = Odd::default();
        let fleet = fleet_of(&odd, 2, count(2)).await;
        odd.spoil(spoil);
        let before = fleet.store.steps();
        let mut calls = 0;
        for round in 0..6 {
            for process in fleet.all() {
                for _ in 0..4 {
                    let called = soon(process.call_failing()).await;
                    assert!(
                        matches!(called, Err(CallError::Failed(_) | CallError::Rejected(_))),
                        "{what} {called:?}"
                    );
                    let called = soon(process.breaker.call(async { Ok::<_, &str>(()) })).await;
                    assert!(
                        matches!(called, Ok(()) | Err(CallError::Rejected(_))),
                        "{what} {called:?}"
                    );
                    calls += 2;
                }
            }
            fleet.settle().await;
            fleet.pass(if round % 2 == 0 { BREAK } else { SECOND });
        }
        let steps = fleet.store.steps() - before;
        assert!(
            steps < calls * 20,
            "{what}: {steps} steps for {calls} calls"
        );
        odd.mend();
        tokio::time::sleep(5 * SECOND).await;
        for process in fleet.all() {
            let snapshot = soon(process.breaker.snapshot()).await.unwrap();
            assert_eq!(snapshot.restarts, 0, "{what}");
        }
    }
}

// Leave that is refused while there is a free slot: the caller is rejected, and nobody waits for ever.
#[actix::test]
async fn a_probe_that_the_store_never_grants_is_rejected() {
    let odd = Odd::default();
    let held = Hold::new(10, 60 * SECOND, SECOND);
    let fleet = fleet_of(&odd, 1, count(1).hold(held)).await;
    fleet.process(0).fails().await;
    fleet.settle().await;
    odd.on_step(|step, make| {
        let is_acquire = matches!(step.action, Action::Acquire { .. });
        let view = if is_acquire {
            let look = Step::new(step.process, step.version, step.now, Action::Look);
            let mut view = make(look);
            view.answer = Answer::Refused;
            view
        } else {
            make(step)
        };
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(view)
        }
        .boxed()
    });
    fleet.pass(BREAK);
    let before = fleet.store.steps();
    assert_eq!(soon(fleet.process(0).rejected()).await, Reason::ProbesInUse);
    tokio::time::sleep(SECOND).await;
    let steps = fleet.store.steps() - before;
    assert!(steps < 10, "{steps} steps for one call");
    // A message that waits tries again at the pace of the releases.
    let target = Target.start();
    let held = fleet.process(0).breaker.guard(target).send_or_hold(Job);
    let before = fleet.store.steps();
    let gone = tokio::time::timeout(10 * SECOND, held).await;
    assert!(gone.is_err());
    let steps = fleet.store.steps() - before;
    assert!(steps < 60, "{steps} steps for one message that waits");
}

// Names.

// Names of samples are never used twice: what a breaker of the same name counts is no repetition.
#[actix::test]
async fn a_breaker_that_is_made_again_is_counted_anew() {
    let fleet = Fleet::share(FaultyStore::new(), 2, count(3)).await;
    let process = fleet.process(0);
    process.fails().await;
    process.fails().await;
    fleet.settle().await;
    assert!(process.breakers.remove(NAME));
    fleet.settle().await;
    let again = process
        .breakers
        .create(NAME, count(3).build().unwrap())
        .unwrap();
    fleet.settle().await;
    drop(again.call(async { Err::<(), _>("foo") }).await);
    fleet.settle().await;
    assert_eq!(fleet.process(1).state(), CircuitState::Open);
    assert_eq!(again.state(), CircuitState::Open);
}

// R7: nor are those of probes.
#[actix::test]
async fn a_breaker_that_is_made_again_gets_no_slot_that_is_held() {
    let config = || count(1).max_probes(2);
    let fleet = Fleet::share(FaultyStore::new(), 2, config()).await;
    let process = fleet.process(0);
    process.fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    let first = process.breaker.acquire().await.unwrap();
    assert!(first.is_probe());
    fleet.settle().await;
    assert!(process.breakers.remove(NAME));
    fleet.settle().await;
    let again = process
        .breakers
        .create(NAME, config().build().unwrap())
        .unwrap();
    fleet.settle().await;
    let second = again.acquire().await.unwrap();
    assert!(second.is_probe());
    assert!(again.acquire().await.is_err(), "three probes at once");
    assert!(
        fleet.process(1).breaker.acquire().await.is_err(),
        "three probes at once"
    );
}

// Processes are told apart also where a program seeds the random numbers of its threads.
#[actix::test]
async fn processes_whose_random_numbers_are_seeded_alike_are_two() {
    fastrand::seed(7);
    let mut fleet = Fleet::around(FaultyStore::new(), 1, count(2), |builder| builder);
    fastrand::seed(7);
    fleet.add();
    fleet.settle().await;
    fleet.process(0).fails().await;
    fleet.process(1).fails().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// Away, lost, given back.

// R23: who repeats an order while the store is away has given it all the same.
#[actix::test]
async fn an_order_repeated_while_the_store_is_away_stands() {
    stop_time();
    let fleet = Fleet::share(FaultyStore::new(), 2, count(1)).await;
    let a = fleet.process(0);
    let minute = ForceOpen::new("for a minute").ttl(60 * SECOND);
    a.breaker.force_open(minute).await.unwrap().unwrap();
    fleet.settle().await;
    fleet.store.refuse();
    a.breaker
        .force_open(order("for good"))
        .await
        .unwrap()
        .unwrap();
    fleet.settle().await;
    fleet.store.recover();
    tokio::time::sleep(10 * SECOND).await;
    fleet.pass(61 * SECOND);
    for process in fleet.all() {
        assert_eq!(process.rejected().await, Reason::ForcedOpen);
    }
    assert_eq!(fleet.states(), [CircuitState::ForcedOpen; 2]);
}

// R29: what was written down is older than what the fleet did since.
#[actix::test]
async fn what_a_process_wrote_down_undoes_nothing_that_others_did_since() {
    stop_time();
    let mut fleet = Fleet::share(FaultyStore::new(), 2, count(1)).await;
    let a = fleet.process(0);
    a.breaker
        .force_open(order("maintenance"))
        .await
        .unwrap()
        .unwrap();
    fleet.settle().await;
    let written = a.breakers.export().await;
    fleet.kill(0);
    fleet.pass(SECOND);
    fleet.process(0).breaker.release().await.unwrap();
    fleet.settle().await;
    fleet.pass(SECOND);
    fleet.add_restored(written);
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

// And is given back to a store that lost it.
#[actix::test]
async fn what_a_process_wrote_down_goes_to_a_store_that_was_emptied() {
    stop_time();
    let mut fleet = Fleet::share(FaultyStore::new(), 2, count(1)).await;
    fleet.process(0).fails().await;
    fleet.settle().await;
    let written = fleet.process(0).breakers.export().await;
    fleet.kill(1);
    fleet.kill(0);
    fleet.store.forget(NAME);
    fleet.pass(SECOND);
    fleet.add_restored(written);
    fleet.add();
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// R31: the store forgets what is too old; a breaker that remembers it asks for its probe all the same.
#[actix::test]
async fn a_break_that_the_store_has_forgotten_long_since_ends_with_one_probe() {
    for half_open in [false, true] {
        stop_time();
        let fleet = Fleet::share(FaultyStore::new(), 2, count(1)).await;
        fleet.process(0).fails().await;
        fleet.settle().await;
        if half_open {
            fleet.pass(BREAK);
            std::mem::forget(fleet.process(1).breaker.acquire().await.unwrap());
            fleet.settle().await;
        }
        fleet.pass(86_400 * SECOND);
        let before = fleet.store.steps();
        soon(fleet.process(0).succeeds()).await;
        fleet.settle().await;
        assert_eq!(fleet.process(0).state(), CircuitState::Closed);
        let steps = fleet.store.steps() - before;
        assert!(steps < 20, "{steps} steps for one call");
    }
}

// R10: others wait for the slot of a permit that was dropped, which nobody here has to speak of.
#[actix::test]
async fn a_dropped_probe_gives_its_slot_back_at_once() {
    let fleet = Fleet::share(FaultyStore::new(), 2, count(1)).await;
    fleet.process(0).fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    let permit = fleet.process(0).breaker.acquire().await.unwrap();
    fleet.settle().await;
    drop(permit);
    fleet.settle().await;
    let permit = fleet.process(1).breaker.acquire().await.unwrap();
    fleet.settle().await;
    drop(permit);
    fleet.settle().await;
    // A call that goes away while it runs.
    let (call, _ends) = fleet.process(0).hangs();
    fleet.settle().await;
    assert_eq!(fleet.process(1).rejected().await, Reason::ProbesInUse);
    call.abort();
    fleet.settle().await;
    fleet.process(1).succeeds().await;
}

// Successes are told when the breaker looks at its record: a rate is of all of them.
#[actix::test]
async fn successes_are_told_with_every_look() {
    stop_time();
    let fleet = Fleet::share(FaultyStore::new(), 2, rate(0.5, 4)).await;
    for _ in 0..20 {
        fleet.process(0).succeeds().await;
    }
    tokio::time::sleep(6 * SECOND).await;
    for _ in 0..4 {
        fleet.process(1).fails().await;
    }
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

// A failure counts once, however often the store goes away before it is told.
#[actix::test]
async fn a_failure_outlives_two_outages() {
    let odd = Odd::default();
    let fleet = fleet_of(&odd, 2, count(2)).await;
    // Looks are answered, records are not: it goes away once more while the failure is told again.
    odd.on_step(|step, make| match step.action {
        Action::Record { .. } => std::future::pending().boxed(),
        _ => std::future::ready(Ok(make(step))).boxed(),
    });
    fleet.process(0).fails().await;
    tokio::time::sleep(10 * SECOND).await;
    odd.mend();
    tokio::time::sleep(10 * SECOND).await;
    fleet.process(1).fails().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// Many at once.

// R7: of ten thousand at the due instant as many go as there are slots, all are answered, and each call is under
// one count.
#[actix::test]
async fn of_ten_thousand_when_the_break_is_over_two_go() {
    let fleet = Fleet::share(FaultyStore::new(), 2, count(1).max_probes(2)).await;
    fleet.process(0).fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    fleet.store.slow(Duration::from_millis(5));
    let mut calls = Vec::new();
    for process in fleet.all() {
        calls.extend((0..5_000).map(|_| process.hangs()));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    settle().await;
    let mut probes = Vec::new();
    let mut rejected = 0;
    for (call, ends) in calls {
        if call.is_finished() {
            assert!(matches!(call.await.unwrap(), Err(CallError::Rejected(_))));
            rejected += 1;
        } else {
            probes.push((call, ends));
        }
    }
    assert_eq!((probes.len(), rejected), (2, 9_998));
    for (call, ends) in probes {
        ends.send(Ok(())).unwrap();
        call.await.unwrap().unwrap();
    }
    fleet.settle().await;
    let mut counted = 0;
    for process in fleet.all() {
        let calls = process.breaker.snapshot().await.unwrap().circuit.calls;
        counted += calls.rejected + calls.successes + calls.failures + calls.ignored + calls.late;
    }
    assert_eq!(counted, 10_001);
}

// With the store asked first, as many calls pass as come: a breaker that is closed rejects none.
#[actix::test]
async fn asking_first_turns_nobody_away_for_want_of_room() {
    let fleet = Fleet::share_with(FaultyStore::new(), 1, count(5), |builder| {
        builder.consistency(Consistency::Strict)
    })
    .await;
    fleet.store.slow(Duration::from_millis(5));
    let breaker = &fleet.process(0).breaker;
    let calls = (0..5_000).map(|_| breaker.call(async { Ok::<_, &str>(()) }));
    let ends = soon(futures::future::join_all(calls)).await;
    let rejected = ends.iter().filter(|end| end.is_err()).count();
    assert_eq!(rejected, 0, "{:?}", ends.iter().find(|end| end.is_err()));
}

/// Takes one step after another, each for a while.
fn throttle(odd: &Odd, each: Duration) {
    let line = Arc::new(tokio::sync::Mutex::new(()));
    odd.on_step(move |step, make| {
        let view = make(step);
        let line = Arc::clone(&line);
        async move {
            let _turn = line.lock().await;
            tokio::time::sleep(each).await;
            Ok(view)
        }
        .boxed()
    });
}

// That many breakers look at their records is no reason to take the store for gone.
#[actix::test]
async fn thousands_of_breakers_do_not_look_all_at_once() {
    stop_time();
    let odd = Odd::default();
    let breakers = Breakers::builder()
        .max_breakers(1_000)
        .store(odd.clone())
        .start();
    throttle(&odd, Duration::from_millis(1));
    let mut all = Vec::new();
    for index in 0..1_000 {
        let config = count(1).build().unwrap();
        all.push(breakers.create(format!("breaker {index}"), config).unwrap());
        if index % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    tokio::time::sleep(60 * SECOND).await;
    let watch = Arc::new(AtomicU64::new(0));
    let watcher = Losses(Arc::clone(&watch)).start();
    breakers.subscribe_store(watcher.downgrade().recipient());
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(watch.load(Ordering::SeqCst), 0, "the store was there");
    for breaker in &all {
        let snapshot = breaker.snapshot().await.unwrap();
        assert!(snapshot.sharing.unwrap().joined);
    }
}

/// Counts losses of the store.
struct Losses(Arc<AtomicU64>);

impl Actor for Losses {
    type Context = Context<Self>;
}

impl Handler<StoreEvent> for Losses {
    type Result = ();

    fn handle(&mut self, event: StoreEvent, _: &mut Context<Self>) {
        if let StoreEvent::Degraded { .. } = event {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

// R29: a restart loses the message being handled, be it the store's answer: nobody waits for it without end.
#[actix::test]
async fn an_answer_that_is_lost_in_a_restart_keeps_nobody_waiting() {
    stop_time();
    let fleet = Fleet::share(FaultyStore::new(), 1, count(1)).await;
    let process = fleet.process(0);
    process.fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    fleet.store.slow(Duration::from_millis(20));
    let (call, ends) = process.hangs();
    tokio::time::sleep(Duration::from_millis(5)).await;
    settle().await;
    // The next that reads the clock is the handler of the answer.
    process.set_trap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    settle().await;
    assert!(!ends.is_closed(), "nobody let the probe go");
    ends.send(Ok(())).unwrap();
    soon(call).await.unwrap().unwrap();
    tokio::time::sleep(6 * SECOND).await;
    assert!(is_joined(process).await);
    let snapshot = process.breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.restarts, 1);
}

// R29: what waits for the store's leave goes on when its breaker is removed.
#[actix::test]
async fn who_waits_for_leave_goes_on_when_the_breaker_is_removed() {
    stop_time();
    let fleet = Fleet::share(FaultyStore::new(), 1, count(1)).await;
    let process = fleet.process(0);
    process.fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    fleet.store.hang();
    let waiting: Vec<_> = (0..10).map(|_| process.breaker.clone()).collect();
    let waiting = waiting
        .iter()
        .map(|breaker| breaker.call(async { Ok::<_, &str>(()) }));
    let waiting = futures::future::join_all(waiting);
    let mut waiting = std::pin::pin!(waiting);
    assert!(waiting.as_mut().now_or_never().is_none());
    settle().await;
    process.breakers.remove(NAME);
    let ends = soon(waiting).await;
    assert!(ends.iter().any(Result::is_ok), "{ends:?}");
}

// R30: nothing of the link is left when the last owner and the last breaker are gone.
#[actix::test]
async fn the_link_ends_with_the_last_who_shares() {
    for handles_first in [true, false] {
        let odd = Odd::default();
        let fleet = fleet_of(&odd, 2, count(1)).await;
        fleet.process(0).fails().await;
        let kept: Vec<_> = fleet.all().map(|process| process.breaker.clone()).collect();
        if handles_first {
            drop(kept);
            drop(fleet);
        } else {
            drop(fleet);
            tokio::time::sleep(10 * SECOND).await;
            drop(kept);
        }
        tokio::time::sleep(10 * SECOND).await;
        assert_eq!(Arc::strong_count(&odd.contacts), 1);
    }
}

// Two orders at the same instant: all processes end in the same state.
#[actix::test]
async fn orders_at_the_same_instant_end_in_one_state() {
    let fleet = Fleet::share(FaultyStore::new(), 3, count(1)).await;
    let [a, b, c] = fleet.three();
    for round in 0..40_u32 {
        let made = async |process: &Process, what: u32| match what % 4 {
            0 => drop(process.breaker.force_open(order("a")).await),
            1 => drop(process.breaker.force_closed(ForceClosed::new("b")).await),
            2 => drop(process.breaker.release().await),
            _ => drop(process.breaker.reset().await),
        };
        let (one, two, three) = (round, round / 4, round / 3);
        futures::join!(made(a, one), made(b, two), made(c, three));
        fleet.settle().await;
        if round % 2 == 0 {
            fleet.pass(SECOND);
        }
        let states = fleet.states();
        assert!(
            states.iter().all(|state| *state == states[0]),
            "{round}: {states:?}"
        );
    }
}

// The store's time jumps by hours and back: a break is no longer than it may be, and ends with a probe.
#[actix::test]
async fn a_store_whose_time_jumps_holds_nobody_up() {
    stop_time();
    let odd = Odd::default();
    let jumps = Arc::new(AtomicU64::new(0));
    let clock = Arc::new(SystemClock::new());
    let (jumped, read) = (Arc::clone(&jumps), Arc::clone(&clock));
    odd.on_contact(move || {
        let now = read.now().as_micros();
        let hour = 3_600_000_000;
        let time = match jumped.fetch_add(1, Ordering::SeqCst) % 3 {
            0 => now,
            1 => now + hour,
            _ => now - hour,
        };
        std::future::ready(Ok(Some(Timestamp::from_micros(time)))).boxed()
    });
    let breakers = Breakers::builder().store(odd.clone()).clock(clock).start();
    let breaker = breakers.create(NAME, count(1).build().unwrap()).unwrap();
    for _ in 0..6 {
        tokio::time::sleep(4 * SECOND).await;
        let failed = breaker.call(async { Err::<(), _>("foo") }).await;
        assert!(matches!(failed, Err(CallError::Failed(_))), "{failed:?}");
        settle().await;
        assert_eq!(breaker.state(), CircuitState::Open);
        let mut waited = 0;
        while breaker.call(async { Ok::<_, &str>(()) }).await.is_err() {
            tokio::time::sleep(SECOND).await;
            waited += 1;
            assert!(waited < 30, "{:?}", breaker.snapshot().await);
        }
        settle().await;
        assert_eq!(breaker.state(), CircuitState::Closed);
    }
}

// Steps.

// R3: whatever a step says, the reference makes it, in no time.
#[test]
fn the_store_in_memory_makes_every_step() {
    let numbers = [0, 1, u64::MAX / 2, u64::MAX];
    let call = |number| CallId {
        process: number,
        number,
    };
    let spans = [Duration::ZERO, SECOND, Duration::MAX];
    for config in [count(2), rate(0.5, 2), consecutive(2), custom_three()] {
        let config = config.build().unwrap();
        for &now in &numbers {
            for &version in &numbers {
                let store = MemoryStore::new();
                let mut actions = vec![Action::Look, Action::Trip, Action::Release, Action::Reset];
                for &number in &numbers {
                    let call = call(number);
                    let lease = spans[usize::try_from(number % 3).unwrap()];
                    actions.push(Action::Acquire { call, lease });
                    let sample = Some(Sample::new(true, true));
                    actions.push(Action::Record {
                        call,
                        successes: number,
                        sample,
                    });
                    let ending = ProbeEnding::Failure;
                    actions.push(Action::Settle { call, ending });
                }
                for ttl in spans {
                    actions.push(Action::Force {
                        kind: Forced::Open,
                        ttl: Some(ttl),
                        reason: "".into(),
                    });
                }
                let mut newest = None;
                for action in actions.iter().chain(&actions) {
                    let known = match &newest {
                        Some(View { record, .. }) if version == 0 => record.version,
                        _ => version,
                    };
                    let mut step = Step::new(1, known, Timestamp::from_micros(now), action.clone());
                    step.random = f64::NAN;
                    let view = store.step(&"a".into(), &config, step).now_or_never();
                    let view = view.unwrap().unwrap();
                    assert!(
                        view.record.version <= Timestamp::MAX.as_micros(),
                        "{action:?}"
                    );
                    let mut record = view.record.clone();
                    record.version = version;
                    record.attempt = u32::MAX;
                    let offer = Action::Offer { record };
                    let step = Step::new(2, version, Timestamp::from_micros(now), offer);
                    let view = store.step(&"a".into(), &config, step).now_or_never();
                    let view = view.unwrap().unwrap();
                    assert!(view.record.version <= Timestamp::MAX.as_micros());
                    newest = Some(view);
                }
            }
        }
    }
}

// Many that missed something look one group after another as well.
#[actix::test]
async fn thousands_of_breakers_that_missed_something_do_not_look_all_at_once() {
    stop_time();
    let odd = Odd::default().on_changes(|told| {
        let missed = stream::unfold((), |()| async {
            tokio::time::sleep(7 * SECOND).await;
            Some((Change::Missed, ()))
        });
        stream::select(told, missed).boxed()
    });
    let breakers = Breakers::builder()
        .max_breakers(1_000)
        .store(odd.clone())
        .start();
    let mut all = Vec::new();
    for index in 0..1_000 {
        let config = count(1).build().unwrap();
        all.push(breakers.create(format!("breaker {index}"), config).unwrap());
    }
    settle().await;
    throttle(&odd, Duration::from_millis(1));
    let watch = Arc::new(AtomicU64::new(0));
    let watcher = Losses(Arc::clone(&watch)).start();
    breakers.subscribe_store(watcher.downgrade().recipient());
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(watch.load(Ordering::SeqCst), 0, "the store was there");
}

/// How somebody asks for leave.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Call,
    Acquire,
    Ask,
    Hold,
}

struct Target;

impl Actor for Target {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Result<(), &'static str>")]
struct Job;

impl Handler<Job> for Target {
    type Result = Result<(), &'static str>;

    fn handle(&mut self, _: Job, _: &mut Context<Self>) -> Self::Result {
        Ok(())
    }
}

// R10: whenever a caller goes away, before, while and after the store is asked: the slot is free for the others.
#[actix::test]
async fn no_slot_is_lost_whenever_a_caller_goes_away() {
    stop_time();
    for kind in [Kind::Call, Kind::Acquire, Kind::Ask, Kind::Hold] {
        for after in 0..30 {
            let held = Hold::new(10, 60 * SECOND, Duration::from_millis(1));
            let config = count(1).hold(held);
            let fleet = Fleet::share(FaultyStore::new(), 2, config).await;
            fleet.process(0).fails().await;
            fleet.settle().await;
            fleet.pass(BREAK);
            fleet.store.slow(Duration::from_millis(10));
            let breaker = fleet.process(0).breaker.clone();
            let target = Target.start();
            let going = actix::spawn(async move {
                match kind {
                    Kind::Call => {
                        let slept = tokio::time::sleep(Duration::from_millis(5));
                        let call = async {
                            slept.await;
                            Ok::<_, &str>(())
                        };
                        drop(breaker.call(call).await);
                    }
                    Kind::Acquire => {
                        let permit = breaker.acquire().await;
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        drop(permit);
                    }
                    Kind::Ask => drop(breaker.ask(&target, Job).await),
                    Kind::Hold => drop(breaker.guard(target).send_or_hold(Job).await),
                }
            });
            tokio::time::sleep(Duration::from_millis(after)).await;
            going.abort();
            tokio::time::sleep(Duration::from_millis(50)).await;
            settle().await;
            let other = soon(fleet.process(1).breaker.call(async { Ok::<_, &str>(()) })).await;
            assert_eq!(other, Ok(()), "{kind:?} after {after} ms");
            tokio::time::sleep(Duration::from_millis(50)).await;
            settle().await;
            assert_eq!(
                fleet.states(),
                [CircuitState::Closed; 2],
                "{kind:?} after {after} ms"
            );
        }
    }
}

// R26: those who subscribed and are gone are not kept.
#[actix::test]
async fn who_listened_to_the_store_and_is_gone_is_forgotten() {
    let odd = Odd::default();
    let fleet = fleet_of(&odd, 1, count(1)).await;
    let counted = Arc::new(AtomicU64::new(0));
    for _ in 0..100 {
        let watcher = Losses(Arc::clone(&counted)).start();
        fleet
            .process(0)
            .breakers
            .subscribe_store(watcher.downgrade().recipient());
    }
    fleet.settle().await;
    assert_eq!(Arc::strong_count(&counted), 1);
}

// Storms.

/// How often calls were tried, and of these how often rejected and how often a success.
#[derive(Debug, Clone, Copy, Default)]
struct Made {
    all: u64,
    rejected: u64,
    successes: u64,
}

/// How a call ended, by the number of its process.
type Ended = tokio::task::JoinHandle<(usize, Made)>;

/// Random calls, permits, orders and times in three processes, around a store that comes and goes.
struct Storm {
    seed: u64,
    random: fastrand::Rng,
    fleet: Fleet,
    configs: [BreakerConfig; 2],
    events: Vec<(Events, Vec<StateChanged>)>,
    calls: Vec<Ended>,
}

impl Storm {
    async fn brew(
        seed: u64,
        configs: [BreakerConfigBuilder; 2],
        build: fn(BreakersBuilder) -> BreakersBuilder,
    ) -> Self {
        stop_time();
        let fleet = Fleet::share_with(FaultyStore::new(), 3, configs[0].clone(), build).await;
        let events = fleet.all().map(|process| (process.events(), Vec::new()));
        Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            events: events.collect(),
            calls: Vec::new(),
            configs: configs.map(|config| config.build().unwrap()),
            fleet,
        }
    }

    fn call(&mut self, index: usize) {
        let random = &mut self.random;
        let breaker = self.fleet.process(index).breaker.clone();
        let lasts = Duration::from_millis(random.u64(..30));
        let end = if random.u32(..3) == 0 {
            Ok(())
        } else {
            Err("foo")
        };
        self.calls.push(actix::spawn(async move {
            let call = async {
                tokio::time::sleep(lasts).await;
                end
            };
            let ended = breaker.call(call).await;
            let made = Made {
                all: 1,
                rejected: matches!(ended, Err(CallError::Rejected(_))).into(),
                successes: ended.is_ok().into(),
            };
            (index, made)
        }));
    }

    fn permit(&mut self, index: usize) {
        let random = &mut self.random;
        let breaker = self.fleet.process(index).breaker.clone();
        let lasts = Duration::from_millis(random.u64(..30));
        let end = random.u32(..4);
        self.calls.push(actix::spawn(async move {
            let mut made = Made {
                all: 1,
                ..Made::default()
            };
            if let Ok(permit) = breaker.acquire().await {
                tokio::time::sleep(lasts).await;
                match end {
                    0 => drop(permit),
                    1 => permit.success().await,
                    2 => permit.failure().await,
                    _ => permit.ignore().await,
                }
                made.successes = (end == 1).into();
            } else {
                made.rejected = 1;
            }
            (index, made)
        }));
    }

    async fn order(&mut self, index: usize) {
        let random = &mut self.random;
        let breaker = &self.fleet.process(index).breaker;
        let ttl = Duration::from_secs(random.u64(1..20));
        let ordered = match random.u32(..7) {
            0 => soon(breaker.force_open(order("a").ttl(ttl)))
                .await
                .map(drop),
            1 => soon(breaker.force_closed(ForceClosed::new("b").ttl(ttl)))
                .await
                .map(drop),
            2 => soon(breaker.force_open(order("c"))).await.map(drop),
            3 => soon(breaker.reset()).await,
            4 => {
                let config = self.configs[random.usize(..2)].clone();
                soon(breaker.reconfigure(config)).await.map(drop)
            }
            _ => soon(breaker.release()).await,
        };
        ordered.unwrap();
    }

    fn change_store(&mut self) {
        let store = &self.fleet.store;
        match self.random.u32(..8) {
            0 => store.refuse(),
            1 => store.hang(),
            2 => store.swallow_answers(),
            3 => store.slow(Duration::from_millis(self.random.u64(1..80))),
            4 => store.forget(NAME),
            _ => store.recover(),
        }
    }

    async fn rage(&mut self) {
        for _ in 0..200 {
            let index = self.random.usize(..3);
            match self.random.u32(..24) {
                0..=8 => self.call(index),
                9..=11 => self.permit(index),
                12..=14 => self.order(index).await,
                15..=17 => self.change_store(),
                18..=19 => {
                    let span = self.random.choice([1, 5, 10, 61].iter());
                    self.fleet.pass(Duration::from_secs(*span.unwrap()));
                }
                _ => {
                    let rest = Duration::from_millis(self.random.u64(..150));
                    tokio::time::sleep(rest).await;
                }
            }
            for (events, seen) in &mut self.events {
                seen.extend(events.take());
            }
        }
    }

    /// In the end everybody was answered, each call is under one count, and once the store is back all are in one
    /// state.
    async fn end(&mut self) {
        let seed = self.seed;
        let fleet = &self.fleet;
        fleet.store.recover();
        let mut made = [Made::default(); 3];
        for call in self.calls.drain(..) {
            let (index, one) = soon(call).await.unwrap();
            made[index].all += one.all;
            made[index].rejected += one.rejected;
            made[index].successes += one.successes;
        }
        tokio::time::sleep(15 * SECOND).await;
        settle().await;
        let mut alone = false;
        for (index, (process, made)) in fleet.all().zip(made).enumerate() {
            let snapshot = soon(process.breaker.snapshot()).await.unwrap();
            let sharing = snapshot.sharing.unwrap();
            assert!(sharing.joined, "seed {seed}, process {index}");
            assert_eq!(snapshot.restarts, 0, "seed {seed}, process {index}");
            alone |= sharing.alone;
            let calls = snapshot.circuit.calls;
            let what = format!("seed {seed}, process {index}: {calls:?} of {made:?}");
            assert_eq!(calls.rejected, made.rejected, "{what}");
            let counted =
                calls.rejected + calls.successes + calls.failures + calls.ignored + calls.late;
            // Successes that change nothing are not counted here.
            let rest = made
                .all
                .checked_sub(counted + snapshot.simulated_rejections);
            assert!(rest.is_some_and(|rest| rest <= made.successes), "{what}");
        }
        let states = fleet.states();
        let agree = states.iter().all(|state| *state == states[0]);
        assert!(alone || agree, "seed {seed}: {states:?}");
    }

    /// R25: the events of a process have no holes.
    fn tell(&mut self) {
        let seed = self.seed;
        for (index, (events, seen)) in self.events.iter_mut().enumerate() {
            seen.extend(events.take());
            for pair in seen.windows(2) {
                let [one, next] = pair else { continue };
                let what = format!("seed {seed}, process {index}: {one:?}, {next:?}");
                assert_eq!(one.to, next.from, "{what}");
                assert_eq!(one.seq + 1, next.seq, "{what}");
                assert!(one.epoch < next.epoch, "{what}");
            }
            if let Some(last) = seen.last() {
                let state = self.fleet.process(index).state();
                assert_eq!(last.to, state, "seed {seed}, process {index}");
            }
        }
    }
}

async fn storm(
    seed: u64,
    configs: [BreakerConfigBuilder; 2],
    build: fn(BreakersBuilder) -> BreakersBuilder,
) {
    let mut storm = Storm::brew(seed, configs, build).await;
    storm.rage().await;
    storm.end().await;
    storm.tell();
}

/// How many storms there are of each kind.
fn storms() -> std::ops::Range<u64> {
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = set("STORE_SEED").unwrap_or(0);
    first..first + set("STORE_STORMS").unwrap_or(30)
}

#[actix::test]
async fn storms_of_counts_end_well() {
    for seed in storms() {
        storm(seed, [count(3), count(2).max_probes(2)], |builder| builder).await;
    }
}

#[actix::test]
async fn storms_of_runs_end_well_where_the_store_is_asked_first() {
    for seed in storms() {
        let build = |builder: BreakersBuilder| builder.consistency(Consistency::Strict);
        storm(seed, [consecutive(2), count(2)], build).await;
    }
}

#[actix::test]
async fn storms_of_rates_end_well_with_a_ramp_up() {
    for seed in storms() {
        let ramp_up = RampUp::new(5 * SECOND, 0.1);
        let config = rate(0.5, 3).ramp_up(ramp_up).successes_to_close(2);
        storm(seed, [config, rate(0.4, 2)], |builder| builder).await;
    }
}

#[actix::test]
async fn storms_of_custom_rules_end_well_with_two_reporters() {
    for seed in storms() {
        let build = |builder: BreakersBuilder| builder.min_reporters(2);
        storm(seed, [custom_three(), count(2).jitter(0.5)], build).await;
    }
}

#[actix::test]
async fn storms_end_well_where_not_all_is_rejected() {
    for seed in storms() {
        let config = count(2).enforcement(0.5);
        storm(seed, [config, rate(0.5, 3).enforcement(0.0)], |builder| {
            builder
        })
        .await;
    }
}

// R29: who had tripped for itself alone goes on alone, and recovers by itself.
#[actix::test]
async fn what_a_process_alone_wrote_down_is_its_own() {
    let build = |builder: BreakersBuilder| builder.min_reporters(2);
    let mut fleet = Fleet::share_with(FaultyStore::new(), 2, count(2), build).await;
    fleet.process(0).fails().await;
    fleet.process(0).fails().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open, CircuitState::Closed]);
    let written = fleet.process(0).breakers.export().await;
    fleet.kill(0);
    fleet.pass(SECOND);
    fleet.add_restored(written);
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed, CircuitState::Open]);
    fleet.pass(BREAK);
    fleet.process(1).succeeds().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}
