//! Circuit breakers for actix actors.

mod actor;
mod breaker;
mod caught;
pub mod circuit;
mod clock;
mod config;
mod error;
mod event;
mod gate;
pub mod message;
mod outcome;
mod policy;
mod random;
mod report;
mod supervisor;

pub use actor::BreakerActor;
pub use breaker::{
    Acquire, AskFuture, Breaker, Call, Classifier, Guarded, IntoCall, Permit, Settled, Target,
};
pub use circuit::{Calls, Cause, Circuit, CircuitState, Evidence, Reason, Record};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use config::{Backoff, BreakerConfig, BreakerConfigBuilder, ConfigError};
pub use error::{AskError, CallError, CreateError, Rejected};
pub use event::{Lagged, StateChanged, Transitions};
pub use message::{ForceClosed, ForceOpen, Snapshot};
pub use outcome::{ByReply, Classify, Outcome, Reply};
pub use policy::{SlowCall, TripPolicy, TripRule, Window};
pub use random::{RandomSource, ThreadRandom};
pub use supervisor::{
    BackoffSupervisor, Breakers, BreakersBuilder, EndHandle, GaveUp, RestartPolicy,
};
