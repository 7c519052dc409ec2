//! What the feature `metrics` costs: the same sources built twice, with it and without, side by side in one
//! binary. A recorder is installed and told ten times a second, by another thread.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::Actor;
use actix_circuit_breaker as plain;
use actix_circuit_breaker_metered as metered;
use futures::future::ready;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::echo::{Echo, Fault, Say};
use crate::in_task;
use crate::pairs::rounds;
use crate::subject;
use crate::subject::Subject;

/// Far more often than anybody scrapes.
const RECORD_EVERY: Duration = Duration::from_millis(100);

/// Measures on this thread, which owns its counters, and on one that shares them, as all do after the first
/// four. Prints rows and returns the figures.
pub fn figures() -> Vec<(&'static str, f64)> {
    let owned = in_task(measure("a thread that owns its counters"));
    for _ in 0..8 {
        let taken = std::thread::spawn(|| in_task(take_a_place()));
        taken.join().expect("the thread ran to its end");
    }
    let shared = std::thread::spawn(|| in_task(measure("a thread that shares its counters")));
    let shared = shared.join().expect("the thread ran to its end");
    vec![
        ("metrics_closed_ask_over_plain", owned),
        ("metrics_closed_ask_over_plain_shared", shared),
    ]
}

/// The first threads that count anything own their counters.
async fn take_a_place() {
    let breaker = metered::Breakers::start().create("first", metered::BreakerConfig::default());
    let call = async { Ok::<_, Fault>(1) };
    drop(breaker.expect("room for one breaker").call(call).await);
}

/// Returns what a closed ask costs with metrics, over one without.
async fn measure(title: &str) -> f64 {
    let recorder = PrometheusBuilder::new().build_recorder();
    let target = Echo.start();
    let owner = plain::Breakers::start();
    let make = |name| {
        let breaker = owner.create(name, plain::BreakerConfig::default());
        (breaker.expect("room for two breakers"), target.clone())
    };
    let (one, another) = (make("one"), make("another"));
    let counting = metered::Breakers::start();
    let breaker = counting.create("metered", metered::BreakerConfig::default());
    let counted = (breaker.expect("room for one breaker"), target.clone());

    let over = Arc::new(AtomicBool::new(false));
    let recording = std::thread::spawn({
        let (over, counting) = (over.clone(), counting.clone());
        move || {
            while !over.load(Ordering::Acquire) {
                metrics::with_local_recorder(&recorder, || counting.record_metrics());
                drop(recorder.handle().render());
                std::thread::sleep(RECORD_EVERY);
            }
            metrics::with_local_recorder(&recorder, || counting.record_metrics());
            recorder.handle().render()
        }
    });

    // Each kind twice, so that none is always first, in the middle or last.
    let again = counted.clone();
    let mut asks = [
        subject!("closed ask", one => one.0.ask(&one.1, Say(black_box(1)))),
        subject!("closed ask, with metrics", counted => counted.0.ask(&counted.1, Say(black_box(1)))),
        subject!("closed ask of another breaker", another => another.0.ask(&another.1, Say(black_box(1)))),
        subject!("closed ask, with metrics, again", again => again.0.ask(&again.1, Say(black_box(1)))),
    ];
    let ask_times = rounds(&mut asks, 3_000, 100).await;
    let good = || ready(Ok::<u64, Fault>(black_box(1)));
    let mut calls = [
        subject!("closed call", one => one.0.call(good())),
        subject!("closed call, with metrics", counted => counted.0.call(good())),
    ];
    let call_times = rounds(&mut calls, 600, 5_000).await;
    let plain_order = plain::message::ForceOpen::new("bench");
    drop(one.0.force_open(plain_order).await);
    let metered_order = metered::message::ForceOpen::new("bench");
    drop(counted.0.force_open(metered_order).await);
    let mut rejected = [
        subject!("rejected call", one => one.0.call(good())),
        subject!("rejected call, with metrics", counted => counted.0.call(good())),
    ];
    let rejected_times = rounds(&mut rejected, 600, 5_000).await;
    over.store(true, Ordering::Release);
    let text = recording.join().expect("the thread ran to its end");
    let told = r#"circuit_breaker_calls_total{breaker="metered",outcome="success"} 3"#;
    assert!(text.contains(told), "{text}");

    println!("# with the feature metrics and without, on {title}");
    let show = |subjects: &[Subject], times: &[crate::pairs::Times]| {
        for (subject, times) in subjects.iter().zip(times) {
            println!("# {:<44} {:>10.1} ns", subject.name(), times.median());
        }
    };
    show(&asks, &ask_times);
    show(&calls, &call_times);
    show(&rejected, &rejected_times);
    let ratio = |name: &str, value: f64| println!("# {name:<44} {value:>10.3}");
    let [plain, counted, other, again] = &ask_times[..] else {
        unreachable!("as many times as subjects");
    };
    ratio("another breaker ÷ one, asks", other.over(plain));
    ratio("metered ÷ plain, calls", call_times[1].over(&call_times[0]));
    let rejections = rejected_times[1].over(&rejected_times[0]);
    ratio("metered ÷ plain, rejections", rejections);
    // The worse of both pairs.
    counted.over(plain).max(again.over(other))
}
