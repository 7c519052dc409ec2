//! Memory of a family under keys that strangers choose; in a process of its own, so that it can be told.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a panic is a failed test, and the figure is printed"
)]

use actix_circuit_breaker::{BreakerConfig, Breakers, CallError, CircuitState, Family, TripPolicy};

const KEYS: usize = 1_000_000;

/// Held by the test that measures.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.map(str::split_whitespace);
    words
        .and_then(|mut words| words.nth(1)?.parse().ok())
        .unwrap_or(0)
}

fn consecutive(failures: u32) -> BreakerConfig {
    let policy = TripPolicy::ConsecutiveFailures {
        failures,
        within: None,
    };
    BreakerConfig::builder().trip(policy).build().unwrap()
}

async fn fail(family: &Family, key: &str) {
    let failed = family.call(key, async { Err::<(), _>("no route") }).await;
    assert!(matches!(failed, Err(CallError::Failed(_))));
}

// R32: a million keys, each seen once, a tenth of them failing.
#[actix::test]
async fn million_hostile_keys_do_not_grow_memory() {
    let alone = ALONE.lock().await;
    let config = consecutive(1);
    let breakers = Breakers::builder().max_keys(1_000).start();
    let family = breakers.family("hosts", config).unwrap();
    fail(&family, "down").await;
    let before = resident_kib();
    for at in 0..KEYS {
        let key = format!("host-{at}.attacker.example");
        if at % 10 == 0 {
            fail(&family, &key).await;
        } else {
            drop(family.breaker(&key));
        }
    }
    let grown = resident_kib().saturating_sub(before);
    let unguarded = family.unguarded();
    println!("{KEYS} keys, of which {unguarded} found no room: {grown} KiB more");
    assert!(family.len() <= 1_000);
    assert!(unguarded > 0);
    assert!(grown < 8 * 1_024, "{grown} KiB");
    // Those who were known are guarded as ever, and all others are let through.
    assert_eq!(family.breaker("down").state(), CircuitState::Open);
    let well = family.call("well.example", async { Ok::<_, ()>(1) }).await;
    assert_eq!(well.unwrap(), 1);
    drop(alone);
}

// Nobody asks the family for anything, and its own timer has hardly gone off.
#[actix::test]
async fn key_that_wakes_and_rests_leaves_nothing() {
    const WAKES: usize = 100_000;
    let alone = ALONE.lock().await;
    let family = Breakers::start().family("hosts", consecutive(2)).unwrap();
    fail(&family, "a").await;
    let before = resident_kib();
    for _ in 0..WAKES {
        // Its handle is gone when the answer comes, so it rests at once.
        let asked = family.breaker("a").snapshot();
        asked.await.unwrap();
    }
    let grown = resident_kib().saturating_sub(before);
    println!("{WAKES} wakes: {grown} KiB more");
    assert!(grown < 1_024, "{grown} KiB");
    drop(alone);
}
