//! Breakers of several owners that share their records through a store: the reference in memory, behind one that
//! fails as it is told to. `redis_store.rs` tells the same stories of real servers.

mod fleet;
mod stories;

use std::future::{Ready, ready};

use fleet::*;

fn memory(_: &str) -> Ready<FaultyStore> {
    ready(FaultyStore::new())
}

stories::tell_all_with!(memory);
