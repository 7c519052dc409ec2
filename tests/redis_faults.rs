//! A Redis that is away, in every way that it can be: no call notices more than one short wait, each process is on its
//! own meanwhile, and what was learned then is shared again afterwards. In real time.
//! What becomes of records that are lost or spoilt is in `redis_records.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail, and servers know real time only"
)]

mod fleet;
mod servers;

use std::time::{Duration, Instant};

use actix_circuit_breaker::{
    CallError, Cause, CircuitState, Consistency, Reason, RedisStore, StoreEvent,
};
use fleet::{BREAK, FaultyStore, Fleet, Process, consecutive, count};
use servers::{Proxy, Server, Side, eventually, eventually_async};

/// What one wait for the store may take: 50 ms, on a machine that has a lot else to do.
const ONE_WAIT: Duration = Duration::from_secs(2);

/// What many calls may take that wait for nothing: if each of 1,000 waited, it would be 50 s.
const NO_WAIT: Duration = Duration::from_secs(10);

/// A server whose user `app` has the password `secret`, and the way there.
struct Site {
    server: Server,
    proxy: Proxy,
}

impl Site {
    fn start() -> Self {
        let server = Server::start();
        server.cli(&[
            "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all",
        ]);
        let proxy = Proxy::start(server.port());
        Self { server, proxy }
    }

    fn url(&self) -> String {
        self.proxy.url().replace("//", "//app:secret@")
    }

    async fn store(&self) -> FaultyStore {
        FaultyStore::remote(RedisStore::connect(self.url()).await.unwrap(), "mark")
    }

    /// Ends the connections of the user.
    fn kick(&self) {
        self.server.cli(&["CLIENT", "KILL", "USER", "app"]);
    }
}

fn degraded(events: &[StoreEvent]) -> usize {
    let degraded = |event: &&StoreEvent| matches!(event, StoreEvent::Degraded { .. });
    events.iter().filter(degraded).count()
}

fn recovered(events: &[StoreEvent]) -> usize {
    let recovered = |event: &&StoreEvent| matches!(event, StoreEvent::Recovered { .. });
    events.iter().filter(recovered).count()
}

async fn until(process: &Process) -> Option<actix_circuit_breaker::Timestamp> {
    process.breaker.snapshot().await.unwrap().circuit.until
}

// Cases 160, 161, 167, 170, R29: whatever it is that keeps the store from answering.
async fn is_survived(begins: impl Fn(&Site), ends: impl Fn(&Site)) {
    let site = Site::start();
    let fleet = Fleet::share(site.store().await, 2, consecutive(3)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    let told = [a.store_events(), b.store_events()];
    a.fails().await;
    fleet.settle().await;
    eventually(|| !fleet.is_away(0) && !fleet.is_away(1)).await;
    for told in &told {
        // What a busy machine was too slow for.
        drop(told.take());
    }
    begins(&site);

    // Who finds out gets the answer of the call, and waits no longer than the store is given.
    for (index, process) in [a, b].into_iter().enumerate() {
        let begun = Instant::now();
        process.fails().await;
        assert!(begun.elapsed() < ONE_WAIT, "{:?}", begun.elapsed());
        eventually(|| fleet.is_away(index)).await;
    }
    // From then on nobody waits.
    let begun = Instant::now();
    for _ in 0..500 {
        a.succeeds().await;
        a.fails().await;
    }
    assert!(begun.elapsed() < NO_WAIT, "{:?}", begun.elapsed());

    // It trips, rejects and probes as without a store.
    a.fails().await;
    a.fails().await;
    assert_eq!(a.rejected().await, Reason::Open);
    fleet.pass(BREAK);
    let mut calls: Vec<_> = (0..50).map(|_| a.hangs()).collect();
    eventually(|| calls.iter().filter(|(call, _)| call.is_finished()).count() == 49).await;
    let place = calls.iter().position(|(call, _)| !call.is_finished());
    let (probe, end) = calls.swap_remove(place.unwrap());
    end.send(Err("still")).unwrap();
    assert_eq!(probe.await.unwrap(), Err(CallError::Failed("still")));
    for (call, _) in calls {
        let answer = call.await.unwrap();
        assert!(matches!(answer, Err(CallError::Rejected(_))), "{answer:?}");
    }
    assert_eq!(a.rejected().await, Reason::Open);
    assert_eq!(b.state(), CircuitState::Closed);
    for told in &told {
        let events = told.seen();
        assert_eq!((degraded(&events), events.len()), (1, 1), "{events:?}");
    }

    // Of two histories the one whose last change is newer goes on.
    let due = until(a).await;
    ends(&site);
    eventually_async(async || (until(a).await, until(b).await) == (due, due)).await;
    assert_eq!(fleet.states(), [CircuitState::Open; 2]);
    eventually(|| !fleet.is_away(0) && !fleet.is_away(1)).await;
    for told in &told {
        let events = told.seen();
        // A busy machine may lose it once more.
        assert_eq!(recovered(&events), degraded(&events), "{events:?}");
    }
    // And they share again.
    fleet.pass(BREAK);
    b.succeeds().await;
    eventually(|| a.state() == CircuitState::Closed).await;
    assert_eq!(b.state(), CircuitState::Closed);
}

macro_rules! survived {
    ($($name:ident: $begins:expr, $ends:expr;)*) => {
        $(
            #[actix::test]
            async fn $name() {
                is_survived($begins, $ends).await;
            }
        )*
    };
}

fn order(words: &'static [&'static str]) -> impl Fn(&Site) {
    |site| drop(site.server.cli(words))
}

survived! {
    killed_and_started_empty: |site| site.server.kill(), |site| {
        site.server.restart_empty();
        site.server.cli(&["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"]);
    };
    stopped: |site| site.server.stop(), |site| site.server.cont();
    paused: order(&["CLIENT", "PAUSE", "1000000", "WRITE"]), order(&["CLIENT", "UNPAUSE"]);
    cut_off: |site| site.proxy.cut(), |site| site.proxy.pass();
    behind_a_network_that_hangs: |site| site.proxy.hang(), |site| site.proxy.pass();
    behind_one_that_loses_answers: |site| site.proxy.swallow_replies(), |site| site.proxy.pass();
    far_too_slow: |site| site.proxy.delay(Duration::from_millis(300)), |site| site.proxy.pass();
    read_only: order(&["REPLICAOF", "127.0.0.1", "1"]), order(&["REPLICAOF", "NO", "ONE"]);
    out_of_memory: order(&["CONFIG", "SET", "maxmemory", "1"]), order(&["CONFIG", "SET", "maxmemory", "0"]);
    without_enough_replicas:
        order(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
        order(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    of_another_password: |site| {
        site.server.cli(&["ACL", "SETUSER", "app", "resetpass", ">other"]);
        site.kick();
    }, order(&["ACL", "SETUSER", "app", "resetpass", ">secret"]);
    without_permission_for_scripts:
        order(&["ACL", "SETUSER", "app", "-eval", "-evalsha"]),
        order(&["ACL", "SETUSER", "app", "+eval", "+evalsha"]);
    full_of_clients: |site| {
        site.server.cli(&["CONFIG", "SET", "maxclients", "1"]);
        site.kick();
    }, order(&["CONFIG", "SET", "maxclients", "100"]);
}

// A connection whose other end is gone without a word is given up, though nobody waits as long as it takes to know.
#[actix::test]
async fn a_connection_that_leads_nowhere_is_made_anew() {
    let site = Site::start();
    let fleet = Fleet::share(site.store().await, 2, count(2)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    site.proxy.strand();
    a.fails().await;
    eventually(|| fleet.is_away(0)).await;
    eventually(|| !fleet.is_away(0)).await;
    b.fails().await;
    eventually(|| fleet.states() == [CircuitState::Open; 2]).await;
}

// Each half of the connections ends once: nobody waits for long, and they share again.
#[actix::test]
async fn connections_that_are_half_closed_are_made_anew() {
    for side in [Side::Client, Side::Server] {
        let site = Site::start();
        let fleet = Fleet::share(site.store().await, 2, count(2)).await;
        let (a, b) = (fleet.process(0), fleet.process(1));
        site.proxy.half_close(side);
        let begun = Instant::now();
        a.fails().await;
        assert!(begun.elapsed() < ONE_WAIT, "{:?}", begun.elapsed());
        eventually(|| !fleet.is_away(0)).await;
        fleet.settle().await;
        b.fails().await;
        eventually(|| fleet.states() == [CircuitState::Open; 2]).await;
    }
}

// Case 167: who would be a probe, and with `Strict` who would make any call, waits once and goes.
#[actix::test]
async fn leave_is_not_waited_for_that_does_not_come() {
    let site = Site::start();
    let fleet = Fleet::share(site.store().await, 1, count(1)).await;
    let other = RedisStore::builder(site.url()).prefix("other");
    let other = FaultyStore::remote(other.connect().await.unwrap(), "mark");
    let strict = Fleet::share_with(other, 1, count(1), |builder| {
        builder.consistency(Consistency::Strict)
    })
    .await;
    fleet.process(0).fails().await;
    fleet.pass(BREAK);
    site.server.stop();
    let begun = Instant::now();
    fleet.process(0).succeeds().await;
    strict.process(0).succeeds().await;
    assert!(begun.elapsed() < 2 * ONE_WAIT, "{:?}", begun.elapsed());
    eventually(|| fleet.is_away(0) && strict.is_away(0)).await;
    let begun = Instant::now();
    for _ in 0..1_000 {
        strict.process(0).succeeds().await;
    }
    assert!(begun.elapsed() < NO_WAIT, "{:?}", begun.elapsed());
    site.server.cont();
}

// A process may be there before its store.
#[actix::test]
async fn a_store_that_comes_later_is_joined() {
    let site = Site::start();
    site.server.kill();
    let store = site.store().await;
    let fleet = Fleet::around(store, 2, count(1), |builder| builder);
    let (a, b) = (fleet.process(0), fleet.process(1));
    eventually(|| fleet.is_away(0) && fleet.is_away(1)).await;
    a.fails().await;
    assert_eq!(a.rejected().await, Reason::Open);
    b.succeeds().await;
    site.server.restart_empty();
    site.server.cli(&[
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all",
    ]);
    eventually(|| b.state() == CircuitState::Open).await;
    let snapshot = b.breaker.snapshot().await.unwrap();
    assert_eq!(snapshot.circuit.until, until(a).await);
}

// Case 155: answers that the network lost were steps all the same, and count once.
#[actix::test]
async fn what_the_server_did_and_nobody_heard_of_counts_once() {
    let site = Site::start();
    let fleet = Fleet::share(site.store().await, 2, count(3)).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    site.proxy.swallow_replies();
    a.fails().await;
    eventually(|| fleet.is_away(0)).await;
    site.proxy.pass();
    eventually(|| !fleet.is_away(0)).await;
    b.fails().await;
    eventually(|| !fleet.is_away(1)).await;
    fleet.settle().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    // In case that somebody was away for a moment, what the store knows is asked.
    eventually_async(async || {
        fleet.settle().await;
        b.breaker.snapshot().await.is_ok() && !fleet.is_away(0) && !fleet.is_away(1)
    })
    .await;
    let mut heard = a.events();
    b.fails().await;
    eventually(|| fleet.states() == [CircuitState::Open; 2]).await;
    assert_eq!(heard.take()[0].cause, Cause::Tripped);
}
