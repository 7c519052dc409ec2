//! Makes so many calls of one kind, for `callgrind.sh` to count the instructions of.
//! The difference between two runs of different length is free of what happens once.

use std::future::{Future, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use actix::Actor;
use actix_circuit_breaker::{Breaker, BreakerConfig, Breakers};
use actix_circuit_breaker_benches::echo::{Echo, Fail, Fault, Say};
use actix_circuit_breaker_benches::{
    breaker, in_task, never_trips, open_breaker, rate_of_calls, rate_of_time,
};

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().expect("what to call");
    let calls = arguments.next().expect("how often");
    let calls: u32 = calls.parse().expect("how often is a number");
    in_task(async move {
        match &*kind {
            "bare" => {
                for _ in 0..calls {
                    poll(ready(Ok::<u64, Fault>(black_box(1))));
                }
            }
            "call" => call(&breaker(BreakerConfig::default()), calls),
            "call_rate_of_calls" => call(&breaker(rate_of_calls()), calls),
            "call_rate_of_time" => call(&breaker(rate_of_time()), calls),
            "call_by_key" => {
                let family = Breakers::start()
                    .family("hosts", BreakerConfig::default())
                    .expect("room for one family");
                for _ in 0..calls {
                    let key = black_box("host-71.example.org");
                    poll(family.call(key, ready(Ok::<u64, Fault>(black_box(1)))));
                }
            }
            "call_rejected" => call(&open_breaker().await, calls),
            "ask_bare" => {
                let target = Echo.start();
                for _ in 0..calls {
                    let _ = black_box(target.send(Say(1)).timeout(TIMEOUT).await);
                }
            }
            "ask" => {
                let (breaker, target) = (breaker(BreakerConfig::default()), Echo.start());
                for _ in 0..calls {
                    let _ = black_box(breaker.ask(&target, Say(1)).await);
                }
            }
            "call_metered" => {
                let breaker = metered();
                for _ in 0..calls {
                    poll(breaker.call(ready(Ok::<u64, Fault>(black_box(1)))));
                }
            }
            "ask_metered" => {
                let (breaker, target) = (metered(), Echo.start());
                for _ in 0..calls {
                    let _ = black_box(breaker.ask(&target, Say(1)).await);
                }
            }
            "ask_rejected" => {
                let (breaker, target) = (open_breaker().await, Echo.start());
                for _ in 0..calls {
                    let _ = black_box(breaker.ask(&target, Say(1)).await);
                }
            }
            "ask_bare_failing" => {
                let target = Echo.start();
                for _ in 0..calls {
                    let _ = black_box(target.send(Fail).timeout(TIMEOUT).await);
                }
            }
            "ask_failing" => {
                let (breaker, target) = (breaker(never_trips()), Echo.start());
                for _ in 0..calls {
                    let _ = black_box(breaker.ask(&target, Fail).await);
                }
            }
            "ask_mediated" => {
                let (breaker, target) = (breaker(BreakerConfig::default()), Echo.start());
                let target = target.recipient::<Say>();
                for _ in 0..calls {
                    let ask = actix_circuit_breaker::message::Ask::new(target.clone(), Say(1));
                    let _ = black_box(breaker.addr().send(ask).await);
                }
            }
            other => panic!("no such kind of call: {other}"),
        }
    });
}

/// A breaker of the same sources, with the feature `metrics`.
fn metered() -> actix_circuit_breaker_metered::Breaker {
    let config = actix_circuit_breaker_metered::BreakerConfig::default();
    actix_circuit_breaker_metered::Breakers::start()
        .create("bench", config)
        .expect("room for one breaker")
}

fn call(breaker: &Breaker, calls: u32) {
    for _ in 0..calls {
        poll(breaker.call(ready(Ok::<u64, Fault>(black_box(1)))));
    }
}

#[inline]
fn poll<T, E>(future: impl Future<Output = Result<T, E>>) {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => black_box(result.is_ok()),
        Poll::Pending => unreachable!("the future is ready"),
    };
}
