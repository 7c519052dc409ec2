//! Successes that a rate counts without a message: none is lost, none trips too late.

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
use std::time::Duration;

use actix_circuit_breaker::{Breakers, Cause, CircuitState, Clock, SystemClock, Timestamp, Window};
use harness::*;

async fn successes(w: &World, count: u32) {
    for _ in 0..count {
        let call = w.breaker.call(async { Ok::<_, Oops>(1) });
        assert_eq!(call.await, Ok(1));
    }
}

// R17, case 61: the success that fills the minimum of calls trips, and no failure has to follow.
#[actix::test]
async fn success_that_fills_the_minimum_trips() {
    for window in [Window::Calls(4), Window::Time(60 * SECOND)] {
        let w = world(rate(0.5, 4, window));
        let (_recorder, told) = w.record().await;
        for _ in 0..3 {
            w.bad().await;
        }
        w.good().await;
        quiet().await;
        assert_eq!(w.state(), CircuitState::Open);
        pass(MS).await;
        assert_eq!(told.last().cause, Cause::Tripped);
        assert_eq!(told.last().evidence.samples, 4);
        assert_eq!(told.last().evidence.failures, 3);
        w.rejected().await;
    }
}

// The same by every way to succeed.
#[actix::test]
async fn success_of_each_kind_of_call_trips() {
    for kind in 0..5 {
        let w = world(rate(0.5, 2, Window::Calls(4)));
        w.bad().await;
        match kind {
            0 => w.good().await,
            1 => successes(&w, 1).await,
            2 => w.breaker.acquire().await.unwrap().success().await,
            3 => {
                let guard = w.breaker.guard(w.target.clone());
                guard.send(Job::Good).await.unwrap().unwrap();
            }
            _ => {
                let recipient = w.target.clone().recipient();
                let ask = actix_circuit_breaker::message::Ask::new(recipient, Job::Good);
                let reply = w.breaker.addr().send(ask).await.unwrap();
                reply.unwrap().unwrap();
            }
        }
        quiet().await;
        assert_eq!(w.state(), CircuitState::Open, "{kind}");
    }
}

// On a clock without timers each success is settled by message, so its own caller is rejected next.
#[actix::test]
async fn success_on_a_manual_clock_trips_before_its_caller_goes_on() {
    for window in [Window::Calls(4), Window::Time(60 * SECOND)] {
        let (_clock, w) = manual(rate(0.5, 4, window));
        for _ in 0..3 {
            w.bad().await;
        }
        w.good().await;
        assert_eq!(w.state(), CircuitState::Open);
    }
}

/// The machine's clock, which counts how often it is looked at: once for each step of the breaker.
#[derive(Debug, Clone, Default)]
struct Watched {
    clock: SystemClock,
    looks: Counter,
}

impl Clock for Watched {
    fn now(&self) -> Timestamp {
        self.looks.add();
        self.clock.now()
    }
}

// R17: a success costs the breaker no step where it cannot trip and a tick will put it into its bucket.
// R28: nor does time, once nothing comes.
#[actix::test]
async fn successes_far_from_a_trip_cost_no_step() {
    pause();
    for window in [Window::Calls(1_000), Window::Time(10 * SECOND)] {
        let clock = Watched::default();
        let looks = clock.looks.clone();
        let w = world_of(
            Breakers::builder().clock(Arc::new(clock)),
            rate(0.5, 1_000, window),
        );
        // The first one wakes the ticks of a window of time.
        successes(&w, 1).await;
        quiet().await;
        let before = looks.get();
        for _ in 0..10 {
            successes(&w, 10).await;
            quiet().await;
        }
        assert_eq!(looks.get(), before, "{window:?}");
        // One tick for each bucket in which some came, and one that finds nothing more.
        for _ in 0..20 {
            pass(SECOND).await;
            successes(&w, 10).await;
            quiet().await;
        }
        pass(1_000 * SECOND).await;
        let ticks = looks.get() - before;
        assert!(ticks <= 22, "{window:?}: {ticks}");
        assert_eq!(w.snapshot().await.calls.successes, 301);
    }
}

// R17: the timers of an idle window sleep. What wakes them is the first success itself.
#[actix::test]
async fn success_trips_while_the_ticks_sleep() {
    let w = world(rate(0.5, 4, Window::Time(100 * SECOND)));
    for _ in 0..3 {
        w.bad().await;
    }
    // Two boundaries without a sample.
    pass(35 * SECOND).await;
    w.good().await;
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R18: an idle window of time is empty, and then counts what comes, in the buckets where it came.
#[actix::test]
async fn idle_window_forgets_and_then_counts_again() {
    let w = world(rate(0.5, 3, Window::Time(10 * SECOND)));
    successes(&w, 100).await;
    assert_eq!(w.snapshot().await.samples, 100);
    pass(60 * SECOND).await;
    let snapshot = w.snapshot().await;
    assert_eq!((snapshot.samples, snapshot.calls.successes), (0, 100));
    w.bad().await;
    successes(&w, 1).await;
    assert_eq!(w.state(), CircuitState::Closed);
    w.bad().await;
    // Two of three.
    assert_eq!(w.state(), CircuitState::Open);
}

// R18: successes are put into the bucket of their time, though nobody told it to the breaker.
#[actix::test]
async fn successes_age_out_of_the_bucket_they_came_in() {
    let w = world(rate(0.9, 1_000, Window::Time(10 * SECOND)));
    let mut counted = Vec::new();
    for second in 0..30_u64 {
        if second < 10 {
            successes(&w, 10).await;
        }
        pass(SECOND).await;
        counted.push(w.snapshot().await.samples);
    }
    // Between nine and ten tenths of the window.
    for (second, samples) in counted.iter().enumerate() {
        let second = i64::try_from(second).unwrap() + 1;
        let in_window = |width: i64| 10 * (second.min(10) - (second - width).max(0)).max(0);
        let (low, high) = (in_window(8), in_window(11));
        let samples = i64::try_from(*samples).unwrap();
        assert!(
            low <= samples && samples <= high,
            "{second}: {samples} {low} {high}"
        );
    }
    assert_eq!(counted.last(), Some(&0));
    assert_eq!(w.snapshot().await.calls.successes, 100);
}

// R18: the same where nothing else wakes the breaker meanwhile.
#[actix::test]
async fn successes_that_come_alone_are_put_into_their_bucket() {
    let w = world(rate(0.9, 1_000, Window::Time(10 * SECOND)));
    quiet().await;
    successes(&w, 1).await;
    quiet().await;
    successes(&w, 19).await;
    pass(6 * SECOND).await;
    w.bad().await;
    assert_eq!(w.snapshot().await.samples, 21);
    // A tick comes one bucket late at most.
    pass(6 * SECOND).await;
    assert_eq!(w.snapshot().await.samples, 1);
}

// R17: a success that is the first to come after old ones have aged out.
#[actix::test]
async fn success_trips_after_old_successes_aged_out() {
    let w = world(rate(0.5, 4, Window::Time(10 * SECOND)));
    successes(&w, 20).await;
    pass(6 * SECOND).await;
    for _ in 0..3 {
        w.bad().await;
    }
    assert_eq!(w.state(), CircuitState::Closed);
    // Ageing alone never trips.
    pass(6 * SECOND).await;
    assert_eq!(w.state(), CircuitState::Closed);
    assert_eq!(w.snapshot().await.samples, 3);
    successes(&w, 1).await;
    quiet().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R18: nothing trips below the rate, whatever comes; the ticks go on while traffic does.
#[actix::test]
async fn healthy_traffic_never_trips() {
    let w = world(rate(0.5, 4, Window::Time(SECOND)));
    for round in 0..500 {
        successes(&w, 3).await;
        if round % 2 == 0 {
            w.bad().await;
        }
        pass(Duration::from_millis(37)).await;
    }
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Closed);
    assert_eq!(
        (snapshot.calls.successes, snapshot.calls.failures),
        (1_500, 250)
    );
}

// R11, R17: successes that were on the stripes when the epoch ended are late, and no sample is lost.
#[actix::test]
async fn successes_are_accounted_for_across_epochs() {
    let w = world(rate(1.0, 10, Window::Calls(10)));
    successes(&w, 5).await;
    w.breaker.reset().await.unwrap();
    successes(&w, 5).await;
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.samples, 5);
    assert_eq!(snapshot.calls.successes + snapshot.calls.late, 10);
}
