//! An admin actor: it knows only addresses of breakers and steers them by message.
//!
//! What a web page or a command line for operators would be built on.
//!
//! Run it with `cargo run --example admin`.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use actix::prelude::*;
use actix_circuit_breaker::message::{
    ForceOpen, GetSnapshot, Reconfigure, Release, Reset, Snapshot,
};
use actix_circuit_breaker::{BreakerActor, BreakerConfig, Breakers, TripPolicy};
use tokio::time::sleep;

struct Admin {
    breakers: BTreeMap<&'static str, Addr<BreakerActor>>,
}

/// What an operator may say about a breaker.
enum Command {
    Show,
    Open { reason: &'static str, ttl: Duration },
    Release,
    Reset,
    Configure(BreakerConfig),
}

/// Answered with how the breaker stands afterwards, or with what is wrong with the order.
#[derive(Message)]
#[rtype(result = "Result<Snapshot, String>")]
struct Order(&'static str, Command);

impl Actor for Admin {
    type Context = Context<Self>;
}

impl Handler<Order> for Admin {
    type Result = ResponseFuture<Result<Snapshot, String>>;

    fn handle(&mut self, Order(name, command): Order, _: &mut Context<Self>) -> Self::Result {
        let breaker = self.breakers.get(name).cloned();
        Box::pin(async move {
            let breaker = breaker.ok_or_else(|| format!("there is no breaker `{name}`"))?;
            obey(&breaker, command)
                .await
                .map_err(|error| error.to_string())
        })
    }
}

async fn obey(breaker: &Addr<BreakerActor>, command: Command) -> Result<Snapshot, Box<dyn Error>> {
    match command {
        Command::Show => {}
        Command::Open { reason, ttl } => breaker.send(ForceOpen::new(reason).ttl(ttl)).await??,
        Command::Release => breaker.send(Release).await?,
        Command::Reset => breaker.send(Reset).await?,
        Command::Configure(config) => breaker.send(Reconfigure::new(config)).await??,
    }
    Ok(breaker.send(GetSnapshot).await?)
}

async fn order(admin: &Addr<Admin>, what: &str, name: &'static str, command: Command) {
    match admin.send(Order(name, command)).await {
        Ok(Ok(snapshot)) => println!("{what:22} {}", line(&snapshot)),
        Ok(Err(refused)) => println!("{what:22} refused: {refused}"),
        Err(error) => println!("{what:22} the admin does not answer: {error}"),
    }
}

fn line(snapshot: &Snapshot) -> String {
    let mut parts = vec![snapshot.state.to_string()];
    if let Some(reason) = &snapshot.reason {
        parts.push(format!("\"{reason}\""));
    }
    if let Some(left) = snapshot.retry_after {
        parts.push(format!("for {:.1} s more", left.as_secs_f64()));
    }
    if snapshot.probe_due {
        parts.push("the next call is a probe".to_owned());
    }
    if snapshot.failures > 0 {
        parts.push(format!("{} failures counted", snapshot.failures));
    }
    parts.push(format!("{} calls rejected so far", snapshot.calls.rejected));
    parts.join(", ")
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 3,
            within: None,
        })
        .build()?;
    let payments = Breakers::start().create("payments", config.clone())?;
    let admin = Admin {
        breakers: BTreeMap::from([("payments", payments.addr().clone())]),
    }
    .start();
    let fail = || payments.call(async { Err::<(), _>("no connection") });

    order(&admin, "at the start", "payments", Command::Show).await;

    let open = |seconds| Command::Open {
        reason: "planned maintenance",
        ttl: Duration::from_secs_f64(seconds),
    };
    order(&admin, "forced open for 5 s", "payments", open(5.0)).await;
    drop(fail().await);
    order(&admin, "after a call", "payments", Command::Show).await;
    order(&admin, "released", "payments", Command::Release).await;

    // An order ends by itself, too; but time alone does not close a breaker.
    order(&admin, "forced open for 0.2 s", "payments", open(0.2)).await;
    sleep(Duration::from_millis(250)).await;
    order(&admin, "0.25 s later", "payments", Command::Show).await;
    order(&admin, "reset", "payments", Command::Reset).await;

    drop(fail().await);
    drop(fail().await);
    order(&admin, "after two failures", "payments", Command::Show).await;
    let patient = config
        .to_builder()
        .break_duration(Duration::from_secs(60))
        .build()?;
    order(
        &admin,
        "breaks of 60 s",
        "payments",
        Command::Configure(patient),
    )
    .await;
    drop(fail().await);
    order(&admin, "after the third", "payments", Command::Show).await;

    order(&admin, "a zero ttl", "payments", open(0.0)).await;
    order(&admin, "another name", "search", Command::Show).await;
    Ok(())
}
