//! The page of the breakers in a browser, over artificial traffic.
//!
//! Run it with `cargo run --features admin --example dashboard` and open <http://127.0.0.1:8080/breakers/>.
//! It runs until it is stopped. Whoever opens the page may give orders here; in an application of one's own
//! an authorizer says who may.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use std::error::Error;
use std::time::Duration;

use actix_circuit_breaker::{
    Admin, Breaker, BreakerConfig, Breakers, Clock, SystemClock, TripPolicy, Window,
};
use actix_web::{App, HttpServer, web};
use tokio::time::sleep;

/// Calls without end; for 20 seconds in each minute, beginning at `from`, most of them fail.
async fn traffic(breaker: Breaker, pause: Duration, from: u64) {
    let clock = SystemClock::new();
    let started = clock.now();
    loop {
        let second = clock.now().since(started).as_secs() % 60;
        let bad = (from..from.saturating_add(20)).contains(&second);
        let fails = fastrand::f64() < if bad { 0.8 } else { 0.01 };
        let work = async {
            sleep(Duration::from_millis(fastrand::u64(1..20))).await;
            if fails { Err("down") } else { Ok(()) }
        };
        drop(breaker.call(work).await);
        sleep(pause).await;
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let breakers = Breakers::start();
    let rate = BreakerConfig::builder()
        .trip(TripPolicy::FailureRate {
            rate: 0.5,
            minimum_calls: 20,
            window: Window::Time(Duration::from_secs(10)),
            slow_call: None,
        })
        .break_duration(Duration::from_secs(8))
        .build()?;
    let names = [
        "billing",
        "catalogue",
        "mail",
        "payments",
        "search",
        "stock",
    ];
    for (name, from) in names.into_iter().zip([5, 70, 25, 12, 40, 70]) {
        let breaker = breakers.create(name, rate.clone())?;
        actix::spawn(traffic(breaker, Duration::from_millis(20), from));
    }
    let hosts = BreakerConfig::builder()
        .break_duration(Duration::from_secs(15))
        .build()?;
    let hosts = breakers.family("hosts", hosts)?;
    for (number, from) in (1..=9).zip([0, 10, 20, 30, 40, 0, 70, 70, 70]) {
        let breaker = hosts.breaker(format!("host-{number}.example"));
        actix::spawn(traffic(breaker, Duration::from_millis(100), from));
    }

    let admin = Admin::new(breakers)
        .authorize(|_request, _command| Ok("whoever is at the page".to_owned()));
    let to_the_page = || web::redirect("/", "/breakers/");
    println!("open http://127.0.0.1:8080/breakers/");
    HttpServer::new(move || {
        App::new()
            .service(to_the_page())
            .service(admin.scope("/breakers"))
    })
    .workers(1)
    .bind(("127.0.0.1", 8080))?
    .run()
    .await?;
    Ok(())
}
