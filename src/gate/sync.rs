//! Where the gate gets its atomics and locks from: the standard library, or loom for the models in
//! `model.rs`. It adds nothing to them.

#[cfg(not(all(test, breaker_loom)))]
pub(super) use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread_local,
};

#[cfg(all(test, breaker_loom))]
pub(super) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

/// loom's own macro knows no `const`.
#[cfg(all(test, breaker_loom))]
macro_rules! modelled_thread_local {
    (static $name:ident: $kind:ty = const $value:block;) => {
        loom::thread_local! { static $name: $kind = $value; }
    };
}
#[cfg(all(test, breaker_loom))]
pub(super) use modelled_thread_local as thread_local;
