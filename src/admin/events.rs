//! Changes as they come, as a stream of server-sent events: the present state first.
//! A reader that is slow misses events and is told so; nobody else notices (R26).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, web};
use futures_util::stream::{self, Stream};
use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};

use super::Admin;
use super::answer::{Problem, begin};
use super::history::frame;
use super::query::Query;
use super::read::{Detail, details};
use crate::clock::{Clock, SystemClock, Timestamp};

/// How many may listen at once, unless it is set otherwise.
pub(super) const CLIENTS: usize = 64;

/// After what time of silence a sign of life is sent, so that listeners who are gone are noticed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// After what time a listener who has read nothing may lose its place to another.
const STALLED: Duration = Duration::from_secs(60);

/// How many breakers one event with the present state tells of.
const AT_ONCE: usize = 100;

/// The places of listeners.
#[derive(Debug)]
pub(super) struct Places {
    clock: SystemClock,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    max: usize,
    next: u64,
    /// When each last took something.
    at: BTreeMap<u64, Timestamp>,
}

/// The place of one listener, given back when it is dropped.
struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Places {
    pub(super) fn new() -> Self {
        Self {
            clock: SystemClock::new(),
            taken: Mutex::new(Taken {
                max: CLIENTS,
                next: 0,
                at: BTreeMap::new(),
            }),
        }
    }

    pub(super) fn set_max(&self, max: usize) {
        self.taken().max = max;
    }

    pub(super) fn in_use(&self) -> usize {
        self.taken().at.len()
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Takes a place, if need be that of one who has not read for long.
    fn take(places: &Arc<Places>) -> Option<Self> {
        let now = places.clock.now();
        let mut taken = places.taken();
        if taken.at.len() >= taken.max {
            let longest = taken.at.iter().min_by_key(|(_, at)| **at);
            let (number, at) = longest.map(|(number, at)| (*number, *at))?;
            if now.since(at) < STALLED {
                return None;
            }
            taken.at.remove(&number);
        }
        let number = taken.next;
        taken.next = number.saturating_add(1);
        taken.at.insert(number, now);
        Some(Self {
            places: Arc::clone(places),
            number,
        })
    }

    /// Notes that the listener reads; tells whether it still has its place.
    fn keep(&self) -> bool {
        let now = self.places.clock.now();
        match self.places.taken().at.get_mut(&self.number) {
            Some(at) => {
                *at = now;
                true
            }
            None => false,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().at.remove(&self.number);
    }
}

/// Where a stream is.
struct Listener {
    admin: web::Data<Admin>,
    place: Place,
    changes: broadcast::Receiver<Bytes>,
    /// Whose present state is still to be told, the first of them last.
    untold: Option<Vec<String>>,
}

/// A part of the present state.
#[derive(Serialize)]
struct Present {
    breakers: Vec<Detail>,
    /// Whether more of it follows.
    more: bool,
}

#[derive(Serialize)]
struct Missed {
    missed: u64,
}

pub(super) async fn events(
    request: HttpRequest,
    admin: web::Data<Admin>,
) -> Result<HttpResponse, Problem> {
    Query::new(&request)?.done()?;
    let Some(place) = Place::take(&admin.places) else {
        let error = "too many listeners";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, error));
    };
    // Before the present state is looked at, so that no change falls between.
    let changes = admin.history.listen();
    let mut untold = admin.breakers.names();
    untold.reverse();
    let listener = Listener {
        admin,
        place,
        changes,
        untold: Some(untold),
    };
    Ok(begin(StatusCode::OK)
        .content_type("text/event-stream")
        .insert_header((header::HeaderName::from_static("x-accel-buffering"), "no"))
        .streaming(frames(listener)))
}

fn frames(listener: Listener) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    stream::unfold(listener, |mut listener| async move {
        if !listener.place.keep() {
            return None;
        }
        let frame = listener.next().await?;
        Some((Ok(frame), listener))
    })
}

impl Listener {
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(names) = self.untold.take() {
            return self.present(names).await;
        }
        match tokio::time::timeout(SIGN_OF_LIFE, self.changes.recv()).await {
            Ok(Ok(frame)) => Some(frame),
            Ok(Err(RecvError::Lagged(missed))) => frame("lagged", &Missed { missed }),
            Ok(Err(RecvError::Closed)) => None,
            Err(_) => Some(Bytes::from_static(b": alive\n\n")),
        }
    }

    /// Tells the next part of the present state, made when the listener has room for it.
    async fn present(&mut self, mut names: Vec<String>) -> Option<Bytes> {
        let rest = names.len().saturating_sub(AT_ONCE);
        let part = names.split_off(rest);
        let admin = &self.admin;
        let breakers: Vec<_> = part
            .iter()
            .rev()
            .filter_map(|name| admin.breakers.get(name))
            .collect();
        let (breakers, _) = details(admin, &breakers, 0).await;
        let more = !names.is_empty();
        self.untold = more.then_some(names);
        frame("present", &Present { breakers, more })
    }
}
