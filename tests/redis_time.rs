//! Clocks that differ by hours or count from the start of a machine: what processes share is by the server's time. In
//! real time.
//! What becomes of breakers when servers fail is in `redis_faults.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod servers;

use std::sync::Arc;
use std::time::Duration;

use actix_circuit_breaker::message::ForceOpen;
use actix_circuit_breaker::{
    Breaker, BreakerConfig, Breakers, CallError, CircuitState, Clock, RedisStore, SystemClock,
    Timestamp, TripPolicy,
};
use servers::{Server, eventually, eventually_async};

const BREAK: Duration = Duration::from_secs(1);

/// The same in microseconds.
const SPAN: u64 = 1_000_000;

/// How far two processes may be apart: each measures the server's time within a wait for the store.
const APART: u64 = 200_000;

/// A clock that is so many microseconds ahead of the machine's.
#[derive(Debug)]
struct Skewed {
    clock: SystemClock,
    ahead: i64,
}

impl Skewed {
    /// The same instant by the clock of the machine.
    fn right(&self, at: Timestamp) -> u64 {
        at.as_micros().checked_add_signed(-self.ahead).unwrap()
    }
}

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        let now = self.clock.now().as_micros();
        Timestamp::from_micros(now.checked_add_signed(self.ahead).unwrap())
    }
}

/// A process with a clock of its own.
struct Process {
    clock: Arc<Skewed>,
    _breakers: Breakers,
    breaker: Breaker,
}

impl Process {
    async fn start(server: &Server, ahead: i64, failures: u32) -> Self {
        let clock = Arc::new(Skewed {
            clock: SystemClock::new(),
            ahead,
        });
        let store = RedisStore::connect(server.url()).await.unwrap();
        let breakers = Breakers::builder()
            .clock(Arc::new(Skewed {
                clock: clock.clock.clone(),
                ahead,
            }))
            .store_timeout(Duration::from_millis(90))
            .store_poll(Duration::from_millis(100))
            .store(store)
            .start();
        let trip = TripPolicy::FailureCount {
            failures,
            within: Duration::from_secs(60),
            reset_on_success: false,
        };
        let config = BreakerConfig::builder()
            .trip(trip)
            .break_duration(BREAK)
            .build()
            .unwrap();
        let breaker = breakers.create("upstream", config).unwrap();
        Self {
            clock,
            _breakers: breakers,
            breaker,
        }
    }

    async fn is_joined(&self) -> bool {
        let snapshot = self.breaker.snapshot().await.unwrap();
        snapshot.sharing.is_some_and(|sharing| sharing.joined)
    }

    async fn fails(&self) {
        let result: Result<(), _> = self.breaker.call(async { Err("foo") }).await;
        assert_eq!(result, Err(CallError::Failed("foo")));
    }

    async fn call(&self) -> Result<(), CallError<&'static str>> {
        self.breaker.call(async { Ok(()) }).await
    }

    /// The end of the break, by the clock of the machine.
    async fn due(&self) -> u64 {
        let snapshot = self.breaker.snapshot().await.unwrap();
        self.clock.right(snapshot.circuit.until.unwrap())
    }

    fn now(&self) -> u64 {
        self.clock.right(self.clock.now())
    }
}

async fn start(server: &Server, ahead: &[i64], failures: u32) -> Vec<Process> {
    let mut all = Vec::new();
    for ahead in ahead {
        let process = Process::start(server, *ahead, failures).await;
        eventually_async(async || process.is_joined().await).await;
        all.push(process);
    }
    all
}

const HOUR: i64 = 3_600_000_000;

async fn agree_on_the_time(ahead: &[i64]) {
    let server = Server::start();
    let all = start(&server, ahead, u32::try_from(ahead.len()).unwrap()).await;
    // Case 142: what each has seen is in one window.
    let before = all[0].now();
    for process in &all {
        process.fails().await;
    }
    let after = all[0].now();
    let open = |process: &Process| process.breaker.state() == CircuitState::Open;
    eventually(|| all.iter().all(open)).await;
    for process in &all {
        let due = process.due().await;
        assert!(due + APART >= before + SPAN && due <= after + SPAN + APART);
    }
    let dues = [all[0].due().await, all[1].due().await];
    assert!(dues[0].abs_diff(dues[1]) <= APART, "{dues:?}");
    // It is over when it is over, for who comes first.
    let last = all.last().unwrap();
    eventually_async(async || last.call().await.is_ok()).await;
    assert!(last.now() + APART >= before + SPAN);
    eventually(|| {
        all.iter()
            .all(|one| one.breaker.state() == CircuitState::Closed)
    })
    .await;
}

#[actix::test]
async fn clocks_that_differ_by_hours_do() {
    agree_on_the_time(&[HOUR, -HOUR, 0]).await;
}

// Case 86: clocks that count from the start of the machine.
#[actix::test]
async fn clocks_that_count_from_the_start_do() {
    let since = |up: i64| up - i64::try_from(SystemClock::new().now().as_micros()).unwrap();
    agree_on_the_time(&[since(86_400_000_000), since(5_000_000)]).await;
}

// Case 73: a break is no shorter because it begins at the end of a second.
#[actix::test]
async fn a_break_is_counted_finer_than_by_seconds() {
    let server = Server::start();
    let all = start(&server, &[0, HOUR], 1).await;
    let [a, b] = &all[..] else { panic!() };
    // The last twentieth of a second, by the server's time.
    eventually(|| {
        let (_, micros): (u64, u64) = server.query(&["TIME"]).unwrap();
        micros > 950_000
    })
    .await;
    let begun = a.now();
    a.fails().await;
    eventually(|| b.breaker.state() == CircuitState::Open).await;
    eventually_async(async || b.call().await.is_ok()).await;
    assert!(b.now() + APART >= begun + SPAN);
}

// Of two histories the later one goes on, by the time that is shared, also where clocks differ.
#[actix::test]
async fn the_later_history_goes_on_whatever_clocks_say() {
    let server = Server::start();
    let all = start(&server, &[HOUR, -HOUR], 1).await;
    let [a, b] = &all[..] else { panic!() };
    server.kill();
    for process in [a, b] {
        eventually_async(async || !process.is_joined().await).await;
    }
    a.fails().await;
    assert_eq!(a.breaker.state(), CircuitState::Open);
    // Later by more than what two processes may be apart.
    let tripped = a.now();
    eventually(|| a.now() > tripped + APART).await;
    b.breaker
        .force_open(ForceOpen::new("later"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(a.breaker.state(), CircuitState::Open);
    server.restart_empty();
    eventually(|| {
        all.iter()
            .all(|one| one.breaker.state() == CircuitState::ForcedOpen)
    })
    .await;
}

// A process that did not know the server's time yet when it tripped shuts nobody out for an hour.
#[actix::test]
async fn a_break_from_before_the_time_was_known_is_no_longer_than_any() {
    let server = Server::start();
    server.kill();
    let a = Process::start(&server, HOUR, 1).await;
    a.fails().await;
    assert_eq!(a.breaker.state(), CircuitState::Open);
    server.restart_empty();
    let b = Process::start(&server, 0, 1).await;
    let is_joined = async || a.is_joined().await && b.is_joined().await;
    eventually_async(is_joined).await;
    eventually(|| b.breaker.state() == CircuitState::Open).await;
    let begun = b.now();
    eventually_async(async || b.call().await.is_ok()).await;
    assert!(b.now() < begun + 20_000_000);
    eventually(|| a.breaker.state() == CircuitState::Closed).await;
    // And what is counted from now on is shared.
    b.fails().await;
    eventually(|| a.breaker.state() == CircuitState::Open).await;
}
