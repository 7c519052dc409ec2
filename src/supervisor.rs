//! Keeps actors running.
//! What the actors do is left to them, when a restart is due to `backoff`.

mod backoff;

pub use backoff::{BackoffSupervisor, EndHandle, GaveUp, RestartPolicy};
