//! A shared record as a store keeps it: a circuit, with what only sharing needs, and the steps on it.
//! The scripts of the store in Redis do the same; `tests/redis_rules.rs` compares them (R34).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::order::OrderKind;
use super::permit::SlotId;
use super::record::Phase;
use super::shared::{
    Action, Answer, CallId, ProbeEnding, Sample, SharedPhase, SharedRecord, Step, View,
};
use super::window::{Kept, Memory, Verdict};
use super::{Circuit, Ending, Lifetime, Permit, Record, Transition};
use crate::clock::Timestamp;
use crate::config::BreakerConfig;
use crate::outcome::Outcome;
use crate::policy::TripPolicy;

/// How many names of samples are remembered at most where the window does not say, and how many of
/// processes that report failures.
const NAMES: usize = 128;

/// A shared record.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    circuit: Circuit,
    revision: u64,
    /// Whose slots are whose.
    probes: Vec<(SlotId, CallId)>,
    /// The failed and slow samples of the window, so that one that comes twice counts once: by their marks,
    /// and where these are equal by their names.
    counted: BTreeSet<(u64, CallId)>,
    /// The probes of the round whose success was counted, so that one that comes twice counts once.
    succeeded: VecDeque<CallId>,
    /// Which processes reported failures of the window, with the mark of the last one of each.
    reporters: BTreeMap<u64, u64>,
    last: Option<Transition>,
    /// `None`: until an order is lifted.
    kept_until: Option<Timestamp>,
}

/// What a step on a record did, for a store.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) view: View,
    /// Whether the other processes are to be told.
    pub(crate) is_news: bool,
}

impl Stored {
    fn new(config: &BreakerConfig) -> Self {
        let record = Record {
            phase: Phase::Closed(Memory::new(config)),
            epoch: 0,
            attempt: 0,
            newest: Timestamp::ZERO,
        };
        let random = Arc::new(|| 0.0);
        Self {
            circuit: Circuit::from_record(config.clone(), random, record),
            revision: 0,
            probes: Vec::new(),
            counted: BTreeSet::new(),
            succeeded: VecDeque::new(),
            reporters: BTreeMap::new(),
            last: None,
            kept_until: None,
        }
    }

    /// Makes a step on what is kept, by the settings of whoever asks for it.
    pub(crate) fn step(kept: &mut Option<Self>, config: &BreakerConfig, step: &Step) -> Done {
        let present = kept.as_ref().filter(|kept| !kept.is_over(step.now));
        let remembered = present.is_some_and(Self::remembers);
        let mut next = present.cloned().unwrap_or_else(|| Self::new(config));
        next.obey(config, step);
        let mut transitions = next.transitions();
        let before = next.version();
        let (answer, writes) = next.decide(before, step);
        transitions.extend(next.transitions());
        let mut is_news = false;
        if writes {
            let changed = present.map_or(0, Self::version) != next.version();
            // By the time, so that they also grow where a record was lost and given back.
            let now = step.now.as_micros();
            next.revision = next
                .revision
                .saturating_add(1)
                .min(Timestamp::MAX.as_micros())
                .max(now);
            if changed {
                next.forget();
            }
            is_news = changed || !next.is_closed() || remembered != next.remembers();
            let now = step.now.max(next.circuit.record.newest);
            *kept = next.keep(now).then(|| next.clone());
        } else {
            transitions.clear();
        }
        let view = View {
            answer,
            record: next.share(step.now),
            transitions,
            corrupt: false,
        };
        Done { view, is_news }
    }

    /// Fetches the changes of state, the last of which is remembered.
    fn transitions(&mut self) -> Vec<Transition> {
        let transitions: Vec<_> = iter::from_fn(|| self.circuit.pop_transition()).collect();
        if let Some(last) = transitions.last() {
            self.last = Some(last.clone());
        }
        transitions
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.kept_until.is_some_and(|end| end <= now)
    }

    pub(super) fn version(&self) -> u64 {
        self.circuit.record.epoch
    }

    fn is_closed(&self) -> bool {
        self.circuit.record.phase.memory().is_some()
    }

    fn remembers(&self) -> bool {
        let memory = self.circuit.record.phase.memory();
        memory.is_some_and(|memory| memory.newest().is_some())
    }

    /// Goes on under the settings of a step, whose time may end an order or a ramp-up first. What is kept
    /// for a policy of another kind is of no use; a break that is too long for them is cut (R3).
    fn obey(&mut self, config: &BreakerConfig, step: &Step) {
        let circuit = &mut self.circuit;
        circuit.config = config.clone();
        let random = step.random;
        circuit.random = Arc::new(move || random);
        circuit
            .sharing
            .number_from(step.version.saturating_add(1), step.now);
        if let Some(memory) = circuit.record.phase.memory_mut()
            && !memory.suits(config)
        {
            *memory = Memory::new(config);
            self.counted.clear();
            self.reporters.clear();
        }
        let now = step.now.max(circuit.record.newest);
        circuit.cap_break(now);
        circuit.advance(step.now);
    }

    /// Does what is asked for; tells whether it is to be kept.
    fn decide(&mut self, version: u64, step: &Step) -> (Answer, bool) {
        let now = step.now;
        if let Action::Look = step.action {
            return (Answer::Done, false);
        }
        if let Action::Offer { record } = &step.action {
            if version >= record.version.min(Timestamp::MAX.as_micros()) {
                return (Answer::Stale, false);
            }
            self.take_over(record, now);
            return (Answer::Done, true);
        }
        let starts = matches!(
            step.action,
            Action::Record { .. } | Action::Force { .. } | Action::Release | Action::Reset
        );
        // A record that remembers no change is closed, and so is whoever has seen one close and vanish.
        if step.version != version && !(version == 0 && starts) {
            return (Answer::Stale, false);
        }
        match &step.action {
            Action::Look | Action::Offer { .. } => (Answer::Done, false),
            Action::Acquire { call, lease } => self.acquire(*call, *lease, now),
            Action::Record {
                call,
                successes,
                sample,
            } => self.record(*call, *successes, *sample, step),
            Action::Settle { call, ending } => self.settle(*call, *ending, now),
            Action::Trip => self.trip(step.min_reporters, now),
            Action::Force { kind, ttl, reason } => {
                let kind = OrderKind::from(*kind);
                // The ttl was looked at by whoever was given the order.
                let valid = self.circuit.force(kind, *ttl, Arc::clone(reason), now);
                (Answer::Done, valid.is_ok())
            }
            Action::Release => {
                let lifts = matches!(self.circuit.record.phase, Phase::Forced(_));
                self.circuit.release(now);
                (Answer::Done, lifts)
            }
            Action::Reset => {
                self.circuit.reset(now);
                (Answer::Done, true)
            }
        }
    }

    fn acquire(&mut self, call: CallId, lease: Duration, now: Timestamp) -> (Answer, bool) {
        let now = self.circuit.begin(now);
        if self.holds(call, now) {
            return (Answer::Done, false);
        }
        if self.circuit.refusal(now).is_some() {
            return (Answer::Refused, false);
        }
        // Calls of a closed circuit take nothing from it; who of them goes in a ramp-up, each process draws.
        if !matches!(
            self.circuit.record.phase,
            Phase::Open { .. } | Phase::HalfOpen { .. }
        ) {
            return (Answer::Done, false);
        }
        let permit = self.circuit.admit(lease, now);
        if let Some(slot) = permit.slot {
            self.probes.push((slot, call));
        }
        (Answer::Done, true)
    }

    /// Whether that probe has its slot already: who asks again, not knowing what became of it, gets no
    /// second one.
    fn holds(&self, call: CallId, now: Timestamp) -> bool {
        let Phase::HalfOpen { round, .. } = &self.circuit.record.phase else {
            return false;
        };
        let own = |slot| self.probes.contains(&(slot, call));
        round.slots().any(|(slot, end)| end > now && own(slot))
    }

    fn record(
        &mut self,
        call: CallId,
        successes: u64,
        sample: Option<Sample>,
        step: &Step,
    ) -> (Answer, bool) {
        if !self.is_closed() {
            return (Answer::Stale, false);
        }
        if sample.is_some() && self.counted.iter().any(|(_, known)| *known == call) {
            return (Answer::Known, false);
        }
        let now = self.circuit.begin(step.now);
        self.circuit.record.newest = now;
        let epoch = self.version();
        let Some(memory) = self.circuit.record.phase.memory() else {
            return (Answer::Stale, false);
        };
        let calls = successes.saturating_add(sample.is_some().into());
        let mark = memory.mark(calls, now);
        let first = memory.first_mark(calls, &self.circuit.config, now);
        self.report(call.process, sample, mark, first);
        let may_trip = self.reporters() >= step.min_reporters;
        self.circuit.count_successes(successes, may_trip, now);
        // Those successes may have tripped it; what ended after them is late then.
        if let Some(sample) = sample
            && self.version() == epoch
        {
            self.circuit
                .count_sample(sample.failed, sample.slow, may_trip, now);
            self.name(call, sample, mark);
        }
        self.forget_names(first);
        (Answer::Done, true)
    }

    fn reporters(&self) -> u32 {
        u32::try_from(self.reporters.len()).unwrap_or(u32::MAX)
    }

    /// Takes note of who reports a failure, for as long as it is in the window.
    fn report(&mut self, process: u64, sample: Option<Sample>, mark: u64, first: u64) {
        self.reporters.retain(|_, mark| *mark >= first);
        if !sample.is_some_and(|sample| sample.failed) {
            return;
        }
        self.reporters.insert(process, mark);
        if self.reporters.len() > NAMES
            && let Some((_, oldest)) = self.reporters.iter().map(|(who, at)| (*at, *who)).min()
        {
            self.reporters.remove(&oldest);
        }
    }

    fn name(&mut self, call: CallId, sample: Sample, mark: u64) {
        let slow =
            sample.slow && matches!(self.circuit.config.trip(), TripPolicy::FailureRate { .. });
        if sample.failed || slow {
            // The window made room before it took this one in.
            if let Some(Kept::Each(samples)) = self.circuit.record.phase.memory().map(Memory::kept)
            {
                while self.counted.len() >= samples && self.counted.pop_first().is_some() {}
            }
            self.counted.insert((mark, call));
        } else if self.circuit.config.success_forgets() {
            self.counted.clear();
            self.reporters.clear();
        }
    }

    /// Names are remembered for as long as the window remembers the samples.
    fn forget_names(&mut self, first: u64) {
        let Some(memory) = self.circuit.record.phase.memory() else {
            return;
        };
        let (most, first) = match memory.kept() {
            Kept::Each(_) => return,
            Kept::ByPlace => (usize::MAX, first),
            Kept::Sum => (NAMES, 0),
        };
        while let Some((mark, _)) = self.counted.first()
            && (self.counted.len() > most || *mark < first)
        {
            self.counted.pop_first();
        }
    }

    fn settle(&mut self, call: CallId, ending: ProbeEnding, now: Timestamp) -> (Answer, bool) {
        if !matches!(self.circuit.record.phase, Phase::HalfOpen { .. }) {
            return (Answer::Stale, false);
        }
        let succeeds = ending == ProbeEnding::Success;
        if succeeds && self.succeeded.contains(&call) {
            return (Answer::Known, false);
        }
        let own = self.probes.iter().find(|(_, probe)| *probe == call);
        // A slot that was passed on: the vote counts, and frees nothing (R16).
        let slot = own.map_or(SlotId::MAX, |(slot, _)| *slot);
        let permit = Permit {
            epoch: self.version(),
            admitted: Timestamp::MAX,
            slot: Some(slot),
        };
        let outcome = |outcome| Ending::Outcome {
            outcome,
            slow: false,
        };
        let ending = match ending {
            ProbeEnding::Success => outcome(Outcome::Success),
            ProbeEnding::Failure => outcome(Outcome::Failure),
            ProbeEnding::Ignored => outcome(Outcome::Ignored),
            ProbeEnding::Gone => Ending::Gone,
        };
        self.circuit.end(permit, ending, now);
        if succeeds {
            self.succeeded.push_back(call);
            if self.succeeded.len() > NAMES {
                self.succeeded.pop_front();
            }
        }
        (Answer::Done, true)
    }

    fn trip(&mut self, min_reporters: u32, now: Timestamp) -> (Answer, bool) {
        if !self.is_closed() {
            return (Answer::Stale, false);
        }
        if self.reporters() < min_reporters {
            return (Answer::Refused, false);
        }
        let now = self.circuit.begin(now);
        self.circuit.record.newest = now;
        self.circuit.act_on(Verdict::Trip, now);
        (Answer::Done, true)
    }

    /// Takes over what a process remembers, as another process would (R3, R29), but for probes: their names
    /// hold everywhere.
    fn take_over(&mut self, offered: &SharedRecord, now: Timestamp) {
        let newest = offered.newest.min(now).max(self.circuit.record.newest);
        self.probes.clear();
        let (probes, next_slot) = (&mut self.probes, &mut self.circuit.next_slot);
        let phase = offered.phase.read(&self.circuit.config, newest, |call| {
            let slot = *next_slot;
            *next_slot = slot.saturating_add(1);
            probes.push((slot, call));
            slot
        });
        self.circuit.record = Record {
            phase,
            epoch: offered.version.min(Timestamp::MAX.as_micros()),
            attempt: offered.attempt,
            newest,
        };
        self.last.clone_from(&offered.last);
    }

    /// What belonged to the state before.
    fn forget(&mut self) {
        self.counted.clear();
        self.succeeded.clear();
        self.reporters.clear();
        if !matches!(self.circuit.record.phase, Phase::HalfOpen { .. }) {
            self.probes.clear();
        }
    }

    /// Derives for how long it is kept (R31); `false`: not at all. That a change closed it is remembered for
    /// a while, so that what was written before the change is known to be late.
    fn keep(&mut self, now: Timestamp) -> bool {
        if let Phase::HalfOpen { round, .. } = &self.circuit.record.phase {
            self.probes
                .retain(|(slot, _)| round.slots().any(|(held, _)| held == *slot));
        }
        let changed = now + self.circuit.config.margin();
        self.kept_until = match self.circuit.lifetime(now) {
            Lifetime::Forever => None,
            // The end of a ramp-up alone would be forgotten too early.
            Lifetime::For(rest) if self.is_closed() && self.version() != 0 => {
                Some(changed.max(now + rest))
            }
            Lifetime::For(rest) => Some(now + rest),
            Lifetime::None if self.version() == 0 => return false,
            Lifetime::None => Some(changed),
        };
        true
    }

    /// What others have to know.
    pub(super) fn share(&self, now: Timestamp) -> SharedRecord {
        let Circuit { record, config, .. } = &self.circuit;
        let failures = |memory: &Memory| match config.trip() {
            TripPolicy::Custom(_) => memory.instants(config, now),
            _ => Vec::new(),
        };
        let name = |slot| {
            let named = self.probes.iter().find(|(own, _)| *own == slot);
            named.map(|(_, call)| *call)
        };
        SharedRecord {
            version: record.epoch,
            revision: self.revision,
            attempt: record.attempt,
            newest: record.newest,
            phase: SharedPhase::write(&record.phase, failures, name),
            last: self.last.clone(),
        }
    }
}
