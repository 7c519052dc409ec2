//! What the steps of a circuit do where its record is shared: they have the store decide, or tell it.
//! What becomes of the answers: [`answers`](super::answers).

use super::requests::Pending;
use super::{Leave, moved};
use crate::circuit::permit::{Permit, SlotId};
use crate::circuit::record::Phase;
use crate::circuit::shared::{Action, ProbeEnding, Sample, Step};
use crate::circuit::{Cause, Circuit, Ending, Refused, Transition};
use crate::clock::Timestamp;
use crate::outcome::Outcome;
use crate::policy::TripPolicy;
impl Circuit {
    /// Takes note of a change of state that the circuit made by itself.
    pub(in crate::circuit) fn note_own_change(&mut self, cause: Cause, now: Timestamp) {
        let state = self.record.state();
        if let Some(replica) = self.sharing.replica_mut() {
            replica.changed(cause, state, now);
        }
    }

    pub(in crate::circuit) fn note_last(&mut self, transition: &Transition) {
        if let Some(replica) = self.sharing.replica_mut() {
            replica.last = Some(transition.clone());
        }
    }

    /// Admits by leave of the store; `Err` where it has to be asked first.
    pub(in crate::circuit) fn admit_by_leave(
        &mut self,
        now: Timestamp,
    ) -> Result<Option<Permit>, Refused> {
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
    pub(super) fn gives_no_probe(&self, now: Timestamp) -> bool {
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
    pub(in crate::circuit) fn record_there(&mut self, ending: Ending, now: Timestamp) -> bool {
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
    pub(super) fn is_success_told(&self) -> bool {
        if self.success_forgets() {
            return true;
        }
        let rated = matches!(self.config.trip(), TripPolicy::FailureRate { .. });
        self.asks_first() && (rated || self.config.success_forgets())
    }

    /// Adds successes that were collected outside to those that the store will be told of; `false`: it is
    /// decided here what they mean.
    pub(in crate::circuit) fn record_successes_there(
        &mut self,
        batch: u64,
        now: Timestamp,
    ) -> bool {
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

    pub(super) fn record_successes(&mut self, now: Timestamp) {
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
    pub(in crate::circuit) fn settle_there(
        &mut self,
        slot: SlotId,
        ending: Ending,
        now: Timestamp,
    ) -> bool {
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
    pub(in crate::circuit) fn tell_order(&mut self, action: Action, known: u64, now: Timestamp) {
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
    pub(in crate::circuit) fn shared_version(&self) -> u64 {
        self.sharing.replica().map_or(0, |replica| replica.version)
    }
}
