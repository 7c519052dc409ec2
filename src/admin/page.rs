//! The page: one file, served with a policy that lets nothing else run or load.
//! What it shows comes from the other routes.

use std::hash::{BuildHasher, Hasher, RandomState};

use actix_web::http::StatusCode;
use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse};

use super::answer::begin;

const PAGE: &str = include_str!("page.html");

pub(super) async fn page() -> HttpResponse {
    let nonce = nonce();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    begin(StatusCode::OK)
        .content_type("text/html; charset=utf-8")
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .insert_header((header::X_FRAME_OPTIONS, "DENY"))
        .insert_header((header::REFERRER_POLICY, "no-referrer"))
        .body(PAGE.replace("{{nonce}}", &nonce))
}

/// What the page asks for is relative to it, so its address ends with a slash.
pub(super) async fn with_slash(request: HttpRequest) -> HttpResponse {
    let last = request.path().rsplit('/').next().unwrap_or_default();
    begin(StatusCode::PERMANENT_REDIRECT)
        .insert_header((header::LOCATION, format!("./{last}/")))
        .finish()
}

/// A number that cannot be foretold: of hashers whose keys come from the system's random source.
fn nonce() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}
