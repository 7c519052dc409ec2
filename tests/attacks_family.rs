//! Faults that were found by attacking families, messages that wait, ramp-ups and what they have to do with
//! each other.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "panics are among what is tested, and a test may fail"
)]

mod harness;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::{ForceClosed, ForceOpen, Reset};
use actix_circuit_breaker::{
    AskError, BreakerConfigBuilder, Breakers, BreakersBuilder, CallError, Cause, CircuitState,
    Clock, DropReason, Exported, Family, HeldDropped, Hold, ManualClock, Permit, RampUp,
    RandomSource, Reason, RestoreError, SystemClock, Timestamp, TripPolicy, TripRule,
};
use tokio::sync::oneshot;

use harness::{
    Answer, BAD, BREAK, Job, MS, Recorder, SECOND, Told, consecutive, count, pass, pause, quiet,
    target, world_of,
};

fn family_of(builder: BreakersBuilder, config: BreakerConfigBuilder) -> (Breakers, Family) {
    pause();
    let breakers = builder.start();
    let family = breakers.family("hosts", config.build().unwrap()).unwrap();
    (breakers, family)
}

/// On a clock of the test's own.
fn manual_family(config: BreakerConfigBuilder) -> (ManualClock, Family) {
    let clock = ManualClock::new();
    let builder = Breakers::builder().clock(Arc::new(clock.clone()));
    (clock, family_of(builder, config).1)
}

async fn bad(family: &Family, key: &str) {
    let called = family.call(key, async { Answer::Err(BAD) }).await;
    assert!(matches!(called, Err(CallError::Failed(_))), "{called:?}");
}

/// Lets the family's actor put away what nobody holds.
async fn settled(family: &Family) {
    for _ in 0..3 {
        drop(family.keys());
        quiet().await;
    }
}

/// Runs what may block for ever; tells whether it came to its end.
fn ends(what: impl FnOnce() + Send + 'static) -> bool {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        what();
        _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(10)).is_ok()
}

// Settings.

// R35: the second order comes while the first is on its way.
#[actix::test]
async fn settings_given_twice_in_a_row_reach_every_key() {
    let (_breakers, family) = family_of(Breakers::builder(), consecutive(1));
    let held = family.breaker("held");
    let own = family.breaker("own");
    let of_its_own = consecutive(7).build().unwrap();
    own.reconfigure(of_its_own.clone()).await.unwrap().unwrap();
    for failures in 2..5 {
        family.reconfigure(consecutive(failures).build().unwrap());
    }
    assert_eq!(held.snapshot().await.unwrap().config, family.config());
    assert_eq!(own.snapshot().await.unwrap().config, of_its_own);
    drop((held, own));
    settled(&family).await;
    // It is not taken for one with settings of its own, which would be kept for ever.
    assert_eq!(family.keys(), ["own"]);
}

// R35, R31: whoever wakes, rests or is looked at meanwhile.
#[test]
fn settings_reach_keys_that_wake_and_rest_at_that_moment() {
    const ROUNDS: u32 = 2_000;
    System::new().block_on(async {
        let arbiter = Arbiter::new();
        let breakers = Breakers::start_in_arbiter(&arbiter.handle());
        let first = count(1_000, SECOND).build().unwrap();
        let family = breakers.family("hosts", first).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..2)
            .map(|thread| {
                let (family, stop) = (family.clone(), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let mut at = 0_u32;
                    while !stop.load(Ordering::Relaxed) {
                        drop(family.breaker((at % 7).to_string()));
                        if thread == 0 && at.is_multiple_of(5) {
                            drop(family.keys());
                        }
                        at = at.wrapping_add(1);
                    }
                })
            })
            .collect();
        for at in 0..ROUNDS {
            family.reconfigure(count(1_000 + at, SECOND).build().unwrap());
        }
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
        for key in family.keys() {
            let config = family.breaker(&key).snapshot().await.unwrap().config;
            assert_eq!(config, family.config(), "{key}");
        }
        for _ in 0..200 {
            if family.is_empty() {
                break;
            }
            tokio::time::sleep(10 * MS).await;
        }
        assert_eq!(family.keys(), [""; 0]);
        arbiter.stop();
    });
}

// R31, R35: what a record can matter for is derived from the settings in force.
#[actix::test]
async fn key_at_rest_is_kept_as_long_as_other_settings_ask() {
    let (clock, family) = manual_family(count(1, SECOND));
    bad(&family, "a").await;
    settled(&family).await;
    let hour = SECOND * 3_600;
    let longer = count(1, SECOND).break_duration(hour);
    family.reconfigure(longer.build().unwrap());
    // The break of before, and twice the longest one.
    clock.advance(BREAK + hour * 2);
    assert_eq!(family.keys(), ["a"]);
    clock.advance(SECOND * 60);
    assert_eq!(family.keys(), [""; 0]);
}

// Messages on their way.

// R31: a message that left before its handle is handled, whoever tidies up meanwhile.
#[test]
fn member_with_a_message_on_its_way_is_not_put_away() {
    const ROUNDS: u32 = 30_000;
    System::new().block_on(async {
        let arbiter = Arbiter::new();
        let breakers = Breakers::start_in_arbiter(&arbiter.handle());
        let family = breakers
            .family("hosts", consecutive(1).build().unwrap())
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let tidying = {
            let (family, stop) = (family.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert!(family.len() <= family.max_keys());
                }
            })
        };
        let mut lost = 0;
        for at in 0..ROUNDS {
            // It has never had a message.
            let sent = family.breaker(at.to_string()).addr().send(Reset);
            if at.is_multiple_of(64) {
                lost += u32::from(sent.await.is_err());
            } else {
                actix::spawn(async move { sent.await.unwrap() });
            }
        }
        stop.store(true, Ordering::Relaxed);
        tidying.join().unwrap();
        assert_eq!(lost, 0);
        arbiter.stop();
    });
}

thread_local! {
    /// What is dropped after tokio's own locals of the thread.
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Runs while the locals of its thread are destroyed.
struct Late<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Late<F> {
    fn drop(&mut self) {
        if let Some(last) = self.0.take() {
            last();
        }
    }
}

/// Runs on an arbiter of its own, whose runtime is gone by then, when its thread ends.
async fn at_the_end_of_a_thread(last: impl FnOnce() + Send + 'static) {
    let arbiter = Arbiter::with_tokio_rt(|| {
        KEPT.with(|_| ());
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap()
    });
    let (kept, is_kept) = oneshot::channel();
    arbiter.spawn_fn(|| {
        KEPT.with(|kept| kept.borrow_mut().push(Box::new(Late(Some(last)))));
        kept.send(()).unwrap();
    });
    is_kept.await.unwrap();
    arbiter.stop();
    arbiter.join().unwrap();
}

// R10: what a dying thread leaves is found though nobody sends the key a message.
#[test]
fn permit_settled_by_a_dying_thread_does_not_keep_its_key() {
    System::new().block_on(async {
        let breakers = Breakers::start();
        let config = consecutive(2).build().unwrap();
        let family = breakers.family("hosts", config).unwrap();
        let permit: Permit = family.breaker("a").acquire().await.unwrap();
        at_the_end_of_a_thread(move || drop(permit.failure())).await;
        settled(&family).await;
        bad(&family, "a").await;
        assert_eq!(family.breaker("a").state(), CircuitState::Open);

        let permit = family.breaker("b").acquire().await.unwrap();
        at_the_end_of_a_thread(move || drop(permit.success())).await;
        settled(&family).await;
        assert_eq!(family.keys(), ["a"]);
    });
}

// A look at a key from where nobody can be woken.
#[test]
fn key_is_found_while_the_locals_of_a_thread_are_destroyed() {
    System::new().block_on(async {
        // Tokio's paused time, which other tests here use, is a local of the thread.
        let clock = ManualClock::new();
        let breakers = Breakers::builder().clock(Arc::new(clock)).start();
        let config = consecutive(1).build().unwrap();
        let family = breakers.family("hosts", config).unwrap();
        for at in 0..64 {
            // Each of them awake, to be put away with the next message, which is not handled yet.
            drop(family.breaker(at.to_string()).snapshot());
        }
        let (found, states) = (family.clone(), Arc::new(Mutex::new(Vec::new())));
        let closed = ForceClosed::new("drill").ttl(Duration::from_secs(3_600));
        family
            .breaker("forced")
            .force_closed(closed)
            .await
            .unwrap()
            .unwrap();
        at_the_end_of_a_thread({
            let states = Arc::clone(&states);
            move || {
                for at in 0..64 {
                    drop(found.breaker(format!("new-{at}")));
                }
                states.lock().unwrap().push(found.breaker("forced").state());
                drop(found.keys());
            }
        })
        .await;
        assert_eq!(*states.lock().unwrap(), [CircuitState::ForcedClosed]);
        family.breaker("forced").release().await.unwrap();
        settled(&family).await;
        assert_eq!(family.keys(), [""; 0]);
    });
}

// Code of the user's.

const LOOKS: usize = 600;

/// A clock that uses the family it is the clock of.
#[derive(Debug, Default)]
struct Nosy {
    clock: SystemClock,
    family: Mutex<Option<Family>>,
    looks: AtomicUsize,
}

thread_local! {
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

impl Clock for Nosy {
    fn now(&self) -> Timestamp {
        if !LOOKING.replace(true) {
            let family = self.family.lock().unwrap().clone();
            // Each look has the family look at the clock again, so there are not too many.
            if let Some(family) = family
                && self.looks.fetch_add(1, Ordering::Relaxed) < LOOKS
            {
                // In every part of the table.
                for at in 0..64 {
                    drop(family.breaker(format!("looked-at-{at}")));
                }
            }
            LOOKING.set(false);
        }
        self.clock.now()
    }
}

// Neither a clock nor a destructor of the user's runs while the keys are locked.
#[test]
fn clock_that_uses_its_family_blocks_nobody() {
    assert!(ends(|| {
        System::new().block_on(async {
            let clock = Arc::new(Nosy::default());
            let breakers = Breakers::builder().clock(clock.clone()).start();
            let hold = Hold::new(4, SECOND, SECOND);
            let config = consecutive(1).hold(hold).build().unwrap();
            let family = breakers.family("hosts", config).unwrap();
            *clock.family.lock().unwrap() = Some(family.clone());
            let (target, _) = target();
            for at in 0..40 {
                let guard = family.breaker(at.to_string()).guard(target.clone());
                assert_eq!(guard.send(Job::Bad).await, Ok(Err(BAD)));
                drop(guard.send_or_hold(Job::Good));
            }
            settled(&family).await;
            for at in 0..40 {
                family.breaker(at.to_string()).reset().await.unwrap();
            }
            settled(&family).await;
            assert!(clock.looks.load(Ordering::Relaxed) > LOOKS);
            *clock.family.lock().unwrap() = None;
        });
    }));
}

/// A rule that uses a family when it is dropped.
struct Parting(Arc<Mutex<Option<Family>>>);

impl TripRule for Parting {
    fn trips(&self, failures: &[Timestamp], _: Timestamp) -> bool {
        failures.len() > 100
    }

    fn lookback(&self) -> Duration {
        SECOND
    }
}

impl Drop for Parting {
    fn drop(&mut self) {
        let family = self.0.lock().unwrap().take();
        if let Some(family) = family {
            drop(family.breaker("looked-at"));
            drop(family.keys());
        }
    }
}

#[test]
fn rule_that_uses_its_family_when_dropped_blocks_nobody() {
    for wakes in [true, false] {
        assert!(ends(move || {
            System::new().block_on(async {
                let clock = ManualClock::new();
                let breakers = Breakers::builder().clock(Arc::new(clock.clone())).start();
                let parting = Arc::default();
                let rule = Arc::new(Parting(Arc::clone(&parting)));
                let old = TripPolicy::Custom(rule);
                let family = breakers
                    .family("hosts", count(3, SECOND).build().unwrap())
                    .unwrap();
                family.reconfigure(consecutive(1).trip(old).build().unwrap());
                bad(&family, "a").await;
                settled(&family).await;
                family.reconfigure(count(3, SECOND).build().unwrap());
                // Only the record at rest has the rule now.
                *parting.lock().unwrap() = Some(family.clone());
                if !wakes {
                    clock.advance(Duration::from_secs(100_000));
                    drop(family.keys());
                }
                drop(family.breaker("a"));
                settled(&family).await;
                assert!(parting.lock().unwrap().is_none());
            });
        }));
    }
}

// Clocks that go back.

// R3, R31
#[actix::test]
async fn key_put_to_rest_while_the_clock_was_back_is_kept_as_long() {
    let (clock, family) = manual_family(count(1, SECOND));
    let day = Duration::from_secs(86_400);
    clock.advance(day);
    let held = family.breaker("a");
    bad(&family, "a").await;
    clock.set(Timestamp::ZERO);
    drop(held);
    settled(&family).await;
    clock.set(Timestamp::ZERO + day + SECOND);
    assert_eq!(family.keys(), ["a"]);
    assert_eq!(family.breaker("a").state(), CircuitState::Open);
}

// Lives.

#[derive(Clone, Default)]
struct Drops(Arc<Mutex<Vec<HeldDropped>>>);

impl Drops {
    fn all(&self) -> Vec<(String, DropReason, u64)> {
        let all = self.0.lock().unwrap();
        let event = |event: &HeldDropped| (event.breaker.to_string(), event.why, event.seq);
        all.iter().map(event).collect()
    }
}

impl Actor for Drops {
    type Context = Context<Self>;
}

impl Handler<HeldDropped> for Drops {
    type Result = ();

    fn handle(&mut self, event: HeldDropped, _: &mut Context<Self>) {
        self.0.lock().unwrap().push(event);
    }
}

fn holding() -> BreakerConfigBuilder {
    consecutive(1).hold(Hold::new(10, Duration::from_secs(3_600), SECOND))
}

// R29: every future ends where the breaker is gone for good, though the family's handles are held.
#[actix::test]
async fn messages_that_wait_go_back_when_the_family_is_removed() {
    let (breakers, family) = family_of(Breakers::builder(), holding());
    let told = Drops::default();
    let listener = told.clone().start();
    family.subscribe_drops(listener.clone());
    let (target, _) = target();
    let guard = family.breaker("a").guard(target.clone());
    assert_eq!(guard.send(Job::Bad).await, Ok(Err(BAD)));
    let held = actix::spawn(guard.send_or_hold(Job::Good));
    let told_one = actix::spawn(family.breaker("a").tell_or_hold(&target, Job::Good));
    quiet().await;
    assert_eq!(guard.breaker().snapshot().await.unwrap().held, 2);
    assert!(breakers.remove("hosts"));
    quiet().await;
    assert!(held.is_finished() && told_one.is_finished());
    assert_eq!(held.await.unwrap(), Err(AskError::Closed));
    told_one.await.unwrap().unwrap_err();
    let gone = |seq| ("hosts/a".to_owned(), DropReason::BreakerGone, seq);
    assert_eq!(told.all(), [gone(1), gone(2)]);
}

// R29: so do they when the arbiter ends.
#[test]
fn messages_that_wait_go_back_when_the_arbiter_of_the_family_stops() {
    System::new().block_on(async {
        let arbiter = Arbiter::new();
        let breakers = Breakers::start_in_arbiter(&arbiter.handle());
        let family = breakers
            .family("hosts", holding().build().unwrap())
            .unwrap();
        let (target, _) = target();
        let guard = family.breaker("a").guard(target);
        assert_eq!(guard.send(Job::Bad).await, Ok(Err(BAD)));
        let held = actix::spawn(guard.send_or_hold(Job::Good));
        assert_eq!(guard.breaker().snapshot().await.unwrap().held, 1);
        arbiter.stop();
        let held = tokio::time::timeout(Duration::from_secs(10), held).await;
        assert_eq!(held.unwrap().unwrap(), Err(AskError::Closed));
    });
}

// Case 175: nobody is left but the message.
#[actix::test]
async fn messages_that_wait_in_a_family_that_nobody_holds_are_told() {
    let (breakers, family) = family_of(Breakers::builder(), holding());
    let told = Drops::default();
    let listener = told.clone().start();
    family.subscribe_drops(listener.clone());
    let (target, _) = target();
    bad(&family, "a").await;
    drop(family.breaker("a").tell_or_hold(&target, Job::Good));
    quiet().await;
    drop((breakers, family));
    quiet().await;
    let gone = ("hosts/a".to_owned(), DropReason::BreakerGone, 1);
    assert_eq!(told.all(), [gone]);
}

// R29: it says so whether or not the key was awake when the family went.
#[actix::test]
async fn key_at_rest_of_a_removed_family_shows_as_closed() {
    let (breakers, family) = family_of(Breakers::builder(), consecutive(1));
    bad(&family, "a").await;
    settled(&family).await;
    assert!(breakers.remove("hosts"));
    for _ in 0..2 {
        assert_eq!(family.breaker("a").state(), CircuitState::Closed);
        quiet().await;
    }
}

/// A clock that panics when it is read the nth time from now on.
#[derive(Debug, Clone, Default)]
struct Fuse {
    clock: SystemClock,
    left: Arc<AtomicUsize>,
}

impl Clock for Fuse {
    fn now(&self) -> Timestamp {
        let left = self.left.load(Ordering::SeqCst);
        if left > 0 {
            self.left.store(left - 1, Ordering::SeqCst);
            assert!(left > 1, "trap in the clock");
        }
        self.clock.now()
    }
}

// R29: timers are set again from the record, also where a restart is cut short by a panic.
#[actix::test]
async fn restart_that_panics_loses_no_timers() {
    for reads in 1..6 {
        let fuse = Fuse::default();
        let builder = Breakers::builder().clock(Arc::new(fuse.clone()));
        let (_breakers, family) = family_of(builder, consecutive(1));
        let keys = ["a", "b", "c"];
        let held = keys.map(|key| family.breaker(key));
        for breaker in &held {
            let closed = ForceClosed::new("drill").ttl(SECOND * 60);
            breaker.force_closed(closed).await.unwrap().unwrap();
        }
        // The message, the head itself, then each of the three.
        let lost = held[0].snapshot();
        fuse.left.store(1, Ordering::SeqCst);
        lost.await.unwrap_err();
        fuse.left.store(reads, Ordering::SeqCst);
        pass(SECOND * 100).await;
        let states = held.map(|breaker| breaker.state());
        assert_eq!(states, [CircuitState::Closed; 3], "{reads}");
    }
}

// Holds and ramp-ups.

/// Always the least lucky number.
#[derive(Debug)]
struct Unlucky;

impl RandomSource for Unlucky {
    fn uniform(&self) -> f64 {
        0.999
    }
}

// R9, R36: who waits is not rejected.
#[actix::test]
async fn message_that_waits_for_a_ramp_up_is_not_counted_as_rejected() {
    pause();
    let builder = Breakers::builder().random(Arc::new(Unlucky));
    let config = holding().ramp_up(RampUp::new(BREAK, 0.1));
    let w = world_of(builder, config);
    w.trip().await;
    pass(BREAK + MS).await;
    w.good().await;
    let guard = w.breaker.guard(w.target.clone());
    let held: Vec<_> = (0..3).map(|_| guard.send_or_hold(Job::Good)).collect();
    assert_eq!(w.snapshot().await.held, 3);
    pass(SECOND * 5).await;
    assert_eq!(w.snapshot().await.held, 3);
    assert_eq!(w.rejected().await.reason(), Reason::RampUp);
    assert_eq!(w.snapshot().await.calls.rejected, 1);
    for answer in futures::future::join_all(held).await {
        assert_eq!(answer, Ok(Ok(1)));
    }
    let counts = w.snapshot().await.held_counts;
    assert_eq!((counts.held, counts.released, counts.dropped), (3, 3, 0));
    assert_eq!(w.snapshot().await.calls.rejected, 1);
}

// A gap in `seq` is an event missed, and going back none.
#[actix::test]
async fn drops_of_a_key_are_numbered_over_a_rest() {
    let hold = Hold::new(1, SECOND, SECOND);
    let (_breakers, family) = family_of(Breakers::builder(), consecutive(1).hold(hold));
    let told = Drops::default();
    let listener = told.clone().start();
    family.subscribe_drops(listener.clone());
    let (target, _) = target();
    bad(&family, "a").await;
    for _ in 0..3 {
        let guard = family.breaker("a").guard(target.clone());
        let held = guard.send_or_hold(Job::Good);
        drop(guard);
        assert_eq!(held.await, Err(AskError::HoldExpired(SECOND)));
        settled(&family).await;
    }
    let seqs: Vec<_> = told.all().into_iter().map(|(.., seq)| seq).collect();
    assert_eq!(seqs, [1, 2, 3]);
}

// Records of another process.

/// What a family has to say, with something else said in its text.
async fn said_otherwise(breakers: &Breakers, from: &str, to: &str) -> Exported {
    let text = serde_json::to_string(&breakers.export().await).unwrap();
    serde_json::from_str(&text.replace(from, to)).unwrap()
}

// R23, R25, R29: as with a named breaker, nobody has to look.
#[actix::test]
async fn order_that_was_taken_over_ends_by_itself() {
    let (breakers, family) = family_of(Breakers::builder(), consecutive(1));
    let open = ForceOpen::new("drill").ttl(SECOND);
    let closed = ForceClosed::new("drill").ttl(SECOND);
    family.breaker("a").force_open(open).await.unwrap().unwrap();
    let forced = family.breaker("b").force_closed(closed);
    forced.await.unwrap().unwrap();
    let exported = said_otherwise(&breakers, "", "").await;

    let next = Breakers::start();
    assert_eq!(next.restore(exported), 2);
    let told = Told::default();
    let recorder = Recorder(told.clone()).start();
    next.subscribe(recorder.clone());
    let family = next.family("hosts", family.config()).unwrap();
    pass(SECOND * 2).await;
    let mut states: Vec<_> = told
        .all()
        .iter()
        .map(|event| event.to.to_string())
        .collect();
    states.sort_unstable();
    assert_eq!(told.causes(), [Cause::Expired; 2]);
    assert_eq!(states, ["closed", "open"]);
    settled(&family).await;
    assert_eq!(family.keys(), ["a"]);
}

// R1, R11: above the highest number there is no other one, for this key nor for those made after it.
#[actix::test]
async fn record_that_leaves_no_room_for_epochs_is_refused() {
    let (breakers, family) = family_of(Breakers::builder(), consecutive(1));
    bad(&family, "a").await;
    let epoch = family.breaker("a").snapshot().await.unwrap().epoch;
    let (epoch, highest) = (epoch.to_string(), Timestamp::MAX.as_micros().to_string());
    let exported = said_otherwise(&breakers, &epoch, &highest).await;

    let next = Breakers::start();
    next.restore(exported);
    let family = next.family("hosts", family.config()).unwrap();
    let refused = next.refused_records();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].error, RestoreError::Corrupt);
    let breaker = family.breaker("a");
    let late = breaker.acquire().await.unwrap();
    breaker.reset().await.unwrap();
    late.failure().await;
    assert_eq!(breaker.state(), CircuitState::Closed);
}
