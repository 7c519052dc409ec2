//! Orders over HTTP: read, authorized, carried out.
//! What they do to a breaker is decided by the circuit.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use serde_json::{Map, Value};
use tracing::{error, warn};

use super::answer::Problem;
use super::command::{Command, CommandKind, Target};
use super::{Admin, find, read};
use crate::breaker::Breaker;
use crate::caught::{caught, quietly};
use crate::config::BreakerConfig;
use crate::message::{ForceClosed, ForceOpen, Noted, NotedOrder};
use crate::report;

/// The header that a page of another origin cannot send without asking first.
pub(super) const HEADER: &str = "x-circuit-breaker";

/// How many characters a reason has at most, and the name of whoever gives it.
const LONGEST_TEXT: usize = 500;

/// Obeys an order, or says why not.
pub(super) async fn give(
    kind: CommandKind,
    request: HttpRequest,
    payload: web::Payload,
    admin: web::Data<Admin>,
) -> Result<HttpResponse, Problem> {
    let Some(authorize) = &admin.authorize else {
        return Err(Problem::forbidden("read-only: there is no authorizer"));
    };
    refuse_forgery(&request)?;
    let too_large = |_| {
        let error = format!("the body is larger than {} bytes", admin.max_body);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    };
    let body = payload.to_bytes_limited(admin.max_body).await;
    let body = body
        .map_err(too_large)?
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let command = read_command(kind, &body)?;

    // The authorizer is the user's: a panic of it is a no.
    let who = match caught(|| authorize(&request, &command)) {
        Ok(Ok(who)) => plain(&who),
        Ok(Err(denied)) => {
            tell_denied(&command, &denied.why);
            return Err(Problem::forbidden(denied.why));
        }
        Err(panicked) => {
            quietly(|| error!(target: "actix_circuit_breaker", panicked, "an authorizer panicked"));
            let error = "the authorizer failed";
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error));
        }
    };
    let name = match &command.target {
        Target::Breaker(name) => name,
        Target::Family(name) => {
            let family = find::family(&admin.breakers, name)?;
            let note = noted(&command.reason, &who);
            family.reconfigure(changed(&family.config(), command.config)?);
            report::order(family.name(), "reconfigure all keys", None, Some(&note));
            return read::family(&family);
        }
    };
    let breaker =
        find::any(&admin.breakers, name).ok_or_else(|| Problem::unknown("breaker", name))?;
    obey(&breaker, command, &who).await?;
    read::detail(&admin, &breaker, super::history::CHANGES).await
}

fn tell_denied(command: &Command, why: &str) {
    quietly(|| {
        warn!(
            target: "actix_circuit_breaker",
            breaker = command.breaker(),
            order = %command.kind,
            reason = command.reason.as_str(),
            why,
            "an order over HTTP was denied"
        );
    });
}

/// Refuses what a foreign page could make a browser send.
fn refuse_forgery(request: &HttpRequest) -> Result<(), Problem> {
    if !request.headers().contains_key(HEADER) {
        let error = "orders need the header `X-Circuit-Breaker`, with any value";
        return Err(Problem::forbidden(error));
    }
    let site = request.headers().get("sec-fetch-site");
    if site.is_some_and(|site| site == "cross-site") {
        return Err(Problem::forbidden("orders are not taken from other sites"));
    }
    if !request
        .content_type()
        .eq_ignore_ascii_case("application/json")
    {
        let error = "orders are of the content type `application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
    }
    Ok(())
}

fn read_command(kind: CommandKind, body: &[u8]) -> Result<Command, Problem> {
    let mut fields: Map<String, Value> = serde_json::from_slice(body).map_err(|error| {
        let error = format!("the body is not a JSON object: {error}");
        Problem::field("body", error)
    })?;
    let target = match kind {
        CommandKind::Reconfigure if fields.contains_key("family") => {
            Target::Family(text(&mut fields, "family")?)
        }
        _ => Target::Breaker(text(&mut fields, "breaker")?),
    };
    let reason = text(&mut fields, "reason")?;
    let reason = reason.trim().to_owned();
    if reason.is_empty() {
        return Err(Problem::field("reason", "`reason` is empty: say why"));
    }
    if reason.chars().count() > LONGEST_TEXT || reason.chars().any(char::is_control) {
        let error = format!("`reason` must be on one line of at most {LONGEST_TEXT} characters");
        return Err(Problem::field("reason", error));
    }
    let ttl = match kind {
        CommandKind::ForceOpen | CommandKind::ForceClosed => ttl(&mut fields)?,
        _ => None,
    };
    let config = match kind {
        CommandKind::Reconfigure => settings(&mut fields)?,
        _ => Map::new(),
    };
    if let Some(field) = fields.keys().next() {
        let field: String = field.chars().take(LONGEST_TEXT).collect();
        let error = format!("unknown field `{field}`");
        return Err(Problem::field(field, error));
    }
    Ok(Command {
        target,
        kind,
        reason,
        ttl,
        config,
    })
}

fn text(fields: &mut Map<String, Value>, field: &str) -> Result<String, Problem> {
    match fields.remove(field) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Problem::field(field, format!("`{field}` must be a text"))),
        None => Err(Problem::field(field, format!("`{field}` is missing"))),
    }
}

fn ttl(fields: &mut Map<String, Value>) -> Result<Option<Duration>, Problem> {
    let text = match fields.remove("ttl") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text,
        Some(_) => String::new(),
    };
    humantime::parse_duration(&text).map(Some).map_err(|error| {
        let error = format!("`ttl` must be a span of time such as \"30s\" or \"1h 30m\" ({error})");
        Problem::field("ttl", error)
    })
}

fn settings(fields: &mut Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    match fields.remove("config") {
        Some(Value::Object(settings)) if !settings.is_empty() => Ok(settings),
        _ => {
            let error = "`config` must be an object of the settings to change";
            Err(Problem::field("config", error))
        }
    }
}

/// A name on one line, of a bearable length.
fn plain(who: &str) -> String {
    let who = who.trim();
    if who.is_empty() {
        return "unnamed".to_owned();
    }
    let one_line = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    who.chars().take(LONGEST_TEXT).map(one_line).collect()
}

fn noted(reason: &str, who: &str) -> String {
    format!("{reason} (by {who})")
}

async fn obey(breaker: &Breaker, command: Command, who: &str) -> Result<(), Problem> {
    let Command {
        kind,
        reason,
        ttl,
        config,
        ..
    } = command;
    let note: Arc<str> = noted(&reason, who).into();
    let order = match kind {
        CommandKind::ForceOpen => {
            let mut order = ForceOpen::new(note);
            order.ttl = ttl;
            return Ok(read::answered(breaker, breaker.force_open(order)).await??);
        }
        CommandKind::ForceClosed => {
            let mut order = ForceClosed::new(note);
            order.ttl = ttl;
            return Ok(read::answered(breaker, breaker.force_closed(order)).await??);
        }
        CommandKind::Release => NotedOrder::Release,
        CommandKind::Reset => NotedOrder::Reset,
        CommandKind::Reconfigure => {
            let present = read::answered(breaker, breaker.snapshot()).await?.config;
            NotedOrder::Reconfigure(changed(&present, config)?)
        }
    };
    let order = Noted { order, note };
    read::answered(breaker, breaker.addr().send(order)).await
}

/// The present settings with some of them changed.
fn changed(present: &BreakerConfig, changes: Map<String, Value>) -> Result<BreakerConfig, Problem> {
    let unreadable = |error: serde_json::Error| {
        let error = format!("`config`: {error}");
        Problem::field("config", error)
    };
    let mut settings = match serde_json::to_value(present).map_err(unreadable)? {
        Value::Object(settings) => settings,
        _ => Map::new(),
    };
    // A rule of the user's own cannot be written as text; it stays unless another policy is given.
    let keeps_policy = !changes.contains_key("trip");
    if keeps_policy {
        settings.remove("trip");
    }
    for (name, value) in changes {
        if value.is_null() {
            settings.remove(&name);
        } else {
            settings.insert(name, value);
        }
    }
    let read: BreakerConfig =
        serde_json::from_value(Value::Object(settings)).map_err(unreadable)?;
    if keeps_policy {
        let kept = read.to_builder().trip(present.trip().clone());
        return Ok(kept.build()?);
    }
    Ok(read)
}
