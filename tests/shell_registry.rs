//! The owner of breakers: names, the cap, who may go to make room.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::items_after_statements,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod harness;

use std::sync::Arc;

use actix::prelude::*;
use actix_circuit_breaker::message::Ask;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    Breaker, BreakerConfig, Breakers, CircuitState, CreateError, ManualClock, Window,
};
use harness::*;

fn config() -> BreakerConfig {
    consecutive(1).build().unwrap()
}

fn owner(max: usize) -> (ManualClock, Breakers) {
    pause();
    let clock = ManualClock::new();
    let breakers = Breakers::builder()
        .clock(Arc::new(clock.clone()))
        .max_breakers(max)
        .start();
    (clock, breakers)
}

fn full(breakers: &Breakers) -> bool {
    match breakers.create("another", config()) {
        Ok(_) => false,
        Err(CreateError::Full { name, max }) => {
            assert_eq!((name.as_str(), max), ("another", breakers.max_breakers()));
            true
        }
        Err(other) => panic!("{other}"),
    }
}

async fn fail(breaker: &Breaker) {
    breaker.acquire().await.unwrap().failure().await;
}

// R32
#[actix::test]
async fn name_and_config_give_the_same_breaker_and_another_config_an_error() {
    let (_, breakers) = owner(10);
    let one = breakers.create("a", config()).unwrap();
    let same = breakers.create("a", config()).unwrap();
    fail(&one).await;
    assert_eq!(same.state(), CircuitState::Open);
    let other = consecutive(2).build().unwrap();
    let error = breakers.create("a", other.clone()).unwrap_err();
    assert!(
        matches!(error, CreateError::Conflict { ref name } if name == "a"),
        "{error}"
    );
    // Its present config counts.
    one.reconfigure(other.clone()).await.unwrap().unwrap();
    breakers.create("a", other).unwrap();
    breakers.create("a", config()).unwrap_err();
    assert!(
        matches!(breakers.create("", config()), Err(CreateError::Name(error)) if error.field() == "name")
    );
    assert_eq!(breakers.names(), ["a"]);
}

#[actix::test]
async fn breakers_are_found_listed_and_removed() {
    let (_, breakers) = owner(10);
    for name in ["c", "a", "b", "ä b:{x}"] {
        breakers.create(name, config()).unwrap();
    }
    assert_eq!(breakers.names(), ["a", "b", "c", "ä b:{x}"]);
    assert_eq!(breakers.get("b").unwrap().name(), "b");
    assert!(breakers.get("d").is_none());
    fail(&breakers.get("b").unwrap()).await;
    let snapshots = breakers.snapshots().await;
    let seen: Vec<_> = snapshots
        .iter()
        .map(|snapshot| (&*snapshot.breaker, snapshot.state))
        .collect();
    use CircuitState::{Closed, Open};
    assert_eq!(
        seen,
        [
            ("a", Closed),
            ("b", Open),
            ("c", Closed),
            ("ä b:{x}", Closed)
        ]
    );
    assert!(breakers.remove("b"));
    assert!(!breakers.remove("b"));
    assert!(breakers.get("b").is_none());
    assert_eq!(breakers.names().len(), 3);
    assert_eq!(breakers.snapshots().await.len(), 3);
    // Clones own the same.
    assert_eq!(breakers.clone().names().len(), 3);
}

// R32, case 121: the cap is applied when one is made, not some time later.
#[actix::test]
async fn cap_holds_and_idle_ones_make_room() {
    let (_, breakers) = owner(100);
    for i in 0..1_000 {
        drop(breakers.create(format!("{i}"), config()).unwrap());
        assert!(breakers.names().len() <= 100);
    }
    assert_eq!(breakers.names().len(), 100);
    assert_eq!(breakers.evictions(), 900);
}

// R32, case 122
#[actix::test]
async fn open_half_open_and_forced_ones_stay() {
    let (clock, breakers) = owner(1);
    let a = breakers.create("a", config()).unwrap();
    // A handle outside.
    assert!(full(&breakers));
    fail(&a).await;
    drop(a);
    assert!(full(&breakers));
    clock.advance(BREAK);
    // Open and due.
    assert!(full(&breakers));
    let a = breakers.get("a").unwrap();
    drop(a.acquire().await.unwrap());
    assert_eq!(a.state(), CircuitState::HalfOpen);
    drop(a);
    assert!(full(&breakers));
    let a = breakers.get("a").unwrap();
    a.acquire().await.unwrap().success().await;
    a.force_closed(ForceClosed::new("x"))
        .await
        .unwrap()
        .unwrap();
    drop(a);
    assert!(full(&breakers));
    let a = breakers.get("a").unwrap();
    a.force_open(ForceOpen::new("x")).await.unwrap().unwrap();
    drop(a);
    assert!(full(&breakers));
    assert_eq!(breakers.evictions(), 0);
    let a = breakers.get("a").unwrap();
    a.release().await.unwrap();
    drop(a);
    assert!(!full(&breakers));
    assert_eq!(breakers.names(), ["another"]);
    assert_eq!(breakers.evictions(), 1);
}

// R32
#[actix::test]
async fn one_that_remembers_a_sample_stays_until_it_is_forgotten() {
    let (clock, breakers) = owner(1);
    let a = breakers
        .create("a", count(2, 10 * SECOND).build().unwrap())
        .unwrap();
    fail(&a).await;
    drop(a);
    assert!(full(&breakers));
    clock.advance(10 * SECOND - std::time::Duration::from_micros(1));
    assert!(full(&breakers));
    clock.advance(std::time::Duration::from_micros(1));
    assert!(!full(&breakers));

    // A run without a limit in time is forgotten by a success alone.
    breakers.remove("another");
    let a = breakers
        .create("a", consecutive(2).build().unwrap())
        .unwrap();
    fail(&a).await;
    drop(a);
    clock.advance(1_000_000 * SECOND);
    assert!(full(&breakers));
    let a = breakers.get("a").unwrap();
    a.acquire().await.unwrap().success().await;
    drop(a);
    assert!(!full(&breakers));
}

// R32: successes are samples of a rate, also those that are still on the stripes.
#[actix::test]
async fn one_that_remembers_successes_of_a_rate_stays() {
    for window in [Window::Calls(10), Window::Time(10 * SECOND)] {
        pause();
        let breakers = Breakers::builder().max_breakers(1).start();
        let a = breakers
            .create("a", rate(0.5, 5, window).build().unwrap())
            .unwrap();
        a.call(async { Ok::<_, Oops>(1) }).await.unwrap();
        drop(a);
        assert!(full(&breakers));
        pass(SECOND).await;
        assert!(full(&breakers));
        pass(20 * SECOND).await;
        match window {
            // Time alone does not empty it.
            Window::Calls(_) => assert!(full(&breakers)),
            _ => assert!(!full(&breakers)),
        }
    }
}

// R32: nor does a new one remember anything, whatever its policy.
#[actix::test]
async fn one_that_was_never_called_may_go() {
    for config in [
        consecutive(2),
        count(2, 10 * SECOND),
        rate(0.5, 5, Window::Calls(10)),
        rate(0.5, 5, Window::Time(10 * SECOND)),
    ] {
        let (_, breakers) = owner(1);
        drop(breakers.create("a", config.build().unwrap()).unwrap());
        quiet().await;
        assert!(!full(&breakers));
    }
}

// R32: unsettled permits and calls in flight hold a handle.
#[actix::test]
async fn one_with_a_call_in_flight_stays() {
    let (_, breakers) = owner(1);
    let (target, _) = target();
    let a = breakers.create("a", config()).unwrap();
    let permit = a.acquire().await.unwrap();
    let ask = a.ask(&target, Job::Hang);
    let guard = a.guard(target.clone());
    drop(a);
    assert!(full(&breakers));
    drop(permit);
    assert!(full(&breakers));
    drop(ask);
    assert!(full(&breakers));
    drop(guard);
    assert!(!full(&breakers));
}

// R32: so does one that the breaker makes itself, for somebody who has only its address.
#[actix::test]
async fn one_that_makes_an_ask_itself_stays() {
    let (_, breakers) = owner(1);
    let (target, seen) = target();
    let admin = breakers.create("a", config()).unwrap().addr().clone();
    let (release, job) = latch();
    let ask = actix::spawn(admin.send(Ask::new(target.recipient(), job)));
    quiet().await;
    assert_eq!(seen.get(), 1);
    assert!(full(&breakers), "evicted with a permit unsettled");
    release.send(Ok(1)).unwrap();
    assert_eq!(ask.await.unwrap().unwrap(), Ok(Ok(1)));
    quiet().await;
    assert!(!full(&breakers));
}

// R32: an outcome on its way to the actor.
#[actix::test]
async fn one_with_a_settlement_under_way_stays() {
    let (_, breakers) = owner(1);
    let a = breakers
        .create("a", consecutive(2).build().unwrap())
        .unwrap();
    let permit = a.acquire().await.unwrap();
    drop(a);
    drop(permit.failure());
    // The actor has not seen it yet.
    assert!(full(&breakers));
    quiet().await;
    assert!(full(&breakers));
    assert_eq!(breakers.snapshots().await[0].failures, 1);
}

// Rejections are no handles (R32).
#[actix::test]
async fn rejection_and_settled_future_keep_no_breaker() {
    let (_, breakers) = owner(1);
    let a = breakers.create("a", config()).unwrap();
    a.force_open(ForceOpen::new("x")).await.unwrap().unwrap();
    let error = a.acquire().await.unwrap_err();
    a.release().await.unwrap();
    let settled = a.acquire().await.unwrap().success();
    drop(a);
    assert!(!full(&breakers));
    assert!(error.is_rejected());
    settled.await;
}

// R1: no epoch is used twice, even when the clock stands still.
#[actix::test]
async fn breaker_made_anew_begins_above_the_epoch_of_the_old_one() {
    let (_, breakers) = owner(2);
    let mut highest = None;
    for round in 0..20 {
        let a = breakers.create("a", config()).unwrap();
        let first = a.snapshot().await.unwrap().epoch;
        assert!(highest < Some(first), "{round}: {highest:?} {first}");
        for _ in 0..3 {
            a.reset().await.unwrap();
        }
        fail(&a).await;
        highest = Some(a.snapshot().await.unwrap().epoch);
        drop(a);
        if round % 2 == 0 {
            breakers.remove("a");
        } else {
            let a = breakers.get("a").unwrap();
            a.reset().await.unwrap();
            highest = Some(a.snapshot().await.unwrap().epoch);
            drop(a);
            // Evicted by the others.
            for other in ["x", "y"] {
                drop(breakers.create(other, config()).unwrap());
            }
            assert!(breakers.get("a").is_none());
            breakers.remove("x");
        }
    }
}

// R29, case 125: handles of a removed breaker guard nothing; one made anew is another.
#[actix::test]
async fn handles_of_a_removed_breaker_let_calls_pass() {
    let (_, breakers) = owner(10);
    let (target, seen) = target();
    let old = breakers.create("a", config()).unwrap();
    fail(&old).await;
    assert_eq!(old.state(), CircuitState::Open);
    breakers.remove("a");
    quiet().await;
    assert!(!old.addr().connected());
    for _ in 0..3 {
        assert_eq!(old.ask(&target, Job::Bad).await, Ok(Err(BAD)));
        assert_eq!(old.call(async { Ok::<_, Oops>(1) }).await, Ok(1));
        old.acquire().await.unwrap().failure().await;
    }
    assert_eq!(seen.get(), 3);
    let new = breakers.create("a", config()).unwrap();
    assert_eq!(new.state(), CircuitState::Closed);
    fail(&new).await;
    assert!(new.acquire().await.is_err());
    old.acquire().await.unwrap().success().await;
}

// R32: from any thread, at once: all get the same breaker.
#[actix::test]
async fn several_threads_that_create_one_name_get_one_breaker() {
    let (_, breakers) = owner(100);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let breakers = breakers.clone();
            std::thread::spawn(move || {
                (0..50)
                    .map(|i| breakers.create(format!("{i}"), config()).unwrap())
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let made: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(breakers.names().len(), 50);
    for i in 0..50 {
        let first = made[0][i].addr();
        assert!(made.iter().all(|of_one| of_one[i].addr() == first));
    }
    assert_eq!(breakers.evictions(), 0);
    assert_eq!(breakers.snapshots().await.len(), 50);
}

#[actix::test]
async fn stopped_arbiter_is_an_error() {
    let arbiter = Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&arbiter.handle());
    arbiter.stop();
    arbiter.join().unwrap();
    let error = breakers.create("a", config()).unwrap_err();
    assert!(
        matches!(error, CreateError::ArbiterStopped { .. }),
        "{error}"
    );
}

/// Counts the tasks of this runtime: each breaker's actor is one.
fn tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

// Cases 124 and 127: nothing of a removed breaker stays behind.
#[actix::test]
async fn ten_thousand_breakers_made_and_removed_leave_nothing_behind() {
    pause();
    let breakers = Breakers::start();
    let told = Told::default();
    let recorder = Recorder(told.clone()).start();
    quiet().await;
    let before = tasks();
    let mut last = None;
    for i in 0..10_000 {
        let name = format!("{i}");
        let breaker = breakers.create(&name, config()).unwrap();
        if i % 10 == 0 {
            breaker.subscribe(recorder.clone()).await.unwrap();
            fail(&breaker).await;
        }
        assert!(breakers.remove(&name));
        last = Some(breaker);
    }
    pass(SECOND).await;
    assert_eq!(tasks(), before);
    assert!(breakers.names().is_empty());
    assert!(!last.unwrap().addr().connected());
    assert_eq!(told.causes().len(), 2_000);
}

// R32: the owner goes, its breakers stay as long as a handle does.
#[actix::test]
async fn handle_outlives_the_owner() {
    let w = world(consecutive(1));
    let World {
        breakers,
        breaker,
        target,
        ..
    } = w;
    drop(breakers);
    quiet().await;
    assert_eq!(breaker.ask(&target, Job::Bad).await, Ok(Err(BAD)));
    let error = breaker.ask(&target, Job::Bad).await.unwrap_err();
    assert!(error.is_rejected());
}

#[test]
fn start_outside_a_system_panics_and_says_why() {
    let payload = std::panic::catch_unwind(Breakers::start).unwrap_err();
    let text = payload
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_else(|| (*payload.downcast_ref::<&str>().unwrap()).to_owned());
    assert!(text.contains("needs a running actix system"), "{text}");
}
