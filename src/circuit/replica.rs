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

mod requests;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, VecDeque};

use super::order::OrderKind;
use super::permit::SlotId;
use super::record::Phase;
use super::refused::PROBES_IN_USE_RETRY;
use super::shared::{Action, Answer, CallId, ProbeEnding, Sample, Sharing, Step, View};
use super::window::{self, Verdict};
use super::{Cause, Circuit, CircuitState, Ending, Permit, Refused, Transition, next_epoch};
use crate::clock::Timestamp;
use crate::outcome::Outcome;
use crate::policy::TripPolicy;
use requests::{Pending, Requests};
pub(crate) use requests::{Request, Terms, Ticket};

/// How many samples whose fate is unknown are kept, to be recorded again.
const UNDELIVERED: usize = 100;

/// How often leave is asked for, while the store shows that there is some and gives none.
const LEAVE_TRIES: u32 = 3;

/// How often an order is told again, when another change was faster.
const ORDER_TRIES: u32 = 3;

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

// What the steps of the circuit call.
impl Circuit {
    /// Takes note of a change of state that the circuit made by itself.
    pub(super) fn note_own_change(&mut self, cause: Cause, now: Timestamp) {
        let state = self.record.state();
        if let Some(replica) = self.sharing.replica_mut() {
            replica.changed(cause, state, now);
        }
    }

    pub(super) fn note_last(&mut self, transition: &Transition) {
        if let Some(replica) = self.sharing.replica_mut() {
            replica.last = Some(transition.clone());
        }
    }

    /// Admits by leave of the store; `Err` where it has to be asked first.
    pub(super) fn admit_by_leave(&mut self, now: Timestamp) -> Result<Option<Permit>, Refused> {
        let Some(replica) = self.sharing.replica_mut() else {
            return Ok(None);
        };
        while let Some(leave) = replica.leaves.pop() {
            match (leave, &self.record.phase) {
                (Leave::Probe(slot), Phase::HalfOpen { round, .. }) if round.holds(slot, now) => {
                    self.record.newest = now;
                    return Ok(Some(Permit {
                        epoch: self.record.epoch,
                        admitted: now,
                        slot: Some(slot),
                    }));
                }
                (Leave::Pass, Phase::Closed(_) | Phase::Ramping { .. }) => return Ok(None),
                _ => {}
            }
        }
        if self.needs_leave(now) || self.gives_no_probe(now) {
            return Err(self.no_probe_yet(now));
        }
        Ok(None)
    }

    /// Whether the store would have to be asked for a probe, and is not for a while, since it gives none.
    fn gives_no_probe(&self, now: Timestamp) -> bool {
        let is_probe = matches!(
            self.record.phase,
            Phase::Open { .. } | Phase::HalfOpen { .. }
        );
        let replica = self.sharing.replica();
        is_probe
            && replica.is_some_and(|replica| replica.is_led() && replica.no_leave_until > now)
            && self.refusal(now).is_none()
    }

    /// Has the store decide what the end of a call means, if it is to; `false`: it is decided here. What is
    /// remembered here, for when the store is away, is counted at once.
    pub(super) fn record_there(&mut self, ending: Ending, now: Timestamp) -> bool {
        let Ending::Outcome { outcome, slow } = ending else {
            return false;
        };
        if outcome == Outcome::Ignored || !self.is_led() {
            return false;
        }
        let failed = outcome == Outcome::Failure;
        let told = failed || slow || self.is_success_told();
        self.count_sample(failed, slow, false, now);
        let Some(replica) = self.sharing.replica_mut() else {
            return false;
        };
        if !told {
            if matches!(self.config.trip(), TripPolicy::FailureRate { .. }) {
                replica.successes = replica.successes.saturating_add(1);
            }
            return true;
        }
        replica.remembers = failed;
        let action = Action::Record {
            call: replica.name_sample(),
            successes: std::mem::take(&mut replica.successes),
            sample: Some(Sample::new(failed, slow)),
        };
        let pending = Pending::Sample {
            sample: Sample::new(failed, slow),
            epoch: self.record.epoch,
        };
        self.request(action, pending, now);
        true
    }

    /// Whether a success changes the shared record.
    fn is_success_told(&self) -> bool {
        if self.success_forgets() {
            return true;
        }
        let rated = matches!(self.config.trip(), TripPolicy::FailureRate { .. });
        self.asks_first() && (rated || self.config.success_forgets())
    }

    /// Adds successes that were collected outside to those that the store will be told of; `false`: it is
    /// decided here what they mean.
    pub(super) fn record_successes_there(&mut self, batch: u64, now: Timestamp) -> bool {
        if !self.is_led() {
            return false;
        }
        self.count_successes(batch, false, now);
        if let Some(replica) = self.sharing.replica_mut() {
            replica.successes = replica.successes.saturating_add(batch);
        }
        if self.asks_first() {
            self.record_successes(now);
        }
        true
    }

    fn record_successes(&mut self, now: Timestamp) {
        let Some(replica) = self.sharing.replica_mut() else {
            return;
        };
        let action = Action::Record {
            call: replica.name_sample(),
            successes: std::mem::take(&mut replica.successes),
            sample: None,
        };
        self.request(action, Pending::Beat, now);
    }

    /// Has the store decide what the end of a probe means, if it is to; `false`: it is decided here.
    pub(super) fn settle_there(&mut self, slot: SlotId, ending: Ending, now: Timestamp) -> bool {
        let Some(replica) = self.sharing.replica().filter(|replica| replica.is_led()) else {
            return false;
        };
        let action = Action::Settle {
            call: replica.terms.call(slot),
            ending: match ending {
                Ending::Gone => ProbeEnding::Gone,
                Ending::Outcome { outcome, .. } => match outcome {
                    Outcome::Success => ProbeEnding::Success,
                    Outcome::Failure => ProbeEnding::Failure,
                    Outcome::Ignored => ProbeEnding::Ignored,
                },
            },
        };
        let pending = Pending::Probe {
            slot,
            ending,
            epoch: self.record.epoch,
        };
        self.request(action, pending, now);
        true
    }

    /// Tells the store of an order that was carried out here; `known` is the version it was given under.
    pub(super) fn tell_order(&mut self, action: Action, known: u64, now: Timestamp) {
        let Some(replica) = self.sharing.replica() else {
            return;
        };
        let step = Step::new(
            replica.terms.process,
            known,
            moved(now, replica.ahead),
            action,
        )
        .min_reporters(replica.terms.min_reporters);
        if let Some(replica) = self.sharing.replica_mut() {
            if replica.is_joined() {
                replica.requests.push(step, Pending::Order { tries: 1 });
            } else {
                replica.keep_untold(step);
            }
        }
    }

    /// The version of the shared record as it is known here.
    pub(super) fn shared_version(&self) -> u64 {
        self.sharing.replica().map_or(0, |replica| replica.version)
    }
}

// Answers.
impl Circuit {
    fn act_on_answer(
        &mut self,
        ticket: Ticket,
        step: Step,
        pending: &Pending,
        view: &View,
        now: Timestamp,
    ) {
        let is_behind = view.record.version < self.shared_version();
        let source = match self.sharing.replica() {
            Some(replica) if ticket <= replica.learned => Source::Overtaken,
            _ => Source::Answer,
        };
        match *pending {
            Pending::Order { tries } if view.answer == Answer::Stale && !is_behind => {
                self.tell_order_again(step, tries, view, now);
                return;
            }
            // The store knows less than this circuit: it decides, and tells.
            Pending::Sample { .. } | Pending::Probe { .. }
                if view.answer == Answer::Stale && is_behind =>
            {
                self.decide_alone_once(pending, now);
                self.take_over(view, source, now);
                return;
            }
            // It does not keep what it is offered, or something changed here since: the next look tells.
            Pending::Offer if is_behind => return,
            _ => {}
        }
        self.take_over(view, source, now);
        match *pending {
            Pending::Look => self.record_again(),
            Pending::Leave(slot) => self.take_leave(slot, view.answer, now),
            Pending::Sample { sample, epoch }
                if view.answer == Answer::Done && epoch == self.record.epoch =>
            {
                self.judge_beside(ticket, sample, view, now);
            }
            // Too few others saw it: this process trips for itself.
            Pending::Trip { epoch }
                if view.answer == Answer::Refused && epoch == self.record.epoch =>
            {
                self.act_on(Verdict::Trip, now);
            }
            Pending::Sample { .. }
            | Pending::Probe { .. }
            | Pending::Order { .. }
            | Pending::Offer
            | Pending::Trip { .. }
            | Pending::Beat => {}
        }
    }

    /// What the circuit has to say itself to a sample that the store counted and did not trip on.
    fn judge_beside(&mut self, ticket: Ticket, sample: Sample, view: &View, now: Timestamp) {
        if let TripPolicy::Custom(_) = self.config.trip() {
            let verdict = window::ask_rule(&self.config, view.failures(), now);
            match verdict {
                Verdict::Trip if sample.failed => {
                    let pending = Pending::Trip {
                        epoch: self.record.epoch,
                    };
                    self.request_as(ticket, Action::Trip, pending, now);
                }
                Verdict::Trip | Verdict::Stay => {}
                Verdict::RulePanicked => self.act_on(verdict, now),
            }
            return;
        }
        let reporters = self
            .sharing
            .replica()
            .map_or(1, |replica| replica.terms.min_reporters);
        if reporters > 1 {
            self.judge_alone(sample, now);
        }
    }

    /// Trips if what this process has seen itself is enough.
    fn judge_alone(&mut self, sample: Sample, now: Timestamp) {
        let sample = window::Sample {
            failed: sample.failed,
            slow: sample.slow,
        };
        let Some(memory) = self.record.phase.memory() else {
            return;
        };
        let verdict = if let TripPolicy::Custom(_) = self.config.trip() {
            let failures = memory.instants(&self.config, now);
            window::ask_rule(&self.config, &failures, now)
        } else {
            memory.judge(sample, &self.config, now)
        };
        self.act_on(verdict, now);
    }

    /// Keeps a leave that the store gave, if the record still shows it. Where it shows again and again that there
    /// is leave to be had, and gives none, whoever waits is told so.
    fn take_leave(&mut self, slot: SlotId, answer: Answer, now: Timestamp) {
        let is_closed = self.record.phase.memory().is_some();
        let leave = match &self.record.phase {
            _ if answer != Answer::Done => None,
            Phase::HalfOpen { round, .. } if round.holds(slot, now) => Some(Leave::Probe(slot)),
            _ if is_closed => Some(Leave::Pass),
            _ => None,
        };
        let is_fruitless = leave.is_none() && self.needs_leave(now);
        let Some(replica) = self.sharing.replica_mut() else {
            return;
        };
        if is_fruitless {
            replica.fruitless = replica.fruitless.saturating_add(1);
        } else {
            replica.fruitless = 0;
        }
        if let Some(leave) = leave {
            replica.leaves.push(leave);
        } else if replica.fruitless >= LEAVE_TRIES {
            replica.fruitless = 0;
            if is_closed {
                replica.leaves.push(Leave::Pass);
            } else {
                replica.no_leave_until = now + PROBES_IN_USE_RETRY;
            }
        }
    }

    /// An order stands here, and something else was faster there: it is told again, on top of that.
    fn tell_order_again(&mut self, step: Step, tries: u32, view: &View, now: Timestamp) {
        if tries >= ORDER_TRIES {
            self.take_over(view, Source::Answer, now);
            return;
        }
        if let Some(replica) = self.sharing.replica_mut() {
            let version = view.record.version;
            replica.version = replica.version.max(version);
            let step = Step { version, ..step };
            let tries = tries.saturating_add(1);
            replica.requests.push(step, Pending::Order { tries });
        }
    }

    /// Records again what may not have been recorded, if the state is the same as then, and tells the order that
    /// was not told.
    fn record_again(&mut self) {
        if let Some(replica) = self.sharing.replica_mut() {
            if let Some(step) = replica.untold.take() {
                replica.requests.push(step, Pending::Order { tries: 1 });
            }
            for step in std::mem::take(&mut replica.undelivered) {
                if step.version == replica.version {
                    replica.requests.push(step, Pending::Beat);
                }
            }
        }
    }

    /// Decides what the store was asked and did not answer.
    fn decide_alone(&mut self, step: Step, pending: &Pending, now: Timestamp) {
        match (pending, self.sharing.replica_mut()) {
            (Pending::Sample { .. } | Pending::Beat, Some(replica)) if step.names_sample() => {
                replica.undelivered.push_back(step);
                while replica.undelivered.len() > UNDELIVERED {
                    replica.undelivered.pop_front();
                }
            }
            (Pending::Order { .. }, Some(replica)) => replica.keep_untold(step),
            _ => {}
        }
        self.decide_alone_once(pending, now);
    }

    fn decide_alone_once(&mut self, pending: &Pending, now: Timestamp) {
        match *pending {
            Pending::Sample { sample, epoch } if epoch == self.record.epoch => {
                self.judge_alone(sample, now);
            }
            Pending::Probe {
                slot,
                ending,
                epoch,
            } if epoch == self.record.epoch => self.end_probe(slot, ending, now),
            Pending::Trip { epoch } if epoch == self.record.epoch => {
                self.act_on(Verdict::Trip, now);
            }
            Pending::Sample { .. }
            | Pending::Probe { .. }
            | Pending::Leave(_)
            | Pending::Order { .. }
            | Pending::Offer
            | Pending::Trip { .. }
            | Pending::Look
            | Pending::Beat => {}
        }
    }

    fn request(&mut self, action: Action, pending: Pending, now: Timestamp) {
        let step = self.step_for(action, now);
        if let (Some(step), Some(replica)) = (step, self.sharing.replica_mut()) {
            replica.requests.push(step, pending);
        }
    }

    /// Asks for more under a ticket that somebody waits for.
    fn request_as(&mut self, ticket: Ticket, action: Action, pending: Pending, now: Timestamp) {
        let step = self.step_for(action, now);
        if let (Some(step), Some(replica)) = (step, self.sharing.replica_mut()) {
            replica.requests.push_as(ticket, step, pending);
        }
    }

    fn step_for(&mut self, action: Action, now: Timestamp) -> Option<Step> {
        let draws = matches!(
            action,
            Action::Record { .. } | Action::Settle { .. } | Action::Trip
        );
        let random = if draws && self.config.jitter() > 0.0 {
            self.draw()
        } else {
            0.0
        };
        let replica = self.sharing.replica()?;
        let now = moved(now, replica.ahead);
        Some(
            Step::new(replica.terms.process, replica.version, now, action)
                .random(random)
                .min_reporters(replica.terms.min_reporters),
        )
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
