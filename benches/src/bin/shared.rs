//! Measures what it costs to share a record through Redis: starts a server of its own, prints rows for
//! information, then a line `name value` for each figure.

use std::future::ready;
use std::hint::black_box;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Arbiter};
use actix_circuit_breaker::store::{Action, CallId, Sample, Step};
use actix_circuit_breaker::{
    Breaker, BreakerConfig, Breakers, BreakersBuilder, CallError, CircuitState, RedisStore, Store,
    Timestamp,
};
use actix_circuit_breaker_benches::echo::{Echo, Fault, Say, nanos};
use actix_circuit_breaker_benches::pairs::{percentile, rounds};
use actix_circuit_breaker_benches::subject::Subject;
use actix_circuit_breaker_benches::{breaker, in_task, never_trips, subject, trips_at_once};

type Figure = (&'static str, f64);

/// A server that ends with this process.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts one on a free port; `None` if there is no `redis-server`.
    fn start() -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let url = format!("redis://127.0.0.1:{port}");
        let server = Self { child, url };
        let deadline = Instant::now() + Duration::from_secs(10);
        while server.try_connect().is_none() {
            assert!(Instant::now() < deadline, "the server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    fn try_connect(&self) -> Option<redis::Connection> {
        redis::Client::open(&*self.url).ok()?.get_connection().ok()
    }

    /// How many scripts it has run.
    fn scripts(&self) -> u64 {
        let mut connection = self.try_connect().expect("the server is there");
        let stats: String = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut connection)
            .expect("it answers");
        let calls = |line: &str| -> Option<u64> {
            let (name, rest) = line.split_once(":calls=")?;
            let counted = name.starts_with("cmdstat_eval");
            counted.then(|| rest.split(',').next()?.parse().ok())?
        };
        stats.lines().filter_map(calls).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn main() {
    let Some(server) = Server::start() else {
        println!("# no redis-server was found: what it costs to share a record is not measured");
        return;
    };
    let figures = in_task(async move {
        let mut figures = round_trips(&server).await;
        figures.extend(asks(&server).await);
        figures.push(propagation(&server).await);
        figures
    });
    for (name, value) in figures {
        println!("{name} {value:.3}");
    }
}

/// Breakers that look at their records when there is a reason to, and at no other time.
fn builder(store: RedisStore) -> BreakersBuilder {
    Breakers::builder()
        .store(store)
        .store_poll(Duration::from_secs(86_400))
        .store_timeout(Duration::from_millis(90))
}

async fn connect(server: &Server) -> RedisStore {
    RedisStore::connect(&server.url).await.expect("an address")
}

/// A breaker that has looked at its record.
async fn shared(server: &Server, name: &str, config: BreakerConfig) -> Breaker {
    let breakers = builder(connect(server).await).start();
    let breaker = breakers.create(name, config).expect("room for one breaker");
    tokio::time::sleep(Duration::from_millis(300)).await;
    breaker
}

/// How many scripts the server runs for a call.
async fn round_trips(server: &Server) -> Vec<Figure> {
    const CALLS: u32 = 1_000;
    let breaker = shared(server, "trips", never_trips()).await;
    let before = server.scripts();
    for _ in 0..CALLS {
        black_box(breaker.call(ready(Ok::<_, Fault>(1))).await).expect("closed");
    }
    let closed = server.scripts() - before;
    let before = server.scripts();
    for _ in 0..CALLS {
        black_box(breaker.call(ready(Err::<u64, _>(Fault))).await).expect_err("a failure");
    }
    let failed = server.scripts() - before;
    let share =
        |scripts: u64| f64::from(u32::try_from(scripts).unwrap_or(u32::MAX)) / f64::from(CALLS);
    vec![
        ("redis_closed_roundtrips", share(closed)),
        ("redis_failure_roundtrips", share(failed)),
    ]
}

/// The way of systems that keep no state of their own: a script before each call and one after it.
async fn by_script(
    store: &RedisStore,
    name: &Arc<str>,
    config: &BreakerConfig,
    target: &Addr<Echo>,
) {
    let call = CallId {
        process: 1,
        number: 1,
    };
    let lease = Duration::from_secs(30);
    let now = Timestamp::from_micros(1_000_000);
    let before = Step::new(1, 0, now, Action::Acquire { call, lease });
    black_box(store.step(name, config, before).await).expect("the store answers");
    black_box(target.send(Say(black_box(1))).await)
        .expect("the target is there")
        .expect("and answers");
    let sample = Some(Sample::new(false, false));
    let after = Step::new(
        1,
        0,
        now,
        Action::Record {
            call,
            successes: 0,
            sample,
        },
    );
    black_box(store.step(name, config, after).await).expect("the store answers");
}

/// Closed asks with a store, without one, and as others do it.
async fn asks(server: &Server) -> Vec<Figure> {
    let target = Echo.start();
    let local = (breaker(BreakerConfig::default()), target.clone());
    let shared = (
        shared(server, "asks", BreakerConfig::default()).await,
        target.clone(),
    );
    let mut subjects = [
        subject!("closed ask", local => local.0.ask(&local.1, Say(black_box(1)))),
        subject!("closed ask, record shared", shared => shared.0.ask(&shared.1, Say(black_box(1)))),
    ];
    let times = rounds(&mut subjects, 1_500, 100).await;
    println!("# asks on one arbiter, with a store and without");
    for (subject, times) in subjects.iter().zip(&times) {
        println!("# {:<44} {:>10.1} ns", subject.name(), times.median());
    }
    let over_local = times[1].over(&times[0]);
    let name: Arc<str> = "by-script".into();
    let scripted = Arc::new((
        connect(server).await,
        name,
        BreakerConfig::default(),
        target.clone(),
    ));
    let mut subjects = [
        subject!("closed ask, record shared", shared => shared.0.ask(&shared.1, Say(black_box(1)))),
        Subject::new("ask with a script before and after", move |calls| {
            let scripted = Arc::clone(&scripted);
            Box::pin(async move {
                let (store, name, config, target) = &*scripted;
                let start = Instant::now();
                for _ in 0..calls {
                    by_script(store, name, config, target).await;
                }
                start.elapsed()
            })
        }),
    ];
    let times = rounds(&mut subjects, 60, 50).await;
    for (subject, times) in subjects.iter().zip(&times) {
        println!("# {:<44} {:>10.1} ns", subject.name(), times.median());
    }
    vec![
        ("redis_closed_ask_over_local", over_local),
        ("redis_script_per_call_over_ours", times[1].over(&times[0])),
    ]
}

/// From the tripping failure to when another process, on another thread, rejects.
async fn propagation(server: &Server) -> Figure {
    const TRIPS: usize = 400;
    let here = shared(server, "propagation", trips_at_once()).await;
    let arbiter = Arbiter::new();
    let there = builder(connect(server).await).start_in_arbiter(&arbiter.handle());
    let there = there
        .create("propagation", trips_at_once())
        .expect("room for one breaker");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut millis = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        assert_eq!(there.state(), CircuitState::Closed);
        // From where the call fails: its caller gets the reply once the store has said its word.
        let fails = async { Err::<Instant, _>(Instant::now()) };
        let failed = here.call(fails).await;
        let Err(CallError::Failed(origin)) = failed else {
            unreachable!("the call was made, and fails");
        };
        wait_for(&there, CircuitState::Open).await;
        #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
        millis.push(nanos(origin) as f64 / 1e6);
        here.reset().await.expect("the breaker is there");
        wait_for(&there, CircuitState::Closed).await;
    }
    println!(
        "# trip seen by another process: median {:.3} ms of {TRIPS}",
        percentile(millis.clone(), 0.5)
    );
    arbiter.stop();
    ("redis_trip_propagation_ms_p99", percentile(millis, 0.99))
}

async fn wait_for(breaker: &Breaker, state: CircuitState) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while breaker.state() != state {
        assert!(Instant::now() < deadline, "{state} was never seen");
        tokio::task::yield_now().await;
    }
}
