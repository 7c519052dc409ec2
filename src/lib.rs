//! Circuit breakers for actix actors.
