//! What breakers of several owners do that share their records through a store: who decides what, what the others
//! are told, and that nobody is held up by a store that is slow, away or wrong. Each story goes with any store.

#![allow(dead_code, reason = "each file of tests uses a part of it")]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::similar_names,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "a story that fails fails the test"
)]

use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::ForceClosed;
use actix_circuit_breaker::{
    CallError, Cause, CircuitState, Consistency, Hold, Reason, StoreEvent,
};

use super::fleet::*;

const SECOND: Duration = Duration::from_secs(1);

/// Makes a test of each story, around the store that the function makes.
macro_rules! tell_all_with {
    ($store:path) => {
        crate::stories::tell_all_with! { $store:
            a_trip_reaches_every_process_once_and_under_one_version,
            who_comes_later_finds_the_break_and_does_not_move_it,
            there_is_one_probe_in_the_whole_fleet,
            of_all_that_come_at_once_as_many_go_as_there_are_slots,
            a_dropped_probe_frees_its_slot_for_the_others,
            a_probe_whose_process_is_gone_holds_its_slot_for_its_lease,
            votes_of_a_failed_round_do_not_close_the_next,
            orders_reach_every_process,
            an_order_that_another_was_faster_than_stands,
            a_success_elsewhere_ends_the_run,
            nothing_is_asked_while_calls_succeed_and_once_for_a_failure,
            without_the_store_each_process_is_on_its_own,
            what_was_recorded_and_not_answered_counts_once,
            a_failure_while_the_store_is_away_is_recorded_later,
            a_lost_record_is_given_back,
            an_order_that_was_lifted_stays_lifted,
            a_trip_wants_as_many_reporters_as_are_set,
            a_custom_rule_wants_as_many_reporters_as_are_set,
            rates_are_of_the_whole_fleet,
            a_custom_rule_sees_the_failures_of_all,
            strict_asks_before_every_call,
            held_messages_go_with_the_stores_leave,
            held_messages_wait_for_their_turn_without_asking,
            a_tell_is_a_probe_with_the_stores_leave,
            a_restart_in_the_middle_of_a_question_loses_nobody,
        }
    };
    ($store:path: $($story:ident,)*) => {
        $(
            #[actix::test]
            async fn $story() {
                let store = $store(stringify!($story)).await;
                crate::stories::$story(store).await;
            }
        )*
    };
}
pub(crate) use tell_all_with;

// R21, R34: what one process learns, all know.
pub(crate) async fn a_trip_reaches_every_process_once_and_under_one_version(store: FaultyStore) {
    let fleet = Fleet::share(store, 3, count(3)).await;
    let [a, b, c] = fleet.three();
    let mut heard: Vec<_> = fleet.all().map(Process::events).collect();
    a.fails().await;
    b.fails().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 3]);
    c.fails().await;
    // The caller of the tripping failure sees it at once.
    assert_eq!(c.rejected().await, Reason::Open);
    fleet.settle().await;
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
pub(crate) async fn who_comes_later_finds_the_break_and_does_not_move_it(store: FaultyStore) {
    let mut fleet = Fleet::share(store, 1, count(1)).await;
    fleet.process(0).fails().await;
    let due = fleet
        .process(0)
        .breaker
        .snapshot()
        .await
        .unwrap()
        .circuit
        .until;
    for newcomer in 1..=3 {
        fleet.pass(Duration::from_secs(3));
        fleet.add();
        let mut events = fleet.process(newcomer).events();
        wait_until(|| fleet.process(newcomer).state() == CircuitState::Open).await;
        fleet.settle().await;
        // It is told why, though it was not there.
        let [event] = &events.take()[..] else {
            panic!("one change");
        };
        assert_eq!(event.cause, Cause::Tripped);
        assert_eq!(event.evidence.failures, 1);
    }
    for process in fleet.all() {
        assert_eq!(process.state(), CircuitState::Open);
        let until = process.breaker.snapshot().await.unwrap().circuit.until;
        assert_eq!(until, due);
        assert_eq!(process.rejected().await, Reason::Open);
    }
    fleet.pass(Duration::from_secs(1));
    fleet.process(3).succeeds().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 4]);
}

// R7: probes at once, in the whole fleet.
pub(crate) async fn there_is_one_probe_in_the_whole_fleet(store: FaultyStore) {
    let fleet = Fleet::share(store, 3, count(1)).await;
    let [a, b, c] = fleet.three();
    a.fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    let (probe, ends) = b.hangs();
    fleet.settle().await;
    for process in [a, b, c] {
        assert_eq!(process.rejected().await, Reason::ProbesInUse);
    }
    ends.send(Ok(())).unwrap();
    probe.await.unwrap().unwrap();
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 3]);
}

// R7: those that come at the same instant, too.
pub(crate) async fn of_all_that_come_at_once_as_many_go_as_there_are_slots(store: FaultyStore) {
    let fleet = Fleet::share(store, 3, count(1).max_probes(2)).await;
    fleet.process(0).fails().await;
    fleet.settle().await;
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
    fleet.settle().await;
    let begun = keep.iter_mut().filter(|ends| !ends.is_closed()).count();
    let rejected = calls.iter_mut().filter(|call| call.is_finished()).count();
    assert_eq!((begun, rejected), (2, 28));
}

// Case 149: a probe that is given up gives its slot back, to all.
pub(crate) async fn a_dropped_probe_frees_its_slot_for_the_others(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(1)).await;
    fleet.process(0).fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    let permit = fleet.process(0).breaker.acquire().await.unwrap();
    fleet.settle().await;
    assert_eq!(fleet.process(1).rejected().await, Reason::ProbesInUse);
    drop(permit);
    // The letter is read with the next message.
    drop(fleet.process(0).breaker.snapshot().await);
    fleet.settle().await;
    fleet.process(1).succeeds().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

// Case 149: and one whose process is gone, when its lease is over.
pub(crate) async fn a_probe_whose_process_is_gone_holds_its_slot_for_its_lease(store: FaultyStore) {
    let mut fleet = Fleet::share(store, 2, count(1).probe_timeout(Duration::from_secs(20))).await;
    fleet.process(0).fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    let permit = fleet.process(0).breaker.acquire().await.unwrap();
    fleet.settle().await;
    fleet.kill(0);
    std::mem::forget(permit);
    fleet.pass(Duration::from_secs(19));
    assert_eq!(fleet.process(0).rejected().await, Reason::ProbesInUse);
    fleet.pass(Duration::from_secs(1));
    fleet.process(0).succeeds().await;
    fleet.settle().await;
    assert_eq!(fleet.process(0).state(), CircuitState::Closed);
}

// Case 151: a round begins without the votes of the one before.
pub(crate) async fn votes_of_a_failed_round_do_not_close_the_next(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(1).successes_to_close(2)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    a.succeeds().await;
    fleet.settle().await;
    b.fails().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
    fleet.pass(BREAK);
    b.succeeds().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::HalfOpen; 2]);
    a.succeeds().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

// R23: an order reaches every process, and so does its end.
pub(crate) async fn orders_reach_every_process(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(1)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.breaker
        .force_open(order("maintenance"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(a.rejected().await, Reason::ForcedOpen);
    fleet.settle().await;
    assert_eq!(b.rejected().await, Reason::ForcedOpen);
    let snapshot = b.breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.circuit.reason.as_deref(), Some("maintenance"));
    b.breaker.release().await.unwrap();
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    a.succeeds().await;
    // One with a ttl ends everywhere, whoever looks.
    b.breaker
        .force_open(order("for a while").ttl(Duration::from_secs(60)))
        .await
        .unwrap()
        .unwrap();
    fleet.settle().await;
    fleet.pass(Duration::from_secs(60));
    a.succeeds().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

// R23: an order that meets another change on its way stands nevertheless.
pub(crate) async fn an_order_that_another_was_faster_than_stands(store: FaultyStore) {
    let mut fleet = Fleet::share(store, 2, count(1)).await;
    // So that the second does not know of the first.
    fleet.store.mute();
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.breaker.force_open(order("a")).await.unwrap().unwrap();
    fleet.store.settle().await;
    let second = ForceClosed::new("b");
    b.breaker.force_closed(second).await.unwrap().unwrap();
    assert_eq!(b.state(), CircuitState::ForcedClosed);
    fleet.add();
    wait_until(|| fleet.process(2).state() == CircuitState::ForcedClosed).await;
    let snapshot = fleet.process(2).breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.circuit.reason.as_deref(), Some("b"));
    assert_eq!(fleet.process(1).state(), CircuitState::ForcedClosed);
}

// R17: a success anywhere ends a run of failures.
pub(crate) async fn a_success_elsewhere_ends_the_run(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, consecutive(3)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    a.fails().await;
    fleet.settle().await;
    b.succeeds().await;
    fleet.settle().await;
    a.fails().await;
    assert_eq!(a.state(), CircuitState::Closed);
    b.fails().await;
    fleet.settle().await;
    a.fails().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// While calls succeed, the store is not asked.
pub(crate) async fn nothing_is_asked_while_calls_succeed_and_once_for_a_failure(
    store: FaultyStore,
) {
    let fleet = Fleet::share(store, 1, count(5)).await;
    let a = fleet.process(0);
    fleet.settle().await;
    let before = fleet.store.steps();
    for _ in 0..100 {
        a.succeeds().await;
    }
    assert_eq!(fleet.store.steps(), before);
    a.fails().await;
    assert_eq!(fleet.store.steps(), before + 1);
}

// Cases 160, 161: a store that is away costs no call, and each process goes on alone.
pub(crate) async fn without_the_store_each_process_is_on_its_own(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(2)).await;
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
    fleet.settle().await;
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
pub(crate) async fn what_was_recorded_and_not_answered_counts_once(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(2)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    fleet.settle().await;
    fleet.store.swallow_answers();
    a.fails().await;
    fleet.store.recover();
    wait_until(|| !fleet.is_away(0)).await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    b.fails().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// What was not written before the store went away is written once it is back.
pub(crate) async fn a_failure_while_the_store_is_away_is_recorded_later(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(2)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    fleet.settle().await;
    fleet.store.hang();
    a.fails().await;
    fleet.store.recover();
    wait_until(|| !fleet.is_away(0)).await;
    fleet.settle().await;
    b.fails().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// Case 154, R31: an open deadline that a process knows outlives a lost key.
pub(crate) async fn a_lost_record_is_given_back(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(1)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    fleet.settle().await;
    fleet.store.forget("upstream");
    fleet.pass(Duration::from_millis(9_999));
    assert_eq!(a.rejected().await, Reason::Open);
    assert_eq!(b.rejected().await, Reason::Open);
    fleet.pass(Duration::from_millis(1));
    // At the deadline it is a probe, not a first failure.
    let (probe, ends) = b.hangs();
    fleet.settle().await;
    assert_eq!(a.rejected().await, Reason::ProbesInUse);
    ends.send(Err("still")).unwrap();
    probe.await.unwrap().unwrap_err();
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// The newest change wins, also where it closed and the store has lost everything.
pub(crate) async fn an_order_that_was_lifted_stays_lifted(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(1)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.breaker
        .force_open(order("maintenance"))
        .await
        .unwrap()
        .unwrap();
    fleet.settle().await;
    assert_eq!(b.state(), CircuitState::ForcedOpen);
    fleet.store.hang();
    fleet.pass(Duration::from_secs(1));
    b.breaker.release().await.unwrap();
    // Both find out that it is away.
    b.fails().await;
    assert_eq!(b.state(), CircuitState::Open);
    b.breaker.reset().await.unwrap();
    fleet.store.forget(NAME);
    fleet.store.recover();
    wait_until(|| fleet.states() == [CircuitState::Closed; 2]).await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
}

// Case 158: one sick machine does not open it for all.
pub(crate) async fn a_trip_wants_as_many_reporters_as_are_set(store: FaultyStore) {
    let fleet = Fleet::share_with(store, 3, count(5), |builder| builder.min_reporters(2)).await;
    let [a, b, c] = fleet.three();
    for _ in 0..100 {
        drop(a.call_failing().await);
    }
    fleet.settle().await;
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
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 3]);
    assert_eq!(c.rejected().await, Reason::Open);
}

// Case 158: a rule of one's own wants them, too.
pub(crate) async fn a_custom_rule_wants_as_many_reporters_as_are_set(store: FaultyStore) {
    let fleet =
        Fleet::share_with(store, 2, custom_three(), |builder| builder.min_reporters(2)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    a.fails().await;
    assert_eq!(a.state(), CircuitState::Closed);
    a.fails().await;
    fleet.settle().await;
    assert_eq!(a.state(), CircuitState::Open);
    assert_eq!(b.state(), CircuitState::Closed);
    let sharing = a.breaker.snapshot().await.unwrap().sharing;
    assert!(sharing.is_some_and(|sharing| sharing.joined && sharing.alone));
    fleet.pass(BREAK);
    a.succeeds().await;
    assert_eq!(a.state(), CircuitState::Closed);
    // What the first reported is in the window still.
    b.fails().await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// Rates: what each process counted makes one share.
pub(crate) async fn rates_are_of_the_whole_fleet(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, rate(0.5, 10)).await;
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
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    for _ in 0..10 {
        b.fails().await;
    }
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
}

// A rule of one's own sees the failures of the whole fleet.
pub(crate) async fn a_custom_rule_sees_the_failures_of_all(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, custom_three()).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    b.fails().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    a.fails().await;
    assert_eq!(a.rejected().await, Reason::Open);
    fleet.settle().await;
    assert_eq!(b.rejected().await, Reason::Open);
}

// `Strict`: what others did is seen at once, also where nothing was told.
pub(crate) async fn strict_asks_before_every_call(store: FaultyStore) {
    let fleet = Fleet::share_with(store, 2, count(1), |builder| {
        builder.consistency(Consistency::Strict)
    })
    .await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    fleet.settle().await;
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
pub(crate) async fn held_messages_go_with_the_stores_leave(store: FaultyStore) {
    let policy = Hold::new(10, 1_000 * SECOND, SECOND);
    let fleet = Fleet::share(store, 2, count(1).hold(policy).max_probes(2)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    fleet.settle().await;
    let guard = b.breaker.guard::<Say>(Target.start());
    let held: Vec<_> = (0..3)
        .map(|say| actix::spawn(guard.send_or_hold(Say(say))))
        .collect();
    fleet.settle().await;
    assert_eq!(b.breaker.snapshot().await.unwrap().held, 3);
    fleet.pass(BREAK);
    // The breaker looks at this clock by a timer of its own.
    wait_until(|| held[0].is_finished()).await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    let before = fleet.store.steps();
    fleet.pass(SECOND);
    wait_until(|| held[1].is_finished()).await;
    fleet.pass(SECOND);
    wait_until(|| held[2].is_finished()).await;
    assert_eq!(fleet.store.steps(), before);
}

// And does not ask again and again while it is not its turn.
pub(crate) async fn held_messages_wait_for_their_turn_without_asking(store: FaultyStore) {
    let policy = Hold::new(10, 1_000 * SECOND, 100 * SECOND);
    let config = count(1).hold(policy).max_probes(2).successes_to_close(2);
    let fleet = Fleet::share(store, 1, config).await;
    let a = fleet.process(0);
    a.fails().await;
    let guard = a.breaker.guard::<Say>(Target.start());
    let held: Vec<_> = (0..3)
        .map(|say| actix::spawn(guard.send_or_hold(Say(say))))
        .collect();
    fleet.settle().await;
    fleet.pass(BREAK);
    wait_until(|| held[0].is_finished()).await;
    fleet.settle().await;
    let before = fleet.store.steps();
    for _ in 0..20 {
        fleet.pass(Duration::from_millis(1));
        drop(a.breaker.snapshot().await);
        fleet.settle().await;
    }
    assert_eq!(fleet.store.steps(), before);
    fleet.pass(100 * SECOND);
    wait_until(|| held[1].is_finished()).await;
    fleet.settle().await;
    assert_eq!(a.state(), CircuitState::Closed);
}

// A message without a reply is a probe, too.
pub(crate) async fn a_tell_is_a_probe_with_the_stores_leave(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(1)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    fleet.settle().await;
    fleet.pass(BREAK);
    b.breaker.tell(&Target.start(), Say(1)).await.unwrap();
    fleet.settle().await;
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
pub(crate) async fn a_restart_in_the_middle_of_a_question_loses_nobody(store: FaultyStore) {
    let fleet = Fleet::share(store, 2, count(1)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    a.fails().await;
    fleet.settle().await;
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
