//! The gate's memory order, checked by loom: the real gate and stripes under all interleavings and all
//! stale reads that the memory model allows. Not part of any other build; in a minute or so:
//!
//! ```text
//! RUSTFLAGS="--cfg breaker_loom" cargo test --release --lib gate::model
//! ```
//!
//! The actor is played by [`Actor`], which calls the gate as `BreakerActor` does; the mailbox by a count
//! of messages. What a handle does in two or three calls of the gate is repeated here from
//! `breaker/settle.rs`. The two models of totals are bounded to three preemptions, the others to none
//! (`LOOM_MAX_PREEMPTIONS` bounds them all); the longest takes ten seconds.
//!
//! loom's modification order is partial, so it allows a little more than the language does. A stale
//! `true` of `sampling` after all is done is such a thing; the models look at the mailbox instead.
//!
//! That the models can fail was tried. Each of these made one fail:
//!
//! - deadlines: stored into the slot in use; stored after the word; stored or loaded `Relaxed`; the word
//!   not loaded again, or `Relaxed`;
//! - reports: the word stored `Release` or `Relaxed`, or loaded after the tally with `Acquire`; the tally
//!   `AcqRel`; folding loads `Acquire`; the actor not folding after it published, or ending the request
//!   after its step; that end `Release`; the look at the request `Relaxed`;
//! - totals: the tag not looked at; the epoch begun after the word; a fold of a load and a store; sharers
//!   of a stripe counting as owners;
//! - letters: the mark set before the lock or removed after it; set `Release`; loaded `Acquire`;
//! - messages that wait: the count looked at after the word; a message off the count before it is published
//!   that it waits; published that none waits before the last is sent;
//! - idle: `owed`, `asked`, the mark or `empty_at` loaded before their time; `held` loaded `Relaxed`; a fold or the
//!   emptying of the letterbox that does not make the breaker busy first.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test"
)]

use std::sync::Arc;
use std::time::Duration;

use loom::thread::{self, JoinHandle};

use super::sync::{AtomicU32, Ordering};
use super::{Admission, Flags, Gate, Meter, Notice, Taken};
use crate::circuit::{CircuitState, Ending, Permit};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::config::BreakerConfig;
use crate::random::{RandomSource, ThreadRandom};

const CLOSED: CircuitState = CircuitState::Closed;
const OPEN: CircuitState = CircuitState::Open;

/// When a record that something was noted in is empty; every model is played before.
const LATER: Timestamp = Timestamp::from_micros(100);

fn notice(state: CircuitState, epoch: u64, flags: Flags) -> Notice {
    Notice {
        state,
        epoch,
        flags,
        until: None,
        empty_at: Some(Timestamp::ZERO),
    }
}

/// Open until ten times its epoch.
fn open(epoch: u64) -> Notice {
    Notice {
        until: Some(Timestamp::from_micros(10 * epoch)),
        ..notice(OPEN, epoch, Flags::default())
    }
}

/// Closed, and counting successes.
fn counting(epoch: u64) -> Notice {
    notice(CLOSED, epoch, Flags::TALLY)
}

/// Closed, counting successes and asking for reports.
fn asking(epoch: u64) -> Notice {
    notice(CLOSED, epoch, Flags::TALLY.with(Flags::REPORT))
}

/// A gate as it is after its first publication.
fn gate(first: Notice) -> Arc<Gate> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let random: Arc<dyn RandomSource> = Arc::new(ThreadRandom);
    let gate = Gate::new(
        &"model".into(),
        &clock,
        &random,
        BreakerConfig::default(),
        true,
        first,
        Meter::default(),
    );
    // For loom a value that an atomic was made with is in no order with `SeqCst` stores. So each that
    // takes part in the one order is stored to once.
    gate.word.store(gate.load().bits(), Ordering::SeqCst);
    gate.stripes.begin_epoch(first.epoch);
    gate.end_sampling();
    gate.has_letters.store(false, Ordering::SeqCst);
    if first.until.is_some() {
        gate.publish(first);
    }
    Arc::new(gate)
}

/// Messages that carry nothing but that they are there.
#[derive(Default)]
struct Mailbox(AtomicU32);

impl Mailbox {
    fn send(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn has_any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    fn receive(&self) -> bool {
        let any = self.has_any();
        if any {
            self.0.fetch_sub(1, Ordering::AcqRel);
        }
        any
    }
}

/// The end of the gate that the actor has, and what it would tell its circuit.
struct Actor {
    gate: Arc<Gate>,
    mailbox: Arc<Mailbox>,
    /// What it publishes.
    shown: Notice,
    /// Successes folded of the epoch that is shown.
    folded: u64,
    /// Successes that were left over when their epoch ended.
    unfolded: u64,
    /// Letters taken.
    letters: u64,
}

impl Actor {
    fn new(gate: &Arc<Gate>, mailbox: &Arc<Mailbox>, shown: Notice) -> Self {
        Self {
            gate: Arc::clone(gate),
            mailbox: Arc::clone(mailbox),
            shown,
            folded: 0,
            unfolded: 0,
            letters: 0,
        }
    }

    /// As `BreakerActor::step`, where the circuit decides for `next`.
    fn step(&mut self, next: Notice) {
        self.take_in();
        self.shown = Notice {
            empty_at: self.shown.empty_at.max(next.empty_at),
            ..next
        };
        self.publish();
    }

    fn take_in(&mut self) {
        self.fold();
        if let Some(taken) = self.gate.take_letters() {
            let Taken { ended, counts, .. } = taken;
            let added: u64 = counts.iter().map(|(_, count)| count).sum();
            self.letters += u64::try_from(ended.len()).unwrap() + added;
            self.shown.empty_at = Some(LATER);
        }
    }

    fn fold(&mut self) -> bool {
        let successes = self.gate.fold();
        self.folded += successes;
        if successes > 0 {
            self.shown.empty_at = Some(LATER);
        }
        successes > 0
    }

    fn publish(&mut self) {
        self.unfolded += self.gate.publish(self.shown);
        if self.shown.flags.has(Flags::REPORT) && self.fold() {
            self.unfolded += self.gate.publish(self.shown);
        }
    }

    /// As `Handler<Sampled>`, for each message there.
    fn sampled(&mut self) {
        while self.mailbox.receive() {
            self.gate.end_sampling();
            self.step(self.shown);
        }
    }
}

/// As `note_success`: counts one if the circuit is in `epoch`; tells whether it was taken so.
fn note_success(gate: &Gate, mailbox: &Mailbox, epoch: u64) -> bool {
    let word = gate.load();
    if word.epoch() != epoch || !word.has(Flags::TALLY) {
        gate.count_late();
        return false;
    }
    gate.tally(epoch);
    if gate.load_after_tally().has(Flags::REPORT) {
        ask_for_fold(gate, mailbox);
    }
    true
}

fn ask_for_fold(gate: &Gate, mailbox: &Mailbox) {
    if gate.begin_sampling() {
        mailbox.send();
    }
}

/// As `send` where too many settlements are under way.
fn settle_by_letter(gate: &Gate, mailbox: &Mailbox, epoch: u64) {
    gate.leave(|letters| letters.add(epoch, Ending::Gone));
    ask_for_fold(gate, mailbox);
}

/// A thread that has a place among the stripes and leaves it at that.
fn takes_a_place(gate: &Arc<Gate>) {
    let gate = Arc::clone(gate);
    thread::spawn(move || _ = gate.stripes.mine())
        .join()
        .unwrap();
}

/// A handle on a thread of its own.
fn handle<R: 'static>(
    gate: &Arc<Gate>,
    mailbox: &Arc<Mailbox>,
    run: impl FnOnce(&Arc<Gate>, &Mailbox) -> R + 'static,
) -> JoinHandle<R> {
    let (gate, mailbox) = (Arc::clone(gate), Arc::clone(mailbox));
    thread::spawn(move || run(&gate, &mailbox))
}

fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = preemptions;
    }
    builder.check(model);
}

#[test]
fn a_state_is_never_paired_with_the_deadline_of_another() {
    check(None, || {
        let gate = gate(open(1));
        let rejecting = handle(&gate, &Arc::default(), |gate, _| {
            let Admission::Reject(rejected) = gate.admit_restrained(gate.load()) else {
                panic!("not rejected");
            };
            let until = Duration::from_micros(10 * rejected.epoch());
            assert_eq!(rejected.retry_after(), Some(until));
        });
        // Each slot is used again.
        gate.publish(open(2));
        gate.publish(open(3));
        gate.publish(open(4));
        rejecting.join().unwrap();
    });
}

#[test]
fn an_order_prolonged_in_its_epoch_is_not_paired_with_a_deadline_it_never_had() {
    check(None, || {
        let until = |until| Notice {
            until: Some(Timestamp::from_micros(until)),
            ..open(1)
        };
        let gate = gate(open(1));
        let rejecting = handle(&gate, &Arc::default(), |gate, _| {
            let Admission::Reject(rejected) = gate.admit_restrained(gate.load()) else {
                panic!("not rejected");
            };
            let micros = rejected.retry_after().unwrap().as_micros();
            let expected: &[u128] = match rejected.epoch() {
                1 => &[10, 11],
                _ => &[20],
            };
            assert!(expected.contains(&micros), "{micros}");
        });
        gate.publish(until(11));
        // Nothing changes.
        gate.publish(until(11));
        gate.publish(open(2));
        rejecting.join().unwrap();
    });
}

#[test]
fn a_success_that_could_trip_is_never_overlooked() {
    check(None, || {
        let gate = gate(counting(1));
        let mailbox = Arc::default();
        let handles = [1, 2].map(|_| {
            handle(&gate, &mailbox, |gate, mailbox| {
                note_success(gate, mailbox, 1);
            })
        });
        let mut actor = Actor::new(&gate, &mailbox, counting(1));
        actor.step(asking(1));
        actor.sampled();
        for handle in handles {
            handle.join().unwrap();
        }
        let asked = mailbox.has_any();
        assert!(asked || gate.stripes.tallied() == 0, "overlooked");
        actor.sampled();
        assert_eq!(actor.folded, 2);
    });
}

#[test]
fn a_success_is_not_overlooked_between_publications_that_change_nothing() {
    check(None, || {
        let gate = gate(counting(1));
        let mailbox = Arc::default();
        let succeeding = handle(&gate, &mailbox, |gate, mailbox| {
            note_success(gate, mailbox, 1);
            note_success(gate, mailbox, 1);
        });
        let mut actor = Actor::new(&gate, &mailbox, counting(1));
        actor.step(asking(1));
        actor.step(asking(1));
        actor.sampled();
        succeeding.join().unwrap();
        let asked = mailbox.has_any();
        assert!(asked || gate.stripes.tallied() == 0, "overlooked");
        actor.sampled();
        assert_eq!(actor.folded, 2);
    });
}

#[test]
fn a_late_success_is_not_counted_in_the_present_epoch_and_totals_are_exact() {
    check(Some(3), || {
        let gate = gate(counting(1));
        let mailbox = Arc::default();
        // The handles have both stripes, then one.
        let handles = [1, 2].map(|_| {
            handle(&gate, &mailbox, |gate, mailbox| {
                let epoch = gate.load().epoch();
                note_success(gate, mailbox, epoch);
                (epoch, gate.load().epoch())
            })
        });
        let mut actor = Actor::new(&gate, &mailbox, counting(1));
        actor.step(counting(2));
        let before = std::mem::take(&mut actor.folded);
        actor.step(counting(2));
        let mut surely_present = 0;
        for handle in handles {
            let (admitted, after) = handle.join().unwrap();
            assert!(admitted <= after);
            surely_present += u64::from(admitted == 2);
        }
        actor.step(counting(2));
        assert_eq!(actor.folded, surely_present, "counted in another epoch");
        let late = actor.unfolded + gate.unsent().late;
        assert_eq!(before + actor.folded + late, 2);
    });
}

#[test]
fn successes_that_meet_on_a_stripe_are_counted_once_each() {
    check(Some(3), || {
        let gate = gate(counting(1));
        let mailbox = Arc::default();
        // This thread has the first stripe, another the second; the next one shares the first.
        gate.stripes.mine();
        takes_a_place(&gate);
        let succeeding = handle(&gate, &mailbox, |gate, mailbox| {
            note_success(gate, mailbox, 1);
        });
        let acting = {
            let mut actor = Actor::new(&gate, &mailbox, counting(1));
            thread::spawn(move || {
                actor.step(counting(1));
                actor.step(counting(2));
                actor
            })
        };
        note_success(&gate, &mailbox, 1);
        succeeding.join().unwrap();
        let actor = acting.join().unwrap();
        let late = actor.unfolded + gate.unsent().late;
        assert_eq!(actor.folded + late, 2);
        assert_eq!(gate.stripes.tallied(), 0, "late, but counted");
    });
}

#[test]
fn rejections_of_owners_and_sharers_are_all_counted() {
    check(None, || {
        let gate = gate(open(1));
        let reject = |gate: &Arc<Gate>| {
            assert!(matches!(
                gate.admit_restrained(gate.load()),
                Admission::Reject(_)
            ));
        };
        reject(&gate);
        takes_a_place(&gate);
        let sharers = [1, 2].map(|_| handle(&gate, &Arc::default(), move |gate, _| reject(gate)));
        reject(&gate);
        for sharer in sharers {
            sharer.join().unwrap();
        }
        assert_eq!(gate.unsent().rejected, 4);
    });
}

#[test]
fn a_letter_is_never_lost() {
    check(None, || {
        let gate = gate(counting(1));
        let mailbox = Arc::default();
        let handles = [1, 2].map(|_| {
            handle(&gate, &mailbox, |gate, _| {
                gate.leave(|letters| letters.end(Permit::closed(1), Ending::Gone));
            })
        });
        let mut actor = Actor::new(&gate, &mailbox, counting(1));
        actor.take_in();
        actor.take_in();
        for handle in handles {
            handle.join().unwrap();
        }
        actor.take_in();
        assert_eq!(actor.letters, 2);
    });
}

#[test]
fn a_settlement_left_as_a_letter_is_never_overlooked() {
    check(None, || {
        let gate = gate(counting(1));
        let mailbox = Arc::default();
        let handles = [1, 2].map(|_| {
            handle(&gate, &mailbox, |gate, mailbox| {
                settle_by_letter(gate, mailbox, 1);
            })
        });
        let mut actor = Actor::new(&gate, &mailbox, counting(1));
        actor.sampled();
        for handle in handles {
            handle.join().unwrap();
        }
        actor.sampled();
        assert_eq!(actor.letters, 2, "overlooked");
    });
}

#[test]
fn a_settlement_left_as_a_letter_is_not_overlooked_where_a_success_has_asked() {
    check(None, || {
        let gate = gate(asking(1));
        let mailbox = Arc::default();
        let succeeding = handle(&gate, &mailbox, |gate, mailbox| {
            note_success(gate, mailbox, 1);
        });
        let leaving = handle(&gate, &mailbox, |gate, mailbox| {
            settle_by_letter(gate, mailbox, 1);
        });
        let mut actor = Actor::new(&gate, &mailbox, asking(1));
        actor.sampled();
        succeeding.join().unwrap();
        leaving.join().unwrap();
        actor.sampled();
        assert_eq!((actor.folded, actor.letters), (1, 1), "overlooked");
    });
}

/// Whether it could be forgotten, before what was noted in it could.
fn is_idle(gate: &Gate) -> bool {
    gate.is_idle(Timestamp::ZERO)
}

#[test]
fn a_breaker_is_not_idle_while_its_actor_takes_in_successes() {
    check(None, || {
        let gate = gate(counting(1));
        let mailbox = Arc::default();
        note_success(&gate, &mailbox, 1);
        let looking = handle(&gate, &mailbox, |gate, _| assert!(!is_idle(gate)));
        let mut actor = Actor::new(&gate, &mailbox, counting(1));
        actor.step(counting(1));
        assert_eq!(actor.folded, 1);
        looking.join().unwrap();
    });
}

#[test]
fn a_breaker_is_not_idle_while_a_probe_ends_by_letter() {
    check(None, || {
        let gate = gate(counting(1));
        let mailbox = Arc::default();
        let held = gate.hold(Permit::closed(1));
        let looking = handle(&gate, &mailbox, |gate, _| assert!(!is_idle(gate)));
        let ending = thread::spawn(move || drop(held));
        let mut actor = Actor::new(&gate, &mailbox, counting(1));
        actor.step(counting(1));
        looking.join().unwrap();
        ending.join().unwrap();
        actor.step(counting(1));
        assert_eq!(actor.letters, 1);
        assert!(!is_idle(&gate));
    });
}

#[test]
fn a_breaker_is_not_idle_while_a_call_of_its_own_is_settled() {
    check(None, || {
        let gate = gate(counting(1));
        let mailbox: Arc<Mailbox> = Arc::default();
        let mut held = gate.hold(Permit::closed(1));
        let looking = handle(&gate, &mailbox, |gate, _| assert!(!is_idle(gate)));
        // As an errand: by message, counted as owed before it is no longer held.
        let settling = handle(&gate, &mailbox, move |gate, mailbox| {
            held.take();
            let owed = gate.owe().unwrap();
            mailbox.send();
            drop(held);
            owed
        });
        let owed = settling.join().unwrap();
        assert!(mailbox.receive());
        gate.publish(Notice {
            empty_at: Some(LATER),
            ..counting(1)
        });
        drop(owed);
        looking.join().unwrap();
        assert!(!is_idle(&gate));
    });
}

/// As the actor where messages wait that were brought to it.
fn waiting(epoch: u64) -> Notice {
    notice(CLOSED, epoch, Flags::WAITING)
}

#[test]
fn a_message_that_goes_straight_overtakes_none_of_its_caller() {
    check(None, || {
        let gate = gate(notice(CLOSED, 1, Flags::default()));
        let mailbox: Arc<Mailbox> = Arc::default();
        let sent: Arc<AtomicU32> = Arc::default();
        let question = gate.ask_to_hold(1).unwrap();
        mailbox.send();
        let next = handle(&gate, &mailbox, {
            let sent = Arc::clone(&sent);
            move |gate, _| {
                let is_first = !gate.has_questions();
                let word = gate.load();
                if is_first && !word.has(Flags::WAITING) {
                    assert_eq!(sent.load(Ordering::Relaxed), 1, "overtaken");
                }
            }
        });
        assert!(mailbox.receive());
        gate.publish(waiting(1));
        drop(question);
        sent.store(1, Ordering::Relaxed);
        gate.publish(notice(CLOSED, 1, Flags::default()));
        next.join().unwrap();
    });
}

#[test]
fn a_breaker_is_not_idle_while_a_message_is_brought_to_wait_or_to_be_sent() {
    check(None, || {
        let gate = gate(notice(CLOSED, 1, Flags::default()));
        let mailbox: Arc<Mailbox> = Arc::default();
        let first = gate.ask_to_hold(1).unwrap();
        let looking = handle(&gate, &mailbox, |gate, _| assert!(!is_idle(gate)));
        gate.publish(waiting(1));
        drop(first);
        // It is sent: an errand holds its permit.
        let held = gate.hold(Permit::closed(1));
        gate.publish(notice(CLOSED, 1, Flags::default()));
        looking.join().unwrap();
        drop(held);
    });
}
