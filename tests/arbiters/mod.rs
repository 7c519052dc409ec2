//! Random schedules over several arbiters, what was seen of them, and whether the circuit explains it.

mod accounts;
mod call;
mod caller;
pub(crate) mod explain;
mod gate;
mod mailbox;
mod model;
mod parts;
pub(crate) mod play;
pub(crate) mod script;
pub(crate) mod shrink;
pub(crate) mod stage;
pub(crate) mod witness;
