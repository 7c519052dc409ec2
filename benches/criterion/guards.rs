//! Criterion benches of the hot paths, for day-to-day work: what a change does, not what is promised.
//! The figures that are promised come from `run.sh`, which measures in pairs.

use std::future::{Future, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use actix::Actor;
use actix_circuit_breaker::{Breaker, BreakerConfig};
use actix_circuit_breaker_benches::echo::{Echo, Fail, Fault, Say};
use actix_circuit_breaker_benches::{
    breaker, in_task, never_trips, open_breaker, rate_of_calls, rate_of_time,
};
use criterion::{Criterion, criterion_group, criterion_main};

/// The guards are ready at once, so one poll without a runtime is the whole of it.
fn call(breaker: &Breaker) -> bool {
    let future = pin!(breaker.call(ready(black_box(Ok::<u64, Fault>(1)))));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result.is_ok(),
        Poll::Pending => unreachable!("the future is ready"),
    }
}

fn guards(criterion: &mut Criterion) {
    // Kept, for the breakers live on it. It does not run meanwhile; what is ready at once needs no turn.
    let system = actix::System::new();
    let (closed, calls, time, open) = system.block_on(async {
        let closed = breaker(BreakerConfig::default());
        let open = open_breaker().await;
        (
            closed,
            breaker(rate_of_calls()),
            breaker(rate_of_time()),
            open,
        )
    });
    let mut group = criterion.benchmark_group("call");
    group.bench_function("closed", |bench| bench.iter(|| call(&closed)));
    group.bench_function("rate of calls", |bench| bench.iter(|| call(&calls)));
    group.bench_function("rate of a time", |bench| bench.iter(|| call(&time)));
    group.bench_function("rejected", |bench| bench.iter(|| call(&open)));
    group.finish();
    drop(system);
}

/// Times a loop of asks in a task of an actix system.
macro_rules! asks {
    ($group:ident, $name:literal, $config:expr, $breaker:ident, $target:ident => $ask:expr) => {
        $group.bench_function($name, |bench| {
            bench.iter_custom(|asks| -> Duration {
                in_task(async move {
                    let ($breaker, $target) = (breaker($config), Echo.start());
                    let started = Instant::now();
                    for _ in 0..asks {
                        let _ = black_box($ask.await.is_ok());
                    }
                    started.elapsed()
                })
            });
        });
    };
}

fn asks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ask");
    let timeout = Duration::from_secs(5);
    asks!(group, "bare", never_trips(), _breaker, target => target.send(Say(1)).timeout(timeout));
    asks!(group, "closed", never_trips(), breaker, target => breaker.ask(&target, Say(1)));
    asks!(group, "rate of calls", rate_of_calls(), breaker, target => breaker.ask(&target, Say(1)));
    asks!(group, "failing", never_trips(), breaker, target => breaker.ask(&target, Fail));
    group.finish();
}

criterion_group!(benches, guards, asks);
criterion_main!(benches);
