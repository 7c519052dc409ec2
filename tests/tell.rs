//! Messages without a reply: what becomes of them in each state, and that none is lost in silence.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "panics are part of what is tested, and a test may fail"
)]

mod harness;

use std::sync::{Arc, Mutex};

use actix::prelude::*;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen};
use actix_circuit_breaker::{
    AskError, BreakerConfigBuilder, Breakers, CircuitState, DropReason, HeldDropped, Hold, Reason,
    Tell, TellError,
};
use futures::future::join_all;
use harness::*;
use tokio::sync::oneshot;

/// No `Debug`: the errors do without.
#[derive(Message)]
#[rtype(result = "()")]
struct Line(u32);

/// Writes down what it gets; can be made to stand still.
struct Log {
    lines: Arc<Mutex<Vec<u32>>>,
}

impl Actor for Log {
    type Context = Context<Self>;
}

impl Handler<Line> for Log {
    type Result = ();

    fn handle(&mut self, line: Line, _: &mut Context<Self>) {
        self.lines.lock().unwrap().push(line.0);
    }
}

#[derive(Message)]
#[rtype(result = "()")]
enum Order {
    StandStill(oneshot::Receiver<()>),
    Stop,
    /// Takes that many messages into its mailbox.
    Room(usize),
}

impl Handler<Order> for Log {
    type Result = ();

    fn handle(&mut self, order: Order, ctx: &mut Context<Self>) {
        match order {
            Order::StandStill(until) => ctx.wait(until.into_actor(self).map(|_, _, _| ())),
            Order::Stop => ctx.stop(),
            Order::Room(room) => ctx.set_mailbox_capacity(room),
        }
    }
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

struct Desk {
    w: World,
    log: Addr<Log>,
    lines: Arc<Mutex<Vec<u32>>>,
    drops: Arc<Mutex<Vec<HeldDropped>>>,
    _listener: Addr<Listener>,
}

async fn desk(config: BreakerConfigBuilder) -> Desk {
    let w = world(config);
    let lines = Arc::default();
    let log = Log {
        lines: Arc::clone(&lines),
    };
    let drops = Arc::default();
    let listener = Listener(Arc::clone(&drops)).start();
    w.breaker.subscribe_drops(listener.clone()).await.unwrap();
    Desk {
        w,
        log: log.start(),
        lines,
        drops,
        _listener: listener,
    }
}

fn holding() -> BreakerConfigBuilder {
    consecutive(1).hold(Hold::new(3, 30 * SECOND, SECOND))
}

impl Desk {
    fn tell(&self, line: u32) -> Tell<Line> {
        self.w.breaker.tell(&self.log, Line(line))
    }

    fn tell_or_hold(&self, line: u32) -> Tell<Line> {
        self.w.breaker.tell_or_hold(&self.log, Line(line))
    }

    async fn lines(&self) -> Vec<u32> {
        quiet().await;
        self.lines.lock().unwrap().clone()
    }

    async fn drops(&self) -> Vec<DropReason> {
        quiet().await;
        let drops = self.drops.lock().unwrap();
        drops.iter().map(|drop| drop.why).collect()
    }

    async fn stop_log(&self) {
        self.log.send(Order::Stop).await.unwrap();
        quiet().await;
        assert!(!self.log.connected());
    }
}

#[track_caller]
fn rejected(told: Result<(), TellError<Line>>) -> (Reason, u32) {
    match told {
        Err(TellError::Rejected {
            rejected, message, ..
        }) => (rejected.reason(), message.0),
        other => panic!("not rejected but {other:?}"),
    }
}

// Closed.

#[actix::test]
async fn closed_delivers_at_once_and_takes_no_sample_of_it() {
    let d = desk(count(2, SECOND * 60)).await;
    d.w.bad().await;
    let told = d.tell(1);
    assert_eq!(d.lines().await, [1]);
    told.await.unwrap();
    d.w.breaker
        .tell(&d.log.clone().recipient(), Line(2))
        .await
        .unwrap();
    let snapshot = d.w.snapshot().await;
    assert_eq!((snapshot.samples, snapshot.calls.successes), (1, 0));
    // Nor does it break a run of failures.
    let d = desk(consecutive(2)).await;
    d.w.bad().await;
    d.tell(1).await.unwrap();
    d.w.bad().await;
    assert_eq!(d.w.state(), CircuitState::Open);
}

// R19: a local refusal says nothing of the target.
#[actix::test]
async fn a_full_mailbox_hands_the_message_back_and_is_ignored() {
    let d = desk(consecutive(1)).await;
    let (go, still) = oneshot::channel();
    d.log.send(Order::StandStill(still)).await.unwrap();
    let mut given_back = Vec::new();
    for line in 0..30 {
        match d.tell(line).await {
            Ok(()) => {}
            Err(error @ TellError::Full(_)) => {
                assert_eq!(error.to_string(), "mailbox full");
                assert!(!error.is_rejected());
                given_back.push(error.into_message().0);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(!given_back.is_empty());
    assert_eq!(d.w.state(), CircuitState::Closed);
    let snapshot = d.w.snapshot().await;
    assert_eq!(
        snapshot.calls.ignored,
        u64::try_from(given_back.len()).unwrap()
    );
    go.send(()).unwrap();
    let mut all = d.lines().await;
    all.extend(given_back);
    all.sort_unstable();
    assert_eq!(all, (0..30).collect::<Vec<_>>());
}

// R19, R21
#[actix::test]
async fn a_closed_mailbox_hands_the_message_back_and_is_a_failure() {
    let d = desk(consecutive(2)).await;
    d.stop_log().await;
    for line in 0..2 {
        match d.tell(line).await {
            Err(TellError::Closed(message)) => assert_eq!(message.0, line),
            other => panic!("{other:?}"),
        }
    }
    // Whoever has the failure that trips is rejected at once.
    assert_eq!(rejected(d.tell(2).await), (Reason::Open, 2));
}

// Open.

#[actix::test]
async fn open_hands_the_message_back_at_once() {
    let d = desk(consecutive(1)).await;
    d.w.trip().await;
    let error = d.tell(1).await.unwrap_err();
    assert!(error.is_rejected());
    assert_eq!(error.retry_after(), Some(BREAK));
    assert_eq!(rejected(Err(error)), (Reason::Open, 1));
    let order = ForceOpen::new("x");
    d.w.breaker.force_open(order).await.unwrap().unwrap();
    assert_eq!(rejected(d.tell(2).await), (Reason::ForcedOpen, 2));
    assert!(d.lines().await.is_empty());
    assert_eq!(d.w.snapshot().await.calls.rejected, 2);
    let order = ForceClosed::new("x");
    d.w.breaker.force_closed(order).await.unwrap().unwrap();
    d.tell(3).await.unwrap();
    assert_eq!(d.lines().await, [3]);
}

// Due and half-open.

#[actix::test]
async fn due_a_delivery_is_the_probe_that_closes() {
    let d = desk(consecutive(1)).await;
    d.w.trip().await;
    pass(BREAK).await;
    let told = d.tell(1);
    told.await.unwrap();
    assert_eq!(d.w.state(), CircuitState::Closed);
    assert_eq!(d.lines().await, [1]);
}

// R14, R19
#[actix::test]
async fn due_a_closed_mailbox_is_a_failed_probe() {
    let d = desk(consecutive(1)).await;
    d.w.trip().await;
    d.stop_log().await;
    pass(BREAK).await;
    match d.tell(1).await {
        Err(TellError::Closed(message)) => assert_eq!(message.0, 1),
        other => panic!("{other:?}"),
    }
    assert_eq!(d.w.state(), CircuitState::Open);
    let snapshot = d.w.snapshot().await;
    assert_eq!((snapshot.attempt, snapshot.probe_due), (1, false));
}

// R7
#[actix::test]
async fn half_open_with_all_probes_in_use_hands_the_message_back() {
    let d = desk(consecutive(1)).await;
    d.w.trip().await;
    pass(BREAK).await;
    let (answer, job) = latch();
    let probe = d.w.breaker.ask(&d.w.target, job);
    quiet().await;
    assert_eq!(d.w.state(), CircuitState::HalfOpen);
    assert_eq!(rejected(d.tell(1).await), (Reason::ProbesInUse, 1));
    answer.send(Ok(1)).unwrap();
    assert_eq!(probe.await, Ok(Ok(1)));
    assert!(d.lines().await.is_empty());
}

// Waiting.

#[actix::test]
async fn what_would_be_rejected_waits_behind_the_asks_that_wait() {
    let d = desk(holding()).await;
    d.w.trip().await;
    let guard = d.w.breaker.guard(d.w.target.clone());
    let ask = guard.send_or_hold(Job::Good);
    let first = d.tell_or_hold(1);
    let second = d.tell_or_hold(2);
    assert!(d.lines().await.is_empty());
    assert_eq!(d.w.snapshot().await.held, 3);
    pass(BREAK + 100 * MS).await;
    assert_eq!(ask.await, Ok(Ok(1)));
    assert!(d.lines().await.is_empty());
    first.await.unwrap();
    assert_eq!(d.lines().await, [1]);
    second.await.unwrap();
    assert_eq!(d.lines().await, [1, 2]);
    // Closed, and nobody waits: at once.
    let third = d.tell_or_hold(3);
    assert_eq!(d.lines().await, [1, 2, 3]);
    third.await.unwrap();
    let counts = d.w.snapshot().await.held_counts;
    assert_eq!((counts.held, counts.released), (3, 3));
}

#[actix::test]
async fn one_that_waits_is_the_probe_and_its_delivery_closes() {
    let d = desk(holding()).await;
    d.w.trip().await;
    let told = d.tell_or_hold(1);
    told.await.unwrap();
    assert_eq!(d.w.state(), CircuitState::Closed);
}

#[actix::test]
async fn without_a_policy_nothing_waits() {
    let d = desk(consecutive(1)).await;
    d.tell_or_hold(1).await.unwrap();
    d.w.trip().await;
    assert_eq!(rejected(d.tell_or_hold(2).await), (Reason::Open, 2));
    // Nor does what was told not to.
    let d = desk(holding()).await;
    d.w.trip().await;
    assert_eq!(rejected(d.tell(3).await), (Reason::Open, 3));
}

#[actix::test]
async fn a_message_that_waits_too_long_or_finds_no_room_is_handed_back() {
    let d = desk(consecutive(1).hold(Hold::new(1, 2 * SECOND, SECOND))).await;
    d.w.trip().await;
    let held = d.tell_or_hold(1);
    let full = d.tell_or_hold(2).await.unwrap_err();
    assert_eq!(full.to_string(), "not held, 1 messages wait already");
    assert!(full.is_rejected());
    assert_eq!(full.into_message().0, 2);
    let expired = held.await.unwrap_err();
    assert_eq!(expired.to_string(), "held for 2s and not sent");
    assert_eq!(format!("{expired:?}"), "HoldExpired(2s)");
    assert_eq!(expired.into_message().0, 1);
    assert_eq!(d.drops().await, [DropReason::Full, DropReason::Expired]);
}

#[actix::test]
async fn a_message_waits_on_though_its_future_is_dropped() {
    let d = desk(holding()).await;
    d.w.trip().await;
    drop(d.tell_or_hold(1));
    drop(d.tell_or_hold(2));
    pass(BREAK + 2 * SECOND).await;
    assert_eq!(d.lines().await, [1, 2]);
    assert!(d.drops().await.is_empty());
}

#[actix::test]
async fn what_cannot_be_handed_back_is_told_as_dropped() {
    let d = desk(holding()).await;
    d.w.trip().await;
    d.stop_log().await;
    drop(d.tell_or_hold(1));
    pass(BREAK + 100 * MS).await;
    assert_eq!(d.drops().await, [DropReason::TargetClosed]);
    let drop_told = d.drops.lock().unwrap()[0].clone();
    assert!(drop_told.held_for >= BREAK && drop_told.held_for < BREAK + SECOND);
    // It failed as a probe, so another one waits for the next break, and in vain.
    drop(d.tell_or_hold(2));
    quiet().await;
    assert!(d.w.breakers.remove("b"));
    let drops = d.drops().await;
    assert_eq!(drops, [DropReason::TargetClosed, DropReason::BreakerGone]);
}

// R29
#[actix::test]
async fn a_breaker_that_is_removed_hands_back_what_waits() {
    let d = desk(holding()).await;
    d.w.trip().await;
    let told = [d.tell_or_hold(1), d.tell_or_hold(2)];
    quiet().await;
    assert!(d.w.breakers.remove("b"));
    for (line, told) in (1..).zip(join_all(told).await) {
        match told {
            Err(TellError::Closed(message)) => assert_eq!(message.0, line),
            other => panic!("{other:?}"),
        }
    }
    // It guards nothing any more.
    d.tell(3).await.unwrap();
    d.tell_or_hold(4).await.unwrap();
    assert_eq!(d.lines().await, [3, 4]);
}

#[actix::test]
async fn a_message_on_its_way_to_a_breaker_that_goes_is_handed_back() {
    let arbiter = Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&arbiter.handle());
    let breaker = breakers.create("b", holding().build().unwrap()).unwrap();
    let lines = Arc::default();
    let log = Log { lines }.start();
    assert_eq!(breaker.ask(&target().0, Job::Bad).await, Ok(Err(BAD)));
    arbiter.stop();
    arbiter.join().unwrap();
    // Whether it is found to be gone before or after.
    match breaker.tell_or_hold(&log, Line(1)).await {
        Ok(()) => {}
        Err(error) => assert_eq!(error.into_message().0, 1),
    }
}

// R29
#[actix::test]
async fn a_breaker_that_panics_over_a_message_loses_nothing() {
    pause();
    let trap = Trap::default();
    let w = world_of(Breakers::builder().clock(Arc::new(trap.clone())), holding());
    let lines = Arc::default();
    let log = Log {
        lines: Arc::clone(&lines),
    };
    let log = log.start();
    w.trip().await;
    trap.set();
    let told = w.breaker.tell_or_hold(&log, Line(1));
    told.await.unwrap();
    assert_eq!(*lines.lock().unwrap(), [1]);
    assert_eq!(w.snapshot().await.restarts, 1);
}

// Both ways together: the asks that wait keep to their own errors.
#[actix::test]
async fn an_ask_and_a_tell_that_expire_each_get_their_own_error() {
    let d = desk(consecutive(1).hold(Hold::new(9, SECOND, SECOND))).await;
    d.w.trip().await;
    let guard = d.w.breaker.guard(d.w.target.clone());
    let ask = guard.send_or_hold(Job::Good);
    let told = d.tell_or_hold(1);
    assert_eq!(ask.await, Err(AskError::HoldExpired(SECOND)));
    assert!(matches!(told.await, Err(TellError::HoldExpired { .. })));
}

// Sums: each message is delivered or handed back, never both, and each caller's arrive in its order.
#[actix::test]
async fn every_message_of_many_callers_is_delivered_or_handed_back() {
    const CALLERS: u32 = 4;
    const EACH: u32 = 5_000;
    let home = Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&home.handle());
    let hold = Hold::new(30, 100 * MS, MS).growing();
    let config = consecutive(1).break_duration(3 * MS).hold(hold);
    let breaker = breakers.create("sums", config.build().unwrap()).unwrap();
    let lines: Arc<Mutex<Vec<u32>>> = Arc::default();
    let log = Log {
        lines: Arc::clone(&lines),
    };
    let log = Actor::start_in_arbiter(&Arbiter::new().handle(), |_| log);
    log.send(Order::Room(1000)).await.unwrap();
    let mut callers = Vec::new();
    for caller in 0..CALLERS {
        let arbiter = Arbiter::new();
        let (sender, receiver) = oneshot::channel();
        let (breaker, log) = (breaker.clone(), log.clone());
        arbiter.spawn(async move {
            let (failing, _) = target();
            let mut handed_back = Vec::new();
            for first in (0..EACH).step_by(10) {
                // Asks of another target behind the same breaker make it trip now and then.
                if caller == 0 && first % 200 == 0 {
                    drop(breaker.ask(&failing, Job::Bad).await);
                }
                let batch: Vec<_> = (first..first + 10)
                    .map(|number| breaker.tell_or_hold(&log, Line(caller * EACH + number)))
                    .collect();
                for told in join_all(batch).await {
                    handed_back.extend(told.err().map(|error| error.into_message().0));
                }
            }
            sender.send(handed_back).unwrap();
        });
        callers.push((arbiter, receiver));
    }
    let mut all = Vec::new();
    for (arbiter, handed_back) in callers {
        all.extend(handed_back.await.unwrap());
        arbiter.stop();
    }
    // A question and its answer come after all that was sent before.
    let (go, still) = oneshot::channel();
    go.send(()).unwrap();
    log.send(Order::StandStill(still)).await.unwrap();
    let lines = lines.lock().unwrap().clone();
    for caller in 0..CALLERS {
        let of_caller: Vec<_> = lines
            .iter()
            .filter(|line| **line / EACH == caller)
            .collect();
        assert!(of_caller.is_sorted_by(|a, b| a < b), "{caller}");
    }
    let snapshot = breaker.snapshot().await.unwrap();
    println!("{} handed back, {:?}", all.len(), snapshot.held_counts);
    assert!(snapshot.held_counts.released > 0);
    all.extend(lines);
    all.sort_unstable();
    assert_eq!(all, (0..CALLERS * EACH).collect::<Vec<_>>());
    home.stop();
}

#[test]
fn the_future_can_go_where_actors_need_it() {
    fn sent<T: Send + Unpin + 'static>() {}
    fn error<T: std::error::Error + Send + 'static>() {}
    sent::<Tell<Line>>();
    error::<TellError<Line>>();
}
