//! Circuit breakers for actix actors.

pub mod circuit;
mod clock;
mod config;
mod outcome;
mod policy;
mod random;

pub use circuit::{Calls, Cause, Circuit, CircuitState, Evidence, Reason, Record};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use config::{Backoff, BreakerConfig, BreakerConfigBuilder, ConfigError};
pub use outcome::{ByReply, Classify, Outcome, Reply};
pub use policy::{SlowCall, TripPolicy, TripRule, Window};
pub use random::{RandomSource, ThreadRandom};
