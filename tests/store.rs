//! Breakers of several owners that share their records through a store: the reference in memory, behind one that
//! fails as it is told to. `redis_store.rs` tells the same stories of real servers.

mod fleet;
mod stories;

use actix_circuit_breaker::TripPolicy;
use fleet::*;

#[expect(clippy::unused_async, reason = "other stores have to be waited for")]
async fn memory(_: &str) -> FaultyStore {
    FaultyStore::new()
}

stories::tell_all_with!(memory);

// The default is what it says.
#[test]
fn the_policy_of_a_fleet_is_one_of_the_circuits() {
    assert!(matches!(
        count(1).build().unwrap().trip(),
        TripPolicy::FailureCount { .. }
    ));
}
