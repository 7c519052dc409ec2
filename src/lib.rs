//! Circuit breakers for actix actors.

mod supervisor;

pub use supervisor::{BackoffSupervisor, EndHandle, GaveUp, RestartPolicy};
