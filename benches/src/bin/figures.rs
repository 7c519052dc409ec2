//! Measures the figures of time; prints rows for information, then a line `name value` for each figure.

use std::future::ready;
use std::hint::black_box;
use std::mem::size_of_val;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Arbiter};
use actix_circuit_breaker::message::Ask;
use actix_circuit_breaker::{Breaker, BreakerConfig, Breakers, Family};
use actix_circuit_breaker_benches::echo::{Echo, Fail, FailAt, Fault, Say, nanos};
use actix_circuit_breaker_benches::metered;
use actix_circuit_breaker_benches::pairs::{median, percentile, rounds};
use actix_circuit_breaker_benches::peers::{self, Kind, Peer};
use actix_circuit_breaker_benches::subject::Subject;
use actix_circuit_breaker_benches::{
    breaker, forced_open_breaker, in_task, never_trips, open_breaker, rate_of_calls, rate_of_time,
    subject, trips_at_once,
};

/// The timeout of bare asks: the default of a breaker's.
const TIMEOUT: Duration = Duration::from_secs(5);

type Figure = (&'static str, f64);
type Part = fn() -> Vec<Figure>;

fn main() {
    let only = std::env::args().nth(1);
    let parts: [(&str, Part); 8] = [
        ("asks", || in_task(asks())),
        ("cross", || in_task(cross())),
        ("guards", || in_task(guards())),
        ("rejections", || in_task(rejections())),
        ("threads", threads),
        ("families", families),
        ("visible", || in_task(visible())),
        ("metrics", metered::figures),
    ];
    let mut figures = Vec::new();
    for (name, part) in parts {
        if only.as_deref().is_none_or(|only| only == name) {
            figures.extend(part());
        }
    }
    for (name, value) in figures {
        println!("{name} {value:.3}");
    }
}

fn row(name: &str, nanos: f64) {
    println!("# {name:<44} {nanos:>10.1} ns");
}

fn bare(target: &Addr<Echo>, name: &str) -> Subject {
    subject!(name, target => target.send(Say(black_box(1))).timeout(TIMEOUT))
}

/// Asks on one arbiter.
async fn asks() -> Vec<Figure> {
    let target = Echo.start();
    let closed = breaker(BreakerConfig::default());
    let rated = breaker(rate_of_calls());
    let failing = breaker(never_trips());
    let mediating = closed.addr().clone();
    let guarded = closed.guard::<Say>(target.clone());
    sizes(&target, &closed);

    let closed_target = (closed, target.clone());
    let rated_target = (rated, target.clone());
    let failing_target = (failing, target.clone());
    let mediating_target = (mediating, target.clone().recipient::<Say>());
    let mut subjects = [
        bare(&target, "bare ask"),
        subject!("closed ask", closed_target => closed_target.0.ask(&closed_target.1, Say(black_box(1)))),
        subject!("closed ask of a guard", guarded => guarded.send(Say(black_box(1)))),
        subject!("closed ask, failure rate", rated_target => rated_target.0.ask(&rated_target.1, Say(black_box(1)))),
        subject!("bare failing ask", target => target.send(Fail).timeout(TIMEOUT)),
        subject!("failing ask, settled", failing_target => failing_target.0.ask(&failing_target.1, Fail)),
        subject!("message Ask", mediating_target => {
            let (breaker, target) = &mediating_target;
            breaker.send(Ask::new(target.clone(), Say(black_box(1))))
        }),
    ];
    let times = rounds(&mut subjects, 1_500, 100).await;
    println!("# asks on one arbiter");
    for (subject, times) in subjects.iter().zip(&times) {
        row(subject.name(), times.median());
    }
    let [bare, closed, _, _, bare_failing, failing, mediated] = &times[..] else {
        unreachable!("as many times as subjects");
    };
    vec![
        ("closed_ask_over_bare", closed.over(bare)),
        ("failing_ask_over_bare", failing.over(bare_failing)),
        ("mediated_ask_over_bare", mediated.over(bare)),
    ]
}

fn sizes(target: &Addr<Echo>, breaker: &Breaker) {
    println!("# sizes of futures");
    let guarded = breaker.guard::<Say>(target.clone());
    let size = |name: &str, bytes: usize| println!("# {name:<44} {bytes:>10} bytes");
    size("bare ask, no timeout", size_of_val(&target.send(Say(1))));
    size(
        "bare ask, .timeout()",
        size_of_val(&target.send(Say(1)).timeout(TIMEOUT)),
    );
    size("closed ask", size_of_val(&breaker.ask(target, Say(1))));
    size("closed ask of a guard", size_of_val(&guarded.send(Say(1))));
    size("ready future", size_of_val(&ready(Ok::<u64, Fault>(1))));
    size(
        "call of a ready future",
        size_of_val(&breaker.call(ready(Ok::<u64, Fault>(1)))),
    );
}

/// Asks from one arbiter to another.
async fn cross() -> Vec<Figure> {
    let arbiter = Arbiter::new();
    let target = Echo::start_in_arbiter(&arbiter.handle(), |_| Echo);
    let closed_target = (breaker(BreakerConfig::default()), target.clone());
    let mut subjects = [
        bare(&target, "bare ask"),
        subject!("closed ask", closed_target => closed_target.0.ask(&closed_target.1, Say(black_box(1)))),
    ];
    let times = rounds(&mut subjects, 3_000, 50).await;
    println!("# asks across two arbiters");
    for (subject, times) in subjects.iter().zip(&times) {
        row(subject.name(), times.median());
    }
    arbiter.stop();
    vec![("closed_ask_over_bare_cross", times[1].over(&times[0]))]
}

fn good() -> std::future::Ready<Result<u64, Fault>> {
    ready(Ok(black_box(1)))
}

/// Runs what is ours and the peers side by side; returns the ratio of each of ours to the quickest peer
/// that `counts`.
async fn against(
    title: &str,
    ours: Vec<Subject>,
    peers: Vec<Peer>,
    counts: impl Fn(usize, Kind) -> bool,
) -> Vec<f64> {
    let own = ours.len();
    let kinds: Vec<Kind> = peers.iter().map(|peer| peer.kind).collect();
    let mut subjects = ours;
    subjects.extend(peers.into_iter().map(|peer| peer.subject));
    let times = rounds(&mut subjects, 600, 5_000).await;
    println!("# {title}");
    for (subject, times) in subjects.iter().zip(&times) {
        row(subject.name(), times.median());
    }
    (0..own)
        .map(|at| {
            let fastest = times[own..]
                .iter()
                .zip(&kinds)
                .filter(|(_, kind)| counts(at, **kind))
                .map(|(times, _)| times)
                .min_by(|a, b| a.median().total_cmp(&b.median()))
                .expect("a peer to compare with");
            times[at].over(fastest)
        })
        .collect()
}

/// `call` around a ready future, closed.
async fn guards() -> Vec<Figure> {
    let plain = breaker(BreakerConfig::default());
    let calls = breaker(rate_of_calls());
    let time = breaker(rate_of_time());
    let ours = vec![
        subject!("actix-circuit-breaker", plain => plain.call(good())),
        subject!("actix-circuit-breaker (rate of calls)", calls => calls.call(good())),
        subject!("actix-circuit-breaker (rate of a time)", time => time.call(good())),
    ];
    let ratios = against(
        "guards of a ready future, closed",
        ours,
        peers::closed(),
        |at, kind| {
            kind != if at == 0 {
                Kind::RatesAlone
            } else {
                Kind::Counts
            }
        },
    )
    .await;
    vec![
        ("guard_over_fastest_peer", ratios[0]),
        // The window of calls, which is what the quickest peers have too.
        ("guard_rate_over_fastest_peer", ratios[1]),
    ]
}

/// `call` around a ready future, rejected.
async fn rejections() -> Vec<Figure> {
    let open = open_breaker().await;
    let forced = forced_open_breaker().await;
    let asked = (open.clone(), Echo.start());
    let ours = vec![
        subject!("actix-circuit-breaker", open => open.call(good())),
        subject!("actix-circuit-breaker (forced open)", forced => forced.call(good())),
        subject!("actix-circuit-breaker (ask)", asked => asked.0.ask(&asked.1, Say(black_box(1)))),
    ];
    let peers = peers::open().await;
    let ratios = against(
        "guards of a ready future, rejected",
        ours,
        peers,
        |_, kind| kind != Kind::RatesAlone,
    )
    .await;
    vec![("reject_over_fastest_peer", ratios[0])]
}

/// How many calls a thread makes in a block.
const BLOCK: u32 = 20_000;

/// Threads that start further apart than this did not run side by side: the machine had other work.
const APART: u64 = 10_000;

/// Calls on two threads.
fn threads() -> Vec<Figure> {
    println!("# guards on two threads");
    let system = actix::System::new();
    let (plain, rated) = system.block_on(async {
        let arbiter = Arbiter::new();
        let breakers = Breakers::start_in_arbiter(&arbiter.handle());
        let create = |name, config| breakers.create(name, config).expect("room for two");
        (
            create("plain", BreakerConfig::default()),
            create("rated", rate_of_calls()),
        )
    });
    let call = async |breaker: &Breaker, _| breaker.call(good()).await.is_ok();
    vec![
        (
            "guards_two_threads_over_one",
            two_over_one("plain", &plain, call),
        ),
        (
            "guards_rate_two_threads_over_one",
            two_over_one("failure rate", &rated, call),
        ),
    ]
}

/// How many hosts a family of the benches has to do with, and every which of them has failed once.
const HOSTS: u32 = 1_000;
const FAILED: u32 = 10;

/// A family of hosts, of which some have failed.
async fn hosts() -> (Family, Arc<[String]>) {
    let family = Breakers::start()
        .family("hosts", BreakerConfig::default())
        .expect("room for one family");
    let keys: Vec<_> = (0..HOSTS)
        .map(|at| format!("host-{at}.example.org"))
        .collect();
    for key in keys.iter().step_by(FAILED as usize) {
        let failed = family.call(key, ready(Err::<u64, _>(Fault))).await;
        assert!(failed.is_err());
    }
    (family, keys.into())
}

/// The key of the next call: one that has not failed.
fn well(keys: &[String], at: u32) -> &str {
    &keys[(at * FAILED % HOSTS + 1) as usize]
}

/// Guards that look their breaker up by a key.
fn families() -> Vec<Figure> {
    let mut figures = in_task(async {
        let single = breaker(BreakerConfig::default());
        let (family, keys) = hosts().await;
        let held: Vec<_> = (0..HOSTS / FAILED)
            .map(|at| family.breaker(well(&keys, at)))
            .collect();
        let (other, _) = hosts().await;
        let by_key = (other, keys.clone());
        let (another, _) = hosts().await;
        let by_handle = (another, keys.clone());
        let awake = (family, keys.clone());
        let mut subjects = [
            subject!("one breaker", single => single.call(good())),
            subject!("family, by key", by_key => by_key.0.call(well(&by_key.1, black_box(7)), good())),
            subject!("family, by key, its breaker held", awake => awake.0.call(well(&awake.1, black_box(7)), good())),
            subject!("family, handle made anew", by_handle => {
                by_handle.0.breaker(well(&by_handle.1, black_box(7))).into_call(good())
            }),
        ];
        let times = rounds(&mut subjects, 600, 5_000).await;
        println!("# guards of a ready future by key");
        for (subject, times) in subjects.iter().zip(&times) {
            row(subject.name(), times.median());
        }
        drop(held);
        vec![("family_guard_over_single_guard", times[1].over(&times[0]))]
    });
    figures.push(("family_million_keys_create_ns", in_task(million())));
    let system = actix::System::new();
    let hosts = system.block_on(hosts());
    let call = async |(family, keys): &(Family, Arc<[String]>), at| {
        family.call(well(keys, at), good()).await.is_ok()
    };
    figures.push((
        "family_guards_two_threads_over_one",
        two_over_one("family, by key", &hosts, call),
    ));
    figures
}

/// What a breaker costs whose key nobody has used before.
async fn million() -> f64 {
    const KEYS: u32 = 1_000_000;
    let family = Breakers::start()
        .family("hosts", BreakerConfig::default())
        .expect("room for one family");
    let keys: Vec<_> = (0..KEYS)
        .map(|at| format!("host-{at}.example.org"))
        .collect();
    let began = Instant::now();
    for key in &keys {
        black_box(family.breaker(key));
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(KEYS)
}

fn two_over_one<G: Clone + Send + 'static>(
    name: &str,
    guard: &G,
    call: impl AsyncFn(&G, u32) -> bool + Copy + Send + 'static,
) -> f64 {
    const ROUNDS: usize = 3_000;
    let origin = Instant::now();
    let barrier = Arc::new(Barrier::new(2));
    let ready = Arc::new(AtomicU64::new(0));
    // Each thread alone in turn, then both: by thread and round, when its blocks began and ended.
    let threads: Vec<_> = (0..2_u64)
        .map(|me| {
            let (guard, barrier, ready) = (guard.clone(), barrier.clone(), ready.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    let mut spans = Vec::with_capacity(ROUNDS);
                    for round in 0..ROUNDS as u64 {
                        let mut alone = None;
                        if round % 2 == me {
                            alone = Some(block(&guard, call, origin).await);
                        }
                        barrier.wait();
                        // The barrier parks; from here on both threads are awake before either starts.
                        ready.fetch_add(1, Ordering::AcqRel);
                        while ready.load(Ordering::Acquire) < 2 * (round + 1) {
                            std::hint::spin_loop();
                        }
                        let together = block(&guard, call, origin).await;
                        spans.push((alone, together));
                        barrier.wait();
                    }
                    spans
                })
            })
        })
        .collect();
    let spans: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().expect("the thread ran to its end"))
        .collect();
    let mut ratios = Vec::new();
    let mut single = Vec::new();
    for (a, b) in spans[0].iter().zip(&spans[1]) {
        let (begin, end) = a.0.or(b.0).expect("one of them was alone");
        let first = a.1.0.min(b.1.0);
        if a.1.0.abs_diff(b.1.0) > APART {
            continue;
        }
        let last = a.1.1.max(b.1.1);
        ratios.push(2.0 * (end - begin) as f64 / (last - first) as f64);
        single.push((end - begin) as f64 / f64::from(BLOCK));
    }
    println!(
        "# {name}: {} of {ROUNDS} rounds ran side by side",
        ratios.len()
    );
    row(&format!("{name}, one thread"), median(single));
    median(ratios)
}

async fn block<G>(guard: &G, call: impl AsyncFn(&G, u32) -> bool, origin: Instant) -> (u64, u64) {
    let begin = nanos(origin);
    for at in 0..BLOCK {
        black_box(call(guard, at).await);
    }
    (begin, nanos(origin))
}

/// From the reply that trips to the first rejection on another arbiter.
async fn visible() -> Vec<Figure> {
    const TRIPS: u64 = 2_000;
    let origin = Instant::now();
    let breaker = breaker(trips_at_once());
    let target = Echo.start();
    let sights = Arc::new(Sights::default());
    let arbiter = Arbiter::new();
    arbiter.spawn(observe(breaker.clone(), origin, sights.clone()));

    let left = Arc::new(AtomicU64::new(0));
    let mut micros = Vec::new();
    for trip in 1..=TRIPS {
        breaker.reset().await.expect("the breaker is there");
        while sights.passed.load(Ordering::Acquire) < trip {
            tokio::task::yield_now().await;
        }
        let failing = FailAt {
            origin,
            left: left.clone(),
        };
        drop(breaker.ask(&target, failing).await);
        while sights.rejected.load(Ordering::Acquire) < trip {
            tokio::task::yield_now().await;
        }
        let seen = sights.at.load(Ordering::Acquire);
        micros.push(seen.saturating_sub(left.load(Ordering::Acquire)) as f64 / 1e3);
    }
    sights.over.store(true, Ordering::Release);
    arbiter.stop();
    println!("# from a tripping reply to the first rejection on another arbiter");
    for (name, share) in [("median", 0.5), ("90 of 100", 0.9), ("99 of 100", 0.99)] {
        row(name, percentile(micros.clone(), share) * 1e3);
    }
    vec![("trip_visible_micros_p99", percentile(micros, 0.99))]
}

/// What the observer has seen.
#[derive(Debug, Default)]
struct Sights {
    passed: AtomicU64,
    rejected: AtomicU64,
    at: AtomicU64,
    over: AtomicBool,
}

/// Calls until it passes, then until it is rejected, and so on.
async fn observe(breaker: Breaker, origin: Instant, sights: Arc<Sights>) {
    while !sights.over.load(Ordering::Acquire) {
        if breaker.call(good()).await.is_err() {
            continue;
        }
        sights.passed.fetch_add(1, Ordering::AcqRel);
        while breaker.call(good()).await.is_ok() {
            if sights.over.load(Ordering::Acquire) {
                return;
            }
        }
        sights.at.store(nanos(origin), Ordering::Release);
        sights.rejected.fetch_add(1, Ordering::AcqRel);
    }
}
