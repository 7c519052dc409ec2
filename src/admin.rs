//! The breakers over HTTP: a scope of actix-web to look at them, follow them and steer them.
//! What an order does is decided by the circuit; who may give one, by the user's authorizer.

mod answer;
mod command;
mod events;
mod find;
mod history;
mod order;
mod page;
mod query;
mod read;
mod unavailable;

use std::fmt;
use std::sync::Arc;

use actix::{Actor, Addr};
use actix_web::{HttpRequest, Scope, web};

pub use command::{Command, CommandKind, Denied};

use answer::Problem;
use events::Places;
use history::{History, Recorder};

use crate::supervisor::Breakers;

/// How many bytes the body of an order has at most, unless it is set otherwise.
const MAX_BODY: usize = 64 * 1_024;

type Authorizer = dyn Fn(&HttpRequest, &Command) -> Result<String, Denied> + Send + Sync;

/// The breakers over HTTP, to be mounted in an application of one's own.
///
/// Make it once, before the server, and mount a [`scope`](Self::scope) in each worker's application. Clones
/// share the history and the listeners.
///
/// ```no_run
/// use actix_circuit_breaker::admin::{Admin, Denied};
/// use actix_circuit_breaker::{BreakerConfig, Breakers};
/// use actix_web::{App, HttpServer};
///
/// #[actix::main]
/// async fn main() -> std::io::Result<()> {
///     let breakers = Breakers::start();
///     let admin = Admin::new(breakers.clone()).authorize(|request, _command| {
///         // Put there by whatever authenticates requests in front of it.
///         let user = request.headers().get("x-user").and_then(|user| user.to_str().ok());
///         user.map(str::to_owned).ok_or_else(|| Denied::new("who are you?"))
///     });
///     HttpServer::new(move || App::new().service(admin.scope("/breakers")))
///         .bind(("127.0.0.1", 8080))?
///         .run()
///         .await
/// }
/// ```
///
/// # Routes
///
/// Names are parameters of the query or fields of the body, never parts of the path, so any name goes
/// through any proxy: `breaker?name=hosts%2Fexample.org`.
///
/// | route | parameters or fields | answer |
/// | --- | --- | --- |
/// | `GET /` | | a page for people; without the slash, a redirect to it |
/// | `GET list` | `q`, `state`, `after`, `limit`, `transitions` | named breakers: `breakers`, `silent` (no answer in time), `total`, `matching`, `next` (for `after`), `states`, `read_only` |
/// | `GET breaker` | `name`, `transitions` | one breaker: a [`Snapshot`](crate::message::Snapshot) with its `config`, and `transitions`, its last [`StateChanged`](crate::StateChanged) |
/// | `GET families` | | `families`: `family`, `keys` (how many), `max_keys`, `unguarded`, `config` |
/// | `GET keys` | `family`, `q`, `after`, `limit`, `transitions` | as `list`: the keys that are not closed and empty, or are held |
/// | `GET events` | | server-sent events: first `present` (`breakers`, named ones, 100 at a time, and `more`), then each `changed`; `lagged` where this reader was too slow and `missed` some |
/// | `POST force_open`, `POST force_closed` | `breaker`, `reason`, `ttl` | the breaker, as `GET breaker` |
/// | `POST release`, `POST reset` | `breaker`, `reason` | the same |
/// | `POST reconfigure` | `breaker`, `reason`, `config` | the same |
/// | `POST reconfigure` | `family`, `reason`, `config` | all keys of a family but those with settings of their own; the family, as in `GET families` |
///
/// `q` is looked for in the name, without case; `state` is one or several of `closed`, `open`, `half_open`,
/// `forced_open`, `forced_closed`, with commas between them; `limit` is 1 to 500, 100 by default;
/// `transitions` says how many changes are told of each breaker, in lists none by default. `ttl` reads as
/// `"5m"`. `config` holds the settings to change, as they stand in a file; `null` brings back a default;
/// the others stay.
///
/// What is wrong is said as `{"error": …, "field": …}`: 400 with the field, 403 (read-only, denied, or
/// without the header), 404 for an unknown name or route, 413 for a body that is too large, 415 for one that is not
/// `application/json`, 503 for a breaker that does not answer and when there are too many listeners. An
/// order for a key of which a family knows nothing yet is obeyed; looking at one is a 404.
///
/// # Security
///
/// - **Looking is open** to whoever reaches the scope: names, reasons and settings may tell much. Wrap the
///   scope in the authentication of your application, or bind it to an address of its own.
/// - **Orders are off** until there is an [authorizer](Self::authorize). It is asked for each, and returns
///   who gives it. Who and why are in the event, the snapshot and the log, as `reason (by who)`; the last
///   parenthesis is the authorizer's. A denied order is logged, too.
/// - **Foreign pages** can neither give orders nor read: an order needs the header `X-Circuit-Breaker`, with
///   any value, and the content type `application/json`, which a page of another origin cannot send without
///   a permission that nothing here gives. An application that allows foreign origins by CORS must not do so
///   for this scope. Against DNS rebinding check the `Host` header, as for anything on a local address.
/// - **The page** is one file that loads nothing from elsewhere, under a content security policy with a nonce of
///   its own for each answer, and cannot be framed. Every name and reason is put in as text.
/// - **Everything is bounded**: bodies ([`max_body`](Self::max_body)), listeners
///   ([`max_clients`](Self::max_clients); one that has read nothing for a minute loses its place to the
///   next), the events that wait for them (256, shared), the history ([`history`](Self::history); of 4,096
///   breakers at most). How slowly anybody reads is felt by nobody else.
#[derive(Clone)]
pub struct Admin {
    breakers: Breakers,
    authorize: Option<Arc<Authorizer>>,
    max_body: usize,
    history: Arc<History>,
    places: Arc<Places>,
    /// Held, for breakers hold their subscribers weakly.
    _recorder: Addr<Recorder>,
}

impl Admin {
    /// Shows these breakers, those made later included, and takes no orders.
    ///
    /// From now on an actor on the current arbiter keeps their last changes.
    ///
    /// # Panics
    ///
    /// Panics outside a running actix system.
    pub fn new(breakers: Breakers) -> Self {
        let history = Arc::new(History::new());
        let recorder = Recorder(Arc::clone(&history)).start();
        breakers.subscribe(recorder.clone());
        Self {
            breakers,
            authorize: None,
            max_body: MAX_BODY,
            history,
            places: Arc::new(Places::new()),
            _recorder: recorder,
        }
    }

    /// Takes orders from those to whom `authorize` gives a name, by which they are known from then on; the
    /// others are told why not.
    ///
    /// It runs on the server's thread, so it must not block: let a middleware find out who it is, and look
    /// that up here. If it panics, the answer is a 500 and nothing is done.
    #[must_use]
    pub fn authorize<F>(mut self, authorize: F) -> Self
    where
        F: Fn(&HttpRequest, &Command) -> Result<String, Denied> + Send + Sync + 'static,
    {
        self.authorize = Some(Arc::new(authorize));
        self
    }

    /// Sets how many may listen to `events` at once, over all clones. Default: 64.
    #[must_use]
    pub fn max_clients(self, max: usize) -> Self {
        self.places.set_max(max);
        self
    }

    /// Sets how many changes of each breaker are kept, for all clones. Default: 32.
    #[must_use]
    pub fn history(self, changes: usize) -> Self {
        self.history.set_changes(changes);
        self
    }

    /// Sets how many bytes the body of an order has at most. Default: 65,536.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Returns how many listen to `events` now.
    pub fn clients(&self) -> usize {
        self.places.in_use()
    }

    /// Returns the scope with all routes, to be mounted at that path.
    pub fn scope(&self, path: &str) -> Scope {
        let order = |path, kind| {
            let give = move |request, payload, admin| order::give(kind, request, payload, admin);
            web::resource(path).route(web::post().to(give))
        };
        let look = |path| web::resource::<&str>(path);
        web::scope(path)
            .app_data(web::Data::new(self.clone()))
            .service(look("").route(web::get().to(page::with_slash)))
            .service(look("/").route(web::get().to(page::page)))
            .service(look("/list").route(web::get().to(read::list)))
            .service(look("/breaker").route(web::get().to(read::one)))
            .service(look("/families").route(web::get().to(read::families)))
            .service(look("/keys").route(web::get().to(read::keys)))
            .service(look("/events").route(web::get().to(events::events)))
            .service(order("/force_open", CommandKind::ForceOpen))
            .service(order("/force_closed", CommandKind::ForceClosed))
            .service(order("/release", CommandKind::Release))
            .service(order("/reset", CommandKind::Reset))
            .service(order("/reconfigure", CommandKind::Reconfigure))
            .default_service(web::to(nowhere))
    }
}

async fn nowhere(request: HttpRequest) -> Result<actix_web::HttpResponse, Problem> {
    Err(Problem::unknown("route", request.path()))
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("breakers", &self.breakers)
            .field("read_only", &self.authorize.is_none())
            .field("clients", &self.clients())
            .finish_non_exhaustive()
    }
}
