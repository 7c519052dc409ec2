//! A circuit beside a record that several processes share. While it is joined to the store, it has the store
//! decide what all of them have to agree on, and takes over what the store shows; while it is apart, it
//! decides alone, as a circuit without a store does. Either way it admits by itself what needs no probe.
//!
//! | | joined | apart, or alone |
//! | --- | --- | --- |
//! | a call while closed | admitted | admitted |
//! | a failure, or a slow call | [`Action::Record`]; the store trips | it trips by what it has seen itself |
//! | a success | told where it changes the shared record | as ever |
//! | a probe | [`Action::Acquire`] and [`Action::Settle`] | it gives out slots by itself |
//! | an order | carried out, then told; told again if another was faster | carried out |
//!
//! **How they meet again.** A record's version is its epoch: every change of state makes a higher one, taken
//! from the shared time. Whoever finds the store at a lower version than its own offers what it remembers; at
//! a higher one it takes over what is there. So of two histories the one whose last change is newer goes on, a
//! store that lost a record gets it back, and an open deadline outlives a lost key. Samples of a closed window
//! are not offered, but for those whose fate in the store is unknown: they are recorded again, under their
//! names, so that they count once.
//!
//! **Alone** is a process that tripped by what it has seen itself, where the store wants more reporters: it
//! keeps the others out of it until it has recovered, or the store's record changes.

mod answers;
mod requests;
mod steps;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, VecDeque};

use super::order::OrderKind;
use super::permit::SlotId;
use super::record::Phase;
use super::shared::{Action, CallId, Sharing, Step, View};
use super::{Cause, Circuit, CircuitState, Ending, Transition, next_epoch};
use crate::clock::Timestamp;
use requests::{Pending, Requests};
pub(crate) use requests::{Request, Terms, Ticket};

/// What a circuit knows of the record it shares.
#[derive(Debug, Clone)]
pub(super) struct Replica {
    terms: Terms,
    standing: Standing,
    /// The shared time less the process's own, in microseconds.
    ahead: i64,
    version: u64,
    revision: u64,
    /// The newest request when that was learned: what is answered to a later one is the truth.
    learned: Ticket,
    /// Whether the shared record remembers samples, which a success may have to make it forget.
    remembers: bool,
    /// Whether it tripped by itself while the others go on.
    alone: bool,
    leaves: Vec<Leave>,
    /// Those of other processes that hold a slot.
    foreign: Vec<CallId>,
    /// Successes that the store was not told of yet.
    successes: u64,
    requests: Requests,
    undelivered: VecDeque<Step>,
    /// An order that repeats the one that stands, and that the store was not told of: it has no version of its
    /// own by which the store would be known to be behind.
    untold: Option<Step>,
    /// How many answers in a row gave no leave, though the record shows that there is some.
    fruitless: u32,
    /// Until when nobody asks for leave, since the store gives none.
    no_leave_until: Timestamp,
    /// How the present state came about, by the process's own time.
    last: Option<Transition>,
}

/// How a circuit stands to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It was never joined to it, so the time there is not known.
    Unmet,
    Joined,
    Apart,
}

/// Leave that the store gave, and nobody took yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leave {
    Probe(SlotId),
    /// To make one call while closed; asked for where the store is asked first.
    Pass,
}

/// Where a view of the record comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The store answered a request that was made with all that is known.
    Answer,
    /// It answered one that was made before something else was learned, and may be the older news.
    Overtaken,
    /// It told of a change: older news, too, if it took longer than another.
    Told,
}

impl Replica {
    /// The least epoch of a change at `now`.
    pub(super) fn epoch_floor(&self, now: Timestamp) -> u64 {
        let now = moved(now, self.ahead).as_micros();
        now.max(next_epoch(self.version))
    }

    fn is_joined(&self) -> bool {
        self.standing == Standing::Joined
    }

    /// Whether the store decides what all processes have to agree on.
    fn is_led(&self) -> bool {
        self.is_joined() && !self.alone
    }

    fn has_leave(&self) -> bool {
        !self.leaves.is_empty()
    }

    /// Takes note of a change that the circuit made by itself.
    fn changed(&mut self, cause: Cause, to: CircuitState, now: Timestamp) {
        // Not the epoch, which may be far ahead: it began before the time at the store was known.
        let version = self.epoch_floor(now);
        match cause {
            Cause::Tripped if self.terms.min_reporters > 1 => self.alone = true,
            Cause::Forced | Cause::Released | Cause::Reset => {
                self.alone = false;
                self.version = version;
            }
            _ if self.alone => self.alone = to != CircuitState::Closed,
            Cause::Expired => self.version = next_epoch(self.version),
            _ => self.version = version,
        }
        self.begin_anew();
    }

    /// Takes note of a revision, and of when it was learned.
    fn learn(&mut self, revision: u64) {
        self.revision = revision;
        self.learned = self.requests.newest();
    }

    /// Forgets what belonged to the state before.
    fn begin_anew(&mut self) {
        self.learn(0);
        self.remembers = false;
        self.leaves.clear();
        self.successes = 0;
        self.untold = None;
        self.fruitless = 0;
        self.no_leave_until = Timestamp::ZERO;
    }
}

/// An instant on a clock that is so many microseconds ahead.
fn moved(at: Timestamp, ahead: i64) -> Timestamp {
    let at = at.as_micros();
    let by = ahead.unsigned_abs();
    Timestamp::from_micros(if ahead < 0 {
        at.saturating_sub(by)
    } else {
        at.saturating_add(by)
    })
}

// What the shell calls.
impl Circuit {
    /// Makes it the replica of a record, apart from the store at first. Its epochs follow the shared time as
    /// far as that is known. What was `written` down by another life has the epoch of then: what others did
    /// since is newer.
    pub(crate) fn sharing(mut self, terms: Terms, written: Option<u64>) -> Self {
        let epoch = moved(Timestamp::from_micros(self.record.epoch), terms.ahead).as_micros();
        self.record.epoch = epoch.max(written.map_or(0, next_epoch));
        self.next_slot = terms.first();
        let version = match self.record.phase {
            Phase::Closed(_) => 0,
            _ => written.unwrap_or(self.record.epoch),
        };
        // Whether it tripped for itself was not written down.
        let alone = terms.min_reporters > 1 && matches!(self.record.phase, Phase::Open { .. });
        self.sharing = super::Sharing::as_replica(Replica {
            terms,
            standing: Standing::Unmet,
            ahead: terms.ahead,
            version,
            revision: 0,
            learned: 0,
            remembers: false,
            alone,
            leaves: Vec::new(),
            foreign: Vec::new(),
            successes: 0,
            requests: Requests::after(terms.first()),
            undelivered: VecDeque::new(),
            untold: None,
            fruitless: 0,
            no_leave_until: Timestamp::ZERO,
            last: None,
        });
        self
    }

    /// The store is there, and its time is so many microseconds ahead: looks at the record, and has the store
    /// decide from now on.
    pub(crate) fn join(&mut self, ahead: i64, now: Timestamp) {
        let now = self.begin(now);
        if let Some(replica) = self.sharing.replica_mut() {
            // What changed before was dated by the time as it was thought to be.
            if replica.standing == Standing::Unmet && replica.version > 0 {
                let by = ahead.saturating_sub(replica.ahead);
                let version = moved(Timestamp::from_micros(replica.version), by);
                replica.version = version.as_micros().max(1);
            }
            replica.standing = Standing::Joined;
            replica.ahead = ahead;
        }
        self.refresh(now);
    }

    /// The store does not answer: decides what it was asked, and everything from now on.
    pub(crate) fn cut(&mut self, now: Timestamp) {
        let now = self.begin(now);
        let Some(replica) = self.sharing.replica_mut() else {
            return;
        };
        if replica.is_joined() {
            replica.standing = Standing::Apart;
        }
        replica.leaves.clear();
        for (step, pending) in replica.requests.take_all() {
            self.decide_alone(step, &pending, now);
        }
    }

    /// Looks at the record, and tells what was not told yet.
    pub(crate) fn refresh(&mut self, now: Timestamp) {
        let now = self.begin(now);
        let Some(replica) = self.sharing.replica_mut() else {
            return;
        };
        if !replica.is_joined()
            || replica
                .requests
                .is_under_way(|pending| matches!(pending, Pending::Look))
        {
            return;
        }
        if replica.is_led() && replica.successes > 0 {
            self.record_successes(now);
        }
        self.request(Action::Look, Pending::Look, now);
    }

    /// Takes over what the store told of a change that another process made.
    pub(crate) fn hear(&mut self, view: View, now: Timestamp) {
        let now = self.begin(now);
        if let Some(replica) = self.sharing.replica() {
            let view = view.moved(replica.ahead.saturating_neg());
            self.take_over(&view, Source::Told, now);
        }
    }

    /// Takes what the store answered; `None` if it did not.
    pub(crate) fn answer(&mut self, ticket: Ticket, view: Option<View>, now: Timestamp) {
        // After a cut it was decided without it.
        if !self.awaits(ticket) {
            return;
        }
        let Some(view) = view else {
            self.cut(now);
            return;
        };
        let now = self.begin(now);
        let Some(replica) = self.sharing.replica_mut() else {
            return;
        };
        let Some((step, pending)) = replica.requests.take(ticket) else {
            return;
        };
        let view = view.moved(replica.ahead.saturating_neg());
        self.act_on_answer(ticket, step, &pending, &view, now);
    }

    /// The oldest request to the store that was not yet sent.
    pub(crate) fn pop_request(&mut self) -> Option<Request> {
        self.sharing.replica_mut()?.requests.pop()
    }

    /// The ticket of the newest request.
    pub(crate) fn newest_ticket(&self) -> Option<Ticket> {
        Some(self.sharing.replica()?.requests.newest())
    }

    /// Whether a request waits for its answer.
    pub(crate) fn awaits(&self, ticket: Ticket) -> bool {
        let replica = self.sharing.replica();
        replica.is_some_and(|replica| replica.requests.has(ticket))
    }

    /// Whether the next call can be admitted only with the store's leave, and there is none at hand.
    pub(crate) fn needs_leave(&self, now: Timestamp) -> bool {
        let Some(replica) = self.sharing.replica() else {
            return false;
        };
        let now = now.max(self.record.newest);
        if !replica.is_led() || replica.has_leave() || replica.no_leave_until > now {
            return false;
        }
        match &self.record.phase {
            Phase::Open { .. } | Phase::HalfOpen { .. } => self.refusal(now).is_none(),
            Phase::Closed(_) | Phase::Ramping { .. } => replica.terms.strict,
            Phase::Forced(order) if order.is_over(now) => {
                order.kind == OrderKind::Open || replica.terms.strict
            }
            Phase::Forced(_) => false,
        }
    }

    /// Whether the store has given leave that nobody took yet.
    pub(super) fn has_leave(&self) -> bool {
        self.sharing.replica().is_some_and(Replica::has_leave)
    }

    /// Asks the store for leave to make one call whose own timeout is `call_timeout`.
    pub(crate) fn ask_for_leave(&mut self, call_timeout: std::time::Duration, now: Timestamp) {
        let now = self.begin(now);
        let slot = self.next_slot;
        self.next_slot = slot.wrapping_add(1);
        if let Some(replica) = self.sharing.replica() {
            let action = Action::Acquire {
                call: replica.terms.call(slot),
                lease: self.config.lease(call_timeout),
            };
            self.request(action, Pending::Leave(slot), now);
        }
    }

    /// How often leave was asked for and not answered.
    pub(crate) fn leaves_asked_for(&self) -> usize {
        self.sharing.replica().map_or(0, |replica| {
            replica
                .requests
                .count(|pending| matches!(pending, Pending::Leave(_)))
        })
    }

    /// Gives back the leave that nobody wants any more.
    pub(crate) fn return_leaves(&mut self, now: Timestamp) {
        let leaves = match self.sharing.replica_mut() {
            Some(replica) => std::mem::take(&mut replica.leaves),
            None => return,
        };
        for leave in leaves {
            if let Leave::Probe(slot) = leave {
                let now = self.begin(now);
                self.settle_there(slot, Ending::Gone, now);
            }
        }
    }

    /// Whether the store is asked before every call, and the gate is to let none pass by itself.
    pub(crate) fn asks_first(&self) -> bool {
        let replica = self.sharing.replica();
        replica.is_some_and(|replica| replica.terms.strict && replica.is_led())
    }

    /// Whether a success has to make the shared record forget something.
    pub(super) fn others_remember(&self) -> bool {
        let replica = self.sharing.replica();
        replica.is_some_and(|replica| {
            replica.is_led() && replica.remembers && self.config.success_forgets()
        })
    }

    /// Whether the store decides what all processes have to agree on.
    pub(super) fn is_led(&self) -> bool {
        self.sharing.replica().is_some_and(Replica::is_led)
    }

    /// How the record is shared, for people.
    pub(crate) fn sharing_status(&self) -> Option<Sharing> {
        let replica = self.sharing.replica()?;
        Some(Sharing {
            joined: replica.is_joined(),
            alone: replica.alone,
            version: replica.version,
        })
    }
}

impl Replica {
    /// Keeps an order until the store can be told, if it only repeats the one that stands. Others change the state:
    /// the store is found to be behind them.
    fn keep_untold(&mut self, step: Step) {
        if matches!(step.action, Action::Force { .. }) && step.version == self.version {
            self.untold = Some(step);
        }
    }

    /// A name for the next sample.
    fn name_sample(&mut self) -> CallId {
        self.terms.call(self.requests.number())
    }
}

/// The requests that wait, by ticket.
type Waiting = BTreeMap<Ticket, (Step, Pending)>;
