//! How calls are counted for the recorder of the `metrics` crate: each under exactly one outcome, and none
//! twice. What else is told, and when, is in `metrics.rs`.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    clippy::as_conversions,
    clippy::float_cmp,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "panics are among what is tested, and a test may fail; counts are whole"
)]

mod harness;
mod scrape;

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use actix::Arbiter;
use actix_circuit_breaker::message::{Ask, ForceOpen};
use actix_circuit_breaker::{
    Breaker, BreakerConfig, Breakers, Guarded, Hold, Outcome, RampUp, Window,
};
use futures::FutureExt as _;
use futures::future::join_all;
use harness::*;
use scrape::Exporter;

/// Trips never, in any test here.
fn steady() -> actix_circuit_breaker::BreakerConfigBuilder {
    consecutive(1_000_000)
}

/// One of each way to end, by each way to call.
async fn one_of_each(w: &World) {
    let b = &w.breaker;
    let neutral = |_: &Answer| Outcome::Ignored;
    // By asking.
    w.good().await;
    w.bad().await;
    b.ask_with(&w.target, Job::Bad, neutral)
        .await
        .unwrap()
        .unwrap_err();
    w.ask(Job::Hang).await.unwrap_err();
    let mut dropped = Box::pin(b.ask(&w.target, Job::Hang));
    assert!(poll_once(&mut dropped).await.is_pending());
    drop(dropped);
    // By calls that are done at once.
    b.call(async { Ok::<_, Oops>(1) }).await.unwrap();
    b.call(async { Err::<(), _>(BAD) }).await.unwrap_err();
    b.call_with(async { Err::<(), _>(BAD) }, |_: &Result<(), _>| {
        Outcome::Ignored
    })
    .await
    .unwrap_err();
    // By calls that wait.
    b.call(later(Ok(1))).await.unwrap();
    b.call(later(Err(BAD))).await.unwrap_err();
    b.call_with(later(Err(BAD)), neutral).await.unwrap_err();
    b.call(pending::<Answer>()).await.unwrap_err();
    let mut dropped = Box::pin(b.call(pending::<Answer>()));
    assert!(poll_once(&mut dropped).await.is_pending());
    drop(dropped);
    // By panics, of either kind.
    let panics = async { panic!("trap in the call") };
    let call = b.call::<_, (), Oops>(panics);
    AssertUnwindSafe(call).catch_unwind().await.unwrap_err();
    let panics = async {
        tokio::time::sleep(MS).await;
        panic!("trap in the call")
    };
    let call = b.call::<_, (), Oops>(panics);
    AssertUnwindSafe(call).catch_unwind().await.unwrap_err();
    // By permits.
    b.acquire().await.unwrap().success().await;
    b.acquire().await.unwrap().failure().await;
    b.acquire().await.unwrap().ignore().await;
    drop(b.acquire().await.unwrap());
    // By the breaker itself.
    for job in [Job::Good, Job::Bad, Job::Hang] {
        let ask = Ask::new(w.target.clone().recipient(), job);
        drop(b.addr().send(ask).await.unwrap());
    }
    // Of calls whose futures were never polled, an ask has left.
    drop(b.ask(&w.target, Job::Good));
    drop(b.call(async { Ok::<_, Oops>(1) }));
}

async fn later(answer: Answer) -> Answer {
    tokio::time::sleep(MS).await;
    answer
}

// R19, R20: a timeout is a failure to the breaker, and no failure here.
#[actix::test]
async fn each_call_is_counted_under_one_outcome() {
    for config in [
        steady(),
        // Successes are told to the circuit.
        count(1_000_000, SECOND),
        // Successes are counted on stripes, or told.
        rate(1.0, 1_000_000, Window::Calls(1_000_000)),
        rate(1.0, 1_000_000, Window::Time(SECOND)),
        steady().probe_timeout(100 * SECOND),
    ] {
        let w = world(config);
        let exporter = Exporter::new();
        one_of_each(&w).await;
        // The first order takes in what stripes hold.
        w.snapshot().await;
        let scrape = exporter.scrape(&w.breakers);
        assert_eq!(scrape.outcomes("b"), [5.0, 7.0, 8.0, 0.0, 3.0]);
        assert_eq!(scrape.sum("calls_in_flight", &[]), 0.0);
        one_of_each(&w).await;
        w.snapshot().await;
        let scrape = exporter.scrape(&w.breakers);
        assert_eq!(scrape.outcomes("b"), [10.0, 14.0, 16.0, 0.0, 6.0]);
    }
}

// R11: what comes late is late, whatever it is.
#[actix::test]
async fn late_calls_are_late_and_nothing_else() {
    let w = world(consecutive(1));
    let exporter = Exporter::new();
    let b = &w.breaker;
    let mut asks = Vec::new();
    let mut latches = Vec::new();
    for answer in [Ok(1), Err(BAD)] {
        let (sender, job) = latch();
        asks.push(b.ask(&w.target, job));
        latches.push((sender, answer));
    }
    let mut times_out = Box::pin(b.ask(&w.target, Job::Hang));
    let mut dropped = Box::pin(b.ask(&w.target, Job::Hang));
    let mut call = Box::pin(b.call(later(Ok(1))));
    assert!(poll_once(&mut times_out).await.is_pending());
    assert!(poll_once(&mut dropped).await.is_pending());
    assert!(poll_once(&mut call).await.is_pending());
    let permit = b.acquire().await.unwrap();
    let forgotten = b.acquire().await.unwrap();
    w.trip().await;
    assert_eq!(
        exporter.scrape(&w.breakers).sum("calls_in_flight", &[]),
        7.0
    );
    for (sender, answer) in latches {
        sender.send(answer).unwrap();
    }
    for ask in asks {
        assert!(ask.await.is_ok());
    }
    times_out.await.unwrap_err();
    drop(dropped);
    call.await.unwrap();
    permit.success().await;
    drop(forgotten);
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.outcomes("b"), [0.0, 1.0, 0.0, 7.0, 0.0]);
    assert_eq!(scrape.sum("calls_in_flight", &[]), 0.0);
}

#[actix::test]
async fn probes_are_calls_too() {
    let w = world(consecutive(1).max_probes(4).successes_to_close(4));
    let exporter = Exporter::new();
    w.trip().await;
    pass(BREAK + MS).await;
    let (answer, job) = latch();
    let ask = w.breaker.ask(&w.target, job);
    let mut call = Box::pin(w.breaker.call(later(Ok(1))));
    assert!(poll_once(&mut call).await.is_pending());
    let permit = w.breaker.acquire().await.unwrap();
    let gone = w.breaker.acquire().await.unwrap();
    quiet().await;
    assert!(poll_once(&mut call).await.is_pending());
    let in_flight = || {
        let scrape = exporter.scrape(&w.breakers);
        ["calls_in_flight", "probes_in_flight"].map(|name| scrape.sum(name, &[]))
    };
    assert_eq!(in_flight(), [4.0, 4.0]);
    w.rejected().await;
    drop(gone);
    assert_eq!(in_flight(), [3.0, 3.0]);
    answer.send(Ok(1)).unwrap();
    ask.await.unwrap().unwrap();
    call.await.unwrap();
    permit.success().await;
    assert_eq!(in_flight(), [0.0, 0.0]);
    // The last probe times out.
    w.ask(Job::Hang).await.unwrap_err();
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.outcomes("b"), [3.0, 1.0, 1.0, 0.0, 1.0]);
    let rejected = [("reason", "probes_in_use")];
    assert_eq!(scrape.sum("rejections_total", &rejected), 1.0);
}

// R9
#[actix::test]
async fn rejections_are_counted_by_reason() {
    let w = world(consecutive(1));
    let exporter = Exporter::new();
    let ask = || Ask::new(w.target.clone().recipient(), Job::Good);
    w.trip().await;
    w.rejected().await;
    w.breaker.call(later(Ok(1))).await.unwrap_err();
    w.breaker.acquire().await.unwrap_err();
    w.breaker.addr().send(ask()).await.unwrap().unwrap_err();
    let order = ForceOpen::new("x");
    w.breaker.force_open(order).await.unwrap().unwrap();
    w.rejected().await;
    w.breaker.addr().send(ask()).await.unwrap().unwrap_err();
    let scrape = exporter.scrape(&w.breakers);
    let rejected = |reason| {
        let labels = [("breaker", "b"), ("reason", reason)];
        scrape.sum("rejections_total", &labels)
    };
    assert_eq!(["open", "forced_open"].map(rejected), [4.0, 2.0]);
    assert_eq!(w.snapshot().await.calls.rejected, 6);
    // They are no calls that ended.
    assert_eq!(scrape.outcomes("b"), [0.0, 1.0, 0.0, 0.0, 0.0]);
}

/// A blocked breaker is not told of more than so many ends; the others are added up.
#[actix::test]
async fn timeouts_are_told_from_failures_when_they_are_added_up_too() {
    const CALLS: usize = 1_500;
    let arbiter = Arbiter::new();
    let breakers = Breakers::start_in_arbiter(&arbiter.handle());
    let config = steady().call_timeout(20 * MS).build().unwrap();
    let breaker = breakers.create("b", config).unwrap();
    breaker.snapshot().await.unwrap();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    arbiter.spawn_fn(move || blocked.recv().unwrap());
    let calls = (0..CALLS).map(|at| call_of(&breaker, at % 3 == 0));
    join_all(calls).await;
    unblock.send(()).unwrap();
    breaker.snapshot().await.unwrap();
    let scrape = Exporter::new().scrape(&breakers);
    assert_eq!(scrape.outcomes("b"), [0.0, 1_000.0, 0.0, 0.0, 500.0]);
    arbiter.stop();
}

async fn call_of(breaker: &Breaker, times_out: bool) {
    if times_out {
        breaker.call(pending::<Answer>()).await.unwrap_err();
    } else {
        breaker.call(later(Err(BAD))).await.unwrap_err();
    }
}

/// Threads after the first ones share their counters.
#[actix::test]
async fn no_count_is_lost_between_threads() {
    const THREADS: u32 = 12;
    const CALLS: u32 = 5_000;
    let breakers = Breakers::start();
    let breaker = breakers.create("b", BreakerConfig::default()).unwrap();
    let exporter = Exporter::new();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let breaker = breaker.clone();
            std::thread::spawn(move || {
                let calls = async {
                    for _ in 0..CALLS {
                        breaker.call(async { Ok::<_, Oops>(1) }).await.unwrap();
                        let waits = async {
                            tokio::task::yield_now().await;
                            Ok::<_, Oops>(1)
                        };
                        breaker.call(waits).await.unwrap();
                    }
                };
                let runtime = tokio::runtime::Builder::new_current_thread();
                runtime_of(runtime).block_on(calls);
            })
        })
        .collect();
    let total = f64::from(2 * THREADS * CALLS);
    let mut last = 0.0;
    while threads.iter().any(|thread| !thread.is_finished()) {
        let scrape = exporter.scrape(&breakers);
        let [successes, ..] = scrape.outcomes("b");
        assert!(successes >= last && successes <= total);
        last = successes;
        let in_flight = scrape.sum("calls_in_flight", &[]);
        assert!(in_flight >= 0.0 && in_flight <= f64::from(CALLS * THREADS));
        tokio::task::yield_now().await;
    }
    for thread in threads {
        thread.join().unwrap();
    }
    let scrape = exporter.scrape(&breakers);
    assert_eq!(scrape.outcomes("b"), [total, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(scrape.sum("calls_in_flight", &[]), 0.0);
}

fn runtime_of(mut builder: tokio::runtime::Builder) -> tokio::runtime::Runtime {
    builder.enable_time().build().unwrap()
}

#[actix::test]
async fn durations_are_those_of_calls_that_wait() {
    let w = world(steady());
    let exporter = Exporter::new();
    let scrape = || {
        let scrape = exporter.scrape(&w.breakers);
        ["count", "sum"].map(|part| {
            let name = format!("call_duration_seconds_{part}");
            scrape.sum(&name, &[("breaker", "b")])
        })
    };
    let take = async |after: Duration| {
        w.ask(Job::Late(after, Ok(1))).await.unwrap().unwrap();
    };
    w.breaker.call(async { Ok::<_, Oops>(1) }).await.unwrap();
    assert_eq!(scrape(), [0.0, 0.0], "ready at once");
    take(100 * MS).await;
    let [count, sum] = scrape();
    assert_eq!(count, 1.0);
    assert!((sum - 0.1).abs() < 0.1 / 16.0 + 0.002, "{sum}");
    // Until the next recording the first calls are measured, and then few.
    for _ in 0..640 {
        take(10 * MS).await;
    }
    let [count, sum] = scrape();
    assert!((1.0 + 64.0..1.0 + 64.0 + 25.0).contains(&count), "{count}");
    let mean = (sum - 0.1) / (count - 1.0);
    assert!((mean - 0.01).abs() < 0.01 / 16.0 + 0.002, "{mean}");
    // A timeout took all of its time.
    w.ask(Job::Hang).await.unwrap_err();
    let [after, long] = scrape();
    assert_eq!(after, count + 1.0);
    assert!((long - sum - 1.0).abs() < 1.0 / 16.0 + 0.002, "{long}");
}

/// Keys come from strangers: a family is one series, and what a key has counted outlives it.
#[actix::test]
async fn a_family_is_told_as_one() {
    let breakers = Breakers::builder().max_keys(500).start();
    let hosts = breakers
        .family("hosts", consecutive(1).build().unwrap())
        .unwrap();
    let exporter = Exporter::new();
    for host in 0..1_000 {
        let key = format!("host-{host}");
        let answer = if host % 4 == 0 { Err(BAD) } else { Ok(1) };
        drop(hosts.call(&key, later(answer)).await);
        hosts
            .call("well", async { Ok::<_, Oops>(1) })
            .await
            .unwrap();
    }
    hosts.call("host-0", later(Ok(1))).await.unwrap_err();
    let order = ForceOpen::new("x");
    let forced = hosts.breaker("forced");
    forced.force_open(order).await.unwrap().unwrap();
    let scrape = exporter.scrape(&breakers);
    assert_eq!(scrape.values("breaker"), ["hosts".to_owned()].into());
    assert_eq!(scrape.outcomes("hosts"), [1_750.0, 250.0, 0.0, 0.0, 0.0]);
    assert_eq!(scrape.sum("rejections_total", &[]), 1.0);
    let keys = |state| scrape.sum("family_keys", &[("state", state)]);
    assert_eq!((keys("open"), keys("forced_open")), (250.0, 1.0));
    assert_eq!(scrape.sum("overrides", &[]), 1.0);
    assert_eq!(scrape.sum("calls_in_flight", &[]), 0.0);
    assert_eq!(scrape.all("state", &[]).count(), 0);
    let tripped = [("to", "open"), ("cause", "tripped")];
    assert_eq!(scrape.sum("transitions_total", &tripped), 250.0);
    // Those that found no room are counted, too, and their calls are not.
    let full: Vec<_> = (0..500)
        .map(|key| hosts.breaker(format!("full-{key}")))
        .collect();
    let unguarded = hosts.unguarded() as f64;
    assert!(unguarded > 0.0);
    let scrape = exporter.scrape(&breakers);
    assert_eq!(scrape.sum("family_unguarded_total", &[]), unguarded);
    drop(full);
    assert!(breakers.remove("hosts"));
    let scrape = exporter.scrape(&breakers);
    assert_eq!(scrape.sum("family_keys", &[]), 0.0);
}

/// What waits is no call, and no rejection, until it is sent.
#[actix::test]
async fn a_message_that_waits_is_counted_once() {
    let w = world(consecutive(1).hold(Hold::new(10, 60 * SECOND, MS)));
    let exporter = Exporter::new();
    let guard: Guarded<Job> = w.breaker.guard(w.target.clone());
    // Straight to the target.
    guard.send_or_hold(Job::Good).await.unwrap().unwrap();
    guard.send_or_hold(Job::Bad).await.unwrap().unwrap_err();
    // Over the break; the first of them is the probe.
    let waiting = [Job::Good, Job::Good, Job::Good].map(|job| guard.send_or_hold(job));
    drop(guard.send_or_hold(Job::Good));
    w.snapshot().await;
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.outcomes("b"), [1.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(scrape.sum("calls_in_flight", &[]), 0.0);
    for sent in join_all(waiting).await {
        sent.unwrap().unwrap();
    }
    // One that waits and then times out is a timeout.
    guard.send_or_hold(Job::Bad).await.unwrap().unwrap_err();
    guard.send_or_hold(Job::Hang).await.unwrap_err();
    w.snapshot().await;
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.outcomes("b"), [4.0, 2.0, 0.0, 0.0, 1.0]);
    assert_eq!(scrape.sum("calls_in_flight", &[]), 0.0);
    assert_eq!(scrape.sum("probes_in_flight", &[]), 0.0);
    assert_eq!(scrape.sum("rejections_total", &[]), 0.0);
    // Those that waited are measured, as all that the breaker makes itself.
    let measured = scrape.sum("call_duration_seconds_count", &[("breaker", "b")]);
    assert!(measured >= 4.0, "{measured}");
}

// Of a family, those of all its keys; and none once there is nobody to send them.
#[actix::test]
async fn messages_that_wait_are_told_as_they_stand() {
    let holding = || consecutive(1).hold(Hold::new(10, 60 * SECOND, MS));
    let w = world(holding());
    let exporter = Exporter::new();
    let family = w.breakers.family("hosts", holding().build().unwrap());
    let family = family.unwrap();
    let held = |name| {
        let scrape = exporter.scrape(&w.breakers);
        scrape.sum("held", &[("breaker", name)])
    };
    let guard: Guarded<Job> = w.breaker.guard(w.target.clone());
    w.trip().await;
    assert_eq!(held("b"), 0.0);
    let waiting: Vec<_> = (0..3).map(|_| guard.send_or_hold(Job::Good)).collect();
    drop(guard.send_or_hold(Job::Good));
    w.snapshot().await;
    assert_eq!(held("b"), 3.0);
    for sent in join_all(waiting).await {
        sent.unwrap().unwrap();
    }
    w.snapshot().await;
    assert_eq!(held("b"), 0.0);
    let mut waiting = Vec::new();
    for key in ["x", "y"] {
        let fails = family.call(key, async { Err::<(), _>(BAD) });
        fails.await.unwrap_err();
        let guard: Guarded<Job> = family.breaker(key).guard(w.target.clone());
        waiting.push(guard.send_or_hold(Job::Good));
        waiting.push(guard.send_or_hold(Job::Good));
    }
    quiet().await;
    assert_eq!(held("hosts"), 4.0);
    drop(waiting.pop());
    quiet().await;
    assert_eq!(held("hosts"), 3.0);
    for sent in join_all(waiting).await {
        sent.unwrap().unwrap();
    }
    quiet().await;
    assert_eq!(held("hosts"), 0.0);
}

// R29: what waits goes back, and waits no more.
#[actix::test]
async fn nothing_waits_in_a_breaker_that_is_gone() {
    let (w, arbiter) = (world(consecutive(1)), Arbiter::new());
    let exporter = Exporter::new();
    let breakers = Breakers::start_in_arbiter(&arbiter.handle());
    let config = consecutive(1).hold(Hold::new(10, 60 * SECOND, SECOND));
    let config = config.build().unwrap();
    let family = breakers.family("hosts", config.clone()).unwrap();
    let all = [breakers.create("b", config).unwrap(), family.breaker("x")];
    let mut waiting = Vec::new();
    for breaker in &all {
        let order = ForceOpen::new("by hand");
        breaker.force_open(order).await.unwrap().unwrap();
        let guard: Guarded<Job> = breaker.guard(w.target.clone());
        waiting.push(guard.send_or_hold(Job::Good));
        assert_eq!(breaker.snapshot().await.unwrap().held, 1);
    }
    let held = || exporter.scrape(&breakers).sum("held", &[]);
    assert_eq!(held(), 2.0);
    arbiter.stop();
    arbiter.join().unwrap();
    for sent in join_all(waiting).await {
        sent.unwrap_err();
    }
    assert_eq!(held(), 0.0);
}

/// A message without a reply is a call where its delivery says something of the target.
#[actix::test]
async fn a_tell_is_counted_where_it_is_a_sample() {
    let w = world(consecutive(1));
    let exporter = Exporter::new();
    w.breaker.tell(&w.target, Job::Good).await.unwrap();
    w.trip().await;
    w.breaker.tell(&w.target, Job::Good).await.unwrap_err();
    tokio::time::sleep(BREAK).await;
    // A probe.
    w.breaker.tell(&w.target, Job::Good).await.unwrap();
    let (gone, _) = target();
    gone.send(Job::Stop).await.unwrap_err();
    w.breaker.tell(&gone, Job::Good).await.unwrap_err();
    tokio::time::sleep(BREAK).await;
    w.breaker.tell(&gone, Job::Good).await.unwrap_err();
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.outcomes("b"), [1.0, 3.0, 0.0, 0.0, 0.0]);
    let open = [("breaker", "b"), ("reason", "open")];
    assert_eq!(scrape.sum("rejections_total", &open), 1.0);
    assert_eq!(scrape.sum("calls_in_flight", &[]), 0.0);
}

// R36
#[actix::test]
async fn what_a_ramp_up_does_not_admit_has_a_reason_of_its_own() {
    let w = world(consecutive(1).ramp_up(RampUp::new(1_000_000 * SECOND, 1e-12)));
    let exporter = Exporter::new();
    w.trip().await;
    tokio::time::sleep(BREAK).await;
    w.good().await;
    w.rejected().await;
    w.rejected().await;
    let scrape = exporter.scrape(&w.breakers);
    let ramp_up = [("breaker", "b"), ("reason", "ramp_up")];
    assert_eq!(scrape.sum("rejections_total", &ramp_up), 2.0);
    assert_eq!(scrape.sum("rejections_total", &[]), 2.0);
}

// R37: not a rejection, and under no outcome; but under way as any call.
#[actix::test]
async fn what_is_refused_and_not_rejected_is_counted_apart() {
    let w = world(consecutive(1).enforcement(0.0));
    let exporter = Exporter::new();
    let dial = || exporter.scrape(&w.breakers).sum("enforcement", &[]);
    assert_eq!(dial(), 0.0);
    w.trip().await;
    let before = exporter.scrape(&w.breakers).outcomes("b");
    one_of_each(&w).await;
    let (answer, job) = latch();
    let mut asked = Box::pin(w.breaker.ask(&w.target, job));
    assert!(poll_once(&mut asked).await.is_pending());
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.sum("calls_in_flight", &[]), 1.0);
    answer.send(Ok(1)).unwrap();
    asked.await.unwrap().unwrap();
    // The probe, and those that find it running.
    pass(BREAK).await;
    let (answer, job) = latch();
    let mut probe = Box::pin(w.breaker.ask(&w.target, job));
    assert!(poll_once(&mut probe).await.is_pending());
    quiet().await;
    w.good().await;
    w.breaker.call(later(Err(BAD))).await.unwrap_err();
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.outcomes("b"), before, "none of them is told of");
    assert_eq!(scrape.sum("probes_in_flight", &[]), 1.0);
    assert_eq!(scrape.sum("calls_in_flight", &[]), 1.0);
    answer.send(Ok(1)).unwrap();
    probe.await.unwrap().unwrap();
    let scrape = exporter.scrape(&w.breakers);
    assert_eq!(scrape.sum("calls_in_flight", &[]), 0.0);
    assert_eq!(scrape.sum("rejections_total", &[]), 0.0);
    let simulated = |reason| {
        let labels = [("breaker", "b"), ("reason", reason)];
        scrape.sum("simulated_rejections_total", &labels)
    };
    let snapshot = w.snapshot().await;
    assert_eq!(simulated("probes_in_use"), 2.0);
    assert_eq!(
        simulated("open"),
        snapshot.simulated_rejections as f64 - 2.0
    );
    assert!(simulated("open") > 20.0);
    // The dial is told as it is, that of a family too, and goes down with its breaker.
    let config = consecutive(1).enforcement(0.25).build().unwrap();
    w.breaker.reconfigure(config).await.unwrap().unwrap();
    assert_eq!(dial(), 0.25);
    let family = consecutive(1).enforcement(0.5).build().unwrap();
    let _family = w.breakers.family("hosts", family).unwrap();
    assert_eq!(dial(), 0.75);
    w.breakers.remove("b");
    assert_eq!(dial(), 0.5);
}
