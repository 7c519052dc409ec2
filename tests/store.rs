//! Breakers of several owners that share their records through a store: who decides what, what the others are
//! told, and that nobody is held up by a store that is slow, away or wrong. The store is the reference in
//! memory, behind one that fails as it is told to; `redis_*.rs` does the same with real servers.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod fleet;

use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::{
    CallError, Cause, CircuitState, Consistency, Hold, Reason, StoreEvent, TripPolicy,
};
use fleet::*;

const SECOND: Duration = Duration::from_secs(1);

// R21, R34: what one process learns, all know.
#[actix::test]
async fn a_trip_reaches_every_process_once_and_under_one_version() {
    let fleet = Fleet::start(3, count(3));
    let [a, b, c] = fleet.three();
    let mut heard: Vec<_> = fleet.all().map(Process::events).collect();
    a.fails().await;
    b.fails().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 3]);
    c.fails().await;
    // The caller of the tripping failure sees it at once.
    assert_eq!(c.rejected().await, Reason::Open);
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 3]);
    let mut epochs = Vec::new();
    for events in &mut heard {
        let trips = events.take();
        assert_eq!(trips.len(), 1, "{trips:?}");
        assert_eq!(trips[0].cause, Cause::Tripped);
        assert_eq!(trips[0].evidence.failures, 3);
        epochs.push(trips[0].epoch);
    }
    epochs.dedup();
    assert_eq!(epochs.len(), 1, "one version for all");
}

// Case 140: who joins takes over what is there.
#[actix::test]
async fn who_comes_later_finds_the_break_and_does_not_move_it() {
    let mut fleet = Fleet::start(1, count(1));
    fleet.process(0).fails().await;
    let due = fleet
        .process(0)
        .breaker
        .snapshot()
        .await
        .unwrap()
        .circuit
        .until;
    for _ in 0..3 {
        fleet.pass(Duration::from_secs(3));
        fleet.add();
        settle().await;
    }
    for process in fleet.all() {
        assert_eq!(process.state(), CircuitState::Open);
        let until = process.breaker.snapshot().await.unwrap().circuit.until;
        assert_eq!(until, due);
        assert_eq!(process.rejected().await, Reason::Open);
    }
    fleet.pass(Duration::from_secs(1));
    fleet.process(3).succeeds().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 4]);
}

// R7: probes at once, in the whole fleet.
#[actix::test]
async fn there_is_one_probe_in_the_whole_fleet() {
    let fleet = Fleet::start(3, count(1));
    let [a, b, c] = fleet.three();
    a.fails().await;
    settle().await;
    fleet.pass(BREAK);
    let (probe, ends) = b.hangs();
    settle().await;
    for process in [a, b, c] {
        assert_eq!(process.rejected().await, Reason::ProbesInUse);
    }
    ends.send(Ok(())).unwrap();
    probe.await.unwrap().unwrap();
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 3]);
}

// R7: those that come at the same instant, too.
#[actix::test]
async fn of_all_that_come_at_once_as_many_go_as_there_are_slots() {
    let fleet = Fleet::start(3, count(1).max_probes(2));
    fleet.process(0).fails().await;
    settle().await;
    fleet.pass(BREAK);
    let mut calls = Vec::new();
    let mut keep = Vec::new();
    for _ in 0..10 {
        for process in fleet.all() {
            let (call, ends) = process.hangs();
            calls.push(call);
            keep.push(ends);
        }
    }
    settle().await;
    let begun = keep.iter_mut().filter(|ends| !ends.is_closed()).count();
    let rejected = calls.iter_mut().filter(|call| call.is_finished()).count();
    assert_eq!((begun, rejected), (2, 28));
}

// Case 149: a probe that is given up gives its slot back, to all.
#[actix::test]
async fn a_dropped_probe_frees_its_slot_for_the_others() {
    let fleet = Fleet::start(2, count(1));
    fleet.process(0).fails().await;
    settle().await;
    fleet.pass(BREAK);
    let permit = fleet.process(0).breaker.acquire().await.unwrap();
    settle().await;
    assert_eq!(fleet.process(1).rejected().await, Reason::ProbesInUse);
    drop(permit);
    // The letter is read with the next message.
    drop(fleet.process(0).breaker.snapshot().await);
    settle().await;
    fleet.process(1).succeeds().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

// Case 149: and one whose process is gone, when its lease is over.
#[actix::test]
async fn a_probe_whose_process_is_gone_holds_its_slot_for_its_lease() {
    let mut fleet = Fleet::start(2, count(1).probe_timeout(Duration::from_secs(20)));
    fleet.process(0).fails().await;
    settle().await;
    fleet.pass(BREAK);
    let permit = fleet.process(0).breaker.acquire().await.unwrap();
    settle().await;
    fleet.kill(0);
    std::mem::forget(permit);
    fleet.pass(Duration::from_secs(19));
    assert_eq!(fleet.process(0).rejected().await, Reason::ProbesInUse);
    fleet.pass(Duration::from_secs(1));
    fleet.process(0).succeeds().await;
    settle().await;
    assert_eq!(fleet.process(0).state(), CircuitState::Closed);
}

// Case 151: a round begins without the votes of the one before.
#[actix::test]
async fn votes_of_a_failed_round_do_not_close_the_next() {
    let fleet = Fleet::start(2, count(1).successes_to_close(2));
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    settle().await;
    fleet.pass(BREAK);
    a.succeeds().await;
    settle().await;
    b.fails().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
    fleet.pass(BREAK);
    b.succeeds().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::HalfOpen; 2]);
    a.succeeds().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

// R23: an order reaches every process, and so does its end.
#[actix::test]
async fn orders_reach_every_process() {
    let fleet = Fleet::start(2, count(1));
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.breaker
        .force_open(order("maintenance"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(a.rejected().await, Reason::ForcedOpen);
    settle().await;
    assert_eq!(b.rejected().await, Reason::ForcedOpen);
    let snapshot = b.breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.circuit.reason.as_deref(), Some("maintenance"));
    b.breaker.release().await.unwrap();
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    a.succeeds().await;
    // One with a ttl ends everywhere, whoever looks.
    b.breaker
        .force_open(order("for a while").ttl(Duration::from_secs(60)))
        .await
        .unwrap()
        .unwrap();
    settle().await;
    fleet.pass(Duration::from_secs(60));
    a.succeeds().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

// R17: a success anywhere ends a run of failures.
#[actix::test]
async fn a_success_elsewhere_ends_the_run() {
    let fleet = Fleet::start(2, consecutive(3));
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    a.fails().await;
    settle().await;
    b.succeeds().await;
    settle().await;
    a.fails().await;
    assert_eq!(a.state(), CircuitState::Closed);
    b.fails().await;
    settle().await;
    a.fails().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// While calls succeed, the store is not asked.
#[actix::test]
async fn nothing_is_asked_while_calls_succeed_and_once_for_a_failure() {
    let fleet = Fleet::start(1, count(5));
    let a = fleet.process(0);
    settle().await;
    let before = fleet.store.steps();
    for _ in 0..100 {
        a.succeeds().await;
    }
    assert_eq!(fleet.store.steps(), before);
    a.fails().await;
    assert_eq!(fleet.store.steps(), before + 1);
}

// Cases 160, 161: a store that is away costs no call, and each process goes on alone.
#[actix::test]
async fn without_the_store_each_process_is_on_its_own() {
    let fleet = Fleet::start(2, count(2));
    let (a, b) = (fleet.process(0), fleet.process(1));
    let events = a.store_events();
    fleet.store.refuse();
    // The caller gets what the call gave, and the failure counts.
    assert_eq!(a.call_failing().await, Err(CallError::Failed("foo")));
    for _ in 0..100 {
        a.succeeds().await;
    }
    let snapshot = a.breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.circuit.failures, 1);
    a.fails().await;
    assert_eq!(a.rejected().await, Reason::Open);
    assert_eq!(b.state(), CircuitState::Closed);
    settle().await;
    assert!(matches!(events.take()[..], [StoreEvent::Degraded { .. }]));
    let health = a.breakers.health().await;
    assert!(health.store_away.is_some() && !health.is_healthy());
    let sharing = a.breaker.snapshot().await.unwrap().sharing;
    assert!(sharing.is_some_and(|sharing| !sharing.joined && !sharing.alone));
    // It heals alone, too.
    fleet.pass(BREAK);
    a.succeeds().await;
    assert_eq!(a.state(), CircuitState::Closed);
    a.fails().await;
    a.fails().await;
    assert_eq!(a.state(), CircuitState::Open);
    // Once the store is there again, the others learn of it.
    fleet.store.recover();
    wait_until(|| b.state() == CircuitState::Open).await;
    assert!(matches!(events.take()[..], [StoreEvent::Recovered { .. }]));
    assert_eq!(a.state(), CircuitState::Open);
}

// Case 155: what was written and not answered counts once.
#[actix::test]
async fn what_was_recorded_and_not_answered_counts_once() {
    let fleet = Fleet::start(2, count(2));
    let (a, b) = (fleet.process(0), fleet.process(1));
    settle().await;
    fleet.store.swallow_answers();
    a.fails().await;
    fleet.store.recover();
    wait_until(|| !fleet.is_away(0)).await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    b.fails().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// What was not written before the store went away is written once it is back.
#[actix::test]
async fn a_failure_while_the_store_is_away_is_recorded_later() {
    let fleet = Fleet::start(2, count(2));
    let (a, b) = (fleet.process(0), fleet.process(1));
    settle().await;
    fleet.store.hang();
    a.fails().await;
    fleet.store.recover();
    wait_until(|| !fleet.is_away(0)).await;
    settle().await;
    b.fails().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// Case 154, R31: an open deadline that a process knows outlives a lost key.
#[actix::test]
async fn a_lost_record_is_given_back() {
    let fleet = Fleet::start(2, count(1));
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    settle().await;
    fleet.store.forget("upstream");
    fleet.pass(BREAK - Duration::from_millis(1));
    assert_eq!(a.rejected().await, Reason::Open);
    assert_eq!(b.rejected().await, Reason::Open);
    fleet.pass(Duration::from_millis(1));
    // At the deadline it is a probe, not a first failure.
    let (probe, ends) = b.hangs();
    settle().await;
    assert_eq!(a.rejected().await, Reason::ProbesInUse);
    ends.send(Err("still")).unwrap();
    probe.await.unwrap().unwrap_err();
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// Case 158: one sick machine does not open it for all.
#[actix::test]
async fn a_trip_wants_as_many_reporters_as_are_set() {
    let fleet = Fleet::start_with(3, count(5), |builder| builder.min_reporters(2));
    let [a, b, c] = fleet.three();
    for _ in 0..100 {
        drop(a.call_failing().await);
    }
    settle().await;
    assert_eq!(a.state(), CircuitState::Open);
    assert_eq!(b.state(), CircuitState::Closed);
    let sharing = a.breaker.snapshot().await.unwrap().sharing;
    assert!(sharing.is_some_and(|sharing| sharing.joined && sharing.alone));
    // The lone one recovers alone.
    fleet.pass(BREAK);
    a.succeeds().await;
    assert_eq!(a.state(), CircuitState::Closed);
    for _ in 0..4 {
        a.fails().await;
    }
    assert_eq!(a.state(), CircuitState::Closed);
    b.fails().await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 3]);
    assert_eq!(c.rejected().await, Reason::Open);
}

// Rates: what each process counted makes one share.
#[actix::test]
async fn rates_are_of_the_whole_fleet() {
    let fleet = Fleet::start(2, rate(0.5, 10));
    let (a, b) = (fleet.process(0), fleet.process(1));
    for _ in 0..20 {
        a.succeeds().await;
    }
    // Sent along with the next failure.
    a.fails().await;
    for _ in 0..9 {
        b.fails().await;
    }
    // Of the fleet's calls a third failed, of its own all: alone it would have tripped.
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    for _ in 0..10 {
        b.fails().await;
    }
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// A rule of one's own sees the failures of the whole fleet.
#[actix::test]
async fn a_custom_rule_sees_the_failures_of_all() {
    let fleet = Fleet::start(2, custom_three());
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    b.fails().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    a.fails().await;
    assert_eq!(a.rejected().await, Reason::Open);
    settle().await;
    assert_eq!(b.rejected().await, Reason::Open);
}

// `Strict`: what others did is seen at once, also where nothing was told.
#[actix::test]
async fn strict_asks_before_every_call() {
    let fleet = Fleet::start_with(2, count(1), |builder| {
        builder.consistency(Consistency::Strict)
    });
    let (a, b) = (fleet.process(0), fleet.process(1));
    settle().await;
    fleet.store.mute();
    a.fails().await;
    assert_eq!(b.state(), CircuitState::Closed);
    assert_eq!(b.rejected().await, Reason::Open);
    fleet.pass(BREAK);
    let before = fleet.store.steps();
    b.succeeds().await;
    assert!(fleet.store.steps() > before);
    a.succeeds().await;
    // And when the store is away, calls go on.
    fleet.store.refuse();
    for _ in 0..10 {
        a.succeeds().await;
    }
}

// A message that waits inside the breaker goes as the fleet's probe, and those behind it once it is closed.
#[actix::test]
async fn held_messages_go_with_the_stores_leave() {
    let hold = Hold::new(10, 1_000 * SECOND, SECOND);
    let fleet = Fleet::start(2, count(1).hold(hold).max_probes(2));
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    settle().await;
    let guard = b.breaker.guard::<Say>(Target.start());
    let held: Vec<_> = (0..3)
        .map(|say| actix::spawn(guard.send_or_hold(Say(say))))
        .collect();
    settle().await;
    assert_eq!(b.breaker.snapshot().await.unwrap().held, 3);
    fleet.pass(BREAK);
    // The breaker looks at this clock by a timer of its own.
    wait_until(|| held[0].is_finished()).await;
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    let before = fleet.store.steps();
    fleet.pass(SECOND);
    wait_until(|| held[1].is_finished()).await;
    fleet.pass(SECOND);
    wait_until(|| held[2].is_finished()).await;
    assert_eq!(fleet.store.steps(), before);
}

// And does not ask again and again while it is not its turn.
#[actix::test]
async fn held_messages_wait_for_their_turn_without_asking() {
    let hold = Hold::new(10, 1_000 * SECOND, 100 * SECOND);
    let config = count(1).hold(hold).max_probes(2).successes_to_close(2);
    let fleet = Fleet::start(1, config);
    let a = fleet.process(0);
    a.fails().await;
    let guard = a.breaker.guard::<Say>(Target.start());
    let held: Vec<_> = (0..3)
        .map(|say| actix::spawn(guard.send_or_hold(Say(say))))
        .collect();
    settle().await;
    fleet.pass(BREAK);
    wait_until(|| held[0].is_finished()).await;
    settle().await;
    let before = fleet.store.steps();
    for _ in 0..20 {
        fleet.pass(Duration::from_millis(1));
        drop(a.breaker.snapshot().await);
        settle().await;
    }
    assert_eq!(fleet.store.steps(), before);
    fleet.pass(100 * SECOND);
    wait_until(|| held[1].is_finished()).await;
    settle().await;
    assert_eq!(a.state(), CircuitState::Closed);
}

// A message without a reply is a probe, too.
#[actix::test]
async fn a_tell_is_a_probe_with_the_stores_leave() {
    let fleet = Fleet::start(2, count(1));
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    settle().await;
    fleet.pass(BREAK);
    b.breaker.tell(&Target.start(), Say(1)).await.unwrap();
    settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

#[derive(Debug, Message)]
#[rtype(result = "Result<u32, &'static str>")]
struct Say(u32);

struct Target;

impl Actor for Target {
    type Context = Context<Self>;
}

impl Handler<Say> for Target {
    type Result = Result<u32, &'static str>;

    fn handle(&mut self, Say(number): Say, _: &mut Context<Self>) -> Self::Result {
        Ok(number)
    }
}

// R29: a restart of the breaker's own actor loses neither the record nor who waits.
#[actix::test]
async fn a_restart_in_the_middle_of_a_question_loses_nobody() {
    let fleet = Fleet::start(2, count(1));
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    settle().await;
    fleet.pass(BREAK);
    fleet.store.slow(Duration::from_millis(20));
    let (probe, ends) = b.hangs();
    tokio::task::yield_now().await;
    b.restart_actor().await;
    wait_until(|| !ends.is_closed() && b.state() == CircuitState::HalfOpen).await;
    ends.send(Ok(())).unwrap();
    probe.await.unwrap().unwrap();
    wait_until(|| a.state() == CircuitState::Closed).await;
}

// The default is what it says.
#[test]
fn the_policy_of_a_fleet_is_one_of_the_circuits() {
    assert!(matches!(
        count(1).build().unwrap().trip(),
        TripPolicy::FailureCount { .. }
    ));
}
