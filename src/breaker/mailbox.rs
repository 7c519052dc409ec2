//! Where a breaker's messages go: to an actor of its own, or to the one it shares with its family.
//! How that one runs them is in `actor/members.rs`.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use actix::Addr;
use actix::dev::channel;

use super::{Breaker, Inner};
use crate::actor::{BreakerActor, Keeper, MemberMailbox};
use crate::gate::Gate;
use crate::message::Serve;

pub(super) enum Mailbox {
    /// The actor has this breaker alone.
    Own(Addr<BreakerActor>),
    Member(Box<Member>),
}

/// What a member of a family has beside its gate.
pub(super) struct Member {
    head: Addr<BreakerActor>,
    /// Opened when the first message is sent; most members never get any.
    opened: OnceLock<Addr<BreakerActor>>,
    /// What the head keeps of this breaker. Locked by the head alone.
    kept: Mutex<BreakerActor>,
    me: WeakBreaker,
    key: Arc<str>,
    born: u64,
    keeper: Weak<dyn Keeper>,
}

/// Finds a member of a family for as long as somebody holds it.
#[derive(Clone)]
pub(crate) struct WeakBreaker(Weak<Inner>);

impl WeakBreaker {
    pub(crate) fn upgrade(&self) -> Option<Breaker> {
        self.0.upgrade().map(|inner| Breaker { inner })
    }
}

impl Mailbox {
    /// The address of the actor, for messages to this breaker.
    pub(super) fn address(&self) -> &Addr<BreakerActor> {
        match self {
            Self::Own(address) => address,
            Self::Member(member) => member.opened.get_or_init(|| member.open()),
        }
    }

    #[inline]
    pub(super) fn is_connected(&self) -> bool {
        match self {
            Self::Own(address) => address.connected(),
            Self::Member(member) => member.opened.get().unwrap_or(&member.head).connected(),
        }
    }
}

impl Member {
    fn open(&self) -> Addr<BreakerActor> {
        // Unbounded, as that of a breaker which has an actor of its own.
        let (sender, receiver) = channel::channel(0);
        let me = self.me.clone();
        let (key, keeper) = (Arc::clone(&self.key), Weak::clone(&self.keeper));
        // If the head is gone, this drops the receiver, and the address is closed, too.
        self.head
            .do_send(Serve(MemberMailbox::new(receiver, me, key, keeper)));
        Addr::new(sender)
    }
}

impl Breaker {
    /// Makes a member of a family, whose head runs what `make` makes.
    pub(crate) fn member(
        head: &Addr<BreakerActor>,
        keeper: Weak<dyn Keeper>,
        key: Arc<str>,
        born: u64,
        gate: Arc<Gate>,
        make: impl FnOnce(WeakBreaker) -> BreakerActor,
    ) -> Self {
        let inner = Arc::new_cyclic(|me| {
            let me = WeakBreaker(Weak::clone(me));
            Inner {
                mailbox: Mailbox::Member(Box::new(Member {
                    head: head.clone(),
                    opened: OnceLock::new(),
                    kept: Mutex::new(make(me.clone())),
                    me,
                    key,
                    born,
                    keeper,
                })),
                gate,
            }
        });
        Self { inner }
    }

    /// The epoch that a member began with when nothing was known of it.
    pub(crate) fn born(&self) -> u64 {
        match &self.inner.mailbox {
            Mailbox::Own(_) => self.gate().load().epoch(),
            Mailbox::Member(member) => member.born,
        }
    }

    /// Whether this is the member that `other` finds.
    pub(crate) fn is(&self, other: &WeakBreaker) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.inner), other.0.as_ptr())
    }

    /// Whether there is another handle to this member.
    pub(crate) fn is_held_elsewhere(&self) -> bool {
        let is_held = Arc::strong_count(&self.inner) > 1;
        // What was done by those who held it is seen by what is asked now.
        fence(Ordering::Acquire);
        is_held
    }

    /// Whether nobody else holds this member, listens to it, or owes it an outcome, and nothing of it is to
    /// come; but for what its mailbox may hold.
    pub(crate) fn is_unused(&self) -> bool {
        // Beside the handle, what the head keeps of it has a share in the gate.
        let is_held = self.is_held_elsewhere() || Arc::strong_count(self.gate()) > 2;
        // What was done by those who held it is seen by what is asked now.
        fence(Ordering::Acquire);
        let kept = self.kept().and_then(|kept| kept.try_lock().ok());
        !is_held && self.gate().is_quiet() && kept.is_some_and(|mut kept| kept.is_quiet())
    }

    /// What the head of the family keeps of this member.
    pub(crate) fn kept(&self) -> Option<&Mutex<BreakerActor>> {
        match &self.inner.mailbox {
            Mailbox::Own(_) => None,
            Mailbox::Member(member) => Some(&member.kept),
        }
    }

    /// Whether messages were ever sent to this member.
    pub(crate) fn is_open(&self) -> bool {
        match &self.inner.mailbox {
            Mailbox::Own(_) => true,
            Mailbox::Member(member) => member.opened.get().is_some(),
        }
    }

    /// Takes a member apart, if this is the only handle to it.
    pub(crate) fn into_kept(self) -> Result<BreakerActor, Self> {
        match Arc::try_unwrap(self.inner) {
            Ok(Inner {
                mailbox: Mailbox::Member(member),
                ..
            }) => Ok(member
                .kept
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner)),
            Ok(named) => Err(Self {
                inner: Arc::new(named),
            }),
            Err(inner) => Err(Self { inner }),
        }
    }
}
