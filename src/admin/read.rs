//! Looking over HTTP: lists of breakers, families and keys, and one breaker in full.
//! Nothing here changes a breaker (R8).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::{Request, ToEnvelope};
use actix::{Handler, Message};
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;

use super::answer::{Problem, json};
use super::query::{Part, Query, States};
use super::{Admin, find};
use crate::actor::BreakerActor;
use crate::breaker::Breaker;
use crate::circuit::CircuitState;
use crate::config::BreakerConfig;
use crate::event::StateChanged;
use crate::family::Family;
use crate::message::Snapshot;

/// How long a breaker has to answer, whose arbiter may be blocked.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many changes of a breaker can be asked for.
const MOST_CHANGES: usize = 1_000;

/// A breaker in full.
#[derive(Serialize)]
pub(super) struct Detail {
    #[serde(flatten)]
    snapshot: Snapshot,
    transitions: Vec<Arc<StateChanged>>,
}

#[derive(Serialize)]
struct List {
    breakers: Vec<Detail>,
    /// Those that did not answer in time.
    silent: Vec<String>,
    total: usize,
    matching: usize,
    /// What `after` is for the next part.
    next: Option<String>,
    /// How many breakers are in which state, of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    states: Option<BTreeMap<String, usize>>,
    /// Whether orders are taken.
    read_only: bool,
}

#[derive(Serialize)]
struct Families {
    families: Vec<FamilyShown>,
}

#[derive(Serialize)]
struct FamilyShown {
    family: String,
    /// How many keys are not closed and empty, or are held by somebody.
    keys: usize,
    max_keys: usize,
    unguarded: u64,
    config: BreakerConfig,
}

impl FamilyShown {
    fn of(family: &Family) -> Self {
        Self {
            family: family.name().to_owned(),
            keys: family.len(),
            max_keys: family.max_keys(),
            unguarded: family.unguarded(),
            config: family.config(),
        }
    }
}

/// Waits for a breaker's actor, within reason.
pub(super) async fn answered<M>(
    breaker: &Breaker,
    request: Request<BreakerActor, M>,
) -> Result<M::Result, Problem>
where
    M: Message + Send + 'static,
    M::Result: Send,
    BreakerActor: Handler<M>,
    <BreakerActor as actix::Actor>::Context: ToEnvelope<BreakerActor, M>,
{
    let answer = request.timeout(PATIENCE).await;
    answer.map_err(|_| Problem::silent(breaker.name()))
}

pub(super) async fn list(
    request: HttpRequest,
    admin: web::Data<Admin>,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::new(&request)?;
    let part = Part::new(&mut query)?;
    let states = States::new(&mut query)?;
    let changes = query.number("transitions", 0, (0, MOST_CHANGES))?;
    query.done()?;

    let mut tally = BTreeMap::new();
    let named = admin.breakers.names().into_iter().filter_map(|name| {
        let breaker = admin.breakers.get(&name)?;
        let count: &mut usize = tally.entry(word(breaker.state())).or_default();
        *count = count.saturating_add(1);
        Some((name, breaker))
    });
    let taken = part.of(named, |breaker| states.contain(breaker.state()));
    let (breakers, silent) = details(&admin, &taken.found, changes).await;
    json(&List {
        breakers,
        silent,
        total: taken.total,
        matching: taken.matching,
        next: taken.next,
        states: Some(tally),
        read_only: admin.authorize.is_none(),
    })
}

pub(super) async fn keys(
    request: HttpRequest,
    admin: web::Data<Admin>,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::new(&request)?;
    let name = query.need("family")?;
    let part = Part::new(&mut query)?;
    let changes = query.number("transitions", 0, (0, MOST_CHANGES))?;
    query.done()?;

    let family = find::family(&admin.breakers, &name)?;
    let keys = family.keys().into_iter().map(|key| (key.clone(), key));
    let taken = part.of(keys, |_| true);
    let members: Vec<_> = taken.found.iter().map(|key| family.breaker(key)).collect();
    let (breakers, silent) = details(&admin, &members, changes).await;
    json(&List {
        breakers,
        silent,
        total: taken.total,
        matching: taken.matching,
        next: taken.next,
        states: None,
        read_only: admin.authorize.is_none(),
    })
}

pub(super) async fn families(
    request: HttpRequest,
    admin: web::Data<Admin>,
) -> Result<HttpResponse, Problem> {
    Query::new(&request)?.done()?;
    let families = admin.breakers.families();
    let families = families.iter().map(FamilyShown::of).collect();
    json(&Families { families })
}

/// One family, as in the list of all.
pub(super) fn family(family: &Family) -> Result<HttpResponse, Problem> {
    json(&FamilyShown::of(family))
}

pub(super) async fn one(
    request: HttpRequest,
    admin: web::Data<Admin>,
) -> Result<HttpResponse, Problem> {
    let mut query = Query::new(&request)?;
    let name = query.need("name")?;
    let changes = query.number("transitions", MOST_CHANGES, (0, MOST_CHANGES))?;
    query.done()?;
    let breaker =
        find::present(&admin.breakers, &name).ok_or_else(|| Problem::unknown("breaker", &name))?;
    detail(&admin, &breaker, changes).await
}

/// One breaker in full, as an answer.
pub(super) async fn detail(
    admin: &Admin,
    breaker: &Breaker,
    changes: usize,
) -> Result<HttpResponse, Problem> {
    let snapshot = answered(breaker, breaker.snapshot()).await?;
    json(&Detail {
        snapshot,
        transitions: admin.history.last(breaker.name(), changes),
    })
}

/// Several breakers in full, and the names of those that did not answer in time.
pub(super) async fn details(
    admin: &Admin,
    breakers: &[Breaker],
    changes: usize,
) -> (Vec<Detail>, Vec<String>) {
    // All are asked before the first is waited for, so that they have the same time.
    let requests = breakers
        .iter()
        .map(|breaker| answered(breaker, breaker.snapshot()));
    let answers = futures_util::future::join_all(requests).await;
    let mut found = Vec::with_capacity(breakers.len());
    let mut silent = Vec::new();
    for (breaker, answer) in breakers.iter().zip(answers) {
        match answer {
            Ok(snapshot) => found.push(Detail {
                snapshot,
                transitions: admin.history.last(breaker.name(), changes),
            }),
            Err(_) => silent.push(breaker.name().to_owned()),
        }
    }
    (found, silent)
}

/// A state as it is written in JSON.
fn word(state: CircuitState) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word,
        _ => state.to_string(),
    }
}
