//! Real Redis servers, a cluster of them, and a network between them and us that misbehaves when told to.
//! What is kept on the servers is left to the tests; nothing here knows of breakers.
//!
//! All of it is in real time, and blocks the thread for the short while that an order takes. What a test waits
//! for, it waits for with [`eventually`], which leaves paused time where it is.

#![allow(dead_code, reason = "each file of tests uses a part of it")]
#![allow(unused_imports, reason = "each file of tests uses a part of it")]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is a failed test, and other processes know real time only"
)]

mod cluster;
mod proxy;
mod server;
mod wire;

use std::net::{Ipv4Addr, TcpListener};
use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use cluster::Cluster;
pub(crate) use proxy::{Proxy, Side};
pub(crate) use server::{Monitor, Server};
pub(crate) use wire::Wire;

/// How long anything may take on a busy machine before it counts as never.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks.
const NAP: Duration = Duration::from_micros(500);

/// Waits until the condition holds; panics when it never does. Other tasks of the thread go on meanwhile, and
/// paused time stands still.
#[track_caller]
pub(crate) fn eventually(mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    eventually_async(async move || condition())
}

/// [`eventually`] for a condition that has to be awaited.
#[track_caller]
pub(crate) fn eventually_async(
    mut condition: impl AsyncFnMut() -> bool,
) -> impl Future<Output = ()> {
    let patience = Patience::new();
    async move {
        while !condition().await {
            patience.nap();
            tokio::task::yield_now().await;
        }
    }
}

/// [`eventually`] where nothing can be awaited: the thread is blocked.
#[track_caller]
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let patience = Patience::new();
    while !condition() {
        patience.nap();
    }
}

/// Somebody waits, and not for ever.
#[derive(Debug)]
struct Patience {
    until: Instant,
    caller: &'static Location<'static>,
}

impl Patience {
    #[track_caller]
    fn new() -> Self {
        Self {
            until: Instant::now() + PATIENCE,
            caller: Location::caller(),
        }
    }

    fn nap(&self) {
        let Self { until, caller } = self;
        assert!(Instant::now() < *until, "{caller}: never came true");
        thread::sleep(NAP);
    }
}

/// A port on which nobody listens, and 10,000 above it another, for the nodes of a cluster. Both lie below those
/// that a system gives to clients, so that nobody gets them while their server is down.
fn free_port() -> u16 {
    let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    loop {
        let port = fastrand::u16(10_000..22_768);
        if free(port) && free(port + 10_000) {
            return port;
        }
    }
}
