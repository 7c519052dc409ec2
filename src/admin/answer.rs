//! What is answered over HTTP: JSON, and what is wrong with a request.
//! Which request gets which is decided by its handler.

use std::fmt;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError};
use serde::Serialize;

use crate::config::ConfigError;

/// A request that is not answered with what it asked for.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    #[serde(skip)]
    status: StatusCode,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
            field: None,
        }
    }

    /// Something is wrong with a field of the body or of the query.
    pub(super) fn field(field: impl Into<String>, error: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            error: error.into(),
            field: Some(field.into()),
        }
    }

    pub(super) fn forbidden(error: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, error)
    }

    pub(super) fn unknown(what: &str, name: &str) -> Self {
        let error = format!("there is no {what} `{}`", shortened(name));
        Self::new(StatusCode::NOT_FOUND, error)
    }

    /// A breaker's actor did not answer.
    pub(super) fn silent(name: &str) -> Self {
        let error = format!("breaker `{name}` does not answer");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }
}

/// As much of a foreign text as an answer repeats.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        Self::field(error.field(), error.to_string())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.status
    }

    fn error_response(&self) -> HttpResponse {
        let body = serde_json::to_string(self).unwrap_or_default();
        begin(self.status)
            .content_type("application/json")
            .body(body)
    }
}

/// Begins an answer: nothing here may be cached, or taken for something else than it says it is.
pub(super) fn begin(status: StatusCode) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ));
    response
}

pub(super) fn json(value: &impl Serialize) -> Result<HttpResponse, Problem> {
    let body = serde_json::to_string(value)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(begin(StatusCode::OK)
        .content_type("application/json")
        .body(body))
}
