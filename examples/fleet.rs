//! Three processes share one breaker through Redis, which is killed in the middle.
//!
//! The example starts itself three times; each process asks the same upstream, at a steady pace and through a
//! breaker of its own. What they tell is one timeline:
//!
//! 1. The upstream fails for a moment, again and again: a few failures, whoever sees them, open the breaker in
//!    all processes at once, and one of them probes for all.
//! 2. It fails for longer: the probe fails, and the longer break holds for all.
//! 3. Redis is killed while the upstream is well: nobody's calls notice. Then the upstream dies: each process
//!    trips by itself, and probes by itself.
//! 4. Redis comes back empty during a break: the processes bring the break back to it, and share again.
//!
//! Look at the upstream's lines: while Redis is there, they tell of one probe a round; without it, of one for
//! each process. Then at the ends of breaks: the same for all while they share, each its own without Redis, the
//! newest for all once it is back. The end is a summary and what was promised; it exits with 1 if a promise was
//! broken. The promises are about counts, and probes are counted by the upstream; of times they say only that no
//! shared change took five seconds to be everywhere. On a busy machine a process may lose Redis for a moment, and
//! says so; such an outage is not counted as a shared one, and another is added.
//!
//! Run it with `cargo run --features redis --example fleet`; it takes about twelve seconds. It starts a
//! `redis-server` of its own, for which one has to be on the PATH; where there is none it says so, and that is no
//! error. `REDIS_SERVER` names the program to be started instead; that one must be there.
//!
//! The processes are in `fleet/worker.rs`, the upstream in `fleet/upstream.rs`, what is made of what they tell in
//! `fleet/timeline.rs` and `fleet/verdict.rs`.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]
#![allow(clippy::arithmetic_side_effects, reason = "small counts and spans")]

#[path = "fleet/redis_server.rs"]
mod redis_server;
#[path = "fleet/report.rs"]
mod report;
#[path = "fleet/timeline.rs"]
mod timeline;
#[path = "fleet/upstream.rs"]
mod upstream;
#[path = "fleet/verdict.rs"]
mod verdict;
#[path = "fleet/worker.rs"]
mod worker;

use std::env;
use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use actix_circuit_breaker::{Cause, CircuitState, SystemClock};

use redis_server::RedisServer;
use report::Outcome;
use timeline::{Fleet, Process};
use upstream::{Mode, Upstream};
use verdict::{Back, Facts};

/// How often all processes have to trip together, to say how fast that is; and how often it is tried.
const TRIPS: usize = 20;
const TRIES: usize = 60;

fn all(state: CircuitState) -> impl Fn(&[Process]) -> bool {
    move |processes| processes.iter().all(|process| process.is(state))
}

/// How many changes each process has told so far.
fn told(fleet: &Fleet) -> Vec<usize> {
    fleet.processes.iter().map(|it| it.changes.len()).collect()
}

/// Whether every process has made such a change since.
fn each_since(since: Vec<usize>, cause: Option<Cause>) -> impl Fn(&[Process]) -> bool {
    move |processes| {
        processes.iter().zip(&since).all(|(process, since)| {
            let mut changes = process.changes.iter().skip(*since);
            changes.any(|it| match cause {
                Some(cause) => it.cause == cause,
                None => it.to == CircuitState::Open,
            })
        })
    }
}

/// The upstream fails until all are open; says in one line how they opened and closed again.
async fn short_outage(fleet: &mut Fleet) -> Result<bool, Box<dyn Error>> {
    let seen = fleet.upstream.arrivals(0).len();
    let began = fleet.now();
    let opened = each_since(told(fleet), None);
    fleet.upstream.turn(Mode::Failing);
    fleet.until("all are open", opened).await?;
    fleet.upstream.turn(Mode::Well);
    fleet
        .until("all are closed", all(CircuitState::Closed))
        .await?;
    let changes = verdict::shared(&fleet.processes);
    let last = |to, cause| {
        let mut changes = changes.iter().rev();
        changes.find(|it| it.to == to && it.cause == cause && it.at >= began)
    };
    let (Some(trip), Some(close)) = (
        last(CircuitState::Open, Cause::Tripped),
        last(CircuitState::Closed, Cause::Recovered),
    ) else {
        fleet.say("fleet", "not all of them shared this trip");
        return Ok(false);
    };
    let arrivals = fleet.upstream.arrivals(seen);
    let (rounds, end) = verdict::rounds(&trip.asked, trip.at, &arrivals);
    let probes: Vec<_> = rounds
        .iter()
        .map(|round| {
            let by: Vec<_> = round
                .iter()
                .map(|it| (it.process + 1).to_string())
                .collect();
            by.join(" and ")
        })
        .collect();
    let what = format!(
        "tripped by process {}, all open after {:.1} ms; probe by process {}, all closed after {:.1} ms",
        trip.first + 1,
        verdict::millis(trip.took),
        probes.join(", then "),
        verdict::millis(close.took)
    );
    let is_shared = verdict::all_shared(&fleet.processes, trip.at, end);
    fleet.say("fleet", what);
    Ok(is_shared)
}

/// Of the calls that were made since everybody had heard that all are closed: those that succeeded, and those
/// that did not.
fn since_closed(fleet: &Fleet) -> (usize, usize) {
    let mut counts = (0, 0);
    for process in &fleet.processes {
        let asked = process.changes.last().map_or(0, |it| it.asked);
        for outcome in process.outcomes.range(asked + 1..).map(|(_, it)| *it) {
            match outcome {
                Outcome::Ok => counts.0 += 1,
                _ => counts.1 += 1,
            }
        }
    }
    counts
}

/// How they came back to Redis; the newest break is the one that goes on.
fn back(fleet: &Fleet) -> Option<Back> {
    let changes = fleet.processes.iter().filter_map(|it| it.changes.last());
    let due = changes.max_by_key(|it| it.epoch)?.until?;
    let ends = fleet.processes.iter().map(|it| it.alone.last()?.1);
    let ends: Vec<_> = ends.collect::<Option<_>>()?;
    let at = ends.iter().map(|(at, _)| *at).max()?;
    let asked = ends.iter().map(|(_, asked)| *asked).collect();
    (at < due).then_some(Back { at, asked, due })
}

/// Redis is there.
async fn together(fleet: &mut Fleet, redis: &RedisServer) -> Result<(), Box<dyn Error>> {
    fleet.say("fleet", "three processes ask an upstream that is well");
    fleet
        .until("all have begun", |all| {
            all.iter().all(|it| it.outcomes.len() > 20)
        })
        .await?;
    let (before, steps) = (since_closed(fleet).0, redis.steps().await?);
    fleet.pass(Duration::from_secs(1)).await;
    let (calls, steps) = (since_closed(fleet).0 - before, redis.steps().await? - steps);
    let what = format!("{calls} calls in a second, for which Redis made {steps} steps");
    fleet.say("fleet", what);

    fleet.say("story", format!("{TRIPS} short outages"));
    fleet.tell_all(false);
    let mut trips = 0;
    for _ in 0..TRIES {
        trips += usize::from(short_outage(fleet).await?);
        if trips == TRIPS {
            break;
        }
    }
    fleet.tell_all(true);

    fleet.say("story", "a longer one: the upstream fails");
    let failed = each_since(told(fleet), Some(Cause::ProbeFailed));
    fleet.upstream.turn(Mode::Failing);
    fleet.until("a probe has failed", failed).await?;
    fleet.say("story", "the upstream is well");
    fleet.upstream.turn(Mode::Well);
    fleet
        .until("all are closed", all(CircuitState::Closed))
        .await?;
    Ok(())
}

/// Redis goes, and comes back.
async fn alone(fleet: &mut Fleet, redis: &mut RedisServer) -> Result<Facts, Box<dyn Error>> {
    let steps = redis.steps().await?;
    fleet.say("story", "Redis is killed, the upstream is well");
    redis.kill();
    let alone = |all: &[Process]| all.iter().all(Process::is_alone);
    fleet.until("all have noticed", alone).await?;
    fleet.pass(Duration::from_millis(500)).await;
    let (unharmed, harmed) = since_closed(fleet);
    let what = format!(
        "{} calls meanwhile, {harmed} of them failed or rejected",
        unharmed + harmed
    );
    fleet.say("fleet", what);

    fleet.say("story", "the upstream dies");
    let since = told(fleet);
    fleet.upstream.turn(Mode::Dead);
    let tripped = each_since(since.clone(), Some(Cause::Tripped));
    fleet.until("each has tripped by itself", tripped).await?;
    let mut epochs: Vec<_> = fleet
        .processes
        .iter()
        .filter_map(|it| it.opening().map(|opening| opening.epoch))
        .collect();
    epochs.sort_unstable();
    epochs.dedup();
    let tripped_alone = epochs.len();
    let in_long_break = |all: &[Process]| {
        all.iter().all(|it| {
            it.changes.last().is_some_and(|last| {
                last.until
                    .is_some_and(|until| until.since(last.at) > Duration::from_secs(2))
            })
        })
    };
    fleet
        .until("each is in a long break", in_long_break)
        .await?;

    fleet.say("story", "Redis comes back, empty");
    redis.run().await?;
    let together = |all: &[Process]| !all.iter().any(Process::is_alone);
    fleet.until("all share again", together).await?;
    let back = back(fleet);
    let mut remembered = false;
    if let Some(back) = &back {
        while !remembered && fleet.now() < back.due {
            remembered = redis.knows(worker::BREAKER).await?;
            fleet.pass(Duration::from_millis(20)).await;
        }
        if remembered {
            let until = fleet.seconds(back.due);
            let what = format!("has the record again; the newest break is until {until:.2} s");
            fleet.say("redis", what);
        }
    }
    fleet.say("story", "the upstream is well");
    fleet.upstream.turn(Mode::Well);
    fleet
        .until("all are closed", all(CircuitState::Closed))
        .await?;

    Ok(Facts {
        harmed,
        unharmed,
        tripped_alone,
        back,
        remembered,
        steps,
        trips: TRIPS,
    })
}

#[actix::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let words: Vec<_> = env::args().skip(1).collect();
    if let [role, process, redis, upstream] = words.as_slice()
        && role == "worker"
    {
        worker::run(process.parse()?, redis, upstream.parse()?).await?;
        return Ok(ExitCode::SUCCESS);
    }

    let mut redis = match RedisServer::start().await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            println!(
                "there is no redis-server: install it, on Debian with `apt-get install redis-server`"
            );
            let is_wanted = env::var_os(redis_server::VARIABLE).is_some();
            return Ok(ExitCode::from(u8::from(is_wanted)));
        }
        started => started?,
    };
    let kept = match show(&mut redis).await {
        Ok(kept) => kept,
        Err(error) => {
            println!("{error}");
            false
        }
    };
    if !kept {
        println!("a promise was broken");
    }
    Ok(ExitCode::from(u8::from(!kept)))
}

/// Tells the whole story, and whether every promise was kept.
async fn show(redis: &mut RedisServer) -> Result<bool, Box<dyn Error>> {
    let clock = SystemClock::new();
    let upstream = Upstream::start(clock.clone()).await?;
    let mut fleet = Fleet::start(&redis.url(), upstream.clone(), clock)?;
    together(&mut fleet, redis).await?;
    let mut facts = alone(&mut fleet, redis).await?;
    fleet.say("story", "two more short outages");
    fleet.tell_all(false);
    for _ in 0..2 {
        short_outage(&mut fleet).await?;
    }
    facts.steps += redis.steps().await?;
    fleet.say("story", "the end");
    fleet.stop().await?;
    Ok(verdict::print(
        &fleet.processes,
        &upstream.arrivals(0),
        &facts,
    ))
}
