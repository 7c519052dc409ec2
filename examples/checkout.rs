//! A shop whose payment provider goes down, and what a circuit breaker makes of it.
//!
//! Order workers ask a gateway actor through an injected `Guarded<Charge>`; the gateway talks over TCP
//! to a small payment server on a thread of its own. The server is healthy, answers errors, hangs, is
//! down and is healthy again, while orders keep coming. On the way a worker panics, and an operator
//! forces the breaker open.
//!
//! Run it with `cargo run --example checkout`; it takes about eight seconds. It exits with 1 if an ask
//! that was made during a break reached the server all the same. With `-- --svg FILE` it draws what happened
//! into that file as well, as in `pictures/checkout.svg`.
//!
//! The workers and the gateway look as in a service of your own. The server is in
//! `checkout/server.rs`, the timeline, the summary and the check in `checkout/story.rs`, the picture in
//! `checkout/picture.rs`.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]
#![allow(clippy::arithmetic_side_effects, reason = "small counts and spans")]

#[path = "checkout/picture.rs"]
mod picture;
#[path = "checkout/server.rs"]
mod server;
#[path = "checkout/story.rs"]
mod story;

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::ForceOpen;
use actix_circuit_breaker::{
    AskError, Backoff, BackoffSupervisor, Breaker, BreakerConfig, Breakers, Cause, Guarded,
    RestartPolicy, Timestamp, TripPolicy,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{interval, sleep};

use server::{Arrivals, Mode, Server};
use story::{Asked, Events, Story, Summary, Timeline};

type Failed = Box<dyn Error>;

// The worker: asks the gateway, through the breaker that it was given when it was made.

struct Worker {
    name: &'static str,
    payments: Guarded<Charge>,
    counters: Arc<Counters>,
    story: Story,
}

#[derive(Default)]
struct Counters {
    asks: AtomicU64,
    restarts: AtomicU64,
}

#[derive(Message)]
#[rtype(result = "Asked")]
struct Order {
    cents: u64,
}

impl Actor for Worker {
    type Context = Context<Self>;
}

impl Supervised for Worker {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.counters.restarts.fetch_add(1, Ordering::Relaxed);
        self.story.tell(format_args!("{} is restarted", self.name));
    }
}

impl Handler<Order> for Worker {
    type Result = ResponseFuture<Asked>;

    fn handle(&mut self, Order { cents }: Order, _: &mut Context<Self>) -> Self::Result {
        let number = self.counters.asks.fetch_add(1, Ordering::Relaxed);
        let story = self.story.clone();
        let from = story.now();
        let reply = self.payments.send(Charge { number, cents });
        let to = story.now();
        Box::pin(async move {
            let result = reply.await;
            Asked {
                number,
                from,
                to,
                answered: story.now(),
                retry_after: result.as_ref().err().and_then(AskError::retry_after),
                result,
            }
        })
    }
}

/// What a worker that is killed on purpose panics with.
const KILLED: &str = "killed on purpose";

#[derive(Message)]
#[rtype(result = "()")]
struct Kill;

impl Handler<Kill> for Worker {
    type Result = ();

    #[expect(clippy::panic, reason = "to show what a panic does")]
    fn handle(&mut self, _: Kill, _: &mut Context<Self>) {
        panic::panic_any(KILLED);
    }
}

// The gateway: what is guarded. It knows nothing of the breaker.

struct Gateway {
    server: SocketAddr,
}

#[derive(Message)]
#[rtype(result = "io::Result<()>")]
struct Charge {
    number: u64,
    cents: u64,
}

impl Actor for Gateway {
    type Context = Context<Self>;
}

impl Handler<Charge> for Gateway {
    type Result = ResponseFuture<io::Result<()>>;

    fn handle(&mut self, charge: Charge, _: &mut Context<Self>) -> Self::Result {
        let server = self.server;
        Box::pin(async move {
            let mut connection = BufReader::new(TcpStream::connect(server).await?);
            let request = format!("charge {} {}\n", charge.number, charge.cents);
            connection.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            connection.read_line(&mut answer).await?;
            match answer.trim_end() {
                "paid" => Ok(()),
                other => Err(io::Error::other(format!("the server says: {other}"))),
            }
        })
    }
}

// What happens, and in which order.

#[actix::main]
async fn main() -> Result<ExitCode, Failed> {
    let picture = picture_wanted()?;
    let story = Story::start();
    explain_the_panic(story.clone());

    // A port that was free a moment ago will be free now.
    let address = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let (mode, mode_rx) = watch::channel(Mode::Healthy);
    let (arrivals, arrived) = mpsc::unbounded_channel();
    let server = Server {
        mode: mode_rx,
        arrivals,
        story: story.clone(),
    };
    Arbiter::new().spawn(async move {
        if let Err(error) = server.serve(address).await {
            println!("the server ended: {error}");
        }
    });
    while TcpStream::connect(address).await.is_err() {
        sleep(Duration::from_millis(5)).await;
    }
    story.tell(format_args!("server is healthy, at {address}"));
    let healthy = (story.now(), Mode::Healthy);

    // Scaled down: in earnest these are seconds.
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 5,
            within: None,
        })
        .call_timeout(Duration::from_millis(300))
        .break_duration(Duration::from_millis(600))
        .backoff(Backoff::new(2.0, Duration::from_millis(1_200)))
        .build()?;
    let breakers = Breakers::builder()
        .clock(Arc::new(story.clock.clone()))
        .start();
    let payments = breakers.create("payments", config)?;

    // Subscribers are held weakly: it is told for as long as we keep its address.
    let (told, events) = mpsc::unbounded_channel();
    let timeline = Timeline {
        story: story.clone(),
        told,
    }
    .start();
    payments.subscribe(timeline.clone()).await?;

    let gateway = Gateway { server: address }.start();
    let counters = Arc::new(Counters::default());
    let thread = Arbiter::new();
    let workers = ["worker 1", "worker 2", "worker 3"].map(|name| {
        let worker = Worker {
            name,
            payments: payments.guard(gateway.clone()),
            counters: counters.clone(),
            story: story.clone(),
        };
        BackoffSupervisor::start_in_arbiter(&thread.handle(), RestartPolicy::new(), |_| worker)
    });
    let (close, closing) = oneshot::channel();
    let customers = actix::spawn(order_on_and_on(workers.to_vec(), closing));

    let mut script = Script {
        story: story.clone(),
        mode,
        modes: vec![healthy],
        payments,
        events: Events::new(events),
        arrivals: Arrivals::new(arrived),
    };
    script.let_it_fail().await?;
    let [_, worker, _] = &workers;
    let asked_by_hand = script.kill(worker).await?;
    let healthy_again = script.let_it_recover().await?;
    script.operate().await?;
    story.tell("the shop closes");
    drop(close);

    let mut asked = customers.await?;
    asked.push(asked_by_hand);
    let summary = Summary {
        story: &story,
        events: &script.events,
        asked: &asked,
        arrived: script.arrivals.so_far(),
        healthy_again,
        restarts: counters.restarts.load(Ordering::Relaxed),
    };
    summary.print();
    if let Some(file) = picture {
        picture::draw(&file, &summary, &script.modes)?;
        println!("\nThe picture is in {}", file.display());
    }
    Ok(if summary.breaks_were_kept() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

struct Script {
    story: Story,
    mode: watch::Sender<Mode>,
    /// Since when the server was in which mode.
    modes: Vec<(Timestamp, Mode)>,
    payments: Breaker,
    events: Events,
    arrivals: Arrivals,
}

impl Script {
    /// Throws the server's switch; returns when.
    fn switch(&mut self, mode: Mode) -> Result<Timestamp, Failed> {
        self.mode.send(mode)?;
        let now = self.story.now();
        self.modes.push((now, mode));
        Ok(now)
    }

    async fn let_it_fail(&mut self) -> Result<(), Failed> {
        sleep(Duration::from_millis(800)).await;
        self.story.tell("server answers errors");
        self.switch(Mode::Failing)?;
        self.events.until(Cause::Tripped).await?;
        self.events.until(Cause::ProbeFailed).await
    }

    /// Kills a worker; the next order finds it alive again, and the breaker as it was.
    async fn kill(&mut self, worker: &Addr<Worker>) -> Result<Asked, Failed> {
        if worker.send(Kill).await.is_ok() {
            return Err("the worker survived".into());
        }
        let asked = worker.send(Order { cents: 4_99 }).await?;
        match &asked.result {
            Err(AskError::Rejected(rejected)) => {
                self.story
                    .tell(format_args!("worker 2 asks again: {rejected}"));
            }
            _ => self
                .story
                .tell("worker 2 asks again: not rejected, the break is over"),
        }
        match self.arrivals.so_far().get(&asked.number) {
            None => self.story.tell("server has not seen that ask"),
            Some(_) => self.story.tell("server has seen that ask"),
        }
        Ok(asked)
    }

    /// Returns when the server was healthy again.
    async fn let_it_recover(&mut self) -> Result<Timestamp, Failed> {
        self.story
            .tell("server hangs: it accepts and does not answer");
        self.switch(Mode::Hanging)?;
        self.events.until(Cause::ProbeFailed).await?;
        self.story.tell("server is down: connections are refused");
        self.switch(Mode::Down)?;
        self.events.until(Cause::ProbeFailed).await?;
        self.story.tell("server is healthy");
        let healthy_again = self.switch(Mode::Healthy)?;
        self.events.until(Cause::Recovered).await?;
        Ok(healthy_again)
    }

    async fn operate(&mut self) -> Result<(), Failed> {
        sleep(Duration::from_millis(500)).await;
        self.story.tell("operator forces the breaker open");
        let order = ForceOpen::new("the provider asked for a pause");
        self.payments.force_open(order).await??;
        sleep(Duration::from_millis(500)).await;
        self.story.tell("operator releases it");
        self.payments.release().await?;
        self.events.until(Cause::Released).await?;
        sleep(Duration::from_millis(500)).await;
        Ok(())
    }
}

/// The file that the command line asks for a picture in.
fn picture_wanted() -> Result<Option<PathBuf>, Failed> {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next(), arguments.next()) {
        (None, ..) => Ok(None),
        (Some(svg), Some(file), None) if svg == "--svg" => Ok(Some(file.into())),
        _ => Err("usage: checkout [--svg FILE]".into()),
    }
}

/// Sends an order every 20 ms, to one worker after the other, until the shop closes; then waits for
/// the last answers.
async fn order_on_and_on(
    workers: Vec<Addr<Worker>>,
    mut closing: oneshot::Receiver<()>,
) -> Vec<Asked> {
    let mut every = interval(Duration::from_millis(20));
    let mut orders = Vec::new();
    for worker in workers.iter().cycle() {
        tokio::select! {
            _ = every.tick() => orders.push(actix::spawn(worker.send(Order { cents: 19_99 }))),
            _ = &mut closing => break,
        }
    }
    let mut asked = Vec::new();
    for order in orders {
        if let Ok(Ok(answer)) = order.await {
            asked.push(answer);
        }
    }
    asked
}

/// Tells of the one panic that is meant in a line; all others are reported as ever.
fn explain_the_panic(story: Story) {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<&str>() == Some(&KILLED) {
            story.tell(format_args!("worker 2 panics: {KILLED}"));
        } else {
            report(panic);
        }
    }));
}
