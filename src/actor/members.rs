//! How one actor runs the breakers of a family.
//! Who its members are, and what becomes of those that nobody holds, is left to `family.rs`.
//!
//! A member is what the actor of a named breaker is, but for a context of its own. Each has a mailbox; the
//! head of the family reads them all, and for each message lets the member take its place.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{self, Poll};
use std::time::Duration;

use actix::dev::channel::AddressReceiver;
use actix::dev::{Envelope, EnvelopeProxy};
use actix::fut::ActorFuture;
use actix::{Addr, AsyncContext, Context, Handler, SpawnHandle};
use futures_core::Stream;
use futures_util::stream::SelectAll;

use super::BreakerActor;
use super::holding::Holding;
use super::timers::Timers;
use crate::breaker::{Breaker, WeakBreaker};
use crate::caught::{caught, quietly};
use crate::circuit::Circuit;
use crate::config::BreakerConfig;
use crate::event::{HeldDropped, Subscribers};
use crate::gate::Gate;
use crate::message::{FollowFamily, Serve};

/// How often what nobody looks at is forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(10);

/// How many messages to members are handled in one turn.
const MESSAGES: usize = 128;

/// What an actor has to do with a family.
pub(super) enum Role {
    /// It has a breaker of its own, and no family.
    Alone,
    /// It runs the members of a family.
    Head(Box<Head>),
    /// It is run by a head.
    Member(Box<Membership>),
}

pub(super) struct Head {
    keeper: Weak<dyn Keeper>,
    listeners: Arc<Listeners>,
    /// In the actor, not in its context, so that a restart keeps them.
    mailboxes: SelectAll<MemberMailbox>,
    /// Counts the contexts, whose timers mean nothing in the next one.
    life: u32,
    /// Members that had timers, or something left to do, when their turn ended.
    timed: VecDeque<WeakBreaker>,
}

pub(super) struct Membership {
    me: WeakBreaker,
    listeners: Arc<Listeners>,
    /// Whether its settings were given to it alone.
    own_settings: bool,
}

/// What the events of a member are numbered by, over its rests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Numbers {
    changes: u64,
    drops: u64,
}

/// Those who listen to all members of a family.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(super) changes: Mutex<Subscribers>,
    pub(super) drops: Mutex<Subscribers<HeldDropped>>,
}

impl Role {
    /// Where messages to the breaker whose turn it is go to.
    pub(super) fn address(&self, ctx: &Context<BreakerActor>) -> Addr<BreakerActor> {
        let member = match self {
            Self::Member(member) => member.me.upgrade(),
            Self::Alone | Self::Head(_) => None,
        };
        member.map_or_else(|| ctx.address(), |member| member.addr().clone())
    }

    /// Notes whether the settings in force were given to a member alone.
    pub(super) fn note_settings(&mut self, own: bool) {
        if let Self::Member(member) = self {
            member.own_settings = own;
        }
    }

    /// Wakes the breaker whose turn it is after a time, in a turn of its own; a member only if somebody
    /// holds it then.
    pub(super) fn later(
        &self,
        ctx: &mut Context<BreakerActor>,
        wait: Duration,
        wake: fn(&mut BreakerActor, &mut Context<BreakerActor>),
    ) -> SpawnHandle {
        let Self::Member(member) = self else {
            return ctx.run_later(wait, wake);
        };
        let me = member.me.clone();
        ctx.run_later(wait, move |head, ctx| {
            if let Some(member) = me.upgrade() {
                head.in_turn_of(&member, |actor| wake(actor, ctx));
            }
        })
    }
}

/// Who keeps the members of a family.
pub(crate) trait Keeper: Send + Sync + 'static {
    /// Puts a member away that nobody holds, if it has nothing to do; `is_empty` tells whether its mailbox
    /// is empty, and is asked when no more handles to it can be had.
    fn put_away(&self, key: &str, member: &WeakBreaker, is_empty: &mut dyn FnMut() -> bool)
    -> bool;

    /// Looks for members that nobody holds, and for records that do not matter any more.
    fn tidy(&self);

    /// Makes known that the head is gone for good.
    fn retire(&self);
}

/// The messages to one member. It ends when nobody holds the member any more.
pub(crate) struct MemberMailbox {
    receiver: AddressReceiver<BreakerActor>,
    me: WeakBreaker,
    key: Arc<str>,
    keeper: Weak<dyn Keeper>,
}

impl MemberMailbox {
    pub(crate) fn new(
        receiver: AddressReceiver<BreakerActor>,
        me: WeakBreaker,
        key: Arc<str>,
        keeper: Weak<dyn Keeper>,
    ) -> Self {
        Self {
            receiver,
            me,
            key,
            keeper,
        }
    }
}

impl Stream for MemberMailbox {
    type Item = (Breaker, Envelope<BreakerActor>);

    fn poll_next(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        let Self {
            receiver,
            me,
            key,
            keeper,
        } = self.get_mut();
        let mut message = Pin::new(&mut *receiver).poll_next(cx);
        if message.is_pending() {
            let keeper = keeper.upgrade();
            let mut is_empty = || {
                message = Pin::new(&mut *receiver).poll_next(cx);
                message.is_pending()
            };
            // It reads the user's clock, whose panic would cost the member its mailbox.
            let is_away = keeper.is_some_and(|keeper| {
                caught(|| keeper.put_away(key, me, &mut is_empty)).unwrap_or(false)
            });
            if is_away {
                return Poll::Ready(None);
            }
        }
        // Whoever has only the address of a member that is gone finds it closed.
        message.map(|message| Some((me.upgrade()?, message?)))
    }
}

/// A member in the head's place, until it is dropped, be it by a panic.
struct Turn<'a> {
    head: &'a mut BreakerActor,
    member: &'a Mutex<BreakerActor>,
}

impl<'a> Turn<'a> {
    fn begin(head: &'a mut BreakerActor, member: &'a Mutex<BreakerActor>) -> Self {
        let life = match &head.role {
            Role::Head(head) => head.life,
            Role::Alone | Role::Member(_) => 0,
        };
        let mut kept = lock(member);
        if kept.timers.life != life {
            kept.timers = Timers::of_life(life);
            if let Some(holding) = &mut kept.holding {
                holding.forget_timer();
            }
        }
        std::mem::swap(head, &mut *kept);
        drop(kept);
        Self { head, member }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut kept = lock(self.member);
        std::mem::swap(self.head, &mut *kept);
        let has_more_to_do = kept.has_more_to_do();
        let BreakerActor { role, timers, .. } = &mut *kept;
        if let (Role::Head(head), Role::Member(member)) = (&mut self.head.role, role)
            && has_more_to_do
            && !std::mem::replace(&mut timers.listed, true)
        {
            // To look for those that are gone more often would only cost more.
            if head.timed.len() == head.timed.capacity() {
                head.timed.retain(|member| member.upgrade().is_some());
            }
            head.timed.push_back(member.me.clone());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BreakerActor {
    /// Makes the head of a family. Its own circuit is one that no member has.
    pub(crate) fn head(
        circuit: Circuit,
        gate: Arc<Gate>,
        keeper: Weak<dyn Keeper>,
        listeners: Arc<Listeners>,
    ) -> Self {
        let head = Head {
            keeper,
            listeners,
            mailboxes: SelectAll::new(),
            life: 0,
            timed: VecDeque::new(),
        };
        Self::in_role(Role::Head(Box::new(head)), circuit, gate, 0)
    }

    /// Makes what a head keeps of a member.
    pub(crate) fn member(
        circuit: Circuit,
        gate: Arc<Gate>,
        numbers: Numbers,
        own_settings: bool,
        me: WeakBreaker,
        listeners: Arc<Listeners>,
    ) -> Self {
        let role = Role::Member(Box::new(Membership {
            me,
            listeners,
            own_settings,
        }));
        let mut member = Self::in_role(role, circuit, gate, numbers.changes);
        if numbers.drops > 0 {
            member.holding = Some(Box::new(Holding::after(numbers.drops)));
        }
        member
    }

    pub(crate) fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    /// What the next events go on from.
    pub(crate) fn numbers(&self) -> Numbers {
        Numbers {
            changes: self.seq,
            drops: self.holding.as_ref().map_or(0, |all| all.seq()),
        }
    }

    /// Whether its settings were given to it alone.
    pub(crate) fn has_own_settings(&self) -> bool {
        matches!(&self.role, Role::Member(member) if member.own_settings)
    }

    /// Whether it takes the settings that are given to a family which had these before.
    pub(super) fn follows_family(&self, before: &BreakerConfig) -> bool {
        !self.has_own_settings() || self.circuit.config() == before
    }

    /// Whether nobody listens to the breaker, and nothing of it is to come.
    pub(crate) fn is_quiet(&self) -> bool {
        let hears_changes = self
            .subscribers
            .as_ref()
            .is_some_and(|all| lock(all).living() > 0);
        let hears_drops = self
            .holding
            .as_ref()
            .is_some_and(|all| all.is_listened_to());
        !hears_changes && !hears_drops && !self.has_more_to_do()
    }

    /// Lets a member take the head's place.
    fn in_turn_of<R>(&mut self, member: &Breaker, handle: impl FnOnce(&mut Self) -> R) -> R {
        match member.kept() {
            Some(kept) => handle(Turn::begin(self, kept).head),
            None => handle(self),
        }
    }

    /// Those who listen to all members of the family.
    pub(super) fn listeners(&self) -> Option<&Arc<Listeners>> {
        match &self.role {
            Role::Member(member) => Some(&member.listeners),
            Role::Alone | Role::Head(_) => None,
        }
    }

    /// Whether a step of it is to come by itself: by a timer or, where a step ended in a panic, in the next
    /// context.
    fn has_more_to_do(&self) -> bool {
        self.timers.are_set()
            || self.circuit.has_news()
            || self
                .holding
                .as_ref()
                .is_some_and(|all| all.has_more_to_do())
    }

    /// Makes known to the members that the head is gone for good. What waits in them goes back, for nobody
    /// else would send it.
    pub(super) fn retire_members(&self) {
        let Role::Head(head) = &self.role else {
            return;
        };
        if let Some(keeper) = head.keeper.upgrade() {
            keeper.retire();
        }
        let read = head.mailboxes.iter();
        for member in read.filter_map(|mailbox| mailbox.me.upgrade()) {
            let holding = member.kept().and_then(|kept| {
                let mut kept = lock(kept);
                kept.account.hold(0, member.gate().meter());
                kept.holding.take()
            });
            if let Some(holding) = holding {
                quietly(|| holding.end(member.gate(), Some(&head.listeners)));
            }
        }
    }

    /// In a new context: reads the members' mailboxes again, sets their timers, and goes on with what a panic
    /// left undone.
    pub(super) fn start_members(&mut self, ctx: &mut Context<Self>) {
        let Role::Head(head) = &mut self.role else {
            return;
        };
        head.life = head.life.wrapping_add(1);
        let timed = head.timed.len();
        let keeper = Weak::clone(&head.keeper);
        ctx.spawn(Reading);
        ctx.run_interval(TIDY_EVERY, move |_, _| {
            if let Some(keeper) = keeper.upgrade() {
                quietly(|| keeper.tidy());
            }
        });
        for _ in 0..timed {
            let Some(member) = self.first_timed() else {
                break;
            };
            self.in_turn_of(&member, |actor| {
                let ((), outbox) = actor.step(ctx, Circuit::advance);
                outbox.deliver();
            });
            // Only now: over whom a panic comes, and who is behind it, is listed in the next context too.
            if let Role::Head(head) = &mut self.role {
                head.timed.pop_front();
            }
        }
    }

    /// The first of the listed members that still is.
    fn first_timed(&mut self) -> Option<Breaker> {
        let Role::Head(head) = &mut self.role else {
            return None;
        };
        loop {
            let first = head.timed.front()?.upgrade();
            if first.is_some() {
                return first;
            }
            head.timed.pop_front();
        }
    }
}

/// Reads the mailboxes of all members, for as long as the head's context lives.
struct Reading;

impl ActorFuture<BreakerActor> for Reading {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        head: &mut BreakerActor,
        ctx: &mut Context<BreakerActor>,
        cx: &mut task::Context<'_>,
    ) -> Poll<()> {
        for _ in 0..MESSAGES {
            if ctx.waiting() {
                break;
            }
            let Role::Head(role) = &mut head.role else {
                return Poll::Ready(());
            };
            // An end means that there are no members now, not that there will be none.
            let Poll::Ready(Some((member, mut message))) =
                Pin::new(&mut role.mailboxes).poll_next(cx)
            else {
                return Poll::Pending;
            };
            head.in_turn_of(&member, |actor| message.handle(actor, ctx));
        }
        // The others on this arbiter have their turn first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Handler<Serve> for BreakerActor {
    type Result = ();

    fn handle(&mut self, Serve(mailbox): Serve, _: &mut Context<Self>) {
        if let Role::Head(head) = &mut self.role {
            head.mailboxes.push(mailbox);
        }
    }
}

impl Handler<FollowFamily> for BreakerActor {
    type Result = ();

    fn handle(&mut self, subscriber: FollowFamily, _: &mut Context<Self>) {
        if let Role::Head(head) = &self.role {
            match subscriber {
                FollowFamily::Changes(subscriber) => {
                    lock(&head.listeners.changes).add_actor(subscriber, None);
                }
                FollowFamily::Drops(subscriber) => {
                    lock(&head.listeners.drops).add_actor(subscriber, None);
                }
            }
        }
    }
}
