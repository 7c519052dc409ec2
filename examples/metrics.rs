//! Serves what breakers count to Prometheus: a scrape has the breakers tell, and is answered with what they told.
//!
//! ```sh
//! cargo run --features metrics --example metrics           # plays a little, scrapes itself, ends
//! cargo run --features metrics --example metrics -- 127.0.0.1:9464   # serves until it is stopped
//! ```
//!
//! `metrics-dashboard.json` is a Grafana dashboard for exactly these metrics.

#![allow(clippy::print_stdout, reason = "an example talks to the terminal")]

use std::future::ready;
use std::time::Duration;

use actix_circuit_breaker::message::ForceOpen;
use actix_circuit_breaker::{Breaker, BreakerConfig, Breakers, CallError, TripPolicy};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is not told for so long is dropped: series of breakers that are gone. Longer than the time between
/// two scrapes.
const IDLE: Duration = Duration::from_secs(300);

/// Seconds; without buckets the exporter would make summaries, which cannot be added up.
const BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

type Failed = Box<dyn std::error::Error>;

fn exporter() -> Result<PrometheusHandle, Failed> {
    let duration = Matcher::Full("circuit_breaker_call_duration_seconds".to_owned());
    let handle = PrometheusBuilder::new()
        .idle_timeout(MetricKindMask::ALL, Some(IDLE))
        .set_buckets_for_metric(duration, &BUCKETS)?
        .install_recorder()?;
    Ok(handle)
}

/// Answers every request with all metrics.
async fn serve(listener: TcpListener, breakers: Breakers, exporter: PrometheusHandle) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (breakers, exporter) = (breakers.clone(), exporter.clone());
        actix::spawn(async move {
            // A request of more than one packet is none of Prometheus'.
            let mut request = [0; 4_096];
            if stream.read(&mut request).await.is_err() {
                return;
            }
            breakers.record_metrics();
            let text = exporter.render();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n",
                text.len()
            );
            // Who goes away early gets less.
            drop(stream.write_all((head + &text).as_bytes()).await);
        });
    }
}

async fn scrape(address: std::net::SocketAddr) -> Result<String, Failed> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: me\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (_, body) = answer
        .split_once("\r\n\r\n")
        .ok_or("an answer without a body")?;
    Ok(body.to_owned())
}

/// A target that is well for some calls and then fails for some.
async fn play(breaker: &Breaker, round: u32) {
    for call in 0..20 {
        let answer = async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            if round % 2 == 1 && call >= 10 {
                Err("down")
            } else {
                Ok(())
            }
        };
        match breaker.call(answer).await {
            Ok(()) | Err(CallError::Failed(_) | CallError::Rejected(_)) => {}
            Err(error) => println!("{error}"),
        }
    }
}

#[actix::main]
async fn main() -> Result<(), Failed> {
    let exporter = exporter()?;
    let breakers = Breakers::start();
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 5,
            within: None,
        })
        .break_duration(Duration::from_millis(200))
        .build()?;
    let payments = breakers.create("payments", config.clone())?;
    let search = breakers.create("search", config.clone())?;
    let hosts = breakers.family("hosts", config)?;
    search
        .force_open(ForceOpen::new("index is rebuilt"))
        .await??;

    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let at = listener.local_addr()?;
    println!("serving http://{at}/metrics");
    actix::spawn(serve(listener, breakers.clone(), exporter));

    for round in 0.. {
        play(&payments, round).await;
        play(&search, 0).await;
        for host in ["well.example", "down.example"] {
            let answer = if host.starts_with("well") {
                Ok(())
            } else {
                Err("no route")
            };
            drop(hosts.call(host, ready(answer)).await);
        }
        if address.is_none() && round == 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let text = scrape(at).await?;
    let told = |line: &&str| !line.starts_with('#') && !line.ends_with(" 0") && !line.is_empty();
    for line in text.lines().filter(told) {
        println!("{line}");
    }
    for told in [
        r#"circuit_breaker_calls_total{breaker="payments",outcome="failure"} "#,
        r#"circuit_breaker_state{breaker="search",state="forced_open"} 1"#,
        r#"circuit_breaker_rejections_total{breaker="search",reason="forced_open"} 80"#,
        r#"circuit_breaker_family_keys{breaker="hosts",state="#,
    ] {
        if !text.contains(told) {
            return Err(format!("not told: {told}").into());
        }
    }
    Ok(())
}
