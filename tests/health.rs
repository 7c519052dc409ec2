//! Health: what is listed and what is counted, since when and until when, and that nothing holds it up.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod harness;

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    ActorHealth, Breaker, BreakerHealth, Breakers, CircuitState, Clock, FamilyHealth, Health,
    HealthStatus, ManualClock, RestartPolicy, Timestamp,
};
use harness::*;
use serde_json::json;

/// Longer than any machine needs for what should take no time.
const LONG: Duration = Duration::from_secs(30);

async fn asked(breakers: &Breakers) -> Health {
    // Not paused time's word: where it holds, nothing that waits for it comes late.
    tokio::time::timeout(LONG, breakers.health()).await.unwrap()
}

/// The only one that is listed.
fn only(health: &Health) -> &BreakerHealth {
    assert_eq!(health.breakers.len(), 1, "{health:?}");
    &health.breakers[0]
}

async fn fail(breaker: &Breaker) {
    breaker.acquire().await.unwrap().failure().await;
}

#[actix::test]
async fn closed_breakers_are_only_counted() {
    let w = world(consecutive(2));
    w.breakers
        .create("c", consecutive(1).build().unwrap())
        .unwrap();
    let health = asked(&w.breakers).await;
    assert_eq!((health.status, health.closed), (HealthStatus::Up, 2));
    assert!(health.is_healthy() && health.is_ready());
    assert!(health.breakers.is_empty() && health.families.is_empty());
    // Failures that do not trip are no news.
    w.bad().await;
    assert_eq!(asked(&w.breakers).await.closed, 2);
    assert_eq!(health.breaker("b"), None);
    let nothing = asked(&Breakers::start()).await;
    assert_eq!((nothing.status, nothing.closed), (HealthStatus::Up, 0));
}

// R8, R9
#[actix::test]
async fn outage_is_shown_from_trip_to_recovery() {
    let (clock, w) = manual(consecutive(1));
    clock.advance(5 * SECOND);
    let tripped = clock.now();
    w.trip().await;
    clock.advance(3 * SECOND);

    let health = asked(&w.breakers).await;
    assert_eq!(
        (health.status, health.at),
        (HealthStatus::Down, clock.now())
    );
    assert!(!health.is_healthy() && !health.is_ready());
    let open = only(&health);
    assert_eq!(health.breaker("b"), Some(open));
    assert_eq!((open.state, open.probe_due), (CircuitState::Open, false));
    assert_eq!(open.since, Some(tripped));
    assert_eq!(open.restrained_since, Some(tripped));
    assert_eq!(open.until, Some(tripped + BREAK));
    assert_eq!(open.retry_after, Some(BREAK - 3 * SECOND));
    assert_eq!(open.actor, ActorHealth::Answers);

    // Due: only a call can close it, and an instance that is not ready gets none.
    clock.advance(BREAK);
    let health = asked(&w.breakers).await;
    assert_eq!(health.status, HealthStatus::Degraded);
    assert!(health.is_ready() && !health.is_healthy());
    let due = only(&health);
    assert_eq!((due.state, due.probe_due), (CircuitState::Open, true));
    assert_eq!((due.since, due.retry_after), (Some(tripped), None));

    // A failed probe: this break is new, the outage is not.
    let failed = clock.now();
    w.bad().await;
    let health = asked(&w.breakers).await;
    assert_eq!(health.status, HealthStatus::Down);
    let again = only(&health);
    assert_eq!(again.since, Some(failed));
    assert_eq!(again.restrained_since, Some(tripped));
    assert_eq!(again.attempt, 1);

    clock.advance(BREAK);
    let began = clock.now();
    let (release, job) = latch();
    let probe = w.breaker.ask(&w.target, job);
    quiet().await;
    let health = asked(&w.breakers).await;
    assert_eq!(health.status, HealthStatus::Degraded);
    let probing = only(&health);
    assert_eq!(probing.state, CircuitState::HalfOpen);
    assert_eq!(probing.since, Some(began));
    assert_eq!(probing.restrained_since, Some(tripped));

    release.send(Ok(1)).unwrap();
    probe.await.unwrap().unwrap();
    assert_eq!(asked(&w.breakers).await.status, HealthStatus::Up);
    // The snapshot knows the same.
    let closed = w.snapshot().await;
    assert_eq!((closed.since, closed.restrained_since), (None, None));
    clock.advance(SECOND);
    w.trip().await;
    let snapshot = w.snapshot().await;
    assert_eq!(snapshot.restrained_since, Some(clock.now()));
}

// R23
#[actix::test]
async fn orders_are_shown_with_their_reasons() {
    let (clock, w) = manual(consecutive(1));
    clock.advance(SECOND);
    let ordered = clock.now();
    let order = ForceOpen::new("index is rebuilt").ttl(4 * SECOND);
    w.breaker.force_open(order).await.unwrap().unwrap();
    clock.advance(SECOND);
    // Repeated, it is the same order.
    let order = ForceOpen::new("still rebuilt").ttl(4 * SECOND);
    w.breaker.force_open(order).await.unwrap().unwrap();
    let health = asked(&w.breakers).await;
    assert_eq!(health.status, HealthStatus::Down);
    let forced = only(&health);
    assert_eq!(forced.state, CircuitState::ForcedOpen);
    assert_eq!(forced.since, Some(ordered));
    assert_eq!(forced.until, Some(clock.now() + 4 * SECOND));
    assert_eq!(forced.reason.as_deref(), Some("still rebuilt"));
    assert_eq!(forced.retry_after, Some(4 * SECOND));

    // Its time is over: open and due, since then.
    let end = clock.now() + 4 * SECOND;
    clock.advance(5 * SECOND);
    let health = asked(&w.breakers).await;
    assert_eq!(health.status, HealthStatus::Degraded);
    let due = only(&health);
    assert_eq!((due.state, due.probe_due), (CircuitState::Open, true));
    assert_eq!(due.since, Some(end));
    assert_eq!(due.restrained_since, Some(ordered));
    assert_eq!(due.reason, None);

    // Forced closed is listed, for somebody may have forgotten it, and keeps nothing from being well.
    let order = ForceClosed::new("drill");
    w.breaker.force_closed(order).await.unwrap().unwrap();
    let health = asked(&w.breakers).await;
    assert_eq!((health.status, health.closed), (HealthStatus::Up, 0));
    let forced = only(&health);
    assert_eq!(forced.state, CircuitState::ForcedClosed);
    assert_eq!(forced.reason.as_deref(), Some("drill"));
    assert_eq!(forced.since, Some(clock.now()));
    assert_eq!(forced.restrained_since, None);
}

#[actix::test]
async fn health_is_a_small_text() {
    let (clock, w) = manual(consecutive(1));
    clock.advance(SECOND);
    w.trip().await;
    clock.advance(SECOND);
    let health = asked(&w.breakers).await;
    assert_eq!(
        serde_json::to_value(&health).unwrap(),
        json!({
            "at": 2_000_000,
            "status": "down",
            "closed": 0,
            "breakers": [{
                "breaker": "b",
                "state": "open",
                "probe_due": false,
                "since": 1_000_000,
                "restrained_since": 1_000_000,
                "until": 11_000_000,
                "retry_after": "9s",
                "attempt": 0,
                "reason": null,
                "simulated": false,
                "partial": false,
                "actor": "answers",
            }],
            "families": [],
        })
    );
}

#[actix::test]
async fn family_is_counted_and_its_first_keys_are_listed() {
    let (clock, w) = manual(consecutive(1));
    let hosts = w
        .breakers
        .family("hosts", consecutive(1).build().unwrap())
        .unwrap();
    let family = |health: &Health| health.families[0].clone();
    let none = family(&asked(&w.breakers).await);
    assert_eq!((none.keys, none.status()), (0, HealthStatus::Up));

    clock.advance(SECOND);
    let tripped = clock.now();
    let mut held = Vec::new();
    for index in (0..40).rev() {
        let key = format!("host {index:02}");
        let breaker = hosts.breaker(&key);
        fail(&breaker).await;
        // Some are held, and so awake; the others come to rest.
        if index % 3 == 0 {
            held.push(breaker);
        }
    }
    let well = hosts.breaker("a host that is well");
    for _ in 0..3 {
        drop(hosts.keys());
        quiet().await;
    }
    clock.advance(SECOND);
    let health = asked(&w.breakers).await;
    // One key says nothing of the others: never down.
    assert_eq!((health.status, health.closed), (HealthStatus::Degraded, 1));
    assert!(health.is_ready());
    let family_health = family(&health);
    assert_eq!((family_health.keys, family_health.open), (41, 40));
    assert_eq!(family_health.listed.len(), FamilyHealth::LISTED);
    assert_eq!(family_health.more, 40 - FamilyHealth::LISTED);
    for (index, listed) in family_health.listed.iter().enumerate() {
        assert_eq!(*listed.breaker, format!("hosts/host {index:02}"));
        assert_eq!(listed.state, CircuitState::Open);
        assert_eq!(listed.since, Some(tripped), "{listed:?}");
        assert_eq!(listed.restrained_since, Some(tripped));
        assert_eq!(listed.retry_after, Some(BREAK - SECOND));
        assert_eq!(listed.actor, ActorHealth::Answers);
    }
    drop(well);

    // Whoever rests keeps it, when it is woken, too.
    assert_eq!(
        hosts.breaker("host 01").snapshot().await.unwrap().since,
        Some(tripped)
    );
    let order = ForceOpen::new("moved");
    hosts.breaker("a").force_open(order).await.unwrap().unwrap();
    let order = ForceClosed::new("trusted");
    let trusted = hosts.breaker("b");
    trusted.force_closed(order).await.unwrap().unwrap();
    clock.advance(BREAK);
    let counted = family(&asked(&w.breakers).await);
    assert_eq!((counted.forced_open, counted.forced_closed), (1, 1));
    assert_eq!(counted.listed[0].reason.as_deref(), Some("moved"));
    assert_eq!(counted.listed[1].reason.as_deref(), Some("trusted"));
    assert!(counted.listed[2].probe_due);
    assert_eq!(counted.more, 42 - FamilyHealth::LISTED);
}

/// An arbiter that does nothing until this is dropped.
struct Blocked(#[allow(dead_code, reason = "dropped")] std::sync::mpsc::Sender<()>);

impl Blocked {
    async fn new(arbiter: &Arbiter) -> Self {
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let (blocks, blocked) = tokio::sync::oneshot::channel();
        arbiter.spawn_fn(move || {
            blocks.send(()).unwrap();
            ends.recv().unwrap_err();
        });
        blocked.await.unwrap();
        Self(end)
    }
}

#[actix::test]
async fn blocked_arbiter_shows_as_silent_and_holds_nobody_up() {
    let arbiter = Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&arbiter.handle());
    let config = consecutive(1).break_duration(LONG).build().unwrap();
    let open = breakers.create("open", config.clone()).unwrap();
    let _closed = breakers.create("closed", config.clone()).unwrap();
    let hosts = breakers.family("hosts", config).unwrap();
    fail(&open).await;
    fail(&hosts.breaker("down")).await;

    let blocked = Blocked::new(&arbiter).await;
    let health = asked(&breakers).await;
    assert_eq!((health.status, health.closed), (HealthStatus::Down, 0));
    let [closed, open] = &health.breakers[..] else {
        panic!("{health:?}");
    };
    assert_eq!(
        (closed.state, closed.actor),
        (CircuitState::Closed, ActorHealth::Silent)
    );
    assert_eq!(closed.status(), HealthStatus::Degraded);
    // What was published shows; what only the actor knows does not.
    assert_eq!(
        (open.state, open.actor),
        (CircuitState::Open, ActorHealth::Silent)
    );
    assert!(open.until.is_some() && open.retry_after.unwrap() <= LONG);
    assert_eq!((open.since, open.reason.as_deref()), (None, None));
    assert_eq!(health.families[0].actor, ActorHealth::Silent);
    assert_eq!(health.families[0].open, 1);

    // Whoever asks on and on leaves no questions without bound, and is answered later all the same.
    for _ in 0..3_000 {
        let health = breakers.health_within(Duration::ZERO).await;
        assert_eq!(health.breakers.len(), 2);
    }
    drop(blocked);
    let health = tokio::time::timeout(LONG, async {
        loop {
            let health = breakers.health().await;
            if health.closed == 1 && health.families[0].actor == ActorHealth::Answers {
                return health;
            }
        }
    });
    let health = health.await.unwrap();
    assert!(only(&health).since.is_some());
    assert_eq!(only(&health).actor, ActorHealth::Answers);
}

// R8: what was published is shown as it stands now.
#[actix::test]
async fn silent_breaker_whose_time_is_over_is_shown_as_it_stands() {
    let clock = ManualClock::new();
    let arbiter = Arbiter::new();
    let breakers = Breakers::builder()
        .clock(Arc::new(clock.clone()))
        .start_in_arbiter(&arbiter.handle());
    let create = |name| {
        let config = consecutive(1).build().unwrap();
        breakers.create(name, config).unwrap()
    };
    let [a, b, c] = ["a", "b", "c"].map(create);
    fail(&a).await;
    let order = ForceOpen::new("drill").ttl(BREAK);
    b.force_open(order).await.unwrap().unwrap();
    let order = ForceClosed::new("drill").ttl(BREAK);
    c.force_closed(order).await.unwrap().unwrap();

    let blocked = Blocked::new(&arbiter).await;
    clock.advance(BREAK - MS);
    let health = asked(&breakers).await;
    assert_eq!(health.status, HealthStatus::Down);
    let shown = |health: &Health| {
        let listed = health.breakers.iter();
        let shown = listed.map(|it| (it.state, it.probe_due, it.until, it.retry_after));
        shown.collect::<Vec<_>>()
    };
    let end = Some(Timestamp::ZERO + BREAK);
    assert_eq!(
        shown(&health),
        [
            (CircuitState::Open, false, end, Some(MS)),
            (CircuitState::ForcedOpen, false, end, Some(MS)),
            (CircuitState::ForcedClosed, false, end, None),
        ]
    );
    clock.advance(MS);
    let health = asked(&breakers).await;
    assert_eq!(health.status, HealthStatus::Degraded);
    assert_eq!(
        shown(&health),
        [
            (CircuitState::Open, true, end, None),
            (CircuitState::Open, true, end, None),
            (CircuitState::Closed, false, None, None),
        ]
    );
    assert!(
        health
            .breakers
            .iter()
            .all(|it| it.actor == ActorHealth::Silent)
    );
    drop(blocked);
}

// R29
#[actix::test]
async fn breaker_whose_actor_is_gone_shows_as_gone() {
    let arbiter = Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&arbiter.handle());
    let config = consecutive(1).build().unwrap();
    let breaker = breakers.create("b", config.clone()).unwrap();
    let hosts = breakers.family("hosts", config).unwrap();
    fail(&breaker).await;
    fail(&hosts.breaker("a")).await;
    arbiter.stop();
    arbiter.join().unwrap();
    let health = asked(&breakers).await;
    assert_eq!((health.status, health.closed), (HealthStatus::Degraded, 0));
    let gone = only(&health);
    assert_eq!(
        (gone.state, gone.actor),
        (CircuitState::Closed, ActorHealth::Gone)
    );
    assert_eq!(health.families[0].actor, ActorHealth::Gone);
    assert!(health.is_ready());
}

// R29: as it stands, though its actor is away.
#[actix::test]
async fn breaker_that_is_about_to_be_restarted_shows_as_silent() {
    pause();
    let trap = Trap::default();
    let away = 10 * SECOND;
    let builder = Breakers::builder()
        .clock(Arc::new(trap.clone()))
        .restart(RestartPolicy::new().backoff(away).max_backoff(away));
    let w = world_of(builder, consecutive(1));
    w.trip().await;
    trap.set();
    w.breaker.reset().await.unwrap_err();
    let health = asked(&w.breakers).await;
    let silent = only(&health);
    assert_eq!(
        (silent.state, silent.actor),
        (CircuitState::Open, ActorHealth::Silent)
    );
    assert_eq!(health.status, HealthStatus::Down);
    pass(away).await;
    assert_eq!(only(&asked(&w.breakers).await).actor, ActorHealth::Answers);
}

#[actix::test]
async fn breaker_that_is_removed_meanwhile_is_not_listed() {
    let w = world(consecutive(1));
    w.trip().await;
    let health = w.breakers.health();
    w.breakers.remove("b");
    let health = health.await;
    assert_eq!((health.status, health.closed), (HealthStatus::Up, 0));
    assert!(health.breakers.is_empty(), "{health:?}");
}

// R32: a question keeps nothing from making room once it is answered, whoever holds the answer.
#[actix::test]
async fn question_is_no_handle() {
    pause();
    let breakers = Breakers::builder().max_breakers(1).start();
    let config = consecutive(1).build().unwrap();
    breakers.create("a", config.clone()).unwrap();
    let health = breakers.health();
    // On its way it is like any other message.
    breakers.create("b", config.clone()).unwrap_err();
    quiet().await;
    breakers.create("b", config).unwrap();
    let health = health.await;
    assert_eq!((health.closed, health.breakers.len()), (1, 0), "{health:?}");
}

// R29: the record says until when, and not since when.
#[actix::test]
async fn restored_breaker_does_not_know_since_when() {
    let (clock, w) = manual(consecutive(1));
    w.trip().await;
    let exported = w.breakers.export().await;
    let breakers = Breakers::builder().clock(Arc::new(clock.clone())).start();
    breakers.restore(exported);
    let breaker = breakers
        .create("b", consecutive(1).build().unwrap())
        .unwrap();
    let health = asked(&breakers).await;
    let open = only(&health);
    assert_eq!((open.since, open.restrained_since), (None, None));
    assert_eq!(open.until, Some(Timestamp::ZERO + BREAK));
    clock.advance(BREAK);
    fail(&breaker).await;
    let health = asked(&breakers).await;
    assert_eq!(only(&health).since, Some(clock.now()));
    assert_eq!(only(&health).restrained_since, None);
}

#[actix::test]
async fn health_can_be_asked_for_from_any_thread() {
    fn sent<T: Send + 'static>(value: T) -> T {
        value
    }
    let w = world(consecutive(1));
    let health = sent(w.breakers.health()).await;
    assert_eq!(sent(health).status, HealthStatus::Up);
}
