//! The stories of `store.rs` on real servers: one, and a cluster of three.
//! What becomes of breakers when servers fail: `redis_faults.rs` and the others of that name.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::similar_names,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod fleet;
mod servers;
mod stories;

use std::sync::OnceLock;

use actix_circuit_breaker::RedisStore;
use fleet::*;
use servers::{Cluster, Server};

/// One for all tests, each of which has a prefix of its own. It ends with the process.
mod one {
    use super::*;

    static SERVER: OnceLock<Server> = OnceLock::new();

    async fn server(prefix: &str) -> FaultyStore {
        slow_time();
        let server = SERVER.get_or_init(Server::start);
        let builder = RedisStore::builder(server.url()).prefix(prefix);
        let store = builder.connect().await.unwrap();
        let keys = store.clone();
        FaultyStore::remote(store, "mark").forgetting(move |breaker| {
            let keys = keys.keys(breaker);
            server.cli(&["DEL", &keys[0], &keys[1], &keys[2]]);
        })
    }

    stories::tell_all_with!(server);
}

mod three {
    use super::*;

    static CLUSTER: OnceLock<Cluster> = OnceLock::new();

    async fn cluster(prefix: &str) -> FaultyStore {
        slow_time();
        let cluster = CLUSTER.get_or_init(Cluster::start);
        let builder = RedisStore::cluster_builder(cluster.urls()).prefix(prefix);
        let store = builder.connect().await.unwrap();
        let place = |name: &str| cluster.place_of(&store.keys(name)[0]);
        let marks = (0..).map(|number| format!("mark {number}"));
        let mark = marks.into_iter().find(|mark| place(mark) == place(NAME));
        let keys = store.clone();
        FaultyStore::remote(store.clone(), &mark.unwrap()).forgetting(move |breaker| {
            let keys = keys.keys(breaker);
            let node = cluster.node_of(&keys[0]);
            node.cli(&["DEL", &keys[0], &keys[1], &keys[2]]);
        })
    }

    stories::tell_all_with!(cluster);
}
