//! Circuit breakers for [actix] actors.
//!
//! Actors ask other actors, and some of those answer slowly, wrongly or not at all. A breaker stands
//! between the two: when its target fails too often it *trips*, and asks are rejected at once, with the
//! time after which another attempt makes sense, instead of piling up. When the break is over, one ask
//! at a time goes through as a *probe*, until the target is found to be well again.
//!
//! ```
//! use actix::prelude::*;
//! use actix_circuit_breaker::{AskError, BreakerConfig, Breakers};
//! # #[derive(Message)]
//! # #[rtype(result = "Result<u64, String>")]
//! # struct Charge(u64);
//! # struct Gateway;
//! # impl Actor for Gateway { type Context = Context<Self>; }
//! # impl Handler<Charge> for Gateway {
//! #     type Result = Result<u64, String>;
//! #     fn handle(&mut self, m: Charge, _: &mut Context<Self>) -> Self::Result { Ok(m.0) }
//! # }
//!
//! # #[actix::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let breakers = Breakers::start();
//! let breaker = breakers.create("payments", BreakerConfig::default())?;
//! let payments = breaker.guard(Gateway.start()); // hold this where you held the address
//! match payments.send(Charge(42)).await {
//!     Ok(reply) => println!("the gateway says {reply:?}"),
//!     Err(AskError::Rejected(rejected)) => println!("{rejected}"),
//!     Err(error) => println!("no reply: {error}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # States
//!
// As HTML in the page itself: documentation that is served alone has no other files.
#![doc = include_str!("../examples/pictures/states.svg")]
//!
//! [`CircuitState`] has the same as text. One run of the example `checkout`, whose payment server fails in three
//! ways:
//!
#![doc = include_str!("../examples/pictures/checkout.svg")]
//!
//! # Guarantees
//!
//! - **Serialised**: what goes through the breaker's mailbox. At most
//!   [`max_probes`](BreakerConfigBuilder::max_probes) probes run at once, failures are counted exactly,
//!   events come in order, and whoever gets the tripping failure and asks again at once is rejected.
//! - **One message old**: what a handle reads without a message. A closed breaker costs an ask two loads;
//!   so a few asks from elsewhere may slip through while the trip is still in the mailbox.
//! - **Lossy**: events to a subscriber that does not keep up. It sees the gap and always gets the newest.
//! - **Late results move nothing**: a call that was admitted before the last change of state is counted
//!   as late, whatever came of it.
//! - **Nothing of yours can break it**: a panic in a target, a classifier, a rule or a subscriber is a
//!   failure at most. A breaker whose own actor is gone for good guards nothing and blocks nothing.
//!
//! # Where to look
//!
//! | for | see |
//! | --- | --- |
//! | the rules, in one file, usable without actix | [`circuit`] |
//! | asking through a breaker | [`Breaker`], [`Guarded`] |
//! | when it trips, how long it breaks | [`TripPolicy`], [`BreakerConfig`] |
//! | what counts as a failure | [`Reply`], [`Outcome`] |
//! | who owns breakers | [`Breakers`] |
//! | a breaker for each of very many keys | [`Family`] |
//! | state that outlives the process | [`Breakers::export`], [`Breakers::restore`] |
//! | actors that survive panics | [`BackoffSupervisor`] |
//! | steering a breaker by its address | [`message`] |
//! | a readiness probe | [`Breakers::health`] |
//! | choosing settings, alerts, reading events, a runbook | [`guide`] |
//! | metrics, with the feature `metrics` | `Breakers::record_metrics` |
//! | trying settings out before they reject anything | [`enforcement`](BreakerConfigBuilder::enforcement), [`guide::numbers`] |
//! | being told of changes | [`StateChanged`], [`Transitions`] |
//! | state shared by many machines, through Redis or a store of one's own | [`store`] |
//! | letting messages wait instead of rejecting them | [`Hold`], [`Guarded::send_or_hold`], [`HeldDropped`] |
//! | messages without a reply | [`Breaker::tell`], [`TellError`] |
//!
//! # Features
//!
//! None is on by default.
//!
//! - `metrics`: breakers count their calls, and `Breakers::record_metrics` tells the recorder of the
//!   [`metrics`](https://docs.rs/metrics) crate, for Prometheus and the like. Without it nothing is counted
//!   for that, and it costs nothing.
//! - `redis`: breakers share their records with those of other machines through Redis (`RedisStore`); see [`store`].
//! - `admin`: the breakers over HTTP (`Admin`), a scope of actix-web with a page, and rejections as its answers.

mod actor;
#[cfg(feature = "admin")]
pub mod admin;
mod breaker;
mod caught;
pub mod circuit;
mod clock;
mod config;
mod error;
mod event;
mod family;
mod gate;
pub mod guide;
mod health;
mod hold;
pub mod message;
mod outcome;
mod policy;
mod random;
mod report;
pub mod store;
mod supervisor;
#[cfg(feature = "metrics")]
mod telemetry;

pub use actor::{BreakerActor, HeldCounts};
#[cfg(feature = "admin")]
pub use admin::Admin;
pub use breaker::{
    AcquireFuture, AskFuture, Breaker, Call, Classifier, Guarded, GuardedAsk, HeldAsk, IntoCall,
    Permit, Settled, Target, Tell,
};
pub use circuit::{Calls, Cause, Circuit, CircuitState, Evidence, Reason, Record};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use config::{Backoff, BreakerConfig, BreakerConfigBuilder, ConfigError, Hold, RampUp};
pub use error::{AskError, CallError, CreateError, Rejected, TellError};
pub use event::{DropReason, HeldDropped, Lagged, StateChanged, StoreEvent, Transitions};
pub use family::{Family, FamilyCall};
pub use health::{ActorHealth, BreakerHealth, FamilyHealth, Health, HealthStatus, StoreAway};
pub use message::Snapshot;
pub use outcome::{ByReply, Classify, Outcome, Reply};
pub use policy::{SlowCall, TripPolicy, TripRule, Window};
pub use random::{RandomSource, ThreadRandom};
pub use store::{Consistency, MemoryStore, Store, StoreError};
#[cfg(feature = "redis")]
pub use store::{RedisStore, RedisStoreBuilder};
pub use supervisor::{
    BackoffSupervisor, Breakers, BreakersBuilder, EndHandle, Exported, GaveUp, RefusedRecord,
    RestartPolicy, RestoreError,
};

/// The README's code, compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
