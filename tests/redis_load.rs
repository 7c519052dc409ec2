//! Breakers over a Redis that comes and goes, under load: nothing grows without bound, nothing hangs, nothing is left.
//! What becomes of states and deadlines is in `redis_faults.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail, and servers know real time only"
)]

mod fleet;
mod servers;

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use actix_circuit_breaker::{CircuitState, RedisStore};
use fleet::{FaultyStore, Fleet, consecutive, count, fast_time};
use servers::{Server, eventually};
use tokio::runtime::Handle;

/// What one wait for the store may take: 50 ms, on a machine that has a lot else to do.
const ONE_WAIT: Duration = Duration::from_secs(3);

async fn remote(url: &str) -> FaultyStore {
    FaultyStore::remote(RedisStore::connect(url).await.unwrap(), "mark")
}

/// The tasks of this thread's runtime.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// The files and sockets of this process; other tests have some, too.
fn files() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The memory of this process, in bytes.
fn memory() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4_096
}

const MEGABYTE: u64 = 1 << 20;

// Case 167: failures that come while a server hangs wait once, are not kept, and leave no tasks behind.
#[actix::test]
async fn a_flood_while_the_server_hangs_is_not_kept() {
    let server = Server::start();
    let fleet = Fleet::share(remote(&server.url()).await, 1, consecutive(u32::MAX)).await;
    let a = fleet.process(0);
    a.fails().await;
    fleet.settle().await;
    let (tasks_before, memory_before) = (tasks(), memory());
    server.stop();
    // All at once, so that many wait for the same store.
    let calls = (0..2_000).map(|_| async {
        let begun = Instant::now();
        a.fails().await;
        begun.elapsed()
    });
    let waits = futures::future::join_all(calls).await;
    let longest = waits.into_iter().max().unwrap();
    assert!(longest < ONE_WAIT, "{longest:?}");
    eventually(|| fleet.is_away(0)).await;
    let mut most = 0;
    let begun = Instant::now();
    for _ in 0..20_000 {
        a.fails().await;
        most = most.max(tasks());
    }
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        most < tasks_before + 50,
        "{tasks_before} tasks, then {most}"
    );
    let grown = memory().saturating_sub(memory_before) / MEGABYTE;
    assert!(grown < 60, "{grown} MB");
    server.cont();
    eventually(|| !fleet.is_away(0)).await;
    eventually(|| tasks() <= tasks_before + 5).await;
}

// Rounds of losing and finding the store leave nothing.
#[actix::test]
async fn twenty_restarts_leave_nothing_behind() {
    fast_time();
    let server = Server::start();
    let fleet = Fleet::share(remote(&server.url()).await, 2, consecutive(u32::MAX)).await;
    let mut at_first = (0, 0, 0);
    for round in 0..20 {
        server.kill();
        for process in fleet.all() {
            process.fails().await;
        }
        eventually(|| fleet.is_away(0) && fleet.is_away(1)).await;
        for process in fleet.all() {
            process.fails().await;
        }
        server.restart_empty();
        eventually(|| !fleet.is_away(0) && !fleet.is_away(1)).await;
        if round == 4 {
            fleet.settle().await;
            at_first = (tasks(), files(), memory());
        }
    }
    fleet.settle().await;
    let (tasks_at_first, files_at_first, memory_at_first) = at_first;
    eventually(|| tasks() <= tasks_at_first + 4).await;
    assert!(
        files() <= files_at_first + 40,
        "{files_at_first} files, then {}",
        files()
    );
    let grown = memory().saturating_sub(memory_at_first) / MEGABYTE;
    assert!(grown < 60, "{grown} MB");
    // The harness, the store, and a listener for each process.
    eventually(|| server.info("connected_clients").parse::<u32>().unwrap() <= 5).await;
}

// R30: breakers end while their store is away, and what kept their link going ends with them.
#[actix::test]
async fn breakers_that_are_dropped_while_the_store_is_away_end() {
    for ending in [Server::kill, Server::stop] {
        let server = Server::start();
        let before = tasks();
        let fleet = Fleet::share(remote(&server.url()).await, 3, count(2)).await;
        fleet.process(0).fails().await;
        ending(&server);
        fleet.process(0).fails().await;
        eventually(|| fleet.is_away(0)).await;
        drop(fleet);
        eventually(|| tasks() <= before).await;
    }
}

/// Runs it in a system of its own on a thread of its own, which has to end.
fn in_a_system<F: Future<Output = ()>>(run: impl FnOnce() -> F + Send + 'static) {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        actix::System::new().block_on(run());
        tell.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(30)).expect("it ends");
    thread.join().unwrap();
}

// A runtime ends while the store is there, hangs or is gone, with calls under way.
#[test]
fn a_runtime_ends_whatever_the_store_does() {
    for ending in [None, Some(Server::kill as fn(&Server)), Some(Server::stop)] {
        let server = Server::start();
        let url = server.url();
        in_a_system(async move || {
            let fleet = Fleet::share(remote(&url).await, 2, count(3)).await;
            fleet.process(0).fails().await;
            if let Some(ending) = ending {
                ending(&server);
            }
            let (_call, _ends) = fleet.process(0).hangs();
            let failing = fleet.process(1).call_failing();
            drop(futures::poll!(Box::pin(failing)));
            actix::System::current().stop();
        });
    }
}

// And the store goes on in another.
#[test]
fn a_store_outlives_the_runtime_that_it_was_first_used_in() {
    let server = Server::start();
    let (tell, told) = mpsc::channel();
    let url = server.url();
    in_a_system(async move || {
        let store = remote(&url).await;
        let fleet = Fleet::share(store.clone(), 1, count(3)).await;
        fleet.process(0).fails().await;
        tell.send(store).unwrap();
    });
    let store = told.recv().unwrap();
    in_a_system(async move || {
        let fleet = Fleet::around(store, 2, count(3), |builder| builder);
        // It may have to find out first that its connection went with the runtime.
        fleet.until_joined().await;
        // With the one of the process before, these are three.
        fleet.process(0).fails().await;
        fleet.process(1).fails().await;
        eventually(|| fleet.states() == [CircuitState::Open; 2]).await;
    });
}
