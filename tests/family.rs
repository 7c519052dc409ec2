//! Families: a breaker per key, what is kept of it and for how long, and what strangers who choose keys
//! can do.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::trivially_copy_pass_by_ref,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a panic is a failed test"
)]

mod harness;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen, GetSnapshot};
use actix_circuit_breaker::{
    AskError, Breaker, BreakerConfig, BreakerConfigBuilder, Breakers, BreakersBuilder, CallError,
    Cause, CircuitState, Clock, CreateError, DropReason, Family, HeldDropped, Hold, ManualClock,
    Outcome, RampUp, Reason, SystemClock, Window,
};
use futures::StreamExt;
use harness::*;

/// What R31 adds to what can matter.
const MARGIN: Duration = Duration::from_secs(60);

fn family_of(builder: BreakersBuilder, config: BreakerConfigBuilder) -> Family {
    pause();
    let config = config.build().unwrap();
    builder.start().family("hosts", config).unwrap()
}

fn family(config: BreakerConfigBuilder) -> Family {
    family_of(Breakers::builder(), config)
}

/// On a clock of the test's own.
fn manual_family(config: BreakerConfigBuilder) -> (ManualClock, Family) {
    let clock = ManualClock::new();
    let builder = Breakers::builder().clock(Arc::new(clock.clone()));
    (clock, family_of(builder, config))
}

async fn good(family: &Family, key: &str) {
    let called = family.call(key, async { Answer::Ok(1) }).await;
    assert_eq!(called.unwrap(), 1);
}

async fn bad(family: &Family, key: &str) {
    let called = family.call(key, async { Answer::Err(BAD) }).await;
    assert!(matches!(called, Err(CallError::Failed(_))), "{called:?}");
}

async fn rejected(family: &Family, key: &str) -> Reason {
    match family.call(key, async { Answer::Ok(1) }).await {
        Err(CallError::Rejected(rejected)) => rejected.reason(),
        other => panic!("not rejected but {other:?}"),
    }
}

/// Lets the family's actor put away what nobody holds.
async fn settled(family: &Family) {
    for _ in 0..3 {
        drop(family.keys());
        quiet().await;
    }
}

#[actix::test]
async fn each_key_has_a_breaker_like_any_other() {
    let family = family(consecutive(2));
    let (target, seen) = target();
    let down = family.breaker("down");
    let well = family.breaker("well");
    for _ in 0..2 {
        assert_eq!(down.ask(&target, Job::Bad).await, Ok(Err(BAD)));
    }
    // R21
    assert!(
        down.ask(&target, Job::Good)
            .await
            .unwrap_err()
            .is_rejected()
    );
    assert_eq!(well.ask(&target, Job::Good).await, Ok(Ok(1)));
    assert_eq!(seen.get(), 3);
    assert_eq!(down.name(), "hosts/down");
    assert_eq!(family.breaker("down").state(), CircuitState::Open);
    assert_eq!(family.breaker("well").state(), CircuitState::Closed);

    // By its address alone it is the same breaker.
    let snapshot = down.addr().send(GetSnapshot).await.unwrap();
    assert_eq!(&*snapshot.breaker, "hosts/down");
    assert_eq!(snapshot.state, CircuitState::Open);
    assert_eq!(snapshot.calls.failures, 2);
    assert_eq!(snapshot.calls.rejected, 1);
    assert_eq!(well.snapshot().await.unwrap().calls.failures, 0);
}

// R6, R10, R13, R14: the probe of a key runs in the family's care.
#[actix::test]
async fn key_recovers_by_a_probe() {
    let family = family(consecutive(1));
    let (target, _) = target();
    let breaker = family.breaker("a");
    assert_eq!(breaker.ask(&target, Job::Bad).await, Ok(Err(BAD)));
    pass(BREAK).await;
    assert_eq!(breaker.ask(&target, Job::Bad).await, Ok(Err(BAD)));
    assert_eq!(breaker.state(), CircuitState::Open);
    pass(BREAK).await;
    let (answer, job) = latch();
    let probe = breaker.ask(&target, job);
    quiet().await;
    assert_eq!(breaker.state(), CircuitState::HalfOpen);
    let in_use = breaker.ask(&target, Job::Good).await.unwrap_err();
    assert!(in_use.is_rejected());
    // Its caller goes away, and all handles with it; the outcome counts.
    drop(probe);
    let mut states = breaker.watch();
    drop(breaker);
    answer.send(Ok(1)).unwrap();
    states
        .wait_for(|state| *state == CircuitState::Closed)
        .await
        .unwrap();
    drop(states);
    settled(&family).await;
    assert_eq!(family.len(), 0);
}

// Closed and empty costs nothing: neither a look nor a call that succeeds leaves anything.
#[actix::test]
async fn closed_and_empty_key_is_forgotten() {
    for config in [
        consecutive(2),
        count(2, SECOND),
        rate(0.5, 2, Window::Calls(4)),
    ] {
        let rated = config.clone().build().unwrap() != consecutive(2).build().unwrap()
            && config.clone().build().unwrap() != count(2, SECOND).build().unwrap();
        let family = family(config);
        for at in 0..100 {
            let key = format!("host-{at}");
            assert_eq!(family.breaker(&key).state(), CircuitState::Closed);
            if !rated {
                good(&family, &key).await;
            }
        }
        settled(&family).await;
        assert_eq!(family.keys(), [""; 0]);
        // A handle that is held keeps its key.
        let held = family.breaker("held");
        assert_eq!(family.keys(), ["held"]);
        drop(held);
        settled(&family).await;
        assert!(family.is_empty());
    }
}

#[actix::test]
async fn failures_are_remembered_though_nobody_holds_the_key() {
    let family = family(consecutive(3));
    bad(&family, "a").await;
    bad(&family, "b").await;
    settled(&family).await;
    assert_eq!(family.keys(), ["a", "b"]);
    bad(&family, "a").await;
    settled(&family).await;
    bad(&family, "a").await;
    settled(&family).await;
    assert_eq!(rejected(&family, "a").await, Reason::Open);
    assert_eq!(family.breaker("a").state(), CircuitState::Open);
    good(&family, "b").await;
    // R17: the success made it forget.
    settled(&family).await;
    assert_eq!(family.keys(), ["a"]);
}

// R31: what is kept, and for how long; the break outlives everyone who knew of it.
#[actix::test]
async fn record_lives_as_long_as_it_can_matter() {
    let (clock, family) = manual_family(consecutive(1));
    bad(&family, "a").await;
    settled(&family).await;
    // Break 10 s; the lease of a probe is as long; an unbounded lookback counts as 1 h.
    let margin = Duration::from_secs(3_600) * 2 + MARGIN;
    clock.advance(BREAK + margin - MS);
    settled(&family).await;
    assert_eq!(family.keys(), ["a"]);
    // An idle open key meets one probe, not a burst.
    let probe = family.breaker("a").acquire().await.unwrap();
    assert!(probe.is_probe());
    assert_eq!(rejected(&family, "a").await, Reason::ProbesInUse);
    // A lease that is held matters, too.
    clock.advance(BREAK * 2);
    settled(&family).await;
    assert_eq!(family.keys(), ["a"]);
    drop(probe.failure());
    settled(&family).await;
    clock.advance(BREAK * 2 + margin);
    settled(&family).await;
    assert_eq!(family.keys(), [""; 0]);
    // After that a burst is sent whole.
    for _ in 0..100 {
        assert!(!family.breaker("a").acquire().await.unwrap().is_probe());
    }
}

// R1: the epoch of a record made anew is above all that were given out, also while the clock stands.
#[actix::test]
async fn epoch_is_not_used_twice() {
    let (clock, family) = manual_family(consecutive(1));
    let mut highest = None;
    for _ in 0..50 {
        bad(&family, "a").await;
        let epoch = family.breaker("a").snapshot().await.unwrap().epoch;
        assert!(Some(epoch) > highest, "{epoch} after {highest:?}");
        highest = Some(epoch);
        family.breaker("a").reset().await.unwrap();
        settled(&family).await;
        assert!(family.is_empty());
    }
    drop(clock);
}

// R25: events of all keys reach those who listen to the family or to all breakers, in order.
#[actix::test]
async fn subscribers_hear_of_every_key() {
    pause();
    let breakers = Breakers::start();
    let (all, one, early) = (Told::default(), Told::default(), Told::default());
    let recorders = [&all, &one, &early].map(|told| Recorder(told.clone()).start());
    breakers.subscribe(recorders[2].clone());
    let config = consecutive(1).build().unwrap();
    let family = breakers.family("hosts", config).unwrap();
    breakers.subscribe(recorders[0].clone());
    let held = family.breaker("a");
    held.subscribe(recorders[1].clone()).await.unwrap();
    let mut stream = held.transitions();
    bad(&family, "a").await;
    bad(&family, "b").await;
    family.breaker("b").reset().await.unwrap();
    quiet().await;
    let told: Vec<_> = all
        .all()
        .iter()
        .map(|event| (event.breaker.to_string(), event.cause, event.seq))
        .collect();
    assert_eq!(
        told,
        [
            ("hosts/a".to_owned(), Cause::Tripped, 1),
            ("hosts/b".to_owned(), Cause::Tripped, 1),
            ("hosts/b".to_owned(), Cause::Reset, 2),
        ]
    );
    assert_eq!(early.causes(), all.causes());
    assert_eq!(one.causes(), [Cause::Present, Cause::Tripped]);
    for cause in [Cause::Present, Cause::Tripped] {
        assert_eq!(stream.next().await.unwrap().unwrap().cause, cause);
    }
}

// R6, R9: an open key that is woken before its break is over says when that is, and sees it.
#[actix::test]
async fn key_woken_while_open_knows_its_deadline() {
    let (clock, family) = manual_family(consecutive(1));
    bad(&family, "a").await;
    settled(&family).await;
    clock.advance(SECOND);
    let rejected = family.call("a", async { Answer::Ok(1) }).await.unwrap_err();
    assert_eq!(rejected.retry_after(), Some(BREAK - SECOND));
    clock.advance(BREAK - SECOND);
    good(&family, "a").await;
    settled(&family).await;
    assert!(family.is_empty());
}

// R25: `seq` has no gap where a key was at rest in between.
#[actix::test]
async fn seq_goes_on_after_a_rest() {
    let family = family(consecutive(1));
    let told = Told::default();
    let recorder = Recorder(told.clone()).start();
    family.subscribe(recorder.clone());
    bad(&family, "a").await;
    for _ in 0..3 {
        settled(&family).await;
        pass(BREAK).await;
        bad(&family, "a").await;
    }
    quiet().await;
    assert_eq!(told.seqs(), [1, 2, 3, 4, 5, 6, 7]);
    // R22: so does the number of failed rounds.
    assert_eq!(told.last().evidence.attempt, 3);
}

// R23: an order is kept as long as it stands, and ends by itself.
#[actix::test]
async fn orders_stand_while_nobody_holds_the_key() {
    let family = family(consecutive(1));
    let told = Told::default();
    let recorder = Recorder(told.clone()).start();
    family.subscribe(recorder.clone());
    let order = |reason: &str| ForceOpen::new(reason.to_owned());
    let force = family.breaker("a").force_open(order("for ever"));
    force.await.unwrap().unwrap();
    let force = family.breaker("b").force_open(order("a while").ttl(SECOND));
    force.await.unwrap().unwrap();
    settled(&family).await;
    pass(Duration::from_secs(100_000)).await;
    assert_eq!(rejected(&family, "a").await, Reason::ForcedOpen);
    // Nobody looked, and the end was told.
    let ended = told.last();
    assert_eq!((&*ended.breaker, ended.cause), ("hosts/b", Cause::Expired));
    family.breaker("a").release().await.unwrap();
    settled(&family).await;
    assert!(family.is_empty(), "{:?}", family.keys());
}

#[actix::test]
async fn order_of_a_key_at_rest_ends_on_time_once_it_is_woken() {
    let family = family(consecutive(1));
    let closed = ForceClosed::new("drill").ttl(SECOND);
    let force = family.breaker("a").force_closed(closed);
    force.await.unwrap().unwrap();
    settled(&family).await;
    let breaker = family.breaker("a");
    let mut states = breaker.watch();
    assert_eq!(*states.borrow_and_update(), CircuitState::ForcedClosed);
    states.changed().await.unwrap();
    assert_eq!(*states.borrow_and_update(), CircuitState::Closed);
}

// R29: the state of all keys outlives a panic and a stop of the family's actor, messages with it.
#[actix::test]
async fn restart_of_the_family_keeps_every_key() {
    pause();
    let trap = Trap::default();
    let builder = Breakers::builder().clock(Arc::new(trap.clone()));
    let family = family_of(builder, consecutive(2));
    let (target, _) = target();
    let held = family.breaker("held");
    let mut stream = held.transitions();
    assert_eq!(held.ask(&target, Job::Bad).await, Ok(Err(BAD)));
    bad(&family, "rest").await;
    settled(&family).await;
    for _ in 0..3 {
        trap.set();
        // The next message of a key makes the actor panic; those of others are handled after it.
        let lost = held.snapshot();
        let kept = held.snapshot();
        lost.await.unwrap_err();
        assert!(!trap.is_set());
        assert_eq!(kept.await.unwrap().failures, 1);
    }
    assert_eq!(held.ask(&target, Job::Bad).await, Ok(Err(BAD)));
    assert_eq!(held.state(), CircuitState::Open);
    bad(&family, "rest").await;
    assert_eq!(rejected(&family, "rest").await, Reason::Open);
    for cause in [Cause::Present, Cause::Tripped] {
        assert_eq!(stream.next().await.unwrap().unwrap().cause, cause);
    }
}

// R29: an order's timer is set again after a restart.
#[actix::test]
async fn restart_of_the_family_keeps_timers() {
    pause();
    let trap = Trap::default();
    let builder = Breakers::builder().clock(Arc::new(trap.clone()));
    let family = family_of(builder, consecutive(2));
    let (held, other) = (family.breaker("held"), family.breaker("other"));
    let force = held.force_closed(ForceClosed::new("drill").ttl(SECOND));
    force.await.unwrap().unwrap();
    other.snapshot().await.unwrap();
    trap.set();
    other.snapshot().await.unwrap_err();
    let mut states = held.watch();
    states.changed().await.unwrap();
    assert_eq!(*states.borrow_and_update(), CircuitState::Closed);
}

// R29: a family whose actor is gone for good guards nothing and blocks nothing.
#[actix::test]
async fn removed_family_guards_nothing() {
    pause();
    let breakers = Breakers::start();
    let config = consecutive(1).build().unwrap();
    let family = breakers.family("hosts", config.clone()).unwrap();
    let held = family.breaker("a");
    bad(&family, "a").await;
    let opened = held.snapshot().await.unwrap();
    assert_eq!(opened.state, CircuitState::Open);
    let opened = opened.epoch;
    assert!(breakers.remove("hosts"));
    assert!(!breakers.remove("hosts"));
    assert_eq!(held.state(), CircuitState::Closed);
    for key in ["a", "b"] {
        for _ in 0..3 {
            bad(&family, key).await;
        }
    }
    quiet().await;
    // One of the same name begins anew, above all epochs.
    let anew = breakers.family("hosts", config).unwrap();
    good(&anew, "a").await;
    let epoch = anew.breaker("a").snapshot().await.unwrap().epoch;
    assert!(epoch > opened, "{epoch}, {opened}");
}

#[actix::test]
async fn names_are_shared_with_breakers_and_settings_have_to_agree() {
    let breakers = Breakers::builder().max_breakers(2).start();
    let config = BreakerConfig::default();
    let other = consecutive(1).build().unwrap();
    breakers.create("one", config.clone()).unwrap();
    let family = breakers.family("hosts", config.clone()).unwrap();
    bad(&family, "a").await;
    // The same family, its keys with it.
    let again = breakers.family("hosts", config.clone()).unwrap();
    assert_eq!(again.keys(), ["a"]);
    let conflict = |result: Result<(), CreateError>| {
        assert!(
            matches!(result, Err(CreateError::Conflict { .. })),
            "{result:?}"
        );
    };
    conflict(breakers.family("hosts", other.clone()).map(drop));
    conflict(breakers.family("one", config.clone()).map(drop));
    conflict(breakers.create("hosts", config.clone()).map(drop));
    assert!(breakers.get("hosts").is_none());
    assert!(breakers.family("", config.clone()).is_err());
    let held = breakers.get("one").unwrap();
    assert!(matches!(
        breakers.family("more", config.clone()),
        Err(CreateError::Full { max: 2, .. })
    ));
    drop(held);
    // R32: an idle breaker goes to make room, a family never.
    breakers.family("more", config.clone()).unwrap();
    assert!(breakers.create("three", config).is_err());
    let names: Vec<_> = breakers
        .families()
        .iter()
        .map(|f| f.name().to_owned())
        .collect();
    assert_eq!(names, ["hosts", "more"]);
}

// R35
#[actix::test]
async fn reconfigured_family_keeps_its_state() {
    let family = family(consecutive(3));
    let (awake, own) = (family.breaker("awake"), family.breaker("own"));
    for key in ["awake", "rest", "own"] {
        bad(&family, key).await;
        bad(&family, key).await;
    }
    let of_its_own = consecutive(3).break_duration(BREAK * 3).build().unwrap();
    let given = own.reconfigure(of_its_own.clone());
    given.await.unwrap().unwrap();
    settled(&family).await;
    let config = consecutive(3).break_duration(BREAK * 2).build().unwrap();
    family.reconfigure(config.clone());
    assert_eq!(family.config(), config);
    for key in ["awake", "rest", "own", "fresh"] {
        let snapshot = family.breaker(key).snapshot().await.unwrap();
        let expected = if key == "own" { &of_its_own } else { &config };
        assert_eq!(&snapshot.config, expected, "{key}");
        assert_eq!(
            snapshot.failures,
            if key == "fresh" { 0 } else { 2 },
            "{key}"
        );
    }
    drop((awake, own));
    // What was given to one key alone is not forgotten.
    for key in ["awake", "rest", "own"] {
        family.breaker(key).reset().await.unwrap();
    }
    settled(&family).await;
    assert_eq!(family.keys(), ["own"]);
}

// Case 121, 122; R32: the cap is held at once; what is open or remembers something stays.
#[actix::test]
async fn cap_lets_only_those_go_that_nobody_would_miss() {
    let family = family_of(Breakers::builder().max_keys(100), consecutive(2));
    for at in 0..100 {
        drop(family.breaker(format!("idle-{at}")));
    }
    drop(family.breaker("new"));
    assert_eq!(family.unguarded(), 0);
    settled(&family).await;
    bad(&family, "open").await;
    bad(&family, "open").await;
    for at in 0..99 {
        bad(&family, &format!("failed-{at}")).await;
    }
    assert_eq!(family.len(), 100);
    // No room: it guards nothing, and touches nobody.
    let unguarded = family.breaker("one too many");
    for _ in 0..10 {
        bad(&family, "one too many").await;
    }
    assert_eq!(unguarded.state(), CircuitState::Closed);
    unguarded.snapshot().await.unwrap_err();
    assert_eq!(family.unguarded(), 11);
    assert_eq!(rejected(&family, "open").await, Reason::Open);
    bad(&family, "failed-0").await;
    assert_eq!(rejected(&family, "failed-0").await, Reason::Open);
    good(&family, "failed-1").await;
    settled(&family).await;
    // One success made room.
    bad(&family, "one too many").await;
    bad(&family, "one too many").await;
    assert_eq!(rejected(&family, "one too many").await, Reason::Open);
    assert_eq!(family.unguarded(), 11);
}

// R32: whoever is held does not go.
#[actix::test]
async fn held_keys_do_not_go() {
    let family = family_of(Breakers::builder().max_keys(10), consecutive(1));
    let held: Vec<_> = (0..10).map(|at| family.breaker(at.to_string())).collect();
    for at in 10..30 {
        drop(family.breaker(at.to_string()));
    }
    assert_eq!(family.unguarded(), 20);
    drop(held);
    drop(family.breaker("new"));
    assert_eq!(family.unguarded(), 20);
}

#[actix::test]
async fn empty_and_long_keys_are_not_guarded() {
    let family = family(consecutive(1));
    let longest = "k".repeat(1_024);
    for key in ["", &"k".repeat(1_025)] {
        bad(&family, key).await;
        bad(&family, key).await;
    }
    assert_eq!(family.unguarded(), 4);
    bad(&family, &longest).await;
    assert_eq!(rejected(&family, &longest).await, Reason::Open);
}

// R31: a full table forgets what does not matter any more, without anybody's asking.
#[actix::test]
async fn records_that_are_over_make_room() {
    let (clock, family) = {
        let clock = ManualClock::new();
        let builder = Breakers::builder()
            .clock(Arc::new(clock.clone()))
            .max_keys(50);
        (clock, family_of(builder, count(3, SECOND)))
    };
    for at in 0..50 {
        bad(&family, &at.to_string()).await;
    }
    settled(&family).await;
    bad(&family, "no room").await;
    assert_eq!(family.unguarded(), 1);
    clock.advance(Duration::from_secs(100_000));
    for at in 0..50 {
        bad(&family, &format!("new-{at}")).await;
    }
    assert_eq!(family.unguarded(), 1);
}

/// A slow and obvious account of consecutive failures.
#[derive(Default)]
struct Account {
    run: u32,
    open: bool,
}

// The quick way by key and the way by a handle make the same decisions.
#[actix::test]
async fn call_by_key_does_what_a_handle_does() {
    const TRIP: u32 = 3;
    let seed = 0x5eed_fa71;
    println!("seed {seed:#x}");
    let mut random = fastrand_like(seed);
    let (_clock, family) = manual_family(consecutive(TRIP));
    let mut accounts: HashMap<u32, Account> = HashMap::new();
    for step in 0..20_000_u32 {
        let key = random() % 40;
        let account = accounts.entry(key).or_default();
        let name = key.to_string();
        let fails = random().is_multiple_of(3);
        let future = async move { if fails { Err(BAD) } else { Ok(1) } };
        let called = match random() % 3 {
            0 => family.call(&name, future).await,
            1 => family.breaker(&name).call(future).await,
            // Not ready at once.
            _ => {
                let later = async move {
                    tokio::task::yield_now().await;
                    future.await
                };
                family.call_with(&name, later, by_result).await
            }
        };
        assert_eq!(
            matches!(called, Err(CallError::Rejected(_))),
            account.open,
            "step {step}"
        );
        if !account.open {
            account.run = if fails { account.run + 1 } else { 0 };
            account.open = account.run == TRIP;
        }
        if random().is_multiple_of(50) {
            family.breaker(&name).reset().await.unwrap();
            *account = Account::default();
        }
        if random().is_multiple_of(200) {
            settled(&family).await;
            let kept = accounts.values().filter(|a| a.open || a.run > 0).count();
            assert_eq!(family.len(), kept, "step {step}");
        }
    }
}

fn by_result(result: &Answer) -> Outcome {
    if result.is_ok() {
        Outcome::Success
    } else {
        Outcome::Failure
    }
}

/// Numbers without a crate for them.
fn fastrand_like(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    }
}

// Exact over threads: every failure of every key counts once, whoever holds the key meanwhile.
#[test]
fn failures_on_many_threads_are_counted_exactly() {
    const THREADS: usize = 4;
    const CALLS: usize = 2_000;
    const KEYS: usize = 20;
    let system = System::new();
    system.block_on(async {
        let arbiter = Arbiter::new();
        let never = consecutive(u32::MAX).build().unwrap();
        let breakers = Breakers::start_in_arbiter(&arbiter.handle());
        let family = breakers.family("hosts", never).unwrap();
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let family = family.clone();
                std::thread::spawn(move || {
                    System::new().block_on(async move {
                        for at in 0..CALLS {
                            let key = ((at * 7 + thread) % KEYS).to_string();
                            bad(&family, &key).await;
                        }
                    });
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let mut failures = 0;
        for snapshot in family.snapshots().await {
            failures += snapshot.failures;
        }
        assert_eq!(failures, (THREADS * CALLS) as u64);
        assert_eq!(family.unguarded(), 0);
        arbiter.stop();
    });
}

// Case 124: what is not held and not kept is gone, actor and all.
#[actix::test]
async fn family_ends_with_its_last_handle() {
    pause();
    let family = family(consecutive(1));
    let held: Breaker = family.breaker("a");
    let address = held.addr().clone();
    bad(&family, "a").await;
    drop(family);
    // The handle alone goes on.
    assert!(held.call(async { Answer::Ok(1) }).await.is_err());
    assert!(address.connected());
    drop(held);
    quiet().await;
    assert!(address.send(GetSnapshot).await.is_err());
    assert!(!address.connected());
}

// Messages wait by key, in order, and survive a restart of the family's actor; their timers with them.
#[actix::test]
async fn messages_wait_by_key() {
    pause();
    let trap = Trap::default();
    let hold = Hold::new(10, BREAK * 3, SECOND);
    let builder = Breakers::builder().clock(Arc::new(trap.clone()));
    let family = family_of(builder, consecutive(1).hold(hold));
    let (target, seen) = target();
    let (well, well_seen) = harness::target();
    let guard = family.breaker("down").guard(target.clone());
    assert_eq!(guard.send(Job::Bad).await, Ok(Err(BAD)));
    let held: Vec<_> = (0..3).map(|_| guard.send_or_hold(Job::Good)).collect();
    let snapshot = guard.breaker().snapshot().await.unwrap();
    assert_eq!((snapshot.held, seen.get()), (3, 1));
    // Another key is not touched.
    let other = family.breaker("well").guard(well);
    assert_eq!(other.send_or_hold(Job::Good).await, Ok(Ok(1)));
    assert_eq!(well_seen.get(), 1);
    // Nobody holds the key now but those who wait.
    drop(guard);
    trap.set();
    other.breaker().snapshot().await.unwrap_err();
    assert!(!trap.is_set());
    let clock = SystemClock::new();
    let began = clock.now();
    for answer in futures::future::join_all(held).await {
        assert_eq!(answer, Ok(Ok(1)));
    }
    let took = clock.now().since(began);
    // The probe at the end of the break, then one each second.
    assert!(took > BREAK && took < BREAK + SECOND * 3, "{took:?}");
    assert_eq!(seen.get(), 4);
    drop(other);
    settled(&family).await;
    assert!(family.is_empty(), "{:?}", family.keys());
}

// What waits too long is told to those who listen to the family.
#[actix::test]
async fn drops_are_told_to_the_family() {
    let hold = Hold::new(1, SECOND, SECOND);
    let family = family(consecutive(1).hold(hold));
    let told = Drops::default();
    let listener = told.clone().start();
    family.subscribe_drops(listener.clone());
    let (target, _) = target();
    let guard = family.breaker("a").guard(target);
    assert_eq!(guard.send(Job::Bad).await, Ok(Err(BAD)));
    let (waits, full) = (guard.send_or_hold(Job::Good), guard.send_or_hold(Job::Good));
    drop(guard);
    let full = full.await.unwrap_err();
    assert!(
        matches!(full, AskError::HoldFull { capacity: 1, .. }),
        "{full}"
    );
    assert_eq!(waits.await, Err(AskError::HoldExpired(SECOND)));
    quiet().await;
    let told: Vec<_> = told.0.lock().unwrap().clone();
    assert_eq!(
        told,
        [
            ("hosts/a".to_owned(), DropReason::Full),
            ("hosts/a".to_owned(), DropReason::Expired)
        ]
    );
    drop(listener);
}

#[derive(Clone, Default)]
struct Drops(Arc<Mutex<Vec<(String, DropReason)>>>);

impl Actor for Drops {
    type Context = Context<Self>;
}

impl Handler<HeldDropped> for Drops {
    type Result = ();

    fn handle(&mut self, event: HeldDropped, _: &mut Context<Self>) {
        let mut all = self.0.lock().unwrap();
        all.push((event.breaker.to_string(), event.why));
    }
}

// R36: a key that is at rest while it ramps up goes on with it, and is forgotten after it.
#[actix::test]
async fn ramp_up_goes_on_over_a_rest() {
    let ramp = RampUp::new(BREAK, 0.5);
    let (clock, family) = manual_family(consecutive(1).ramp_up(ramp));
    bad(&family, "a").await;
    clock.advance(BREAK);
    good(&family, "a").await;
    settled(&family).await;
    assert_eq!(family.keys(), ["a"]);
    clock.advance(BREAK / 2);
    let snapshot = family.breaker("a").snapshot().await.unwrap();
    assert_eq!(
        (snapshot.state, snapshot.ramp_share),
        (CircuitState::Closed, Some(0.75))
    );
    clock.advance(BREAK / 2);
    good(&family, "a").await;
    settled(&family).await;
    clock.advance(Duration::from_secs(100_000));
    settled(&family).await;
    assert!(family.is_empty(), "{:?}", family.keys());
}
