//! Letters to a hundred hosts, of which some are down, some hang and some are gone for good.
//!
//! A family of breakers keeps one per host. What cannot be sent waits inside the breaker of its host, and
//! leaves in order once that is well again: first one letter as the probe, then 1, 2, 4 … at a time. The
//! hosts are servers on real loopback sockets, and write down what reaches them.
//!
//! Run it with `cargo run --example deliveries`; it takes about four seconds. It exits with 1 if a letter to a
//! host that came back was lost, came twice or came out of order, or if one was dropped in silence.
//!
//! The servers are in `deliveries/host.rs`.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]
#![allow(clippy::arithmetic_side_effects, reason = "small counts and spans")]

#[path = "deliveries/host.rs"]
mod host;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::{
    AskError, BreakerConfig, Breakers, CircuitState, Clock, Family, HeldDropped, Hold, SystemClock,
    TripPolicy,
};
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use host::{Host, Mode};

const HOSTS: usize = 100;
const LETTERS: u32 = 20;

/// When the hosts come back that do.
const BACK: Duration = Duration::from_millis(700);

fn config() -> Result<BreakerConfig, actix_circuit_breaker::ConfigError> {
    // 1,000 letters a host, each for 2.5 s at most; after recovery 1, 2, 4 … of them every 20 ms.
    let hold = Hold::new(
        1_000,
        Duration::from_millis(2_500),
        Duration::from_millis(20),
    )
    .growing();
    BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 2,
            within: None,
        })
        .call_timeout(Duration::from_secs(3))
        .break_duration(Duration::from_secs(1))
        .hold(hold)
        .build()
}

// Who brings letters to one host, one after the other.

struct Courier {
    address: SocketAddr,
}

#[derive(Message)]
#[rtype(result = "io::Result<()>")]
struct Letter(u32);

impl Actor for Courier {
    type Context = Context<Self>;
}

impl Handler<Letter> for Courier {
    type Result = AtomicResponse<Self, io::Result<()>>;

    fn handle(&mut self, Letter(number): Letter, _: &mut Context<Self>) -> Self::Result {
        let brought = bring(self.address, number).into_actor(self);
        AtomicResponse::new(Box::pin(brought))
    }
}

async fn bring(address: SocketAddr, number: u32) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{number}\n").as_bytes()).await?;
    let mut receipt = [0; 3];
    stream.read_exact(&mut receipt).await?;
    Ok(())
}

// What became of the letters to one host.

#[derive(Default)]
struct Account {
    tries: usize,
    delivered: usize,
    failed: usize,
    expired: usize,
    took: Duration,
}

async fn write_to(family: Family, name: String, address: SocketAddr) -> Account {
    let clock = SystemClock::new();
    let began = clock.now();
    // Held for as long as there are letters to this host.
    let breaker = family.breaker(&name);
    let courier = breaker.guard::<Letter>(Courier { address }.start());
    let mut account = Account::default();
    let mut first = 0;
    while breaker.state() == CircuitState::Closed && first == 0 {
        account.tries += 1;
        // If it does not arrive, it is written again.
        if let Ok(Ok(())) = courier.send_or_hold(Letter(0)).await {
            account.delivered += 1;
            first = 1;
        }
    }
    // From here on nobody waits for the one before: those that cannot be sent wait inside the breaker.
    let letters = (first..LETTERS).map(|number| courier.send_or_hold(Letter(number)));
    for answer in join_all(letters).await {
        match answer {
            Ok(Ok(())) => account.delivered += 1,
            Err(AskError::HoldExpired(_)) => account.expired += 1,
            // A probe of a host that was still down.
            Ok(Err(_)) | Err(_) => account.failed += 1,
        }
    }
    account.took = clock.now().since(began);
    account
}

/// Who hears of letters that were not sent.
struct Undelivered(Arc<AtomicUsize>);

impl Actor for Undelivered {
    type Context = Context<Self>;
}

impl Handler<HeldDropped> for Undelivered {
    type Result = ();

    fn handle(&mut self, _: HeldDropped, _: &mut Context<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// How a host behaves, by its number.
fn kind(at: usize) -> (&'static str, Mode, bool) {
    match at {
        0..10 => ("down, then back", Mode::Down, true),
        10..15 => ("hangs, then well", Mode::Hanging, true),
        15..18 => ("gone for good", Mode::Down, false),
        _ => ("well", Mode::Well, true),
    }
}

#[actix::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let breakers = Breakers::start();
    let family = breakers.family("hosts", config()?)?;
    let dropped = Arc::new(AtomicUsize::new(0));
    // Held weakly by the family, so held here.
    let undelivered = Undelivered(Arc::clone(&dropped)).start();

    let mut hosts = Vec::new();
    for at in 0..HOSTS {
        let (kind, mode, comes_back) = kind(at);
        hosts.push((kind, comes_back, Host::start(mode)?));
    }
    family.subscribe_drops(undelivered.clone());
    println!("{LETTERS} letters to each of {HOSTS} hosts");
    let mut writing = Vec::new();
    for (at, (_, _, host)) in hosts.iter().enumerate() {
        let name = format!("host-{at}.example.org");
        writing.push(actix::spawn(write_to(family.clone(), name, host.address())));
    }
    sleep(BACK).await;
    println!("{:.1} s: hosts come back", BACK.as_secs_f64());
    for (_, comes_back, host) in &hosts {
        if *comes_back {
            host.turn(Mode::Well);
        }
    }
    let mut accounts = Vec::new();
    for writing in writing {
        accounts.push(writing.await?);
    }
    // Whoever listens has heard of everything by then, and the keys that nobody holds were put away.
    family.keys();
    sleep(Duration::from_millis(50)).await;

    println!();
    println!("                    hosts  tried  arrived  probes that failed  expired  longest");
    let mut broken = false;
    for group in [
        "well",
        "down, then back",
        "hangs, then well",
        "gone for good",
    ] {
        let mut sum = Account::default();
        let mut members = 0;
        for ((kind, comes_back, host), account) in hosts.iter().zip(&accounts) {
            if *kind != group {
                continue;
            }
            members += 1;
            sum.tries += account.tries;
            sum.delivered += account.delivered;
            sum.failed += account.failed;
            sum.expired += account.expired;
            sum.took = sum.took.max(account.took);
            let arrived = host.arrived();
            let expected: Vec<u32> = if *comes_back {
                (0..LETTERS).collect()
            } else {
                Vec::new()
            };
            if arrived != expected {
                println!("{group}: {arrived:?} arrived");
                broken = true;
            }
            let all = account.delivered + account.failed + account.expired;
            broken |= account.delivered != arrived.len() || all != usize::try_from(LETTERS)?;
        }
        println!(
            "{group:<18} {members:>6} {:>6} {:>8} {:>19} {:>8} {:>7.1}s",
            sum.tries,
            sum.delivered,
            sum.failed,
            sum.expired,
            sum.took.as_secs_f64()
        );
    }
    let expired: usize = accounts.iter().map(|account| account.expired).sum();
    let told = dropped.load(Ordering::Relaxed);
    println!();
    println!("{expired} letters expired, subscribers were told of {told}");
    println!("still remembered: {}", family.keys().join(", "));
    broken |= told != expired || family.len() != 3;
    if broken {
        println!("a promise was broken");
        return Ok(ExitCode::FAILURE);
    }
    println!("every letter to a host that came back arrived once and in order");
    Ok(ExitCode::SUCCESS)
}
