//! Breakers on a cluster of three: a node that is killed, and slots that move.
//! What breakers do on a cluster where all is well is in `redis_store.rs`.

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

use actix_circuit_breaker::{Breaker, CallError, CircuitState, RedisStore, StoreEvent};
use fleet::{FaultyStore, Fleet, NAME, count};
use servers::{Cluster, eventually};

/// What calls may take that wait for the store now and then, on a busy machine.
const A_FEW_WAITS: Duration = Duration::from_secs(10);

async fn store_of(cluster: &Cluster) -> RedisStore {
    RedisStore::connect_cluster(cluster.urls()).await.unwrap()
}

/// A name, other than that of the fleets, whose record is on that node.
fn name_on(cluster: &Cluster, store: &RedisStore, place: usize, such: &str) -> String {
    let mut names = (0..).map(|number| format!("{such} {number}"));
    let is_there = |name: &String| cluster.place_of(&store.keys(name)[0]) == place;
    names.find(is_there).unwrap()
}

async fn start(cluster: &Cluster, processes: usize, failures: u32) -> (RedisStore, Fleet) {
    let store = store_of(cluster).await;
    let place = cluster.place_of(&store.keys(NAME)[0]);
    let mark = name_on(cluster, &store, place, "mark");
    let faulty = FaultyStore::remote(store.clone(), &mark);
    (
        store,
        Fleet::share(faulty, processes, count(failures)).await,
    )
}

async fn fails(breaker: &Breaker) {
    let result: Result<(), _> = breaker.call(async { Err("foo") }).await;
    assert_eq!(result, Err(CallError::Failed("foo")));
}

async fn succeeds(breaker: &Breaker) {
    let result: Result<(), CallError<&str>> = breaker.call(async { Ok(()) }).await;
    assert_eq!(result, Ok(()));
}

/// Kills the node of a breaker: its calls and those of the others get their own answers, none waits for long, nobody is
/// told without end, and once the node is there again, though empty, all share as before.
async fn a_node_is_lost(settings: &[&str]) {
    let cluster = Cluster::start_with(settings);
    let (store, fleet) = start(&cluster, 2, 2).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    let dead = cluster.place_of(&store.keys(NAME)[0]);
    let name = name_on(&cluster, &store, (dead + 1) % 3, "other");
    let config = count(2).build().unwrap();
    let others = [a, b].map(|one| one.breakers.create(name.as_str(), config.clone()).unwrap());
    fleet.settle().await;
    let told = a.store_events();
    drop(told.take());

    cluster.node(dead).kill();
    let begun = Instant::now();
    a.fails().await;
    fails(&others[0]).await;
    for _ in 0..500 {
        a.succeeds().await;
        succeeds(&others[0]).await;
    }
    // What is counted while a store is away is not counted there, so that it may take one more.
    for breaker in [&a.breaker, &others[0]] {
        for _ in 0..4 {
            if breaker.state() == CircuitState::Closed {
                fails(breaker).await;
            }
        }
    }
    assert!(begun.elapsed() < A_FEW_WAITS, "{:?}", begun.elapsed());
    assert_eq!([a.state(), others[0].state()], [CircuitState::Open; 2]);
    let degraded = || {
        let events = told.seen();
        let degraded = |event: &&StoreEvent| matches!(event, StoreEvent::Degraded { .. });
        events.iter().filter(degraded).count()
    };
    eventually(|| degraded() > 0).await;
    let begun = Instant::now();
    let before = degraded();
    eventually(|| begun.elapsed() > Duration::from_secs(3)).await;
    assert!(degraded() - before <= 6, "{:?}", told.seen());

    cluster.node(dead).restart_empty();
    cluster.wait_until_whole();
    eventually(|| b.state() == CircuitState::Open).await;
    eventually(|| others[1].state() == CircuitState::Open).await;
}

#[actix::test]
async fn a_node_is_lost_and_with_it_the_whole_cluster() {
    a_node_is_lost(&[]).await;
}

#[actix::test]
async fn a_node_is_lost_and_the_others_go_on() {
    a_node_is_lost(&["--cluster-require-full-coverage", "no"]).await;
}

// MOVED and ASK: while a slot moves and afterwards calls get their answers, and no failure is lost or counted twice.
#[actix::test]
async fn a_slot_moves() {
    let cluster = Cluster::start();
    let (store, fleet) = start(&cluster, 2, 4).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    let [key, _, _] = store.keys(NAME);
    a.fails().await;
    let to = (cluster.place_of(&key) + 1) % 3;
    cluster.begin_move(&key, to);
    a.fails().await;
    a.succeeds().await;
    cluster.end_move(&key, to);
    fleet.until_joined().await;
    a.fails().await;
    fleet.until_joined().await;
    assert_eq!(fleet.states(), [CircuitState::Closed; 2]);
    assert_eq!(cluster.node(to).cli(&["EXISTS", &key]), "1");
    // Three failures are known there: the next one opens it for both.
    eventually(|| recorded(&cluster, to, &key) == 3).await;
    b.fails().await;
    eventually(|| fleet.states() == [CircuitState::Open; 2]).await;
}

/// How many failures the record remembers.
fn recorded(cluster: &Cluster, place: usize, key: &str) -> u64 {
    let failures = format!("{key}:f");
    cluster
        .node(place)
        .query(&["ZCARD", &failures])
        .unwrap_or(0)
}

// A client that was told before where things are is told anew: MOVED is followed once, and costs no more than that.
#[actix::test]
async fn a_slot_that_moved_is_found() {
    let cluster = Cluster::start();
    let (store, fleet) = start(&cluster, 2, 2).await;
    let (a, b) = (fleet.process(0), fleet.process(1));
    let [key, _, _] = store.keys(NAME);
    a.fails().await;
    cluster.move_key(&key, (cluster.place_of(&key) + 1) % 3);
    fleet.until_joined().await;
    b.fails().await;
    eventually(|| fleet.states() == [CircuitState::Open; 2]).await;
}
