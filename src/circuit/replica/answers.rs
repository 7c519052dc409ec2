//! What a replica makes of the store's answers, and of there being none.
//! How it takes over what the store shows: [`view`](super::view).

use super::requests::{Pending, Ticket};
use super::{Leave, Source, moved};
use crate::circuit::Circuit;
use crate::circuit::permit::SlotId;
use crate::circuit::record::Phase;
use crate::circuit::refused::PROBES_IN_USE_RETRY;
use crate::circuit::shared::{Action, Answer, Sample, Step, View};
use crate::circuit::window::{self, Verdict};
use crate::clock::Timestamp;
use crate::policy::TripPolicy;

/// How many samples whose fate is unknown are kept, to be recorded again.
const UNDELIVERED: usize = 100;

/// How often an order is told again, when another change was faster.
const ORDER_TRIES: u32 = 3;

/// How often leave is asked for, while the store shows that there is some and gives none.
const LEAVE_TRIES: u32 = 3;

impl Circuit {
    pub(super) fn act_on_answer(
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
    pub(super) fn judge_beside(
        &mut self,
        ticket: Ticket,
        sample: Sample,
        view: &View,
        now: Timestamp,
    ) {
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
    pub(super) fn judge_alone(&mut self, sample: Sample, now: Timestamp) {
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
    pub(super) fn take_leave(&mut self, slot: SlotId, answer: Answer, now: Timestamp) {
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
    pub(super) fn tell_order_again(&mut self, step: Step, tries: u32, view: &View, now: Timestamp) {
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
    pub(super) fn record_again(&mut self) {
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
    pub(super) fn decide_alone(&mut self, step: Step, pending: &Pending, now: Timestamp) {
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

    pub(super) fn decide_alone_once(&mut self, pending: &Pending, now: Timestamp) {
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

    pub(super) fn request(&mut self, action: Action, pending: Pending, now: Timestamp) {
        let step = self.step_for(action, now);
        if let (Some(step), Some(replica)) = (step, self.sharing.replica_mut()) {
            replica.requests.push(step, pending);
        }
    }

    /// Asks for more under a ticket that somebody waits for.
    pub(super) fn request_as(
        &mut self,
        ticket: Ticket,
        action: Action,
        pending: Pending,
        now: Timestamp,
    ) {
        let step = self.step_for(action, now);
        if let (Some(step), Some(replica)) = (step, self.sharing.replica_mut()) {
            replica.requests.push_as(ticket, step, pending);
        }
    }

    pub(super) fn step_for(&mut self, action: Action, now: Timestamp) -> Option<Step> {
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
