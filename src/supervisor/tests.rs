//! A stop of a breaker's actor, which nobody outside can order, and what waits in it.

use std::time::Duration;

use actix::{Actor, ActorContext, Context, Handler, Message};

use crate::actor::BreakerActor;
use crate::config::{BreakerConfig, Hold};
use crate::policy::TripPolicy;
use crate::supervisor::Breakers;

#[derive(Message)]
#[rtype(result = "()")]
struct Halt;

impl Handler<Halt> for BreakerActor {
    type Result = ();

    fn handle(&mut self, _: Halt, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

#[derive(Message)]
#[rtype(result = "Result<u32, ()>")]
struct Ask(Result<u32, ()>);

struct Echo(Vec<u32>);

impl Actor for Echo {
    type Context = Context<Self>;
}

impl Handler<Ask> for Echo {
    type Result = Result<u32, ()>;

    fn handle(&mut self, Ask(answer): Ask, _: &mut Context<Self>) -> Self::Result {
        self.0.extend(answer);
        answer
    }
}

#[derive(Message)]
#[rtype(result = "Vec<u32>")]
struct Seen;

impl Handler<Seen> for Echo {
    type Result = Vec<u32>;

    fn handle(&mut self, _: Seen, _: &mut Context<Self>) -> Vec<u32> {
        self.0.clone()
    }
}

// R29
#[actix::test]
async fn a_stop_of_the_actor_keeps_those_who_wait() {
    tokio::time::pause();
    let second = Duration::from_secs(1);
    let config = BreakerConfig::builder()
        .trip(TripPolicy::ConsecutiveFailures {
            failures: 1,
            within: None,
        })
        .break_duration(second)
        .hold(Hold::new(10, Duration::from_secs(60), second));
    let breakers = Breakers::start();
    let breaker = breakers.create("b", config.build().unwrap()).unwrap();
    let echo = Echo(Vec::new()).start();
    let guard = breaker.guard(echo.clone());
    assert_eq!(guard.send(Ask(Err(()))).await, Ok(Err(())));
    let before = [
        guard.send_or_hold(Ask(Ok(1))),
        guard.send_or_hold(Ask(Ok(2))),
    ];
    breaker.addr().send(Halt).await.unwrap();
    // Sent while it is away, and after it came back.
    let away = guard.send_or_hold(Ask(Ok(3)));
    assert_eq!(breaker.snapshot().await.unwrap().held, 3);
    let after = guard.send_or_hold(Ask(Ok(4)));
    for (number, held) in (1..).zip(before.into_iter().chain([away, after])) {
        assert_eq!(held.await, Ok(Ok(number)));
    }
    assert_eq!(echo.send(Seen).await.unwrap(), [1, 2, 3, 4]);
    assert_eq!(breaker.snapshot().await.unwrap().restarts, 1);
}
