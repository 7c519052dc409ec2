//! Messages that wait inside a breaker: their order, how they leave, and how each of them ends.
//! The seed that holds messages is Fedify; where it does the same, the comment names its rule or test.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "panics are part of what is tested, and a test may fail"
)]

mod harness;

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    AskError, BackoffSupervisor, Breakers, BreakersBuilder, CircuitState, Clock, DropReason,
    Guarded, HeldAsk, HeldDropped, Hold, Outcome, RestartPolicy, SystemClock, Timestamp,
};
use futures::future::join_all;
use harness::*;
use tokio::sync::oneshot;

/// How long a message waits in most tests: longer than a break.
const TTL: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::from_millis(20);

/// What the clerk is to do with a letter.
#[derive(Debug)]
enum Act {
    Good,
    Bad,
    Late(Duration),
    Hang,
    Panic,
    Latch(oneshot::Receiver<Answer>),
}

#[derive(Debug, Message)]
#[rtype(result = "Answer")]
struct Letter {
    id: u32,
    act: Act,
}

/// The target: writes down what it gets, and when.
struct Clerk {
    clock: SystemClock,
    start: Timestamp,
    seen: Arc<Mutex<Vec<(u32, Duration)>>>,
}

impl Actor for Clerk {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Beyond its capacity actix keeps a message back until its future is polled.
        ctx.set_mailbox_capacity(0);
    }
}

impl Supervised for Clerk {}

impl Handler<Letter> for Clerk {
    type Result = ResponseActFuture<Self, Answer>;

    fn handle(&mut self, letter: Letter, _: &mut Context<Self>) -> Self::Result {
        let at = self.clock.now().since(self.start);
        self.seen.lock().unwrap().push((letter.id, at));
        let id = letter.id;
        let answer = async move {
            match letter.act {
                Act::Good => Ok(id),
                Act::Bad => Err(BAD),
                Act::Late(after) => {
                    tokio::time::sleep(after).await;
                    Ok(id)
                }
                Act::Hang => std::future::pending().await,
                Act::Panic => panic!("trap in the clerk"),
                Act::Latch(receiver) => receiver.await.unwrap_or(Err(BAD)),
            }
        };
        Box::pin(answer.into_actor(self))
    }
}

/// A breaker that trips at the first failure, for 10 s, and holds; its target; and a guard of it.
struct Post {
    w: World,
    guard: Guarded<Letter>,
    seen: Arc<Mutex<Vec<(u32, Duration)>>>,
    drops: Arc<Mutex<Vec<HeldDropped>>>,
    _listener: Addr<Listener>,
}

struct Listener(Arc<Mutex<Vec<HeldDropped>>>);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Handler<HeldDropped> for Listener {
    type Result = ();

    fn handle(&mut self, drop: HeldDropped, _: &mut Context<Self>) {
        self.0.lock().unwrap().push(drop);
    }
}

fn steady() -> Hold {
    Hold::new(10, TTL, SECOND)
}

async fn post(hold: Hold) -> Post {
    pause();
    post_of(Breakers::builder(), hold).await
}

async fn post_of(builder: BreakersBuilder, hold: Hold) -> Post {
    let w = world_of(builder, consecutive(1).hold(hold));
    let seen = Arc::default();
    let clock = SystemClock::new();
    let clerk = Clerk {
        start: clock.now(),
        clock,
        seen: Arc::clone(&seen),
    };
    let mut clerk = Some(clerk);
    let policy = RestartPolicy::new().backoff(MS);
    let clerk = BackoffSupervisor::start(policy, move |_| clerk.take().unwrap());
    let guard = w.breaker.guard(clerk);
    let drops = Arc::default();
    let listener = Listener(Arc::clone(&drops)).start();
    w.breaker.subscribe_drops(listener.clone()).await.unwrap();
    Post {
        w,
        guard,
        seen,
        drops,
        _listener: listener,
    }
}

impl Post {
    fn hold(&self, id: u32) -> HeldAsk<Letter> {
        self.send(id, Act::Good)
    }

    fn send(&self, id: u32, act: Act) -> HeldAsk<Letter> {
        self.guard.send_or_hold(Letter { id, act })
    }

    /// Trips the breaker; the break begins now.
    async fn trip(&self) {
        self.w.trip().await;
    }

    fn ids(&self) -> Vec<u32> {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .map(|(id, _)| *id)
            .collect()
    }

    /// What the target saw, and in which tenth of a second since the start.
    fn seen(&self) -> Vec<(u32, u128)> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .map(|(id, at)| (*id, at.as_millis() / 100))
            .collect()
    }

    fn drops(&self) -> Vec<DropReason> {
        self.drops
            .lock()
            .unwrap()
            .iter()
            .map(|drop| drop.why)
            .collect()
    }

    /// How many wait, and how many were held, released, dropped and turned away.
    async fn counts(&self) -> (usize, u64, u64, u64, u64) {
        let snapshot = self.w.snapshot().await;
        let counts = snapshot.held_counts;
        assert_eq!(
            counts.held,
            counts.released + counts.dropped + snapshot.held as u64
        );
        (
            snapshot.held,
            counts.held,
            counts.released,
            counts.dropped,
            counts.full,
        )
    }

    async fn closed_by_order(&self) {
        self.w.breaker.reset().await.unwrap();
    }
}

// Closed.

#[actix::test]
async fn a_closed_breaker_lets_a_message_straight_through() {
    let p = post(steady()).await;
    assert_eq!(p.hold(1).await, Ok(Ok(1)));
    assert_eq!(p.send(2, Act::Bad).await, Ok(Err(BAD)));
    // The failure counted as that of any other ask.
    assert_eq!(p.w.state(), CircuitState::Open);
    assert_eq!(p.counts().await, (0, 0, 0, 0, 0));
}

#[actix::test]
async fn a_message_is_sent_or_held_before_the_future_is_polled() {
    let p = post(steady()).await;
    let straight = p.hold(1);
    quiet().await;
    assert_eq!(p.ids(), [1]);
    assert_eq!(straight.await, Ok(Ok(1)));
    p.trip().await;
    let held = p.hold(2);
    assert_eq!(p.counts().await.0, 1);
    drop(held);
}

#[actix::test]
async fn without_a_policy_it_is_an_ask_like_any_other() {
    let w = world(consecutive(1));
    let guard = w.breaker.guard(w.target.clone());
    assert_eq!(guard.send_or_hold(Job::Good).await, Ok(Ok(1)));
    w.trip().await;
    let rejected = guard.send_or_hold(Job::Good).await.unwrap_err();
    assert!(matches!(rejected, AskError::Rejected(_)), "{rejected:?}");
    pass(BREAK).await;
    assert_eq!(guard.send_or_hold(Job::Good).await, Ok(Ok(1)));
    assert_eq!(w.state(), CircuitState::Closed);
}

// Open, and the end of the break.

// Seed 1.5: "opens, probes, closes": held for the break, at its end the first is the probe.
#[actix::test]
async fn messages_wait_for_the_break_and_the_first_is_the_probe_without_a_call() {
    let p = post(steady()).await;
    p.trip().await;
    let (answer, latch) = oneshot::channel();
    let first = p.send(1, Act::Latch(latch));
    let rest = [p.hold(2), p.hold(3)];
    pass(BREAK - 50 * MS).await;
    assert!(p.ids().is_empty());
    assert_eq!(p.w.state(), CircuitState::Open);
    // Nobody calls.
    pass(100 * MS).await;
    assert_eq!(p.ids(), [1]);
    assert_eq!(p.w.state(), CircuitState::HalfOpen);
    pass(500 * MS).await;
    assert_eq!(p.ids(), [1]);
    answer.send(Ok(7)).unwrap();
    assert_eq!(first.await, Ok(Ok(7)));
    assert_eq!(p.w.state(), CircuitState::Closed);
    let all = join_all(rest).await;
    assert_eq!(all, [Ok(Ok(2)), Ok(Ok(3))]);
    assert_eq!(p.counts().await, (0, 3, 3, 0, 0));
    // Three that waited were no rejections, and each was a call that was counted.
    assert_eq!(p.w.snapshot().await.calls.rejected, 0);
}

// Seed 1.3: in the seed the others are retried while half-open; here they leave one by one, never at once.
#[actix::test]
async fn after_closing_they_leave_one_at_each_interval_in_order() {
    let p = post(steady()).await;
    p.trip().await;
    let all: Vec<_> = (1..=6).map(|id| p.hold(id)).collect();
    for (id, reply) in (1..).zip(join_all(all).await) {
        assert_eq!(reply, Ok(Ok(id)));
    }
    let tenths = [(1, 100), (2, 110), (3, 120), (4, 130), (5, 140), (6, 150)];
    assert_eq!(p.seen(), tenths);
}

#[actix::test]
async fn growing_steps_double() {
    let p = post(Hold::new(100, TTL, SECOND).growing()).await;
    p.trip().await;
    let all: Vec<_> = (0..20).map(|id| p.hold(id)).collect();
    for (id, reply) in (0..).zip(join_all(all).await) {
        assert_eq!(reply, Ok(Ok(id)));
    }
    let at: Vec<u128> = p.seen().iter().map(|(_, at)| *at).collect();
    let mut steps = vec![100, 110, 120, 120];
    steps.extend([130; 4]);
    steps.extend([140; 8]);
    steps.extend([150; 4]);
    assert_eq!(at, steps);
    assert_eq!(p.ids(), (0..20).collect::<Vec<_>>());
}

// A failure among those released, below what trips.
#[actix::test]
async fn a_failure_among_growing_steps_starts_them_again() {
    let p = post(Hold::new(100, TTL, SECOND).growing()).await;
    p.trip().await;
    let config = consecutive(3).hold(Hold::new(100, TTL, SECOND).growing());
    p.w.breaker
        .reconfigure(config.build().unwrap())
        .await
        .unwrap()
        .unwrap();
    let all: Vec<_> = (0..14)
        .map(|id| p.send(id, if id == 5 { Act::Bad } else { Act::Good }))
        .collect();
    let replies = join_all(all).await;
    assert_eq!(replies[5], Ok(Err(BAD)));
    assert_eq!(
        replies
            .iter()
            .filter(|reply| matches!(reply, Ok(Ok(_))))
            .count(),
        13
    );
    let at: Vec<u128> = p.seen().iter().map(|(_, at)| *at).collect();
    // 1 probe; 1, 2, 4 with the failure among them; 1, 2, 4 again.
    let mut steps = vec![100, 110, 120, 120];
    steps.extend([130; 4]);
    steps.extend([140, 150, 150, 160, 160, 160]);
    assert_eq!(at, steps);
    assert_eq!(p.w.state(), CircuitState::Closed);
}

#[actix::test]
async fn a_trip_stops_the_release_and_the_rest_wait_again() {
    let p = post(steady()).await;
    p.trip().await;
    let all: Vec<_> = (1..=5)
        .map(|id| p.send(id, if id == 3 { Act::Bad } else { Act::Good }))
        .collect();
    let replies = join_all(all).await;
    assert_eq!(
        replies,
        [Ok(Ok(1)), Ok(Ok(2)), Ok(Err(BAD)), Ok(Ok(4)), Ok(Ok(5))]
    );
    // The third trips at 12 s; the fourth is the probe of that break.
    let tenths = [(1, 100), (2, 110), (3, 120), (4, 220), (5, 230)];
    assert_eq!(p.seen(), tenths);
}

// R14: the caller of a probe that fails gets the target's own error, the others wait on.
#[actix::test]
async fn a_failed_probe_ends_its_own_caller_only() {
    let p = post(steady()).await;
    p.trip().await;
    let probes = [
        p.send(1, Act::Bad),
        p.send(2, Act::Hang),
        p.send(3, Act::Panic),
    ];
    let last = p.hold(4);
    let replies = join_all(probes).await;
    let errors = [
        Ok(Err(BAD)),
        Err(AskError::Timeout(SECOND)),
        Err(AskError::Closed),
    ];
    assert_eq!(replies, errors);
    assert_eq!(last.await, Ok(Ok(4)));
    // A break after each; the one that hangs takes its second.
    assert_eq!(p.seen(), [(1, 100), (2, 200), (3, 310), (4, 410)]);
}

// R16, R20: a time that a guard gives its calls goes with those that wait.
#[actix::test]
async fn a_call_timeout_of_the_guards_own_holds_for_what_waited() {
    let p = post(steady()).await;
    p.trip().await;
    let guard = p.guard.clone().call_timeout(30 * SECOND);
    let act = Act::Hang;
    let long = guard.send_or_hold(Letter { id: 1, act });
    let began = SystemClock::new();
    let start = began.now();
    assert_eq!(long.await, Err(AskError::Timeout(30 * SECOND)));
    // The break, and the call: the lease of the probe is not over before.
    assert!(began.now().since(start) >= BREAK + 30 * SECOND);
    assert_eq!(p.w.snapshot().await.calls.lost_probes, 0);
}

// R7
#[actix::test]
async fn while_half_open_they_follow_as_far_as_probes_are_admitted() {
    let p = post(steady()).await;
    p.trip().await;
    let config = consecutive(1)
        .hold(steady())
        .max_probes(2)
        .successes_to_close(4);
    p.w.breaker
        .reconfigure(config.build().unwrap())
        .await
        .unwrap()
        .unwrap();
    let slow = Act::Late(2500 * MS);
    let config = consecutive(1)
        .call_timeout(4 * SECOND)
        .hold(steady())
        .max_probes(2)
        .successes_to_close(4);
    p.w.breaker
        .reconfigure(config.build().unwrap())
        .await
        .unwrap()
        .unwrap();
    let mut all = vec![p.send(1, slow)];
    all.extend((2..=5).map(|id| p.send(id, Act::Late(2500 * MS))));
    let replies = join_all(all).await;
    assert!(
        replies.iter().all(|reply| matches!(reply, Ok(Ok(_)))),
        "{replies:?}"
    );
    // Two at once, a second apart; then as slots come free.
    let tenths = [(1, 100), (2, 110), (3, 125), (4, 135), (5, 150)];
    assert_eq!(p.seen(), tenths);
}

// R16; seed 1.5: "recovers stale half-open probes".
#[actix::test]
async fn one_that_waits_gets_the_slot_of_a_probe_that_is_never_settled() {
    let p = post(steady()).await;
    p.trip().await;
    pass(BREAK).await;
    let permit = p.w.breaker.acquire().await.unwrap();
    assert!(permit.is_probe());
    let held = p.hold(1);
    // The lease is as long as the break.
    assert_eq!(held.await, Ok(Ok(1)));
    assert_eq!(p.seen(), [(1, 200)]);
    drop(permit);
}

// R10: nobody is woken when a slot is given back, so it is looked for.
#[actix::test]
async fn one_that_waits_gets_the_slot_of_a_caller_that_went_away() {
    let p = post(steady()).await;
    p.trip().await;
    pass(BREAK).await;
    let permit = p.w.breaker.acquire().await.unwrap();
    let held = p.hold(1);
    pass(3500 * MS).await;
    assert!(p.ids().is_empty());
    drop(permit);
    assert_eq!(held.await, Ok(Ok(1)));
    assert!(p.seen()[0].1 <= 145, "{:?}", p.seen());
}

#[actix::test]
async fn an_ask_that_may_not_wait_does_not_take_the_probe_of_those_who_do() {
    let p = post(steady()).await;
    p.trip().await;
    let held = p.hold(1);
    pass(BREAK - MS).await;
    // In one go: the end of the break and an ask, before any timer ran.
    tokio::time::advance(2 * MS).await;
    let ask = p.guard.send(Letter {
        id: 2,
        act: Act::Good,
    });
    assert_eq!(held.await, Ok(Ok(1)));
    drop(ask.await);
    assert_eq!(p.ids()[0], 1);
}

#[actix::test]
async fn later_ones_queue_behind_those_that_wait_though_the_breaker_is_closed() {
    let p = post(steady()).await;
    p.trip().await;
    let all = [p.hold(1), p.hold(2), p.hold(3)];
    pass(BREAK + 100 * MS).await;
    assert_eq!(p.w.state(), CircuitState::Closed);
    let later = p.hold(4);
    quiet().await;
    assert_eq!(p.ids(), [1]);
    // One that may not wait goes through at once.
    let passing = p.guard.send(Letter {
        id: 9,
        act: Act::Good,
    });
    assert_eq!(passing.await, Ok(Ok(9)));
    drop(join_all(all).await);
    assert_eq!(later.await, Ok(Ok(4)));
    assert_eq!(p.ids(), [1, 9, 2, 3, 4]);
    // Once nobody waits, straight again.
    let straight = p.hold(5);
    quiet().await;
    assert_eq!(p.ids(), [1, 9, 2, 3, 4, 5]);
    assert_eq!(straight.await, Ok(Ok(5)));
}

// One caller, whose message is still on its way to a breaker that closes.
#[actix::test]
async fn a_message_on_its_way_is_not_overtaken_by_the_next_of_its_caller() {
    let p = post(steady()).await;
    p.trip().await;
    let reset = p.w.breaker.reset();
    let first = p.hold(1);
    // Both are in the mailbox; the breaker closes before it sees the message.
    let second = p.hold(2);
    reset.await.unwrap();
    let third = p.hold(3);
    let replies = join_all([first, second, third]).await;
    assert_eq!(replies, [Ok(Ok(1)), Ok(Ok(2)), Ok(Ok(3))]);
    assert_eq!(p.ids(), [1, 2, 3]);
}

/// The machine's clock, which panics once, the so-manieth time it is read.
#[derive(Debug, Clone, Default)]
struct Fuse {
    clock: SystemClock,
    left: Arc<AtomicI64>,
}

impl Clock for Fuse {
    fn now(&self) -> Timestamp {
        assert_ne!(
            self.left.fetch_sub(1, Ordering::SeqCst),
            1,
            "trap in the clock"
        );
        self.clock.now()
    }
}

// R29: the same, where the breaker's actor has closed, panics over the message and is away for a while.
#[actix::test]
async fn a_message_over_which_the_breaker_panics_is_not_overtaken_either() {
    pause();
    let fuse = Fuse::default();
    let p = post_of(Breakers::builder().clock(Arc::new(fuse.clone())), steady()).await;
    p.trip().await;
    let reset = p.w.breaker.reset();
    let first = p.hold(1);
    fuse.left.store(2, Ordering::SeqCst);
    reset.await.unwrap();
    quiet().await;
    assert_eq!(fuse.left.load(Ordering::SeqCst), 0);
    assert_eq!((p.w.state(), p.ids()), (CircuitState::Closed, vec![]));
    let second = p.hold(2);
    assert_eq!(join_all([first, second]).await, [Ok(Ok(1)), Ok(Ok(2))]);
    assert_eq!(p.ids(), [1, 2]);
}

// Time to live.

// Seed 1.5: "caps held delays at activity TTL"; 1.3 rule 1: dropped while open.
#[actix::test]
async fn the_ttl_caps_the_wait_while_open() {
    let p = post(Hold::new(10, 4 * SECOND, SECOND)).await;
    p.trip().await;
    let first = p.hold(1);
    pass(2 * SECOND).await;
    let mut second = Box::pin(p.hold(2));
    let start = SystemClock::new();
    let began = start.now();
    assert_eq!(first.await, Err(AskError::HoldExpired(4 * SECOND)));
    let waited = start.now().since(began);
    assert!(
        waited >= 2 * SECOND && waited < 2 * SECOND + NOW,
        "{waited:?}"
    );
    assert!(poll_once(&mut second).await.is_pending());
    assert_eq!(second.await, Err(AskError::HoldExpired(4 * SECOND)));
    quiet().await;
    assert_eq!(p.drops(), [DropReason::Expired; 2]);
    assert_eq!(p.counts().await, (0, 2, 0, 2, 0));
    assert!(p.ids().is_empty());
    let held_for = p.drops.lock().unwrap()[0].held_for;
    assert!(held_for >= 4 * SECOND && held_for < 4 * SECOND + NOW);
}

// Seed 1.5: "opens, probes, closes, and drops held activities": dropped also when closed (1.3 rule 1).
#[actix::test]
async fn the_ttl_counts_while_the_closed_breaker_releases() {
    let p = post(Hold::new(10, 12_500 * MS, SECOND)).await;
    p.trip().await;
    let all: Vec<_> = (1..=5).map(|id| p.hold(id)).collect();
    let replies = join_all(all).await;
    let expired = || Err(AskError::HoldExpired(12_500 * MS));
    // Probe at 10 s, then at 11 s and 12 s; the time of the others is over at 12.5 s.
    assert_eq!(
        replies,
        [Ok(Ok(1)), Ok(Ok(2)), Ok(Ok(3)), expired(), expired()]
    );
    assert_eq!(p.w.state(), CircuitState::Closed);
    assert_eq!(p.counts().await, (0, 5, 3, 2, 0));
    quiet().await;
    assert_eq!(p.drops(), [DropReason::Expired; 2]);
}

// Seed 1.3 rule 1: the age is looked at before the circuit, so one that is over is no probe.
#[actix::test]
async fn a_message_whose_time_ends_with_the_break_is_not_the_probe() {
    let p = post(Hold::new(10, BREAK, SECOND)).await;
    p.trip().await;
    let over = p.hold(1);
    pass(5 * SECOND).await;
    let probe = p.hold(2);
    assert_eq!(over.await, Err(AskError::HoldExpired(BREAK)));
    assert_eq!(probe.await, Ok(Ok(2)));
}

// Capacity.

#[actix::test]
async fn a_full_queue_refuses_the_next_and_says_so() {
    let p = post(Hold::new(2, TTL, SECOND)).await;
    p.trip().await;
    let all = [p.hold(1), p.hold(2)];
    let refused = p.hold(3).await.unwrap_err();
    assert!(
        matches!(refused, AskError::HoldFull { capacity: 2, .. }),
        "{refused:?}"
    );
    assert!(refused.is_rejected());
    assert_eq!(refused.retry_after(), None);
    assert_eq!(refused.to_string(), "not held, 2 messages wait already");
    assert_eq!(p.counts().await, (2, 2, 0, 0, 1));
    quiet().await;
    assert_eq!(p.drops(), [DropReason::Full]);
    assert_eq!(join_all(all).await, [Ok(Ok(1)), Ok(Ok(2))]);
    // A free place serves again.
    p.w.trip().await;
    let held = p.hold(4);
    assert_eq!(p.counts().await.0, 1);
    assert_eq!(held.await, Ok(Ok(4)));
}

// Callers that do not let the breaker's actor run: what is on its way is bounded too.
#[actix::test]
async fn more_than_can_be_on_their_way_are_refused_at_once_and_counted() {
    let p = post(Hold::new(10, TTL, SECOND)).await;
    p.trip().await;
    let all: Vec<_> = (0..3000).map(|id| p.hold(id)).collect();
    let replies = join_all(all).await;
    let sent = replies.iter().filter(|reply| reply.is_ok()).count();
    assert_eq!(sent, 10);
    assert_eq!(p.counts().await, (0, 10, 10, 0, 2990));
    assert_eq!(p.ids(), (0..10).collect::<Vec<_>>());
}

// Callers that go away.

#[actix::test]
async fn a_caller_that_goes_away_takes_its_message_along() {
    let p = post(Hold::new(3, TTL, SECOND)).await;
    p.trip().await;
    let first = p.hold(1);
    let second = p.hold(2);
    let third = p.hold(3);
    quiet().await;
    drop(second);
    drop(first);
    // Their places are free at once.
    let fourth = p.hold(4);
    let fifth = p.hold(5);
    assert_eq!(p.counts().await, (3, 5, 0, 2, 0));
    assert_eq!(
        join_all([third, fourth, fifth]).await,
        [Ok(Ok(3)), Ok(Ok(4)), Ok(Ok(5))]
    );
    assert_eq!(p.ids(), [3, 4, 5]);
    assert_eq!(p.drops(), [DropReason::CallerGone; 2]);
}

#[actix::test]
async fn a_caller_that_goes_away_before_the_breaker_looks_sends_nothing() {
    let p = post(steady()).await;
    p.trip().await;
    drop(p.hold(1));
    assert_eq!(p.counts().await, (0, 1, 0, 1, 0));
    pass(2 * BREAK).await;
    assert!(p.ids().is_empty());
    assert_eq!(p.drops(), [DropReason::CallerGone]);
    // Nobody was a probe either.
    assert!(p.w.snapshot().await.probe_due);
}

// R8: nor does it where the breaker would have let it through as the probe.
#[actix::test]
async fn a_caller_that_goes_away_at_the_end_of_the_break_is_not_the_probe() {
    let p = post(steady()).await;
    p.trip().await;
    pass(BREAK).await;
    drop(p.hold(1));
    assert_eq!(p.counts().await, (0, 1, 0, 1, 0));
    assert!(p.ids().is_empty());
    assert!(p.w.snapshot().await.probe_due);
    assert_eq!(p.drops(), [DropReason::CallerGone]);
}

// R10: what was sent runs on.
#[actix::test]
async fn a_probe_whose_caller_goes_away_runs_on_and_closes() {
    let p = post(steady()).await;
    p.trip().await;
    let first = p.send(1, Act::Late(500 * MS));
    let second = p.hold(2);
    pass(BREAK + 100 * MS).await;
    assert_eq!(p.ids(), [1]);
    drop(first);
    assert_eq!(second.await, Ok(Ok(2)));
    assert_eq!(p.counts().await, (0, 2, 2, 0, 0));
}

#[actix::test]
async fn a_future_can_be_dropped_where_thread_locals_are_destroyed() {
    struct Last(Option<HeldAsk<Letter>>);
    thread_local! {
        static LAST: std::cell::RefCell<Last> = const { std::cell::RefCell::new(Last(None)) };
    }
    let p = post(steady()).await;
    p.trip().await;
    let held = p.hold(1);
    assert_eq!(p.counts().await.0, 1);
    std::thread::spawn(move || {
        // tokio's locals are made before and so destroyed before this one, or after: both are safe.
        LAST.with(|last| last.borrow_mut().0 = Some(held));
        drop(tokio::runtime::Handle::try_current());
    })
    .join()
    .unwrap();
    let held = p.hold(2);
    assert_eq!(p.counts().await, (1, 2, 0, 1, 0));
    std::thread::spawn(move || {
        drop(tokio::runtime::Handle::try_current());
        LAST.with(|last| last.borrow_mut().0 = Some(held));
    })
    .join()
    .unwrap();
    assert_eq!(p.counts().await, (0, 2, 0, 2, 0));
}

// Lives.

// R29
#[actix::test]
async fn a_panic_of_the_breakers_actor_loses_none_that_wait() {
    pause();
    let trap = Trap::default();
    let p = post_of(Breakers::builder().clock(Arc::new(trap.clone())), steady()).await;
    p.trip().await;
    let mut all = vec![p.hold(1), p.hold(2)];
    quiet().await;
    // Over the very message that brings the third.
    trap.set();
    all.push(p.hold(3));
    quiet().await;
    assert!(!trap.is_set());
    all.push(p.hold(4));
    let replies = join_all(all).await;
    assert_eq!(replies, [Ok(Ok(1)), Ok(Ok(2)), Ok(Ok(3)), Ok(Ok(4))]);
    assert_eq!(p.ids(), [1, 2, 3, 4]);
    assert_eq!(p.w.snapshot().await.restarts, 1);
    let tenths: Vec<u128> = p.seen().iter().map(|(_, at)| *at).collect();
    assert_eq!(tenths, [100, 110, 120, 130]);
}

#[actix::test]
async fn a_panic_while_they_are_released_costs_time_alone() {
    pause();
    let trap = Trap::default();
    let p = post_of(Breakers::builder().clock(Arc::new(trap.clone())), steady()).await;
    p.trip().await;
    let all: Vec<_> = (1..=4).map(|id| p.hold(id)).collect();
    pass(BREAK + 1500 * MS).await;
    assert_eq!(p.ids(), [1, 2]);
    trap.set();
    drop(p.w.breaker.snapshot().await);
    assert_eq!(
        join_all(all).await,
        [Ok(Ok(1)), Ok(Ok(2)), Ok(Ok(3)), Ok(Ok(4))]
    );
    assert_eq!(p.ids(), [1, 2, 3, 4]);
}

// R23
#[actix::test]
async fn forced_open_they_wait_up_to_their_ttl() {
    let p = post(steady()).await;
    p.w.breaker
        .force_open(ForceOpen::new("x"))
        .await
        .unwrap()
        .unwrap();
    let held = p.hold(1);
    pass(TTL - SECOND).await;
    assert!(p.ids().is_empty());
    assert_eq!(held.await, Err(AskError::HoldExpired(TTL)));
    // With a time of its own it ends in a probe.
    let order = ForceOpen::new("x").ttl(5 * SECOND);
    p.w.breaker.force_open(order).await.unwrap().unwrap();
    assert_eq!(p.hold(2).await, Ok(Ok(2)));
    assert_eq!(p.w.state(), CircuitState::Closed);
}

// R23, R24
#[actix::test]
async fn orders_that_close_start_the_release() {
    for order in 0..3 {
        let p = post(steady()).await;
        p.trip().await;
        let all: Vec<_> = (1..=3).map(|id| p.hold(id)).collect();
        quiet().await;
        match order {
            0 => p.closed_by_order().await,
            1 => {
                let order = ForceClosed::new("x");
                p.w.breaker.force_closed(order).await.unwrap().unwrap();
            }
            _ => {
                let order = ForceOpen::new("x");
                p.w.breaker.force_open(order).await.unwrap().unwrap();
                p.w.breaker.release().await.unwrap();
            }
        }
        drop(join_all(all).await);
        assert_eq!(p.seen(), [(1, 10), (2, 20), (3, 30)]);
    }
}

// R29
#[actix::test]
async fn a_breaker_that_is_removed_ends_those_who_wait() {
    let p = post(steady()).await;
    p.trip().await;
    let all = [p.hold(1), p.hold(2)];
    quiet().await;
    assert!(p.w.breakers.remove("b"));
    assert_eq!(
        join_all(all).await,
        [Err(AskError::Closed), Err(AskError::Closed)]
    );
    quiet().await;
    assert_eq!(p.drops(), [DropReason::BreakerGone; 2]);
    // It guards nothing any more.
    assert_eq!(p.hold(3).await, Ok(Ok(3)));
}

#[actix::test]
async fn a_breaker_whose_arbiter_stops_ends_those_who_wait() {
    let arbiter = Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&arbiter.handle());
    let config = consecutive(1).hold(steady()).build().unwrap();
    let breaker = breakers.create("b", config).unwrap();
    let (target, _) = target();
    let guard = breaker.guard(target);
    assert_eq!(guard.send(Job::Bad).await, Ok(Err(BAD)));
    let held = guard.send_or_hold(Job::Good);
    assert_eq!(breaker.snapshot().await.unwrap().held, 1);
    arbiter.stop();
    assert_eq!(held.await, Err(AskError::Closed));
}

// R32: it is not idle while messages wait, though nobody holds it.
#[actix::test]
async fn a_breaker_in_which_messages_wait_is_not_evicted() {
    pause();
    let breakers = Breakers::builder().max_breakers(1).start();
    let config = consecutive(1).hold(steady()).build().unwrap();
    let breaker = breakers.create("b", config.clone()).unwrap();
    let (target, seen) = target();
    drop(breaker.ask(&target, Job::Bad).await);
    let told = [
        breaker.tell_or_hold(&target, Job::Good),
        breaker.tell_or_hold(&target, Job::Good),
    ];
    breaker.reset().await.unwrap();
    assert_eq!(breaker.state(), CircuitState::Closed);
    drop((told, breaker));
    assert!(breakers.create("other", config.clone()).is_err());
    pass(3 * SECOND).await;
    assert_eq!(seen.get(), 3);
    assert!(breakers.create("other", config).is_ok());
}

// R35
#[actix::test]
async fn another_policy_binds_from_the_next_step() {
    let p = post(steady()).await;
    p.trip().await;
    let all = [p.hold(1), p.hold(2), p.hold(3)];
    quiet().await;
    let narrow = consecutive(1)
        .hold(Hold::new(1, TTL, 2 * SECOND))
        .build()
        .unwrap();
    p.w.breaker.reconfigure(narrow).await.unwrap().unwrap();
    // Those who wait stay, though there is less room.
    let refused = p.hold(4).await;
    assert!(matches!(
        refused,
        Err(AskError::HoldFull { capacity: 1, .. })
    ));
    let replies = join_all(all).await;
    assert_eq!(replies, [Ok(Ok(1)), Ok(Ok(2)), Ok(Ok(3))]);
    assert_eq!(p.seen(), [(1, 100), (2, 120), (3, 140)]);
    p.w.trip().await;
    let held = p.hold(5);
    quiet().await;
    let short = consecutive(1)
        .hold(Hold::new(1, SECOND, SECOND))
        .build()
        .unwrap();
    p.w.breaker.reconfigure(short).await.unwrap().unwrap();
    assert_eq!(held.await, Err(AskError::HoldExpired(SECOND)));
}

// R35
#[actix::test]
async fn a_policy_taken_away_keeps_those_who_wait_and_holds_no_more() {
    let p = post(steady()).await;
    p.trip().await;
    let all = [p.hold(1), p.hold(2)];
    quiet().await;
    p.w.breaker
        .reconfigure(consecutive(1).build().unwrap())
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(p.hold(3).await, Err(AskError::Rejected(_))));
    assert_eq!(join_all(all).await, [Ok(Ok(1)), Ok(Ok(2))]);
    assert_eq!(p.seen(), [(1, 100), (2, 110)]);
}

// A clock of the user's that no timer follows.
#[actix::test]
async fn on_a_clock_without_timers_the_breaker_looks_by_itself() {
    pause();
    let clock = actix_circuit_breaker::ManualClock::new();
    let p = post_of(Breakers::builder().clock(Arc::new(clock.clone())), steady()).await;
    p.trip().await;
    let all = [p.hold(1), p.hold(2)];
    pass(TTL).await;
    assert!(p.ids().is_empty());
    clock.advance(BREAK);
    pass(NOW).await;
    assert_eq!(p.ids(), [1]);
    clock.advance(SECOND);
    pass(NOW).await;
    assert_eq!(join_all(all).await, [Ok(Ok(1)), Ok(Ok(2))]);
}

// User code that panics.

/// Panics when it is dropped, but for the letters that arrive.
struct Fragile(bool);

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(!self.0, "trap in a destructor");
    }
}

#[derive(Message)]
#[rtype(result = "Answer")]
struct Brittle(Fragile);

impl Handler<Brittle> for Clerk {
    type Result = Answer;

    fn handle(&mut self, mut letter: Brittle, _: &mut Context<Self>) -> Answer {
        letter.0.0 = false;
        Ok(0)
    }
}

#[actix::test]
async fn messages_whose_destructors_panic_hurt_nobody() {
    let p = post(Hold::new(3, 5 * SECOND, SECOND)).await;
    p.trip().await;
    let clock = SystemClock::new();
    let clerk = Clerk {
        start: clock.now(),
        clock,
        seen: Arc::default(),
    };
    let guard = p.w.breaker.guard(clerk.start());
    let brittle = || guard.send_or_hold(Brittle(Fragile(true)));
    let gone = brittle();
    let mut expired = vec![brittle(), brittle()];
    quiet().await;
    let full = brittle().await;
    assert!(matches!(full, Err(AskError::HoldFull { .. })));
    drop(gone);
    expired.push(brittle());
    for held in expired {
        assert_eq!(held.await, Err(AskError::HoldExpired(5 * SECOND)));
    }
    let last = brittle();
    quiet().await;
    assert!(p.w.breakers.remove("b"));
    assert_eq!(last.await, Err(AskError::Closed));
    quiet().await;
    assert_eq!(
        p.drops(),
        [
            DropReason::Full,
            DropReason::CallerGone,
            DropReason::Expired,
            DropReason::Expired,
            DropReason::Expired,
            DropReason::BreakerGone
        ]
    );
}

// R26: as those of subscribers, the wakers of callers are their own.
#[actix::test]
async fn a_caller_whose_waker_panics_is_felt_by_nobody() {
    struct Trouble;
    impl std::task::Wake for Trouble {
        fn wake(self: Arc<Self>) {
            panic!("trap in a waker");
        }
    }
    let p = post(Hold::new(10, 5 * SECOND, SECOND)).await;
    p.trip().await;
    let waker = Arc::new(Trouble).into();
    let mut trouble = Box::pin(p.hold(1));
    let polled = trouble
        .as_mut()
        .poll(&mut std::task::Context::from_waker(&waker));
    assert!(polled.is_pending());
    assert_eq!(p.hold(2).await, Err(AskError::HoldExpired(5 * SECOND)));
    assert_eq!(trouble.await, Err(AskError::HoldExpired(5 * SECOND)));
    let mut trouble = Box::pin(p.hold(3));
    let polled = trouble
        .as_mut()
        .poll(&mut std::task::Context::from_waker(&waker));
    assert!(polled.is_pending());
    quiet().await;
    p.closed_by_order().await;
    assert_eq!(p.hold(4).await, Ok(Ok(4)));
    assert_eq!(trouble.await, Ok(Ok(3)));
    assert_eq!(p.w.snapshot().await.restarts, 0);
}

// A message that holds another one's future: it is dropped inside the breaker's actor.
#[actix::test]
async fn a_message_that_is_dropped_may_take_another_along() {
    #[derive(Message)]
    #[rtype(result = "Answer")]
    struct Nested(HeldAsk<Letter>);
    impl Handler<Nested> for Clerk {
        type Result = Answer;
        fn handle(&mut self, Nested(inner): Nested, _: &mut Context<Self>) -> Answer {
            drop(inner);
            Ok(0)
        }
    }
    let p = post(steady()).await;
    p.trip().await;
    let clock = SystemClock::new();
    let clerk = Clerk {
        start: clock.now(),
        clock,
        seen: Arc::default(),
    };
    let guard = p.w.breaker.guard(clerk.start());
    let outer = guard.send_or_hold(Nested(p.hold(1)));
    assert_eq!(p.counts().await.0, 2);
    drop(outer);
    quiet().await;
    assert_eq!(p.counts().await, (0, 2, 0, 2, 0));
    assert_eq!(p.drops(), [DropReason::CallerGone; 2]);
}

/// Holds the future of another message, which is put in later.
#[derive(Clone, Default, Message)]
#[rtype(result = "Answer")]
struct Envelope(Arc<Mutex<Option<HeldAsk<Letter>>>>);

impl Handler<Envelope> for Clerk {
    type Result = Answer;

    fn handle(&mut self, _: Envelope, _: &mut Context<Self>) -> Answer {
        Ok(0)
    }
}

// The same, where the caller of one goes away in the very step in which both are due.
#[actix::test]
async fn a_caller_that_goes_away_in_the_step_that_looks_at_its_message_is_seen() {
    for at_release in [false, true] {
        let p = post(Hold::new(
            10,
            if at_release { TTL } else { BREAK / 2 },
            SECOND,
        ))
        .await;
        p.trip().await;
        let clock = SystemClock::new();
        let clerk = Clerk {
            start: clock.now(),
            clock,
            seen: Arc::default(),
        };
        let guard = p.w.breaker.guard(clerk.start());
        let envelope = Envelope::default();
        if at_release {
            // Its own caller goes away too, and with it goes the message.
            let first = guard.send_or_hold(envelope.clone());
            *envelope.0.lock().unwrap() = Some(p.hold(1));
            drop(envelope);
            let last = p.hold(2);
            quiet().await;
            drop(first);
            assert_eq!(last.await, Ok(Ok(2)));
            assert_eq!(p.ids(), [2]);
            assert_eq!(p.counts().await, (0, 3, 1, 2, 0));
            assert_eq!(p.drops(), [DropReason::CallerGone; 2]);
        } else {
            let first = guard.send_or_hold(envelope.clone());
            *envelope.0.lock().unwrap() = Some(p.hold(1));
            drop(envelope);
            assert_eq!(first.await, Err(AskError::HoldExpired(BREAK / 2)));
            quiet().await;
            assert_eq!(p.counts().await, (0, 2, 0, 2, 0));
            assert_eq!(p.drops(), [DropReason::Expired, DropReason::CallerGone]);
        }
    }
}

#[actix::test]
async fn a_century_is_a_ttl_and_an_interval_like_any_other() {
    let century = Duration::from_secs(100 * 365 * 86_400);
    let p = post(Hold::new(10, century, century)).await;
    p.trip().await;
    let held = [p.hold(1), p.hold(2)];
    pass(BREAK + NOW).await;
    assert_eq!(p.ids(), [1]);
    assert_eq!(p.counts().await.0, 1);
    drop(held);
    assert_eq!(p.counts().await.0, 0);
}

// R19
#[actix::test]
async fn a_classifier_that_panics_makes_a_released_message_a_failure() {
    let p = post(steady()).await;
    p.trip().await;
    let (target, _) = target();
    let guard =
        p.w.breaker
            .guard_with(target, |_: &Answer| -> Outcome { panic!("trap") });
    let held = guard.send_or_hold(Job::Good);
    let after = p.hold(2);
    // Its caller gets the reply all the same.
    assert_eq!(held.await, Ok(Ok(1)));
    assert_eq!(p.w.state(), CircuitState::Open);
    assert_eq!(after.await, Ok(Ok(2)));
}

// R26
#[actix::test]
async fn one_who_listens_to_drops_and_panics_or_is_slow_is_not_felt() {
    struct Trouble;
    impl Actor for Trouble {
        type Context = Context<Self>;
    }
    impl Handler<HeldDropped> for Trouble {
        type Result = ();
        fn handle(&mut self, _: HeldDropped, _: &mut Context<Self>) {
            panic!("trap in a listener");
        }
    }
    struct Slow(Counter);
    impl Actor for Slow {
        type Context = Context<Self>;
    }
    impl Handler<HeldDropped> for Slow {
        type Result = ResponseFuture<()>;
        fn handle(&mut self, _: HeldDropped, _: &mut Context<Self>) -> Self::Result {
            self.0.add();
            Box::pin(std::future::pending())
        }
    }
    let p = post(Hold::new(1, SECOND, SECOND)).await;
    let handled = Counter::default();
    let slow = Slow(handled.clone()).start();
    let trouble = Trouble.start();
    p.w.breaker.subscribe_drops(slow.clone()).await.unwrap();
    p.w.breaker.subscribe_drops(trouble.clone()).await.unwrap();
    p.trip().await;
    let held = p.hold(0);
    for id in 1..200 {
        assert!(p.hold(id).await.is_err());
    }
    assert_eq!(held.await, Err(AskError::HoldExpired(SECOND)));
    quiet().await;
    assert_eq!(handled.get(), 1);
    let drops = p.drops.lock().unwrap();
    assert_eq!(drops.len(), 200);
    let seqs: Vec<u64> = drops.iter().map(|drop| drop.seq).collect();
    assert_eq!(seqs, (1..=200).collect::<Vec<_>>());
}

// Anything, in any order.

/// How a future ended.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Replied,
    Expired,
    Full,
    Timeout,
}

#[actix::test]
async fn under_random_schedules_each_message_ends_once_and_arrives_in_order() {
    pause();
    let mut total = [0; 4];
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let interval = Duration::from_millis(random.u64(50..3000));
        let ttl = Duration::from_millis(random.u64(1000..40_000));
        let hold = Hold::new(random.u32(1..12), ttl, interval);
        let hold = if random.bool() { hold.growing() } else { hold };
        let trap = Trap::default();
        let p = post_of(Breakers::builder().clock(Arc::new(trap.clone())), hold).await;
        let ends: Rc<RefCell<Vec<Vec<End>>>> = Rc::default();
        let mut tasks = Vec::new();
        for _ in 0..120 {
            let id = u32::try_from(tasks.len()).unwrap();
            match random.u32(0..24) {
                0 => p.w.breaker.reset().await.unwrap_or(()),
                1 => {
                    let order = ForceOpen::new("x").ttl(Duration::from_secs(random.u64(1..20)));
                    drop(p.w.breaker.force_open(order).await);
                }
                2 => p.w.breaker.release().await.unwrap_or(()),
                3 => trap.set(),
                4 | 5 if !tasks.is_empty() => {
                    // Its caller goes away, if it is still there.
                    let task: &tokio::task::JoinHandle<()> = &tasks[random.usize(0..tasks.len())];
                    task.abort();
                }
                6..=9 => pass(Duration::from_millis(random.u64(0..6000))).await,
                10 => quiet().await,
                _ => {
                    let act = match random.u32(0..10) {
                        0 | 1 => Act::Bad,
                        2 | 3 => Act::Late(Duration::from_millis(random.u64(0..1500))),
                        4 => Act::Hang,
                        _ => Act::Good,
                    };
                    ends.borrow_mut().push(Vec::new());
                    let held = p.send(id, act);
                    let ends = Rc::clone(&ends);
                    tasks.push(actix::spawn(async move {
                        let end = match held.await {
                            Ok(_) => End::Replied,
                            Err(AskError::HoldExpired(_)) => End::Expired,
                            Err(AskError::HoldFull { .. }) => End::Full,
                            Err(AskError::Timeout(_)) => End::Timeout,
                            Err(error) => panic!("seed {seed}: {error:?}"),
                        };
                        ends.borrow_mut()[id as usize].push(end);
                    }));
                }
            }
        }
        pass(TTL).await;
        let seen = p.ids();
        assert!(seen.is_sorted_by(|a, b| a < b), "seed {seed}: {seen:?}");
        let ends = ends.take();
        for (id, (ends, task)) in ends.iter().zip(tasks).enumerate() {
            let aborted = match task.await {
                Ok(()) => false,
                Err(error) => {
                    assert!(error.is_cancelled(), "seed {seed}: {id}: {error}");
                    true
                }
            };
            let was_seen = seen.contains(&u32::try_from(id).unwrap());
            match ends[..] {
                [] => assert!(aborted, "seed {seed}: {id} never ended"),
                [end] => {
                    total[end as usize] += 1;
                    let sent = matches!(end, End::Replied | End::Timeout);
                    assert_eq!(was_seen, sent, "seed {seed}: {id}");
                }
                _ => panic!("seed {seed}: {id} ended as {ends:?}"),
            }
        }
        let (waiting, ..) = p.counts().await;
        assert_eq!(waiting, 0, "seed {seed}");
    }
    assert!(total.iter().all(|ends| *ends > 20), "{total:?}");
}

// Sums.

static DELIVERED: AtomicU64 = AtomicU64::new(0);

#[derive(Message)]
#[rtype(result = "Answer")]
struct Numbered {
    caller: usize,
    number: u32,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Ready;

impl Handler<Ready> for Accountant {
    type Result = ();

    fn handle(&mut self, _: Ready, _: &mut Context<Self>) {}
}

struct Accountant {
    last: Vec<Option<u32>>,
    handled: u32,
}

impl Actor for Accountant {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Beyond its capacity actix keeps a message back until its future is polled.
        ctx.set_mailbox_capacity(0);
    }
}

impl Handler<Numbered> for Accountant {
    type Result = Answer;

    fn handle(&mut self, message: Numbered, _: &mut Context<Self>) -> Answer {
        let last = &mut self.last[message.caller];
        // In the order in which its caller sent, and none twice.
        assert!(last.is_none_or(|last| last < message.number));
        *last = Some(message.number);
        DELIVERED.fetch_add(1, Ordering::SeqCst);
        self.handled += 1;
        // A failure now and then, to have it trip.
        if self.handled.is_multiple_of(499) {
            Err(BAD)
        } else {
            Ok(message.number)
        }
    }
}

// R21 and the sums: each future ends once, each message arrives at most once, in the order of its caller.
#[actix::test]
async fn every_message_of_many_callers_is_accounted_for() {
    const CALLERS: usize = 4;
    const EACH: u32 = 25_000;
    let arbiters: Vec<_> = (0..CALLERS).map(|_| Arbiter::new()).collect();
    let home = Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&home.handle());
    let hold = Hold::new(150, 7 * MS, Duration::from_micros(100)).growing();
    let config = consecutive(1)
        .break_duration(5 * MS)
        .call_timeout(SECOND * 30)
        .hold(hold);
    let breaker = breakers.create("sums", config.build().unwrap()).unwrap();
    let accountant = Accountant {
        last: vec![None; CALLERS],
        handled: 0,
    };
    let accountant = Actor::start_in_arbiter(&Arbiter::new().handle(), |_| accountant);
    // Its mailbox has its capacity once it has started.
    accountant.send(Ready).await.unwrap();
    let mut results = Vec::new();
    for (caller, arbiter) in arbiters.iter().enumerate() {
        let (sender, receiver) = oneshot::channel();
        let guard = breaker.guard(accountant.clone());
        arbiter.spawn(async move {
            // Replied, expired, full, closed, given up.
            let mut ends = [0_u64; 5];
            let mut number = 0;
            while number < EACH {
                let mut batch = Vec::new();
                for _ in 0..50 {
                    batch.push(guard.send_or_hold(Numbered { caller, number }));
                    number += 1;
                }
                // Some callers go away at once.
                for _ in 0..5 {
                    drop(batch.pop());
                    ends[4] += 1;
                }
                for end in join_all(batch).await {
                    match end {
                        Ok(_) => ends[0] += 1,
                        Err(AskError::HoldExpired(_)) => ends[1] += 1,
                        Err(AskError::HoldFull { .. }) => ends[2] += 1,
                        Err(error) => panic!("{error:?}"),
                    }
                }
            }
            sender.send(ends).unwrap();
        });
        results.push(receiver);
    }
    let mut total = [0; 5];
    for result in results {
        for (sum, part) in total.iter_mut().zip(result.await.unwrap()) {
            *sum += part;
        }
    }
    assert_eq!(
        total.iter().sum::<u64>(),
        CALLERS as u64 * u64::from(EACH),
        "{total:?}"
    );
    let snapshot = breaker.snapshot().await.unwrap();
    let counts = snapshot.held_counts;
    let delivered = DELIVERED.load(Ordering::SeqCst);
    println!("{total:?} {counts:?} delivered {delivered}");
    assert_eq!(
        counts.held,
        counts.released + counts.dropped + snapshot.held as u64
    );
    // Whoever got a reply was delivered; of those who went away some were.
    assert!(delivered >= total[0] && delivered <= total[0] + total[4]);
    // The futures of those who went away cannot tell.
    assert!(counts.full >= total[2] && counts.full <= total[2] + total[4]);
    assert!(counts.dropped >= total[1] && counts.dropped <= total[1] + total[4]);
    assert!(counts.released > 0, "nothing had to wait: {counts:?}");
    for arbiter in arbiters {
        arbiter.stop();
    }
    home.stop();
}

#[test]
fn the_future_can_go_where_actors_need_it() {
    fn sent<T: Send + 'static>() {}
    sent::<HeldAsk<Letter>>();
}
