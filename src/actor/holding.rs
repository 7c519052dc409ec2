//! What the actor does with messages in its care: it sends them, lets them wait, gives them back.
//! When those who wait may go is decided by `hold.rs` and the circuit.

mod care;
mod told;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::{Addr, SpawnHandle};

use super::parcel::{Answer, Delivery, GivenUp, Parcel, Sending};
use super::{BreakerActor, Listeners};
use crate::caught::{caught, quietly};
use crate::circuit::{Circuit, CircuitState, Ending, Permit, Refused};
use crate::clock::Timestamp;
use crate::config::Hold;
use crate::event::{DropReason, HeldDropped, Subscribers};
use crate::gate::{Gate, Left, OnItsWay};
use crate::hold::{Pace, Queue, Seat, Turn, Waiting};
use crate::outcome::Outcome;
pub(super) use told::Drops;
pub use told::HeldCounts;

/// How many drops are told of callers that were turned away all at once; more are only counted.
const MOST_TOLD: u64 = 128;

/// The messages in the actor's care. A restart of the actor keeps them.
#[derive(Default)]
pub(super) struct Holding {
    queue: Queue<Box<dyn Parcel>>,
    /// What came and was not looked at yet.
    arrivals: VecDeque<Box<dyn Parcel>>,
    /// Counts those that came as on their way, until it is published what became of them.
    questions: Vec<OnItsWay>,
    pace: Pace,
    /// Whether the first of those who wait would go if the store gave leave.
    wants_leave: bool,
    /// The policy in force, or the last one if it was taken away while messages wait.
    policy: Option<Hold>,
    counts: HeldCounts,
    /// Set by a released call that fails.
    failed: Arc<AtomicBool>,
    timer: Option<(Timestamp, SpawnHandle)>,
    answers: Vec<(Timestamp, Answer)>,
    drops: Vec<HeldDropped>,
    seq: u64,
    /// Whether the log was told that there is no room, since there was some.
    told_full: bool,
    subscribers: Option<Arc<Mutex<Subscribers<HeldDropped>>>>,
}

/// One step, as far as messages in the actor's care have to do with it.
struct Round<'a> {
    circuit: &'a mut Circuit,
    gate: &'a Arc<Gate>,
    address: &'a dyn Fn() -> Addr<BreakerActor>,
    now: Timestamp,
}

impl Holding {
    /// Of a breaker that has told of so many drops.
    pub(super) fn after(drops: u64) -> Self {
        Self {
            seq: drops,
            ..Self::default()
        }
    }

    /// How many drops there were.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many would go if the store gave leave.
    pub(super) fn want_leave(&self) -> usize {
        self.arrivals.len().saturating_add(self.wants_leave.into())
    }

    pub(super) fn counts(&self) -> HeldCounts {
        self.counts
    }

    /// Whether something waits, is to be looked at or to be told.
    pub(super) fn has_more_to_do(&self) -> bool {
        let all_done = self.timer.is_none()
            && self.queue.is_empty()
            && self.arrivals.is_empty()
            && self.answers.is_empty()
            && self.drops.is_empty();
        !all_done
    }

    /// Whether somebody listens to what is dropped.
    pub(super) fn is_listened_to(&self) -> bool {
        self.subscribers.as_ref().is_some_and(|all| {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            all.living() > 0
        })
    }

    /// Handles belong to one life of the actor.
    pub(super) fn forget_timer(&mut self) {
        self.timer = None;
    }

    /// Does what is due; tells when to come again.
    fn tend(&mut self, round: &mut Round<'_>) -> Option<Timestamp> {
        self.policy = round.circuit.config().hold().or(self.policy);
        self.wants_leave = false;
        self.expire(round);
        let turn = self.release(round);
        // What needs the store's leave stays where it is until there is an answer.
        while let Some(parcel) = self.arrivals.pop_front() {
            if self.waits_for_leave(&*parcel, round) {
                self.arrivals.push_front(parcel);
                break;
            }
            self.arrive(parcel, round);
        }
        let over = self
            .policy
            .and_then(|hold| self.queue.next_over(hold.held_ttl));
        match (turn, over) {
            (Some(turn), Some(over)) => Some(turn.min(over)),
            (turn, over) => turn.or(over),
        }
    }

    /// Gives back what has waited for too long, whatever the state of the circuit.
    fn expire(&mut self, round: &Round<'_>) {
        let Some(Hold { held_ttl, .. }) = self.policy else {
            return;
        };
        while let Some(Waiting { item, since }) = self.queue.pop_over(held_ttl, round.now) {
            if leave(&*item) {
                self.drop_one(DropReason::Expired, since, round);
                give_up(item, &GivenUp::Expired(held_ttl));
            } else {
                self.drop_one(DropReason::CallerGone, since, round);
                quietly(|| drop(item));
            }
        }
    }

    /// Sends those who wait, as many as may go now; tells when the next may.
    fn release(&mut self, round: &mut Round<'_>) -> Option<Timestamp> {
        let hold = self.policy?;
        if self.queue.is_empty() {
            self.pace = Pace::Still;
            return None;
        }
        if self.failed.swap(false, Ordering::Relaxed) {
            self.pace.set_back();
        }
        let mut peek = round.circuit.peek(round.now);
        if peek
            .refusal
            .is_some_and(|reason| round.gate.spares_all(reason))
        {
            // They leave as from a closed circuit (R37).
            peek.state = CircuitState::Closed;
            peek.refusal = None;
        }
        let until = round.circuit.next_deadline();
        let mut pace = self.pace;
        let turn = pace.turn(&peek, until, &hold, round.now);
        if matches!(turn, Turn::Release(_)) && round.circuit.needs_leave(round.now) {
            // It is this one's turn again when the store has answered.
            self.wants_leave = true;
            return None;
        }
        self.pace = pace;
        match turn {
            Turn::Wait(again) => again,
            Turn::Release(count) => {
                for _ in 0..count {
                    if !self.release_one(round) {
                        break;
                    }
                }
                self.pace.next()
            }
        }
    }

    /// Sends the first who wants it; `false` if there is none, or the circuit lets none through.
    fn release_one(&mut self, round: &mut Round<'_>) -> bool {
        while let Some(first) = self.queue.first() {
            if !is_abandoned(&*first.item) {
                break;
            }
            if let Some(Waiting { item, since }) = self.queue.pop() {
                self.drop_one(DropReason::CallerGone, since, round);
                quietly(|| drop(item));
            }
        }
        let Some(first) = self.queue.first() else {
            return false;
        };
        // While the circuit ramps up, only asking tells.
        let leave_to_go = match admit(&*first.item, Circuit::try_acquire_or_wait, round) {
            Ok(leave_to_go) => leave_to_go,
            Err(refused) if round.gate.spares_all(refused.reason()) => spared(&*first.item, round),
            Err(_) => return false,
        };
        if let Some(Waiting { item, since }) = self.queue.pop() {
            HeldCounts::add(&mut self.counts.released);
            self.go(item, since, leave_to_go, round);
        }
        true
    }

    /// Whether what came has to wait for the store's leave, since it could go otherwise.
    fn waits_for_leave(&self, parcel: &dyn Parcel, round: &Round<'_>) -> bool {
        let queues = round.circuit.config().hold().is_some() && parcel.may_wait();
        let could_go = self.queue.is_empty() || !queues;
        could_go && round.circuit.needs_leave(round.now)
    }

    /// Sends a message, or lets it wait, or gives it back.
    fn arrive(&mut self, parcel: Box<dyn Parcel>, round: &mut Round<'_>) {
        let hold = round.circuit.config().hold().filter(|_| parcel.may_wait());
        if is_abandoned(&*parcel) {
            HeldCounts::add(&mut self.counts.held);
            self.drop_one(DropReason::CallerGone, round.now, round);
            quietly(|| drop(parcel));
            return;
        }
        if let Some(Hold { capacity, .. }) = hold {
            // Looked at first, so that what waits is not counted as rejected.
            let refusal = round.circuit.peek(round.now).refusal;
            let admitted = refusal.is_none() && self.queue.is_empty();
            let asked = admitted.then(|| admit(&*parcel, Circuit::try_acquire_or_wait, round));
            let refusal = match asked {
                Some(Ok(leave_to_go)) => {
                    return self.go(parcel, round.now, leave_to_go, round);
                }
                Some(Err(refused)) => Some(refused.reason()),
                None => refusal,
            };
            if refusal.is_some_and(|reason| round.gate.spares(reason)) {
                let leave_to_go = spared(&*parcel, round);
                self.go(parcel, round.now, leave_to_go, round);
            } else {
                self.hold_if_room(parcel, capacity, round);
            }
            return;
        }
        match admit(&*parcel, Circuit::try_acquire_for, round) {
            Ok(leave_to_go) => self.go(parcel, round.now, leave_to_go, round),
            Err(refused) if round.gate.spares(refused.reason()) => {
                round.circuit.uncount_rejected();
                let leave_to_go = spared(&*parcel, round);
                self.go(parcel, round.now, leave_to_go, round);
            }
            Err(refused) => self.reject(parcel, refused, round),
        }
    }

    fn hold_if_room(&mut self, parcel: Box<dyn Parcel>, capacity: u32, round: &Round<'_>) {
        if usize::try_from(capacity).is_ok_and(|most| self.queue.len() >= most) {
            leave(&*parcel);
            self.note_full(round);
            give_up(parcel, &GivenUp::Full(capacity));
        } else {
            self.hold(parcel, round);
        }
    }

    fn hold(&mut self, parcel: Box<dyn Parcel>, round: &Round<'_>) {
        let place = self.queue.next_place();
        HeldCounts::add(&mut self.counts.held);
        self.told_full = false;
        // Before the place is known to the caller, who may go away at once.
        let stays = parcel.seat().is_none_or(|seat| seat.take(place));
        self.queue.push(parcel, round.now);
        if !stays {
            self.forget(place, round.gate, round.now);
        }
    }

    fn reject(&mut self, parcel: Box<dyn Parcel>, refused: Refused, round: &Round<'_>) {
        let Round { gate, now, .. } = round;
        leave(&*parcel);
        let rejected = gate.rejection(refused.reason(), refused.epoch(), refused.until());
        if !give_up(parcel, &GivenUp::Rejected(rejected)) {
            self.note(DropReason::Rejected, *now, gate, *now);
        }
    }

    /// Sends a message that was admitted.
    fn go(
        &mut self,
        parcel: Box<dyn Parcel>,
        since: Timestamp,
        (permit, call_timeout): (Permit, Duration),
        round: &mut Round<'_>,
    ) {
        leave(&*parcel);
        let delivery = parcel.send(Sending {
            gate: round.gate,
            breaker: (round.address)(),
            permit,
            call_timeout,
            failed: &self.failed,
        });
        if let Some(Delivery {
            permit,
            outcome,
            answer,
        }) = delivery
        {
            settle(round.circuit, permit, outcome, round.now);
            self.answers.push((since, answer));
        }
    }

    /// Clears the place of a caller that went away.
    fn forget(&mut self, place: u64, gate: &Gate, now: Timestamp) {
        if let Some(Waiting { item, since }) = self.queue.remove(place) {
            HeldCounts::add(&mut self.counts.dropped);
            self.note(DropReason::CallerGone, since, gate, now);
            quietly(|| drop(item));
        }
    }

    fn drop_one(&mut self, why: DropReason, since: Timestamp, round: &Round<'_>) {
        HeldCounts::add(&mut self.counts.dropped);
        self.note(why, since, round.gate, round.now);
    }

    fn note_full(&mut self, round: &Round<'_>) {
        HeldCounts::add(&mut self.counts.full);
        self.note(DropReason::Full, round.now, round.gate, round.now);
    }

    /// Remembers a drop, to be told after the step.
    fn note(&mut self, why: DropReason, since: Timestamp, gate: &Gate, now: Timestamp) {
        self.seq = self.seq.saturating_add(1);
        self.drops.push(HeldDropped {
            breaker: Arc::clone(gate.name()),
            why,
            held_for: now.since(since),
            at: now,
            seq: self.seq,
        });
    }

    /// Takes in what callers left.
    pub(super) fn read(&mut self, left: &Left, gate: &Gate, now: Timestamp) {
        for place in &left.places {
            self.forget(*place, gate, now);
        }
        self.counts.full = self.counts.full.saturating_add(left.turned_away);
        for _ in 0..left.turned_away.min(MOST_TOLD) {
            self.note(DropReason::Full, now, gate, now);
        }
        let untold = left.turned_away.saturating_sub(MOST_TOLD);
        self.seq = self.seq.saturating_add(untold);
    }

    /// What is to be told.
    pub(super) fn take_drops(&mut self) -> Option<Drops> {
        if self.drops.is_empty() {
            return None;
        }
        let events = std::mem::take(&mut self.drops);
        let full = |event: &HeldDropped| event.why == DropReason::Full;
        let drops = Drops {
            subscribers: self.subscribers.clone(),
            // A storm of callers that find no room is one entry in the log.
            logs_full: !self.told_full,
            events,
        };
        self.told_full |= drops.events.iter().any(full);
        Some(drops)
    }

    /// The breaker is gone for good: everything goes back to its caller, and is told.
    pub(super) fn end(mut self, gate: &Gate, family: Option<&Listeners>) {
        if self.queue.is_empty() && self.arrivals.is_empty() && self.drops.is_empty() {
            return;
        }
        let now = caught(|| gate.clock().now());
        let waiting = std::mem::take(&mut self.queue);
        let arrivals = std::mem::take(&mut self.arrivals);
        self.give_back(waiting, arrivals, gate, now.unwrap_or_default());
        if let Some(drops) = self.take_drops() {
            drops.deliver(family);
        }
    }

    fn give_back(
        &mut self,
        mut waiting: Queue<Box<dyn Parcel>>,
        arrivals: VecDeque<Box<dyn Parcel>>,
        gate: &Gate,
        now: Timestamp,
    ) {
        while let Some(Waiting { item, since }) = waiting.pop() {
            self.note(DropReason::BreakerGone, since, gate, now);
            quietly(|| drop(item));
        }
        for parcel in arrivals {
            self.note(DropReason::BreakerGone, now, gate, now);
            quietly(|| drop(parcel));
        }
    }
}

/// How the circuit is asked: for one that waits if it is refused, or for one that is rejected then.
type Asked = fn(&mut Circuit, Duration, Timestamp) -> Result<Permit, Refused>;

/// Asks the circuit for leave to send a message, which may take so long.
fn admit(
    parcel: &dyn Parcel,
    ask: Asked,
    round: &mut Round<'_>,
) -> Result<(Permit, Duration), Refused> {
    let call_timeout = time_for(parcel, round);
    let permit = ask(round.circuit, call_timeout, round.now)?;
    Ok((permit, call_timeout))
}

/// Leave to send a message that the circuit refused.
fn spared(parcel: &dyn Parcel, round: &Round<'_>) -> (Permit, Duration) {
    (Permit::spared(), time_for(parcel, round))
}

fn time_for(parcel: &dyn Parcel, round: &Round<'_>) -> Duration {
    let call_timeout = parcel.call_timeout();
    call_timeout.unwrap_or_else(|| round.circuit.config().call_timeout())
}

fn is_abandoned(parcel: &dyn Parcel) -> bool {
    parcel.seat().is_some_and(Seat::is_abandoned)
}

/// Takes a message from its seat; `false` if its caller went away.
fn leave(parcel: &dyn Parcel) -> bool {
    let stays = !is_abandoned(parcel);
    if let Some(seat) = parcel.seat() {
        seat.leave();
    }
    stays
}

/// User values are dropped with the message.
fn give_up(parcel: Box<dyn Parcel>, why: &GivenUp) -> bool {
    caught(|| parcel.give_up(why)).unwrap_or(false)
}

fn settle(circuit: &mut Circuit, permit: Permit, outcome: Option<Outcome>, now: Timestamp) {
    // Without an outcome a closed permit is of no further use; a probe has always one.
    if let Some(outcome) = outcome
        && !permit.is_spared()
    {
        let ending = Ending::Outcome {
            outcome,
            slow: false,
        };
        circuit.end(permit, ending, now);
    }
}
