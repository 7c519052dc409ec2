//! Drives many asks through flapping targets for minutes, and fails if memory grows or an account does
//! not add up.
//!
//! ```sh
//! cargo run --release --example soak            # 10,000,000 asks
//! cargo run --release --example soak -- 100000  # so many
//! ```
#![allow(
    clippy::print_stdout,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::cast_precision_loss,
    clippy::unwrap_used,
    reason = "an example prints, and its numbers are small"
)]

use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::{
    AskError, Backoff, Breaker, BreakerConfig, Breakers, ConfigError, SlowCall, TripPolicy, Window,
};
use futures::future::join_all;

const ASKS: u64 = 10_000_000;
const WORKERS_PER_TARGET: u64 = 16;

/// A target that answers a thousand asks well and then fails thirty, in turn.
struct Flapping {
    seen: Arc<AtomicU64>,
}

impl Actor for Flapping {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "Result<u64, u64>")]
struct Work;

impl Handler<Work> for Flapping {
    type Result = Result<u64, u64>;

    fn handle(&mut self, _: Work, _: &mut Context<Self>) -> Self::Result {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        if seen % 1_030 < 1_000 {
            Ok(seen)
        } else {
            Err(seen)
        }
    }
}

/// What the workers of one target saw.
#[derive(Default)]
struct Account {
    asked: u64,
    succeeded: u64,
    failed: u64,
    rejected: u64,
    unanswered: u64,
}

impl Account {
    fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.rejected += other.rejected;
        self.unanswered += other.unanswered;
    }
}

fn policies() -> [TripPolicy; 4] {
    [
        TripPolicy::ConsecutiveFailures {
            failures: 5,
            within: None,
        },
        TripPolicy::FailureCount {
            failures: 10,
            within: Duration::from_secs(1),
            reset_on_success: false,
        },
        TripPolicy::FailureRate {
            rate: 0.2,
            minimum_calls: 20,
            window: Window::Calls(100),
            slow_call: None,
        },
        TripPolicy::FailureRate {
            rate: 0.01,
            minimum_calls: 20,
            window: Window::Time(Duration::from_secs(1)),
            slow_call: Some(SlowCall::new(Duration::from_millis(500), 0.5)),
        },
    ]
}

fn config(policy: TripPolicy) -> Result<BreakerConfig, ConfigError> {
    BreakerConfig::builder()
        .trip(policy)
        .call_timeout(Duration::from_secs(10))
        .break_duration(Duration::from_millis(1))
        .backoff(Backoff::new(1.5, Duration::from_millis(3)))
        .jitter(0.5)
        .build()
}

/// Asks so often; a worker that is rejected asks again at once, and waits after every fourth time.
async fn work(breaker: Breaker, target: Addr<Flapping>, asks: u64) -> Account {
    let mut account = Account::default();
    for _ in 0..asks {
        account.asked += 1;
        match breaker.ask(&target, Work).await {
            Ok(Ok(_)) => account.succeeded += 1,
            Ok(Err(_)) => account.failed += 1,
            Err(AskError::Rejected(rejected)) => {
                account.rejected += 1;
                if account.rejected % 4 == 0 {
                    tokio::time::sleep(rejected.retry_after().unwrap_or_default()).await;
                }
            }
            Err(_) => account.unanswered += 1,
        }
    }
    account
}

/// The memory that this process has resident, in bytes, where the system tells.
fn resident() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4_096)
}

async fn round(
    targets: &[(Breaker, Addr<Flapping>, Arc<AtomicU64>)],
    asks: u64,
) -> Result<Vec<Account>, Box<dyn Error>> {
    let workers = asks / (targets.len() as u64 * WORKERS_PER_TARGET);
    let mut accounts = Vec::new();
    let tasks: Vec<_> = targets
        .iter()
        .map(|(breaker, target, _)| {
            let workers: Vec<_> = (0..WORKERS_PER_TARGET)
                .map(|_| actix::spawn(work(breaker.clone(), target.clone(), workers)))
                .collect();
            join_all(workers)
        })
        .collect();
    for results in join_all(tasks).await {
        let mut sum = Account::default();
        for account in results {
            sum.add(&account?);
        }
        accounts.push(sum);
    }
    Ok(accounts)
}

async fn soak(asks: u64) -> Result<bool, Box<dyn Error>> {
    let breakers = Breakers::start_in_arbiter(&Arbiter::new().handle());
    let elsewhere = Arbiter::new();
    let mut targets = Vec::new();
    for (number, policy) in policies().into_iter().enumerate() {
        let seen = Arc::new(AtomicU64::new(0));
        let breaker = breakers.create(format!("target {number}"), config(policy)?)?;
        let target = Flapping {
            seen: Arc::clone(&seen),
        };
        let target = Flapping::start_in_arbiter(&elsewhere.handle(), |_| target);
        targets.push((breaker, target, seen));
    }

    // The first tenth warms everything up: what it needs stays.
    let mut accounts = round(&targets, asks / 10).await?;
    let before = resident();
    for _ in 0..9 {
        for (sum, account) in accounts.iter_mut().zip(round(&targets, asks / 10).await?) {
            sum.add(&account);
        }
    }
    let after = resident();

    let mut good = true;
    println!("breaker        asked  succeeded     failed   rejected  no answer  reached");
    for ((breaker, _, seen), account) in targets.iter().zip(&accounts) {
        let reached = seen.load(Ordering::Relaxed);
        println!(
            "{:<9} {:>10} {:>10} {:>10} {:>10} {:>10} {reached:>8}",
            breaker.name(),
            account.asked,
            account.succeeded,
            account.failed,
            account.rejected,
            account.unanswered,
        );
        let calls = breaker.snapshot().await?.calls;
        good &= account.asked == account.succeeded + account.failed + account.rejected;
        good &= account.unanswered == 0;
        good &= reached == account.succeeded + account.failed;
        good &= calls.rejected == account.rejected;
        good &= account.failed > 0 && account.rejected > 0;
        good &= breaker.snapshot().await?.probes_in_flight == 0;
    }
    println!("accounts: {}", if good { "they add up" } else { "BROKEN" });
    if let (Some(before), Some(after)) = (before, after) {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        println!(
            "memory: {:.1} MB after the first tenth, {:.1} MB at the end",
            megabytes(before),
            megabytes(after)
        );
        good &= after < before + before / 10 + 4_000_000;
    }
    Ok(good)
}

#[actix::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let asks = match std::env::args().nth(1) {
        Some(asks) => asks.parse()?,
        None => ASKS,
    };
    // From a spawned task: a root future is polled in a slower way.
    let good = actix::spawn(async move { soak(asks).await.map_err(|error| error.to_string()) });
    Ok(if good.await?? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
