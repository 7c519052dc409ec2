//! The breaker's actor: mailbox in, circuit, published state, replies, events, timers.
//! It decides nothing itself; the rules are in [`circuit`](crate::circuit).
//!
//! Every message takes the same way, [`BreakerActor::step`]: what handles left for it is taken in, the
//! circuit decides, the result is published. Then the message is answered, and then the change is told.

mod handlers;
mod holding;
mod link;
mod members;
#[cfg(feature = "admin")]
mod noted;
mod outbox;
mod parcel;
mod replica;
mod timers;
mod turns;

use std::fmt;
use std::sync::{Arc, Mutex};

use actix::{Actor, AsyncContext, Context, Supervised};

use crate::caught::quietly;
use crate::circuit::{Circuit, CircuitState, Permit, Settlement};
use crate::clock::Timestamp;
use crate::event::{StateChanged, Subscribers};
use crate::gate::{Account, End, Flags, Gate, Notice, Taken};
use crate::policy::{TripPolicy, Window};
pub use holding::HeldCounts;
use holding::Holding;
pub(crate) use link::{Link, Manner};
use members::Role;
pub(crate) use members::{Keeper, Listeners, MemberMailbox, Numbers};
use outbox::Outbox;
pub(crate) use parcel::{AskParcel, Parcel, TellParcel};
use replica::Linked;
use timers::{AHEAD, Timers};
use turns::WhileReachable;

/// The actor that owns one circuit: its only writer, made and supervised by
/// [`Breakers`](crate::Breakers).
///
/// Workers talk to it through a [`Breaker`](crate::Breaker); an admin actor that has only its address
/// sends it the messages of [`message`](crate::message). A restart, be it for a stop or a panic, keeps
/// its circuit and its subscribers and loses at most the message being handled (R29).
pub struct BreakerActor {
    circuit: Circuit,
    gate: Arc<Gate>,
    /// There once somebody has subscribed.
    subscribers: Option<Arc<Mutex<Subscribers>>>,
    seq: u64,
    timers: Timers,
    account: Account,
    /// There once a message was in its care.
    holding: Option<Box<Holding>>,
    /// What it has to do with a family of breakers.
    role: Role,
    /// There where its record is shared.
    linked: Option<Box<Linked>>,
}

impl BreakerActor {
    pub(crate) fn new(circuit: Circuit, gate: Arc<Gate>) -> Self {
        Self::in_role(Role::Alone, circuit, gate, 0)
    }

    /// One whose record is shared.
    pub(crate) fn linked(circuit: Circuit, gate: Arc<Gate>, link: Arc<Link>) -> Self {
        let mut actor = Self::new(circuit, gate);
        actor.linked = Some(Box::new(Linked::new(link)));
        actor
    }

    fn in_role(role: Role, circuit: Circuit, gate: Arc<Gate>, seq: u64) -> Self {
        Self {
            circuit,
            gate,
            subscribers: None,
            seq,
            timers: Timers::default(),
            account: Account::default(),
            holding: None,
            role,
            linked: None,
        }
    }

    /// What a new breaker shows before its actor has run.
    pub(crate) fn first_notice(circuit: &Circuit, timed: bool, now: Timestamp) -> Notice {
        notice(circuit, timed, false, now)
    }

    /// One step: takes in what handles left, lets the circuit decide, publishes.
    fn step<R>(
        &mut self,
        ctx: &mut Context<Self>,
        decide: impl FnOnce(&mut Circuit, Timestamp) -> R,
    ) -> (R, Outbox) {
        self.step_by(ctx, |actor, now| decide(&mut actor.circuit, now))
    }

    fn step_by<R>(
        &mut self,
        ctx: &mut Context<Self>,
        decide: impl FnOnce(&mut Self, Timestamp) -> R,
    ) -> (R, Outbox) {
        let now = self.gate.clock().now();
        let lost_before = self.circuit.calls().lost_probes;
        self.take_in(now);
        // Those who wait come before whatever came later.
        self.tend_held(ctx, now);
        let result = decide(self, now);
        let again = self.tend_held(ctx, now);
        self.ask_for_leave(now);
        self.publish(ctx, now);
        self.account.close(self.circuit.calls(), self.gate.meter());
        self.account.hold(self.waiting(), self.gate.meter());
        self.set_held_timer(ctx, again, now);
        self.answer_held(now);
        self.turn_to_store(ctx);
        self.take_turns(ctx);
        let lost_probes = self.circuit.calls().lost_probes.saturating_sub(lost_before);
        (result, self.outbox(lost_probes))
    }

    /// Takes in what handles left outside the mailbox.
    fn take_in(&mut self, now: Timestamp) {
        self.fold(now);
        if let Some(taken) = self.gate.take_letters() {
            self.read(taken, now);
        }
    }

    /// Takes in letters.
    fn read(&mut self, taken: Taken, now: Timestamp) {
        for (permit, end) in taken.ended {
            self.end(permit, end, now);
        }
        for (end, count) in taken.counts {
            for _ in 0..count {
                self.end(Permit::closed(taken.epoch), end, now);
            }
        }
        self.circuit.count_late(taken.late);
        if taken.left.is_any() {
            let holding = self.holding.get_or_insert_default();
            holding.read(&taken.left, &self.gate, now);
        }
    }

    /// Lets the circuit decide what the end of a call means. That it was a timeout is for people alone.
    fn end(&mut self, permit: Permit, end: End, now: Timestamp) {
        let settlement = self.circuit.end(permit, end.ending, now);
        if end.timed_out && settlement == Settlement::Counted {
            self.account.timed_out();
        }
    }

    /// Takes in the successes that were counted on the stripes.
    fn fold(&mut self, now: Timestamp) -> bool {
        let epoch = self.gate.load().epoch();
        let successes = self.gate.fold();
        self.circuit.settle_successes(epoch, successes, now);
        self.timers.note_samples(successes > 0);
        // To say so for none would only publish the same once more.
        successes > 0
    }

    /// Makes the circuit's state known to the handles.
    fn publish(&mut self, ctx: &mut Context<Self>, now: Timestamp) {
        let flags = self.publish_once(ctx, now);
        // A success counted before this word was out did not see that it should be reported, and may
        // trip. One that is counted from now on reports itself.
        if flags.has(Flags::REPORT) && self.fold(now) {
            self.publish_once(ctx, now);
        }
    }

    fn publish_once(&mut self, ctx: &mut Context<Self>, now: Timestamp) -> Flags {
        self.set_timers(ctx, now);
        let mut notice = notice(
            &self.circuit,
            self.gate.is_timed(),
            self.timers.are_ticking(),
            now,
        );
        notice.flags = notice.flags.with(Flags::WAITING.when(self.is_holding()));
        let unfolded = self.gate.publish(notice);
        self.circuit.count_late(unfolded);
        notice.flags
    }

    fn outbox(&mut self, lost_probes: u64) -> Outbox {
        let mut outbox = Outbox::default();
        while let Some(transition) = self.circuit.pop_transition() {
            self.seq = self.seq.saturating_add(1);
            let (from, to, cause) = (transition.from, transition.to, transition.cause);
            self.gate.meter().transition(from, to, cause);
            let name = Arc::clone(self.gate.name());
            let event = StateChanged::new(name, self.seq, transition, self.circuit.config());
            let news = outbox.news(self);
            news.events.push(event);
        }
        while let Some(code) = self.circuit.pop_panicked() {
            let news = outbox.news(self);
            news.panicked.push(code);
        }
        // News of none would cost an allocation, and be told to nobody.
        if lost_probes > 0 {
            let news = outbox.news(self);
            news.lost_probes = lost_probes;
        }
        if let Some(drops) = self.holding.as_mut().and_then(|all| all.take_drops()) {
            let news = outbox.news(self);
            news.drops = Some(drops);
        }
        outbox
    }

    /// The present state as an event, for a new subscriber.
    fn present(&mut self, ctx: &mut Context<Self>) -> StateChanged {
        let (present, outbox) = self.step(ctx, |circuit, now| circuit.present(now));
        outbox.deliver();
        let name = Arc::clone(self.gate.name());
        StateChanged::new(name, self.seq, present, self.circuit.config())
    }
}

/// What handles have to know of the circuit.
fn notice(circuit: &Circuit, timed: bool, ticking: bool, now: Timestamp) -> Notice {
    let state = circuit.record().state();
    let until = circuit.next_deadline();
    let (rated, of_time) = match circuit.config().trip() {
        TripPolicy::FailureRate { window, .. } => (true, matches!(window, Window::Time(_))),
        _ => (false, false),
    };
    let counts = rated && state == CircuitState::Closed;
    let tallies = counts && timed;
    let asked = circuit.is_ramping(now) || circuit.asks_first();
    let flags = Flags::default()
        .with(Flags::DUE.when(state == CircuitState::Open && until.is_some_and(|at| at <= now)))
        .with(Flags::RAMP.when(state == CircuitState::Closed && asked))
        .with(Flags::DIAL.when(state == CircuitState::Open && circuit.config().enforcement() < 1.0))
        .with(Flags::NEAR.when(until.is_some_and(|at| at <= now + AHEAD)))
        .with(Flags::TALLY.when(tallies))
        .with(Flags::TELL.when(circuit.success_forgets() || counts && !timed))
        .with(
            Flags::REPORT.when(tallies && (of_time && !ticking || circuit.success_may_trip(now))),
        );
    Notice {
        state,
        epoch: circuit.record().epoch(),
        flags,
        until,
        empty_at: circuit.empty_at(),
    }
}

impl Actor for BreakerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // The old context took its timers along, and its handles mean others in this one.
        self.timers = Timers::default();
        if let Some(holding) = &mut self.holding {
            holding.forget_timer();
        }
        ctx.spawn(WhileReachable);
        // What fell due meanwhile has no timer any more.
        let ((), outbox) = self.step_by(ctx, |actor, now| {
            actor.circuit.advance(now);
            actor.join_if_there(now);
        });
        outbox.deliver();
        self.start_members(ctx);
    }
}

impl Supervised for BreakerActor {}

/// The value outlives its restarts, so its end is the end for good.
impl Drop for BreakerActor {
    fn drop(&mut self) {
        self.gate.retire();
        self.retire_members();
        if let Some(holding) = self.holding.take() {
            let family = self.listeners().map(AsRef::as_ref);
            quietly(|| holding.end(&self.gate, family));
            self.account.hold(0, self.gate.meter());
        }
    }
}

impl fmt::Debug for BreakerActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerActor")
            .field("name", self.gate.name())
            .field("circuit", &self.circuit)
            .field("seq", &self.seq)
            .finish_non_exhaustive()
    }
}
