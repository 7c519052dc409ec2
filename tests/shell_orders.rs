//! Operators' orders, by the handle and by message.

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

use std::time::Duration;

use actix_circuit_breaker::message::{
    ForceClosed, ForceOpen, GetSnapshot, Reconfigure, Release, Reset,
};
use actix_circuit_breaker::{
    Backoff, Cause, CircuitState, ConfigError, Reason, TripPolicy, Window,
};
use harness::*;

/// Gives orders by the handle or by message.
struct Admin<'w>(&'w World, bool);

impl Admin<'_> {
    async fn force_open(&self, order: ForceOpen) -> Result<(), ConfigError> {
        if self.1 {
            self.0.breaker.addr().send(order).await.unwrap()
        } else {
            self.0.breaker.force_open(order).await.unwrap()
        }
    }

    async fn force_closed(&self, order: ForceClosed) -> Result<(), ConfigError> {
        if self.1 {
            self.0.breaker.addr().send(order).await.unwrap()
        } else {
            self.0.breaker.force_closed(order).await.unwrap()
        }
    }

    async fn release(&self) {
        if self.1 {
            self.0.breaker.addr().send(Release).await.unwrap();
        } else {
            self.0.breaker.release().await.unwrap();
        }
    }

    async fn reset(&self) {
        if self.1 {
            self.0.breaker.addr().send(Reset).await.unwrap();
        } else {
            self.0.breaker.reset().await.unwrap();
        }
    }

    async fn reconfigure(&self, config: actix_circuit_breaker::BreakerConfig) {
        let done = if self.1 {
            let order = Reconfigure::new(config);
            self.0.breaker.addr().send(order).await.unwrap()
        } else {
            self.0.breaker.reconfigure(config).await.unwrap()
        };
        done.unwrap();
    }
}

// R23, cases 113 and 115: no timer heals it, an earlier break's neither.
#[actix::test]
async fn forced_open_stands_until_it_is_released() {
    for by_message in [false, true] {
        let w = world(consecutive(1));
        let admin = Admin(&w, by_message);
        let (_recorder, told) = w.record().await;
        w.trip().await;
        pass(3 * SECOND).await;
        admin.force_open(ForceOpen::new("drill")).await.unwrap();
        for _ in 0..100 {
            pass(BREAK).await;
            let rejected = w.rejected().await;
            assert_eq!(rejected.reason(), Reason::ForcedOpen);
            assert_eq!(rejected.retry_after(), None);
        }
        let snapshot = w.breaker.addr().send(GetSnapshot).await.unwrap();
        assert_eq!(snapshot.state, CircuitState::ForcedOpen);
        assert_eq!(snapshot.reason.as_deref(), Some("drill"));
        assert_eq!(snapshot.until, None);
        assert_eq!(
            told.causes(),
            [Cause::Present, Cause::Tripped, Cause::Forced]
        );
        admin.release().await;
        assert_eq!(w.state(), CircuitState::Closed);
        w.good().await;
        assert_eq!(told.last().cause, Cause::Released);
    }
}

// R23, cases 89 and 119
#[actix::test]
async fn forced_closed_admits_whatever_happens() {
    for by_message in [false, true] {
        let w = world(consecutive(1));
        let admin = Admin(&w, by_message);
        w.trip().await;
        admin
            .force_closed(ForceClosed::new("launch"))
            .await
            .unwrap();
        let (_recorder, told) = w.record().await;
        for _ in 0..100 {
            w.bad().await;
        }
        assert_eq!(
            w.ask(Job::Hang).await.unwrap_err().to_string(),
            "no reply within 1s"
        );
        let snapshot = w.snapshot().await;
        assert_eq!(snapshot.state, CircuitState::ForcedClosed);
        // Seen in the counters, remembered nowhere.
        assert_eq!((snapshot.calls.failures, snapshot.failures), (102, 0));
        pass(1_000 * BREAK).await;
        assert_eq!(told.causes(), [Cause::Present]);
        admin.release().await;
        assert_eq!(w.state(), CircuitState::Closed);
        w.bad().await;
        assert_eq!(w.state(), CircuitState::Open);
    }
}

// R23: outcomes of calls from before an order, and from under it, are late after it.
#[actix::test]
async fn order_makes_outcomes_of_calls_under_way_late() {
    let w = world(consecutive(1).call_timeout(60 * SECOND));
    let (before, job) = latch();
    let first = w.breaker.ask(&w.target, job);
    w.breaker
        .force_closed(ForceClosed::new("x"))
        .await
        .unwrap()
        .unwrap();
    let (under, job) = latch();
    let second = w.breaker.ask(&w.target, job);
    w.breaker.release().await.unwrap();
    before.send(Err(BAD)).unwrap();
    under.send(Err(BAD)).unwrap();
    assert_eq!(first.await, Ok(Err(BAD)));
    assert_eq!(second.await, Ok(Err(BAD)));
    let snapshot = w.snapshot().await;
    assert_eq!(
        (snapshot.state, snapshot.calls.late),
        (CircuitState::Closed, 2)
    );
}

// R23: when its time is over it is open and due, for time alone never closes.
#[actix::test]
async fn ttl_of_forced_open_ends_by_the_timer_in_a_break_that_is_over() {
    for by_message in [false, true] {
        let w = world(consecutive(1));
        let admin = Admin(&w, by_message);
        let (_recorder, told) = w.record().await;
        let order = ForceOpen::new("drill").ttl(5 * SECOND);
        admin.force_open(order).await.unwrap();
        pass(4 * SECOND).await;
        let left = w.rejected().await.retry_after().unwrap();
        assert!(left <= SECOND && left > 990 * MS, "{left:?}");
        pass(SECOND + MS).await;
        assert_eq!(
            told.causes(),
            [Cause::Present, Cause::Forced, Cause::Expired]
        );
        let expired = told.last();
        assert_eq!(
            (expired.from, expired.to),
            (CircuitState::ForcedOpen, CircuitState::Open)
        );
        assert_eq!(w.state(), CircuitState::Open);
        assert!(w.snapshot().await.probe_due);
        w.good().await;
        assert_eq!(w.state(), CircuitState::Closed);
    }
}

// R23
#[actix::test]
async fn ttl_of_forced_closed_ends_by_the_timer_in_closed() {
    for by_message in [false, true] {
        let w = world(consecutive(1));
        let admin = Admin(&w, by_message);
        let (_recorder, told) = w.record().await;
        let order = ForceClosed::new("launch").ttl(5 * SECOND);
        admin.force_closed(order).await.unwrap();
        w.bad().await;
        pass(5 * SECOND + MS).await;
        assert_eq!(told.last().cause, Cause::Expired);
        assert_eq!(told.last().to, CircuitState::Closed);
        w.bad().await;
        assert_eq!(w.state(), CircuitState::Open);
    }
}

// R8, R23: on a clock without timers the order ends with the next step, and shows as ended before it.
#[actix::test]
async fn ttl_on_a_manual_clock_ends_with_the_next_step() {
    let (clock, w) = manual(consecutive(1));
    let (_recorder, told) = w.record().await;
    let order = ForceOpen::new("drill").ttl(5 * SECOND);
    w.breaker.force_open(order).await.unwrap().unwrap();
    clock.advance(5 * SECOND - Duration::from_micros(1));
    w.rejected().await;
    clock.advance(Duration::from_micros(1));
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.state, CircuitState::Open);
    assert!(snapshot.probe_due);
    assert_eq!(told.causes(), [Cause::Present, Cause::Forced]);
    w.good().await;
    pass(MS).await;
    assert_eq!(
        told.causes()[2..],
        [Cause::Expired, Cause::ProbeDue, Cause::Recovered]
    );
    assert_eq!(told.seqs(), [0, 1, 2, 3, 4]);
}

// R23: repeated, an order replaces ttl and reason, without an event or an epoch.
#[actix::test]
async fn repeated_order_replaces_ttl_and_reason_silently() {
    for by_message in [false, true] {
        let w = world(consecutive(1));
        let admin = Admin(&w, by_message);
        let order = ForceOpen::new("one").ttl(5 * SECOND);
        admin.force_open(order).await.unwrap();
        let (_recorder, told) = w.record().await;
        let before = w.snapshot().await;
        pass(4 * SECOND).await;
        let order = ForceOpen::new("two").ttl(5 * SECOND);
        admin.force_open(order).await.unwrap();
        pass(4 * SECOND).await;
        let after = w.snapshot().await;
        assert_eq!(after.state, CircuitState::ForcedOpen);
        assert_eq!(after.epoch, before.epoch);
        assert_eq!(after.reason.as_deref(), Some("two"));
        // Without a ttl the old timer counts for nothing.
        admin.force_open(ForceOpen::new("three")).await.unwrap();
        pass(100 * SECOND).await;
        assert_eq!(w.state(), CircuitState::ForcedOpen);
        assert_eq!(told.causes(), [Cause::Present]);
        // And a shorter one replaces a longer.
        let order = ForceOpen::new("four").ttl(SECOND);
        admin.force_open(order).await.unwrap();
        pass(SECOND + MS).await;
        assert_eq!(w.state(), CircuitState::Open);
    }
}

// R33
#[actix::test]
async fn zero_ttl_is_refused_naming_the_field_and_changes_nothing() {
    for by_message in [false, true] {
        let w = world(consecutive(1));
        let admin = Admin(&w, by_message);
        let (_recorder, told) = w.record().await;
        for ttl in [Duration::ZERO, Duration::from_nanos(999), Duration::MAX] {
            let error = admin
                .force_open(ForceOpen::new("x").ttl(ttl))
                .await
                .unwrap_err();
            assert_eq!(error.field(), "ttl");
            let error = admin
                .force_closed(ForceClosed::new("x").ttl(ttl))
                .await
                .unwrap_err();
            assert_eq!(error.field(), "ttl");
        }
        pass(MS).await;
        assert_eq!(w.state(), CircuitState::Closed);
        assert_eq!(told.len(), 1);
        let century = Duration::from_secs(100 * 365 * 86_400);
        admin
            .force_open(ForceOpen::new("x").ttl(century))
            .await
            .unwrap();
        pass(1_000_000 * SECOND).await;
        assert_eq!(w.state(), CircuitState::ForcedOpen);
    }
}

// R23: nothing to release.
#[actix::test]
async fn release_without_an_order_does_nothing() {
    for by_message in [false, true] {
        let w = world(consecutive(1));
        let admin = Admin(&w, by_message);
        w.trip().await;
        let before = w.snapshot().await;
        admin.release().await;
        let after = w.snapshot().await;
        assert_eq!((after.state, after.epoch), (before.state, before.epoch));
        assert_eq!(after.until, before.until);
    }
}

// R24, case 118
#[actix::test]
async fn reset_closes_empties_and_makes_calls_under_way_late() {
    for by_message in [false, true] {
        let w = world(
            consecutive(3)
                .backoff(Backoff::new(2.0, 80 * SECOND))
                .call_timeout(60 * SECOND),
        );
        let admin = Admin(&w, by_message);
        let (_recorder, told) = w.record().await;
        let mut latches = Vec::new();
        let mut asks = Vec::new();
        for _ in 0..3 {
            let (release, job) = latch();
            latches.push(release);
            asks.push(w.breaker.ask(&w.target, job));
        }
        w.trip().await;
        pass(BREAK + MS).await;
        w.bad().await;
        assert_eq!(w.snapshot().await.attempt, 1);
        admin.reset().await;
        assert_eq!(w.state(), CircuitState::Closed);
        for release in latches {
            release.send(Err(BAD)).unwrap();
        }
        for ask in asks {
            assert_eq!(ask.await, Ok(Err(BAD)));
        }
        let snapshot = w.snapshot().await;
        assert_eq!((snapshot.failures, snapshot.attempt), (0, 0));
        assert_eq!(snapshot.calls.late, 3);
        w.bad().await;
        w.bad().await;
        assert_eq!(w.state(), CircuitState::Closed);
        // Closed already: a new epoch, no event.
        let before = w.snapshot().await.epoch;
        let events = told.len();
        admin.reset().await;
        pass(MS).await;
        let snapshot = w.snapshot().await;
        assert!(snapshot.epoch > before);
        assert_eq!((snapshot.failures, told.len()), (0, events));
        w.trip().await;
        // The backoff began anew.
        assert_eq!(w.rejected().await.retry_after(), Some(BREAK));
    }
}

// R24: it does not lift an order.
#[actix::test]
async fn reset_leaves_an_order_in_force() {
    for by_message in [false, true] {
        let w = world(consecutive(1));
        let admin = Admin(&w, by_message);
        let order = ForceOpen::new("x").ttl(5 * SECOND);
        admin.force_open(order).await.unwrap();
        admin.reset().await;
        assert_eq!(w.rejected().await.reason(), Reason::ForcedOpen);
        pass(5 * SECOND + MS).await;
        assert_eq!(w.state(), CircuitState::Open);
    }
}

// R35
#[actix::test]
async fn reconfigure_binds_from_the_next_step_and_keeps_the_state() {
    for by_message in [false, true] {
        let w = world(consecutive(3));
        let admin = Admin(&w, by_message);
        let (_recorder, told) = w.record().await;
        w.bad().await;
        w.bad().await;
        let before = w.snapshot().await;
        let longer = consecutive(3).call_timeout(3 * SECOND).build().unwrap();
        admin.reconfigure(longer.clone()).await;
        // The same policy: its window stays.
        let after = w.snapshot().await;
        assert_eq!((after.failures, after.epoch), (2, before.epoch));
        assert_eq!(after.config, longer);
        assert_eq!(w.ask(Job::Late(2 * SECOND, Err(BAD))).await, Ok(Err(BAD)));
        assert_eq!(w.state(), CircuitState::Open);

        // An open deadline is cut to the new longest break, and the timer follows.
        let shorter = consecutive(3).break_duration(2 * SECOND).build().unwrap();
        admin.reconfigure(shorter).await;
        assert_eq!(w.rejected().await.retry_after(), Some(2 * SECOND));
        pass(2 * SECOND + MS).await;
        let (release, job) = latch();
        let probe = w.breaker.ask(&w.target, job);
        pass(MS).await;
        // Slots stay, new limits bind.
        let wider = consecutive(3).max_probes(2).successes_to_close(2);
        admin.reconfigure(wider.build().unwrap()).await;
        w.good().await;
        let snapshot = w.snapshot().await;
        assert_eq!((snapshot.probes_in_flight, snapshot.successes), (1, 1));
        release.send(Ok(1)).unwrap();
        assert_eq!(probe.await, Ok(Ok(1)));
        assert_eq!(w.state(), CircuitState::Closed);
        pass(MS).await;
        use Cause::{Present, ProbeDue, Recovered, Tripped};
        assert_eq!(told.causes(), [Present, Tripped, ProbeDue, Recovered]);
    }
}

// R35: another policy empties the closed window; neither trips nor closes.
#[actix::test]
async fn reconfigure_to_another_policy_starts_an_empty_window() {
    let w = world(consecutive(3));
    let admin = Admin(&w, false);
    w.bad().await;
    w.bad().await;
    for config in [
        consecutive(1),
        rate(0.5, 2, Window::Time(10 * SECOND)),
        rate(0.5, 2, Window::Calls(10)),
        count(2, 10 * SECOND),
        consecutive(2).trip(TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: Some(10 * SECOND),
        }),
    ] {
        admin.reconfigure(config.build().unwrap()).await;
        let snapshot = w.snapshot().await;
        assert_eq!(snapshot.state, CircuitState::Closed);
        assert_eq!((snapshot.samples, snapshot.failures), (0, 0));
        w.good().await;
    }
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Closed);
    w.bad().await;
    assert_eq!(w.state(), CircuitState::Open);
}

// R35, R23
#[actix::test]
async fn reconfigure_leaves_an_order_in_force() {
    let w = world(consecutive(1));
    let order = ForceOpen::new("x").ttl(50 * SECOND);
    w.breaker.force_open(order).await.unwrap().unwrap();
    let config = consecutive(1).break_duration(SECOND).build().unwrap();
    w.breaker.reconfigure(config).await.unwrap().unwrap();
    pass(49 * SECOND).await;
    assert_eq!(w.rejected().await.reason(), Reason::ForcedOpen);
    pass(SECOND + MS).await;
    assert_eq!(w.state(), CircuitState::Open);
}

// As with `addr.send`: what is not handled yet is cancelled with its request.
#[actix::test]
async fn order_whose_request_is_dropped_at_once_is_not_given() {
    let w = world(consecutive(1));
    w.snapshot().await;
    drop(w.breaker.force_open(ForceOpen::new("x")));
    quiet().await;
    assert_eq!(w.state(), CircuitState::Closed);
    w.breaker.addr().do_send(ForceOpen::new("x"));
    quiet().await;
    assert_eq!(w.state(), CircuitState::ForcedOpen);
}
