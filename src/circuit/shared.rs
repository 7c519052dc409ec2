//! A record that several processes share, as it goes to and fro: what its store is asked to do, and what
//! it shows. What a step does is decided by the same rules as everything else: [`circuit`](super).

mod phases;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde::{Deserializer, Serializer, de};

use super::{CircuitState, Transition};
use crate::clock::Timestamp;

/// How a breaker's record is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Sharing {
    /// Whether the store answers, so that it decides for all processes; if not, this process decides alone.
    pub joined: bool,
    /// Whether this process tripped by what it has seen itself, while too few others reported failures.
    pub alone: bool,
    /// The version of the shared record that is known here; 0 where it remembers no change.
    pub version: u64,
}

/// Names one admitted call, or one probe, among all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(
    clippy::exhaustive_structs,
    reason = "the two halves of a name; a third would make it another name"
)]
pub struct CallId {
    /// The process that admitted it: a number drawn when it starts.
    pub process: u64,
    /// Its number there, never used again by the process for the same breaker and purpose.
    pub number: u64,
}

/// Two numbers of sixteen hexadecimal digits each: texts are in the order of the names.
impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.process, self.number)
    }
}

impl FromStr for CallId {
    type Err = InvalidCallId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |part| u64::from_str_radix(part, 16).ok();
        let id = text.split_once('-').and_then(|(process, number)| {
            Some(Self {
                process: parse(process)?,
                number: parse(number)?,
            })
        });
        id.ok_or_else(|| InvalidCallId(text.into()))
    }
}

/// A text that names no call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("call id: {0:?} is not two hexadecimal numbers with a dash between them")]
pub struct InvalidCallId(String);

impl Serialize for CallId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CallId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// One step on a shared record, with all it depends on: a store reads no clock and draws no number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Step {
    /// Who asks: the number that its process drew when it started.
    pub process: u64,
    /// The version of the record as whoever asks knows it, 0 for none. A step that knows another version
    /// changes nothing (see [`Answer::Stale`]).
    pub version: u64,
    /// The present instant of the time that the processes share.
    pub now: Timestamp,
    /// The number in \[0, 1\] that a jitter is made of (R22).
    pub random: f64,
    /// How many processes must have reported failures of the window before it trips, 1 or more.
    pub min_reporters: u32,
    /// What is to be done.
    pub action: Action,
}

impl Step {
    /// Makes a step of a process that knows that version of the record. Without a number for the jitter,
    /// it is 0; without a quorum, it is 1.
    pub fn new(process: u64, version: u64, now: Timestamp, action: Action) -> Self {
        Self {
            process,
            version,
            now,
            random: 0.0,
            min_reporters: 1,
            action,
        }
    }

    /// Sets the number in \[0, 1\] that a jitter is made of.
    #[must_use]
    pub fn random(mut self, random: f64) -> Self {
        self.random = random;
        self
    }

    /// Sets how many processes must have reported failures of the window before it trips.
    #[must_use]
    pub fn min_reporters(mut self, min_reporters: u32) -> Self {
        self.min_reporters = min_reporters;
        self
    }
}

/// What is to be done with a shared record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Nothing: to look at it.
    Look,
    /// Give leave to make one call; while open and due, or half-open, that is a probe (R6, R7).
    Acquire {
        /// The call's name, which names the probe's slot.
        call: CallId,
        /// How long the probe may hold its slot (R16).
        #[serde(with = "whole_micros")]
        lease: Duration,
    },
    /// Count calls that a closed circuit admitted (R17).
    Record {
        /// The name of the sample. A sample that was counted before is not counted again, nor are the
        /// successes that come with it.
        call: CallId,
        /// Successes, none of them slow, that came before the sample; for policies with a rate.
        successes: u64,
        /// How one more call ended.
        sample: Option<Sample>,
    },
    /// Count how a probe ended, and free its slot (R13 to R16).
    Settle {
        /// The probe's name.
        call: CallId,
        /// How it ended.
        ending: ProbeEnding,
    },
    /// Trip: a custom rule, which no store can ask, says so (R18).
    Trip,
    /// Force it open or closed (R23).
    Force {
        /// Which of the two.
        kind: Forced,
        /// For how long; `None`: until it is released.
        #[serde(with = "whole_micros::option")]
        ttl: Option<Duration>,
        /// Why.
        reason: Arc<str>,
    },
    /// Lift an order (R23).
    Release,
    /// Forget everything but an order (R24).
    Reset,
    /// Take this record over, if the present one is of a lower version.
    Offer {
        /// The record as a process remembers it.
        record: SharedRecord,
    },
}

/// How a call of a closed circuit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// Whether it failed.
    pub failed: bool,
    /// Whether it was slow, by the policy's limit.
    pub slow: bool,
}

impl Sample {
    /// Makes one.
    pub const fn new(failed: bool, slow: bool) -> Self {
        Self { failed, slow }
    }
}

/// How a probe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProbeEnding {
    /// It succeeded, and was not slow.
    Success,
    /// It failed.
    Failure,
    /// It gave no verdict.
    Ignored,
    /// Its caller went away (R10).
    Gone,
}

/// Which of the two states an order forces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Forced {
    /// All calls are rejected.
    Open,
    /// All calls pass.
    Closed,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// What it should.
    Done,
    /// Nothing: there is no leave to be given ([`Action::Acquire`]), or too few processes reported failures
    /// ([`Action::Trip`]).
    Refused,
    /// Nothing, for it knew another version: it was late, or somebody else was faster.
    Stale,
    /// Nothing, for this sample, or the success of this probe, was counted before.
    Known,
}

/// A shared record after a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct View {
    /// What the step did.
    pub answer: Answer,
    /// The record as it is now.
    pub record: SharedRecord,
    /// The changes of state that the step made, oldest first. Their epochs are versions of the record.
    pub transitions: Vec<Transition>,
    /// Whether there was something else in its place, or something that could not be read. It counts as
    /// no record, and the first step that writes replaces it.
    pub corrupt: bool,
}

/// A record that several processes share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SharedRecord {
    /// A number that is raised with every change of state and every reset, never used again: the epoch of
    /// the processes' circuits (R1). 0 where no change is remembered; such a record is closed.
    pub version: u64,
    /// A number that is raised by every step that writes, to the present instant at least, so that of two
    /// views of one version the later one can be told.
    pub revision: u64,
    /// How many rounds of probes in a row have failed.
    pub attempt: u32,
    /// The newest instant a step has seen.
    pub newest: Timestamp,
    /// The state, with what belongs to it alone.
    pub phase: SharedPhase,
    /// How it came to the present state, where that is known.
    pub last: Option<Transition>,
}

/// The state of a shared record, with what others have to know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SharedPhase {
    /// Closed.
    Closed {
        /// Whether a sample is remembered.
        remembers: bool,
        /// The failures that a custom rule looks at, oldest first; for other policies none.
        failures: Vec<Timestamp>,
        /// When a recovery began to admit a growing share of calls, if the share was not whole at the last
        /// step (R36).
        ramping_since: Option<Timestamp>,
    },
    /// Open until then.
    Open {
        /// The end of the break.
        until: Timestamp,
    },
    /// Half-open.
    HalfOpen {
        /// When the break fell due.
        due: Timestamp,
        /// The probes that hold a slot, in the order of their leases' ends.
        probes: Vec<SharedProbe>,
        /// The successful probes of this round.
        successes: u32,
        /// The probes in a row that gave no verdict.
        inconclusive: u32,
    },
    /// An operator's order.
    Forced {
        /// Which of the two.
        kind: Forced,
        /// When it ends by itself.
        until: Option<Timestamp>,
        /// Why.
        reason: Arc<str>,
    },
}

/// A probe that holds a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SharedProbe {
    /// Its name.
    pub call: CallId,
    /// When its slot goes to the next caller.
    pub lease_end: Timestamp,
}

impl SharedProbe {
    pub(crate) const fn new(call: CallId, lease_end: Timestamp) -> Self {
        Self { call, lease_end }
    }
}

impl SharedPhase {
    /// The state that processes show.
    pub fn state(&self) -> CircuitState {
        match self {
            Self::Closed { .. } => CircuitState::Closed,
            Self::Open { .. } => CircuitState::Open,
            Self::HalfOpen { .. } => CircuitState::HalfOpen,
            Self::Forced { kind, .. } => match kind {
                Forced::Open => CircuitState::ForcedOpen,
                Forced::Closed => CircuitState::ForcedClosed,
            },
        }
    }
}

/// Spans as whole microseconds, which is how scripts count (R3).
mod whole_micros {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::clock::micros;

    pub(super) fn serialize<S: Serializer>(
        span: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(micros(*span))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_micros)
    }

    pub(super) mod option {
        use std::time::Duration;

        use serde::{Deserialize, Deserializer, Serializer};

        use crate::clock::micros;

        #[expect(
            clippy::ref_option,
            reason = "the signature that serde's `with` asks for"
        )]
        pub(in super::super) fn serialize<S: Serializer>(
            span: &Option<Duration>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            match span {
                Some(span) => serializer.serialize_some(&micros(*span)),
                None => serializer.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Option<Duration>, D::Error> {
            Option::<u64>::deserialize(deserializer).map(|span| span.map(Duration::from_micros))
        }
    }
}
