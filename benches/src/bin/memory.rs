//! Measures the figures of memory and messages: a counting allocator, and a counting clock.

use std::cell::Cell;
use std::future::{Future, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use std::thread::ThreadId;
use std::time::Duration;

use actix::{Actor, Arbiter};
use actix_circuit_breaker::{Breaker, BreakerConfig, Breakers, Clock, SystemClock, Timestamp};
use actix_circuit_breaker_benches::counting::{Counting, allocations, live_bytes};
use actix_circuit_breaker_benches::echo::{Echo, Fail, Fault, Say};
use actix_circuit_breaker_benches::{breaker, in_task, open_breaker, trips_at_once};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TIMEOUT: Duration = Duration::from_secs(5);
const ASKS: u32 = 10_000;

fn main() {
    in_task(allocated());
    in_task(messages());
    in_task(idle());
    in_task(failing_keys());
}

/// Allocations of one call, on average over many.
async fn each<F: Future>(mut call: impl FnMut() -> F) -> f64 {
    // What grows once does so before.
    for _ in 0..ASKS {
        drop(call().await);
    }
    let before = allocations();
    for _ in 0..ASKS {
        drop(call().await);
    }
    (allocations() - before) as f64 / f64::from(ASKS)
}

fn good() -> std::future::Ready<Result<u64, Fault>> {
    ready(Ok(1))
}

async fn allocated() {
    let target = Echo.start();
    let closed = breaker(BreakerConfig::default());
    let open = open_breaker().await;
    let failing = breaker(actix_circuit_breaker_benches::never_trips());

    let bare = each(|| target.send(Say(1)).timeout(TIMEOUT)).await;
    let asked = each(|| closed.ask(&target, Say(1))).await;
    let bare_failing = each(|| target.send(Fail).timeout(TIMEOUT)).await;
    let failed = each(|| failing.ask(&target, Fail)).await;
    println!("# allocations of a bare ask: {bare:.3}, of a closed one: {asked:.3}");
    println!(
        "# allocations of a bare failing ask: {bare_failing:.3}, of a settled one: {failed:.3}"
    );
    println!("closed_ask_extra_allocs {:.3}", asked - bare);

    let asks = each(|| open.ask(&target, Say(1))).await;
    let calls = each(|| open.call(good())).await;
    println!("reject_allocs {:.3}", asks + calls);
}

/// A clock that counts who reads it. A breaker's actor reads it once for each message, and for nothing
/// else while no timer falls due.
#[derive(Debug)]
struct CountingClock {
    clock: SystemClock,
    of: ThreadId,
    reads: AtomicU64,
}

impl Clock for CountingClock {
    fn now(&self) -> Timestamp {
        if std::thread::current().id() == self.of {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.clock.now()
    }
}

async fn messages() {
    let arbiter = Arbiter::new();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    arbiter.spawn_fn(move || {
        let _ = sender.send(std::thread::current().id());
    });
    let clock = Arc::new(CountingClock {
        clock: SystemClock::new(),
        of: receiver.await.expect("the arbiter runs"),
        reads: AtomicU64::new(0),
    });
    let open: Breaker = Breakers::builder()
        .clock(clock.clone())
        .start_in_arbiter(&arbiter.handle())
        .create("bench", trips_at_once())
        .expect("room for one breaker");
    assert!(open.call(ready(Err::<u64, _>(Fault))).await.is_err());
    let target = Echo.start();

    // A question and its answer keep the order of what went before.
    let fence = || async { open.snapshot().await.expect("the breaker is there") };
    fence().await;
    let before = clock.reads.load(Ordering::Relaxed);
    for _ in 0..ASKS {
        assert!(open.ask(&target, Say(1)).await.is_err());
        assert!(open.call(good()).await.is_err());
    }
    let snapshot = fence().await;
    let messages = clock.reads.load(Ordering::Relaxed) - before - 1;
    assert_eq!(snapshot.calls.rejected, u64::from(2 * ASKS));
    println!("reject_messages {:.3}", messages as f64 / f64::from(ASKS));
    arbiter.stop();
}

async fn idle() {
    const BREAKERS: usize = 1_000;
    let breakers = Breakers::start();
    let create = |name: &str| {
        breakers
            .create(name, BreakerConfig::default())
            .expect("room for all of them")
    };
    // What is made once for all of them.
    drop(create("first").snapshot().await);
    let names: Vec<_> = (0..BREAKERS)
        .map(|at| format!("upstream-{at:04}"))
        .collect();
    let failed = Cell::new(0);
    let before = live_bytes();
    for name in &names {
        // A reply from each shows that its actor has run.
        if create(name).snapshot().await.is_err() {
            failed.set(failed.get() + 1);
        }
    }
    tokio::task::yield_now().await;
    assert_eq!(failed.get(), 0);
    let bytes = live_bytes() - before;
    println!(
        "bytes_per_idle_breaker {}",
        bytes / i64::try_from(BREAKERS).unwrap_or(i64::MAX)
    );
}

/// Keys that have failed once and that nobody holds.
async fn failing_keys() {
    const KEYS: usize = 100_000;
    let family = Breakers::start()
        .family("hosts", BreakerConfig::default())
        .expect("room for one family");
    let names: Vec<_> = (0..KEYS)
        .map(|at| format!("host-{at}.example.org"))
        .collect();
    let before = live_bytes();
    for name in &names {
        let failed = family.call(name, ready(Err::<u64, _>(Fault))).await;
        assert!(failed.is_err());
    }
    // Whoever is not held any more is put away by the family's actor.
    for _ in 0..3 {
        assert_eq!(family.len(), KEYS);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let bytes = live_bytes() - before;
    println!(
        "family_bytes_per_failing_key {}",
        bytes / i64::try_from(KEYS).unwrap_or(i64::MAX)
    );
}
