//! The public names and what holds of their types; it breaks here before it breaks at a user's.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::Request;
use actix::prelude::*;
use actix_circuit_breaker::circuit::{Circuit, Refused};
use actix_circuit_breaker::message::{
    Ask, ForceClosed, ForceOpen, GetSnapshot, Reconfigure, Release, Reset, Subscribe,
    SubscribeDrops,
};
use actix_circuit_breaker::{
    AskError, BackoffSupervisor, Breaker, BreakerActor, BreakerConfig, Breakers, CallError,
    CircuitState, Clock, ConfigError, CreateError, Guarded, HeldAsk, HeldCounts, HeldDropped, Hold,
    ManualClock, Outcome, Permit, RandomSource, Rejected, RestartPolicy, Settled, Snapshot,
    StateChanged, Tell, TellError, Timestamp, Transitions,
};

#[derive(Message)]
#[rtype(result = "Result<u32, String>")]
struct Charge;

struct Gateway;

impl Actor for Gateway {
    type Context = Context<Self>;
}

impl Supervised for Gateway {}

impl Handler<Charge> for Gateway {
    type Result = Result<u32, String>;

    fn handle(&mut self, _: Charge, _: &mut Context<Self>) -> Self::Result {
        Ok(1)
    }
}

struct Log;

impl Actor for Log {
    type Context = Context<Self>;
}

impl Handler<StateChanged> for Log {
    type Result = ();

    fn handle(&mut self, _: StateChanged, _: &mut Context<Self>) {}
}

impl Handler<HeldDropped> for Log {
    type Result = ();

    fn handle(&mut self, _: HeldDropped, _: &mut Context<Self>) {}
}

fn sent<T: Send + 'static>(value: T) -> T {
    value
}

fn shared<T: Send + Sync + Debug + 'static>() {}

#[test]
fn types_can_go_where_actors_need_them() {
    shared::<Breaker>();
    shared::<Breakers>();
    shared::<Guarded<Charge>>();
    shared::<BreakerConfig>();
    shared::<Rejected>();
    shared::<AskError>();
    shared::<CallError<std::io::Error>>();
    shared::<CreateError>();
    shared::<ConfigError>();
    shared::<Refused>();
    shared::<StateChanged>();
    shared::<Snapshot>();
    shared::<Settled>();
    assert_eq!(size_of::<Breaker>(), size_of::<usize>());
    assert_eq!(size_of::<Rejected>(), 24);
}

#[actix::test]
async fn owners_breakers_and_guards_have_the_names_they_promise() {
    let here = Arbiter::current();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let random: Arc<dyn RandomSource> = Arc::new(|| 0.5);
    let built = Breakers::builder()
        .clock(clock)
        .random(random)
        .max_breakers(3)
        .restart(RestartPolicy::new());
    drop(built.clone().start_in_arbiter(&here));
    drop(Breakers::start_in_arbiter(&here));
    let breakers = built.start();
    let config = BreakerConfig::default();
    let breaker: Breaker = breakers.create("payments", config.clone()).unwrap();
    let found: Option<Breaker> = breakers.get("payments");
    assert_eq!(found.unwrap().name(), "payments");
    assert_eq!(breakers.names(), ["payments"]);
    let snapshots: Vec<Snapshot> = breakers.snapshots().await;
    assert_eq!(snapshots.len(), 1);
    let log = Log.start();
    breakers.subscribe(log.clone());
    let gateway: Addr<Gateway> = BackoffSupervisor::start(RestartPolicy::new(), |_| Gateway);
    drop(BackoffSupervisor::start_in_arbiter(
        &here,
        RestartPolicy::new(),
        |_| Gateway,
    ));

    let by_address = sent(breaker.ask(&gateway, Charge));
    let recipient: Recipient<Charge> = gateway.clone().recipient();
    let by_recipient = sent(breaker.ask(&recipient, Charge));
    let judged = sent(breaker.ask_with(&gateway, Charge, |reply| match reply {
        Ok(_) => Outcome::Success,
        Err(_) => Outcome::Failure,
    }));
    let reply: Result<Result<u32, String>, AskError> = by_address.await;
    assert_eq!(reply, Ok(Ok(1)));
    assert_eq!(by_recipient.await, Ok(Ok(1)));
    assert_eq!(judged.await, Ok(Ok(1)));
    let guard: Guarded<Charge> = breaker
        .guard(gateway.clone())
        .call_timeout(Duration::from_secs(1));
    assert_eq!(sent(guard.send(Charge)).await, Ok(Ok(1)));
    let guard: Guarded<Charge> = breaker.guard_with(recipient.clone(), |_| Outcome::Ignored);
    assert_eq!(guard.send(Charge).await, Ok(Ok(1)));

    let done: Result<u32, CallError<String>> = breaker.call(async { Ok(1) }).await;
    assert_eq!(done, Ok(1));
    let failed = breaker.call_with(async { Err::<(), _>("no") }, |_| Outcome::Ignored);
    assert_eq!(failed.await, Err(CallError::Failed("no")));
    let spawned = sent(breaker.clone().into_call(async { Ok::<_, String>(1) }));
    assert_eq!(spawned.await, Ok(1));
    let spawned = breaker
        .clone()
        .into_call_with(async { Ok::<_, String>(1) }, |_| Outcome::Success);
    assert_eq!(sent(spawned).await, Ok(1));
    let permit: Permit = sent(breaker.acquire()).await.unwrap();
    let settled: Settled = permit.success();
    settled.await;
    breaker.acquire().await.unwrap().failure().await;
    let held: HeldAsk<Charge> = sent(guard.send_or_hold(Charge));
    assert_eq!(held.await, Ok(Ok(1)));
    let told: Tell<Charge> = sent(breaker.tell(&gateway, Charge));
    let told: Result<(), TellError<Charge>> = told.await;
    told.unwrap();
    breaker.tell_or_hold(&recipient, Charge).await.unwrap();
    let hold = Hold::new(1, Duration::from_secs(1), Duration::from_secs(1));
    let holding = BreakerConfig::builder()
        .hold(hold.growing())
        .build()
        .unwrap();
    assert!(holding.hold().unwrap().growing);
    breaker.acquire().await.unwrap().ignore().await;

    assert_eq!(breaker.state(), CircuitState::Closed);
    let watch: tokio::sync::watch::Receiver<CircuitState> = breaker.watch();
    assert_eq!(*watch.borrow(), CircuitState::Closed);
    let _transitions: Transitions = sent(breaker.transitions());
    let snapshot: Request<BreakerActor, GetSnapshot> = breaker.snapshot();
    assert!(!snapshot.await.unwrap().probe_due);
    let forced: Result<(), ConfigError> = breaker
        .force_open(ForceOpen::new("drill").ttl(Duration::from_secs(1)))
        .await
        .unwrap();
    forced.unwrap();
    breaker
        .force_closed(ForceClosed::new("drill"))
        .await
        .unwrap()
        .unwrap();
    breaker.release().await.unwrap();
    breaker.reset().await.unwrap();
    breaker.reconfigure(config.clone()).await.unwrap().unwrap();
    breaker.subscribe(log.downgrade()).await.unwrap();
    breaker.subscribe_drops(log.clone()).await.unwrap();
    let snapshot: Snapshot = breaker.snapshot().await.unwrap();
    assert_eq!(
        (snapshot.held, snapshot.held_counts),
        (0, HeldCounts::default())
    );

    let address: &Addr<BreakerActor> = breaker.addr();
    let reply = address.send(Ask::new(recipient.clone(), Charge)).await;
    assert_eq!(reply.unwrap(), Ok(Ok(1)));
    let ask = Ask::with(recipient, Charge, |_: &Result<u32, String>| {
        Outcome::Success
    });
    address.send(ask).await.unwrap().unwrap().unwrap();
    address.send(GetSnapshot).await.unwrap();
    address.send(ForceOpen::new("x")).await.unwrap().unwrap();
    address.send(Release).await.unwrap();
    address.send(Reset).await.unwrap();
    address
        .send(Reconfigure::new(config))
        .await
        .unwrap()
        .unwrap();
    address.send(Subscribe::new(log.clone())).await.unwrap();
    address.send(SubscribeDrops::new(log)).await.unwrap();
    assert!(breakers.remove("payments"));
}

#[test]
fn circuit_works_without_actix() {
    let now = Timestamp::ZERO;
    let config = BreakerConfig::default();
    let mut circuit = Circuit::new(config.clone(), now);
    let permit = circuit.try_acquire(now).unwrap();
    circuit.settle(permit, Outcome::Success, now);
    circuit.advance(now);
    assert_eq!(circuit.next_deadline(), None);
    assert!(circuit.pop_transition().is_none());
    circuit.force_open(None, "x", now).unwrap();
    circuit
        .force_closed(Some(Duration::from_secs(1)), "x", now)
        .unwrap();
    circuit.release(now);
    circuit.reset(now);
    circuit.reconfigure(config.clone(), now);
    assert_eq!(circuit.peek(now).state, CircuitState::Closed);
    assert_eq!(circuit.snapshot(now).state, CircuitState::Closed);
    let record = circuit.record().clone();
    let restored = Circuit::restore(config, record, now);
    restored.lifetime(now);
}
