//! A guide for those who run services with breakers in them: pages of text, no code of the crate.
//!
//! | page | for whoever asks |
//! | --- | --- |
//! | [`numbers`] | which settings, from the traffic and the latencies I know |
//! | [`alerts`] | what to be woken for, and what not |
//! | [`timeline`] | what happened, from the events |
//! | [`runbook`] | what to do now, with an upstream that does not come back |
//!
//! The numbers on these pages are computed: where a formula is given, the page's code computes and checks them,
//! and is run with the tests.

#[doc = include_str!("guide/numbers.md")]
pub mod numbers {}

#[doc = include_str!("guide/alerts.md")]
pub mod alerts {}

#[doc = include_str!("guide/timeline.md")]
pub mod timeline {}

#[doc = include_str!("guide/runbook.md")]
pub mod runbook {}
