//! How the breakers of one owner are, as one small value for readiness probes and status pages.
//! Which breakers are asked is left to `supervisor/health.rs` and `family/survey.rs`.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use actix::dev::Request;
use futures_util::future::{Either, select};
use serde::Serialize;
use tokio::time::Sleep;

use crate::actor::BreakerActor;
use crate::breaker::Breaker;
use crate::circuit::{CircuitState, Snapshot};
use crate::clock::{Timestamp, span_as_text};
use crate::gate::Gate;
use crate::message::Inspect;
use crate::store::StoreError;

/// How breakers are, all in all. The worst of them decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HealthStatus {
    /// Every breaker is closed or forced closed, and every actor answered. A closed one may be ramping up; see
    /// [`ramp_share`](crate::circuit::Snapshot::ramp_share). One in
    /// [shadow mode](crate::BreakerConfigBuilder::enforcement) counts as closed, for it rejects nothing, unless it
    /// is forced open.
    Up,
    /// No named breaker rejects all calls, but not all is well: one is half-open, or open with its break
    /// over, so that the next call is a probe, or open and rejects a
    /// [share](crate::BreakerConfigBuilder::enforcement) of calls; an actor is silent or gone; a key of a family
    /// is not closed; the store that records are shared through is away.
    Degraded,
    /// A named breaker rejects all calls: it is open and its break is not over, or it is forced open.
    Down,
}

/// Whether the actor of a breaker was heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ActorHealth {
    /// It answered in time, or has nothing to answer, as the key of a family that nobody holds.
    Answers,
    /// It did not answer in time: its arbiter is blocked or busy, or it is about to be restarted. What is
    /// shown was published before.
    Silent,
    /// It is gone for good (its arbiter stopped, or its restarts were used up). Its calls pass unguarded.
    Gone,
}

/// How the breakers of one owner are; made by [`Breakers::health`](crate::Breakers::health).
///
/// Serialised, instants are microseconds on the breakers' clock (since 1970 with a
/// [`SystemClock`](crate::SystemClock)) and spans are text: `"retry_after":"12s"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// When this was asked.
    pub at: Timestamp,
    /// The whole in one word.
    pub status: HealthStatus,
    /// How many named breakers are closed and answered. They are not listed.
    pub closed: usize,
    /// All other named breakers, by name.
    pub breakers: Vec<BreakerHealth>,
    /// Every family, by name.
    pub families: Vec<FamilyHealth>,
    /// There while the store that records are shared through does not answer, so that each breaker of this
    /// process is on its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_away: Option<StoreAway>,
}

/// A store that does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StoreAway {
    /// Since when.
    pub since: Timestamp,
    /// What it answered last, if anything.
    pub error: String,
}

/// A breaker that is not closed, or whose actor did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BreakerHealth {
    /// The breaker's name; that of a family, a slash and the key for one of a family.
    pub breaker: Arc<str>,
    /// The state; an order whose time is over shows as the state it ends in.
    pub state: CircuitState,
    /// Whether the break is over, so that the next call is a probe.
    pub probe_due: bool,
    /// When this state began. `None` if nobody here knows: the actor did not answer, or the record was
    /// restored and has not changed since.
    pub since: Option<Timestamp>,
    /// When the breaker ceased to let all calls pass: the beginning of an outage, of which `since` is that
    /// of its present break or round of probes. `None` as `since` is, and where calls pass.
    pub restrained_since: Option<Timestamp>,
    /// When the break or the order ends by itself.
    pub until: Option<Timestamp>,
    /// After what time a call that is rejected now should come again.
    #[serde(serialize_with = "span_as_text")]
    pub retry_after: Option<Duration>,
    /// How many rounds of probes in a row have failed.
    pub attempt: u32,
    /// The reason of the operator's order in force.
    pub reason: Option<Arc<str>>,
    /// Whether the state rejects nothing; see [`StateChanged::simulated`](crate::StateChanged::simulated).
    pub simulated: bool,
    /// Whether the state rejects a share of what it refuses: `enforcement` is above 0 and below 1.
    pub partial: bool,
    /// Whether the actor was heard of.
    pub actor: ActorHealth,
}

/// The breakers of a family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FamilyHealth {
    /// The family's name.
    pub family: Arc<str>,
    /// Whether the actor that runs its breakers was heard of.
    pub actor: ActorHealth,
    /// How many keys are kept: those that are not closed and empty, or are held by somebody.
    pub keys: usize,
    /// How many of them are open.
    pub open: usize,
    /// How many are half-open.
    pub half_open: usize,
    /// How many are forced open.
    pub forced_open: usize,
    /// How many are forced closed.
    pub forced_closed: usize,
    /// How many of the open and half-open ones reject nothing, being in
    /// [shadow mode](crate::BreakerConfigBuilder::enforcement).
    pub simulated: usize,
    /// How often a breaker was given out that guards nothing; see [`Family::unguarded`](crate::Family::unguarded).
    pub unguarded: u64,
    /// The first of those that are not closed, by key: at most [`LISTED`](Self::LISTED).
    pub listed: Vec<BreakerHealth>,
    /// How many more there are that are not closed.
    pub more: usize,
}

impl Health {
    pub(crate) fn new(at: Timestamp) -> Self {
        Self {
            at,
            status: HealthStatus::Up,
            closed: 0,
            breakers: Vec::new(),
            families: Vec::new(),
            store_away: None,
        }
    }

    /// The store is away: nothing is rejected for it, but not all is well.
    pub(crate) fn lose_store(&mut self, since: Timestamp, error: &StoreError) {
        self.status = self.status.max(HealthStatus::Degraded);
        self.store_away = Some(StoreAway {
            since,
            error: error.to_string(),
        });
    }

    pub(crate) fn add(&mut self, breaker: BreakerHealth) {
        self.status = self.status.max(breaker.status());
        if breaker.is_worth_listing() {
            self.breakers.push(breaker);
        } else {
            self.closed = self.closed.saturating_add(1);
        }
    }

    pub(crate) fn add_family(&mut self, family: FamilyHealth) {
        self.status = self.status.max(family.status());
        self.families.push(family);
    }

    /// Tells whether everything is well: [`HealthStatus::Up`]. For alerts and status pages.
    pub fn is_healthy(&self) -> bool {
        self.status == HealthStatus::Up
    }

    /// Tells whether no named breaker is known to reject all calls: not [`HealthStatus::Down`]. For readiness.
    ///
    /// A breaker whose break is over is ready, though it is open: only a call can find out whether its
    /// target is well again, and an instance that is not ready gets none.
    pub fn is_ready(&self) -> bool {
        self.status < HealthStatus::Down
    }

    /// Returns what is listed of the named breaker of that name; `None` if it is closed, or if there is
    /// none. For an instance that can do without some of its targets.
    pub fn breaker(&self, name: &str) -> Option<&BreakerHealth> {
        self.breakers.iter().find(|listed| &*listed.breaker == name)
    }
}

impl BreakerHealth {
    /// As `snapshot` shows it, where so much of what is refused is rejected.
    pub(crate) fn of(breaker: Arc<str>, snapshot: Snapshot, enforcement: f64) -> Self {
        Self {
            breaker,
            state: snapshot.state,
            probe_due: snapshot.probe_due,
            since: snapshot.since,
            restrained_since: snapshot.restrained_since,
            until: snapshot.until,
            retry_after: snapshot.retry_after,
            attempt: snapshot.attempt,
            reason: snapshot.reason,
            simulated: is_simulated(snapshot.state, enforcement),
            partial: is_partial(snapshot.state, enforcement),
            actor: ActorHealth::Answers,
        }
    }

    /// What the actor published last, as it stands now.
    fn published(gate: &Gate, actor: ActorHealth) -> Self {
        let (published, until) = match actor {
            // It guards nothing.
            ActorHealth::Gone => (CircuitState::Closed, None),
            _ => gate.published(),
        };
        let now = gate.clock().now();
        let is_over = until.is_some_and(|until| until <= now);
        let state = match published {
            CircuitState::ForcedOpen if is_over => CircuitState::Open,
            CircuitState::ForcedClosed if is_over => CircuitState::Closed,
            as_it_is => as_it_is,
        };
        let rejects = matches!(state, CircuitState::Open | CircuitState::ForcedOpen) && !is_over;
        Self {
            breaker: Arc::clone(gate.name()),
            state,
            probe_due: state == CircuitState::Open && is_over,
            since: None,
            restrained_since: None,
            until: until.filter(|_| state != CircuitState::Closed),
            retry_after: until.filter(|_| rejects).map(|until| until.since(now)),
            attempt: 0,
            reason: None,
            simulated: is_simulated(state, gate.enforcement()),
            partial: is_partial(state, gate.enforcement()),
            actor,
        }
    }

    /// What this breaker makes of the whole.
    pub fn status(&self) -> HealthStatus {
        match self.state {
            CircuitState::ForcedOpen => HealthStatus::Down,
            CircuitState::Open if !self.probe_due && !self.simulated && !self.partial => {
                HealthStatus::Down
            }
            CircuitState::Open | CircuitState::HalfOpen if !self.simulated => {
                HealthStatus::Degraded
            }
            _ if self.actor != ActorHealth::Answers => HealthStatus::Degraded,
            _ => HealthStatus::Up,
        }
    }

    /// Whether there is more to it than that it is closed.
    pub(crate) fn is_worth_listing(&self) -> bool {
        self.state != CircuitState::Closed || self.actor != ActorHealth::Answers
    }
}

/// Whether a state rejects nothing where so much of what is refused is rejected.
fn is_simulated(state: CircuitState, enforcement: f64) -> bool {
    enforcement <= 0.0 && !state.is_forced()
}

/// Whether it rejects a share.
fn is_partial(state: CircuitState, enforcement: f64) -> bool {
    enforcement > 0.0 && enforcement < 1.0 && !state.is_forced()
}

impl FamilyHealth {
    /// How many keys are listed at most.
    pub const LISTED: usize = 16;

    pub(crate) fn new(family: Arc<str>, actor: ActorHealth) -> Self {
        Self {
            family,
            actor,
            keys: 0,
            open: 0,
            half_open: 0,
            forced_open: 0,
            forced_closed: 0,
            simulated: 0,
            unguarded: 0,
            listed: Vec::new(),
            more: 0,
        }
    }

    /// Counts a key in that state, of which so much is rejected; tells whether it is another than closed.
    pub(crate) fn count(&mut self, state: CircuitState, enforcement: f64) -> bool {
        let counter = match state {
            CircuitState::Closed => return false,
            CircuitState::Open => &mut self.open,
            CircuitState::HalfOpen => &mut self.half_open,
            CircuitState::ForcedOpen => &mut self.forced_open,
            CircuitState::ForcedClosed => &mut self.forced_closed,
        };
        *counter = counter.saturating_add(1);
        if is_simulated(state, enforcement) {
            self.simulated = self.simulated.saturating_add(1);
        }
        true
    }

    /// What this family makes of the whole: never [`HealthStatus::Down`], for one key says nothing of the others.
    pub fn status(&self) -> HealthStatus {
        let is_well = self.actor == ActorHealth::Answers
            && self.open.saturating_add(self.half_open) == self.simulated
            && self.forced_open == 0;
        if is_well {
            HealthStatus::Up
        } else {
            HealthStatus::Degraded
        }
    }
}

/// A breaker's actor was asked how it is.
pub(crate) struct Question {
    gate: Arc<Gate>,
    sent: Sent,
}

enum Sent {
    Request(Request<BreakerActor, Inspect>),
    /// So many questions wait already that one more would not be answered either.
    Not,
    /// There is nobody to be asked.
    Nobody,
}

impl Question {
    /// Asks. Holds no handle, so that nothing is kept from making room once it has answered (R32).
    pub(crate) fn ask(breaker: &Breaker) -> Self {
        let gate = Arc::clone(breaker.gate());
        let sent = if gate.is_retired() || !breaker.addr().connected() {
            Sent::Nobody
        } else if let Some(question) = gate.inquire() {
            Sent::Request(breaker.addr().send(Inspect {
                _question: question,
            }))
        } else {
            Sent::Not
        };
        Self { gate, sent }
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Waits for the answer, until the deadline; one that is there by then counts.
    pub(crate) async fn answer(self, deadline: Pin<&mut Sleep>) -> BreakerHealth {
        let actor = match self.sent {
            Sent::Request(request) => match select(pin!(request), deadline).await {
                Either::Left((Ok(snapshot), _)) => {
                    let name = Arc::clone(self.gate.name());
                    return BreakerHealth::of(name, snapshot, self.gate.enforcement());
                }
                // The message is lost with a context that ends; only some of them end for good.
                Either::Left((Err(_), _)) if self.gate.is_retired() => ActorHealth::Gone,
                Either::Left((Err(_), _)) | Either::Right(_) => ActorHealth::Silent,
            },
            Sent::Not => ActorHealth::Silent,
            Sent::Nobody => ActorHealth::Gone,
        };
        BreakerHealth::published(&self.gate, actor)
    }
}
