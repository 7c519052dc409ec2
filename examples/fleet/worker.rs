//! One process of the fleet: asks the upstream at a steady pace, through an actor that a breaker guards, and
//! tells what happens. When it ends is left to its parent: at `stop`, or when the parent is gone.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::net::SocketAddr;
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::{
    AskError, Backoff, BreakerConfig, Breakers, Clock, ConfigError, Guarded, RedisStore,
    StateChanged, StoreEvent, SystemClock, TripPolicy,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::report::{Change, Outcome, Report};

pub(crate) const BREAKER: &str = "payments";
pub(crate) const MAX_PROBES: usize = 1;

/// The shortest break; it grows while probes fail.
pub(crate) const BREAK_MS: u64 = 150;

/// How often each process asks.
const PACE: Duration = Duration::from_millis(20);

fn config() -> Result<BreakerConfig, ConfigError> {
    BreakerConfig::builder()
        .trip(TripPolicy::FailureCount {
            failures: 3,
            within: Duration::from_secs(10),
            reset_on_success: false,
        })
        .call_timeout(Duration::from_secs(2))
        .break_duration(Duration::from_millis(BREAK_MS))
        .backoff(Backoff::new(5.0, Duration::from_secs(3)))
        .build()
}

pub(crate) async fn run(
    process: usize,
    redis: &str,
    upstream: SocketAddr,
) -> Result<(), Box<dyn Error>> {
    let breakers = Breakers::builder()
        .store(RedisStore::connect(redis).await?)
        .store_timeout(Duration::from_millis(90))
        .store_poll(Duration::from_millis(500))
        .start();
    let breaker = breakers.create(BREAKER, config()?)?;
    let client = Client { process, upstream }.start();
    let worker = Worker {
        payments: breaker.guard(client),
        clock: SystemClock::new(),
        asked: 0,
        ended: 0,
        pace: None,
        stopping: false,
    };
    let worker = worker.start();
    breakers.subscribe(worker.clone());
    breakers.subscribe_store(worker.clone());

    // Nothing of it is left behind when the parent dies, whichever way.
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.is_ok_and(|line| line == "stop") {
                worker.do_send(Stop);
            }
        }
        std::process::exit(1);
    });
    std::future::pending().await
}

// The client of the upstream: a connection for each call.

struct Client {
    process: usize,
    upstream: SocketAddr,
}

#[derive(Message)]
#[rtype(result = "io::Result<()>")]
struct Ask(u64);

impl Actor for Client {
    type Context = Context<Self>;
}

impl Handler<Ask> for Client {
    type Result = ResponseFuture<io::Result<()>>;

    fn handle(&mut self, Ask(number): Ask, _: &mut Context<Self>) -> Self::Result {
        let Self { process, upstream } = *self;
        Box::pin(async move {
            let mut stream = TcpStream::connect(upstream).await?;
            let question = format!("{process} {number}\n");
            stream.write_all(question.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            if answer == "ok\n" {
                Ok(())
            } else {
                Err(io::Error::other("the upstream is not well"))
            }
        })
    }
}

// Who asks, and hears of the breaker and the store.

struct Worker {
    payments: Guarded<Ask>,
    clock: SystemClock,
    asked: u64,
    ended: u64,
    pace: Option<SpawnHandle>,
    stopping: bool,
}

impl Worker {
    fn ask(&mut self, ctx: &mut Context<Self>) {
        self.asked += 1;
        let number = self.asked;
        let call = self.payments.send(Ask(number)).into_actor(self);
        ctx.spawn(call.map(move |answer, worker, _| {
            let outcome = match answer {
                Ok(Ok(())) => Outcome::Ok,
                Ok(Err(_)) => Outcome::Failed,
                Err(AskError::Rejected(_)) => Outcome::Rejected,
                Err(_) => Outcome::Unanswered,
            };
            worker.ended += 1;
            tell(&Report::Call { number, outcome });
            worker.end_if_done();
        }));
    }

    fn end_if_done(&self) {
        if self.stopping && self.ended == self.asked {
            tell(&Report::End { asked: self.asked });
            std::process::exit(0);
        }
    }
}

impl Actor for Worker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Subscribers whose mailbox is full miss events.
        ctx.set_mailbox_capacity(1_000);
        self.pace = Some(ctx.run_interval(PACE, Self::ask));
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Stop;

impl Handler<Stop> for Worker {
    type Result = ();

    fn handle(&mut self, _: Stop, ctx: &mut Context<Self>) {
        self.stopping = true;
        if let Some(pace) = self.pace.take() {
            ctx.cancel_future(pace);
        }
        self.end_if_done();
    }
}

impl Handler<StateChanged> for Worker {
    type Result = ();

    fn handle(&mut self, event: StateChanged, _: &mut Context<Self>) {
        tell(&Report::Change(Change {
            at: self.clock.now(),
            asked: self.asked,
            from: event.from,
            to: event.to,
            cause: event.cause,
            epoch: event.epoch,
            until: event.evidence.until,
        }));
    }
}

impl Handler<StoreEvent> for Worker {
    type Result = ();

    fn handle(&mut self, event: StoreEvent, _: &mut Context<Self>) {
        match event {
            StoreEvent::Degraded { at, error } => tell(&Report::Lost {
                at,
                error: error.to_string(),
            }),
            StoreEvent::Recovered { at, away } => tell(&Report::Found {
                at,
                away,
                asked: self.asked,
            }),
            _ => {}
        }
    }
}

fn tell(report: &Report) {
    let told = serde_json::to_string(report)
        .map_err(io::Error::from)
        .and_then(|line| writeln!(io::stdout(), "{line}"));
    if told.is_err() {
        // Nobody listens any more.
        std::process::exit(1);
    }
}
