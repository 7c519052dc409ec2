//! How a replica takes over what the store shows, and shows what it remembers itself.

use std::time::Duration;

use super::{Pending, Source, moved};
use crate::circuit::permit::SlotId;
use crate::circuit::record::Phase;
use crate::circuit::shared::{Action, CallId, SharedPhase, SharedRecord, View};
use crate::circuit::{Cause, Circuit, CircuitState, Lifetime, Transition, next_epoch};
use crate::clock::Timestamp;

/// Marks the slots of other processes: no slot of one's own has so high a number.
pub(super) const FOREIGN: SlotId = 1 << 63;

impl Circuit {
    /// Takes over what the store shows, if it is newer than what is known here; if it is older, offers what
    /// is known here.
    pub(super) fn take_over(&mut self, view: &View, source: Source, now: Timestamp) {
        let record = &view.record;
        let is_closed = self.record.phase.memory().is_some();
        let is_there = self.record.state() == record.phase.state();
        let Some(replica) = self.sharing.replica_mut() else {
            return;
        };
        let is_truth = source == Source::Answer;
        if record.version < replica.version {
            // For so long a store remembers that a record was closed: one that does not has lost it.
            let known_for = Timestamp::from_micros(replica.version) + self.config.margin();
            let is_over = known_for <= moved(now, replica.ahead);
            if replica.alone || record.version == 0 && is_closed && is_over {
                // That the record was closed once is all that was forgotten.
                if is_truth {
                    replica.version = record.version;
                    replica.learn(record.revision);
                    replica.remembers = remembers(record);
                }
            } else if source != Source::Overtaken {
                self.offer(now);
            }
            return;
        }
        if record.version > replica.version {
            self.follow(view, now);
            return;
        }
        if record.revision <= replica.revision && !is_truth {
            return;
        }
        if !is_there && !replica.alone {
            self.follow(view, now);
            return;
        }
        replica.learn(record.revision);
        replica.remembers = remembers(record);
        // What the store shows of an order may be what a repetition is about to replace.
        let is_repeated = replica.untold.is_some()
            || (replica.requests).is_under_way(|pending| matches!(pending, Pending::Order { .. }));
        if !replica.alone && !is_repeated {
            self.keep_up(record, now);
        }
    }

    /// Offers the store what is remembered here, unless that is under way.
    fn offer(&mut self, now: Timestamp) {
        let record = self.shared_record(now);
        let Some(replica) = self.sharing.replica().filter(|replica| replica.is_joined()) else {
            return;
        };
        let under_way = |pending: &Pending| matches!(pending, Pending::Offer);
        if !replica.requests.is_under_way(under_way) {
            self.request(Action::Offer { record }, Pending::Offer, now);
        }
    }

    /// Goes where the shared record went.
    fn follow(&mut self, view: &View, now: Timestamp) {
        let record = &view.record;
        let (from, to) = (self.record.state(), record.phase.state());
        let known = self.shared_version();
        let mut told: Vec<Transition> = view
            .transitions
            .iter()
            .filter(|made| made.epoch > known)
            .cloned()
            .collect();
        let mut at = from;
        let fits = told.iter().all(|made| {
            let goes_on = made.from == at && made.to != at;
            at = made.to;
            goes_on
        }) && !told.is_empty()
            && at == to;
        if !fits {
            told.clear();
            if from != to {
                told.push(missed(record, from, now));
            }
        }
        // One's own epochs may be ahead, if the time at the store was not known at first.
        let mut epoch = self.record.epoch;
        for made in &mut told {
            made.epoch = made.epoch.max(next_epoch(epoch));
            epoch = made.epoch;
        }
        if told.is_empty() {
            epoch = record.version.max(next_epoch(epoch));
        }
        if let Some(replica) = self.sharing.replica_mut() {
            replica.version = record.version;
            replica.alone = false;
            replica.begin_anew();
            replica.learn(record.revision);
            replica.remembers = remembers(record);
        }
        let phase = self.phase_of(&record.phase, now);
        self.record.phase = phase;
        self.record.epoch = epoch;
        self.record.attempt = record.attempt;
        self.record.newest = now;
        for mut transition in told {
            transition.at = transition.at.min(now);
            self.since
                .note(transition.from, transition.to, transition.at);
            self.note_last(&transition);
            self.news.push_transition(transition);
        }
    }

    /// Takes over what changed within the state.
    fn keep_up(&mut self, record: &SharedRecord, now: Timestamp) {
        match &record.phase {
            SharedPhase::Closed { .. } => {}
            phase @ (SharedPhase::Open { .. }
            | SharedPhase::HalfOpen { .. }
            | SharedPhase::Forced { .. }) => {
                self.record.phase = self.phase_of(phase, now);
                self.record.newest = now;
            }
        }
    }

    /// A phase by one's own numbers: a probe of this process has the slot that its name says.
    fn phase_of(&mut self, phase: &SharedPhase, now: Timestamp) -> Phase {
        let Self {
            config, sharing, ..
        } = self;
        let own = sharing.replica().map(|replica| replica.terms.process);
        let mut foreign = Vec::new();
        let phase = phase.read(config, now, |call| {
            if own == Some(call.process) {
                return call.number;
            }
            let index = SlotId::try_from(foreign.len()).unwrap_or(0);
            foreign.push(call);
            FOREIGN | index
        });
        if let Some(replica) = sharing.replica_mut() {
            replica.foreign = foreign;
        }
        phase
    }

    /// What is remembered here, by the shared time. Samples are not part of it.
    fn shared_record(&self, now: Timestamp) -> SharedRecord {
        let replica = self.sharing.replica();
        // A break that was over so long ago that the store would forget it at once is over now (R31).
        let is_forgotten = self.lifetime(now) == Lifetime::For(Duration::ZERO);
        let least = if is_forgotten { now } else { Timestamp::ZERO };
        let name = |slot: SlotId| -> Option<CallId> {
            let replica = replica?;
            match slot.checked_sub(FOREIGN) {
                Some(index) => replica.foreign.get(usize::try_from(index).ok()?).copied(),
                None => Some(replica.terms.call(slot)),
            }
        };
        let mut phase = SharedPhase::write(&self.record.phase, |_| Vec::new(), name);
        match &mut phase {
            SharedPhase::Closed { remembers, .. } => *remembers = false,
            SharedPhase::Open { until: end } | SharedPhase::HalfOpen { due: end, .. } => {
                *end = (*end).max(least);
            }
            SharedPhase::Forced { .. } => {}
        }
        let record = SharedRecord {
            version: self.shared_version(),
            revision: 0,
            attempt: self.record.attempt,
            newest: self.record.newest.max(least),
            phase,
            last: replica.and_then(|replica| replica.last.clone()),
        };
        record.moved(replica.map_or(0, |replica| replica.ahead))
    }
}

/// The change into a state whose way there was missed.
fn missed(record: &SharedRecord, from: CircuitState, now: Timestamp) -> Transition {
    let to = record.phase.state();
    let last = record.last.as_ref().filter(|last| last.to == to);
    Transition {
        from,
        to,
        cause: last.map_or(Cause::Present, |last| last.cause),
        at: last.map_or(now, |last| last.at),
        epoch: record.version,
        evidence: last.map(|last| last.evidence.clone()).unwrap_or_default(),
    }
}

fn remembers(record: &SharedRecord) -> bool {
    matches!(
        record.phase,
        SharedPhase::Closed {
            remembers: true,
            ..
        }
    )
}

impl View {
    /// The same by a clock that is so many microseconds ahead. Numbers that no store gives out become the
    /// highest there are.
    pub(super) fn moved(mut self, ahead: i64) -> Self {
        let most = Timestamp::MAX.as_micros();
        self.record = self.record.moved(ahead);
        self.record.version = self.record.version.min(most);
        self.record.revision = self.record.revision.min(most);
        for made in &mut self.transitions {
            move_transition(made, ahead);
            made.epoch = made.epoch.min(most);
        }
        self
    }

    /// The failures that a custom rule looks at.
    pub(super) fn failures(&self) -> &[Timestamp] {
        match &self.record.phase {
            SharedPhase::Closed { failures, .. } => failures,
            _ => &[],
        }
    }
}

impl SharedRecord {
    fn moved(mut self, ahead: i64) -> Self {
        let by = |at: &mut Timestamp| *at = moved(*at, ahead);
        by(&mut self.newest);
        match &mut self.phase {
            SharedPhase::Closed {
                failures,
                ramping_since,
                ..
            } => failures.iter_mut().chain(ramping_since).for_each(by),
            SharedPhase::Open { until } => by(until),
            SharedPhase::HalfOpen { due, probes, .. } => {
                by(due);
                for probe in probes {
                    by(&mut probe.lease_end);
                }
            }
            SharedPhase::Forced { until, .. } => until.iter_mut().for_each(by),
        }
        if let Some(last) = &mut self.last {
            move_transition(last, ahead);
        }
        self
    }
}

fn move_transition(made: &mut Transition, ahead: i64) {
    made.at = moved(made.at, ahead);
    if let Some(until) = &mut made.evidence.until {
        *until = moved(*until, ahead);
    }
}
