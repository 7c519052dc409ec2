//! Rejections as answers of an actix-web handler: `503 Service Unavailable` with `Retry-After`.
//! What they say to callers inside the program is in `error.rs`.

use std::fmt;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpResponse, ResponseError};

use crate::error::{AskError, CallError, Rejected};

/// A span in whole seconds, rounded up, so that nobody comes back too early.
fn seconds(span: Duration) -> u64 {
    let more = u64::from(span.subsec_nanos() > 0);
    span.as_secs().saturating_add(more)
}

fn unavailable(error: &dyn fmt::Display, retry_after: Option<Duration>) -> HttpResponse {
    let mut response = HttpResponse::build(StatusCode::SERVICE_UNAVAILABLE);
    if let Some(after) = retry_after {
        response.insert_header((header::RETRY_AFTER, HeaderValue::from(seconds(after))));
    }
    response
        .content_type("text/plain; charset=utf-8")
        .body(error.to_string())
}

/// `503 Service Unavailable`, with `Retry-After` in whole seconds, rounded up, where the rejection knows it.
impl ResponseError for Rejected {
    fn status_code(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn error_response(&self) -> HttpResponse {
        unavailable(self, self.retry_after())
    }
}

/// `503 Service Unavailable`, with `Retry-After` in whole seconds, rounded up, where it is known.
impl ResponseError for AskError {
    fn status_code(&self) -> StatusCode {
        StatusCode::SERVICE_UNAVAILABLE
    }

    fn error_response(&self) -> HttpResponse {
        unavailable(self, self.retry_after())
    }
}

/// The call's own error answers for itself; the others are `503 Service Unavailable`, with `Retry-After` in
/// whole seconds, rounded up, where it is known.
impl<E: ResponseError> ResponseError for CallError<E> {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::Failed(error) => error.status_code(),
            Self::Rejected(_) | Self::Timeout(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn error_response(&self) -> HttpResponse {
        match self {
            Self::Failed(error) => error.error_response(),
            Self::Rejected(_) | Self::Timeout(_) => unavailable(self, self.retry_after()),
        }
    }
}
