//! The settings: what is refused and how it is said, what text reads as, and the defaults (R33).
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test, and the numbers are small"
)]

use std::sync::Arc;
use std::time::Duration;

use actix_circuit_breaker::circuit::Circuit;
use actix_circuit_breaker::{
    Backoff, BreakerConfig, BreakerConfigBuilder, ConfigError, Hold, RampUp, SlowCall, Timestamp,
    TripPolicy, TripRule, Window,
};
use proptest::prelude::*;

const COUNT: &str = "a count of 1 or more";
const SHARE: &str = "a number above 0 and at most 1";
const SPAN: &str = "a span from 1 µs to 2^53 - 1 µs (about 285 years)";
const TEXT_SPAN: &str = "a span of time with its unit, such as \"30s\", \"250ms\" or \"1m 30s\"";

/// 2^53 µs, the first span that is too long.
const TOO_LONG: Duration = Duration::from_micros(1 << 53);
const LONGEST: Duration = Duration::from_micros((1 << 53) - 1);
const CENTURY: Duration = Duration::from_secs(100 * 366 * 86_400);

fn builder() -> BreakerConfigBuilder {
    BreakerConfig::builder()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Asserts that an error names the field, its value and its range, by parts and in its text.
#[track_caller]
fn says(error: &ConfigError, field: &str, value: &str, range: &str) {
    assert_eq!(
        (error.field(), error.value(), error.range()),
        (field, value, range)
    );
    assert_eq!(
        error.to_string(),
        format!("`{field}` is {value}, must be {range}")
    );
}

#[track_caller]
fn refused(builder: BreakerConfigBuilder, field: &str, value: &str, range: &str) {
    says(&builder.build().unwrap_err(), field, value, range);
}

fn consecutive(failures: u32, within: Option<Duration>) -> TripPolicy {
    TripPolicy::ConsecutiveFailures { failures, within }
}

fn count(failures: u32, within: Duration) -> TripPolicy {
    TripPolicy::FailureCount {
        failures,
        within,
        reset_on_success: false,
    }
}

fn rate(rate: f64, minimum_calls: u32, window: Window, slow_call: Option<SlowCall>) -> TripPolicy {
    TripPolicy::FailureRate {
        rate,
        minimum_calls,
        window,
        slow_call,
    }
}

struct Rule {
    lookback: Duration,
}

impl TripRule for Rule {
    fn trips(&self, _failures: &[Timestamp], _now: Timestamp) -> bool {
        false
    }

    fn lookback(&self) -> Duration {
        self.lookback
    }
}

fn custom(lookback: Duration) -> TripPolicy {
    TripPolicy::Custom(Arc::new(Rule { lookback }))
}

// ---------------------------------------------------------------------------------------------------
// Refused by the builder.

// R33, FAILURE_CASES 88, 89
#[test]
fn a_count_of_zero_is_refused() {
    let calls = Window::Calls;
    refused(builder().max_probes(0), "max_probes", "0", COUNT);
    refused(
        builder().successes_to_close(0),
        "successes_to_close",
        "0",
        COUNT,
    );
    refused(
        builder().max_inconclusive(0),
        "max_inconclusive",
        "0",
        COUNT,
    );
    refused(
        builder().trip(consecutive(0, None)),
        "trip.failures",
        "0",
        COUNT,
    );
    refused(
        builder().trip(count(0, secs(1))),
        "trip.failures",
        "0",
        COUNT,
    );
    refused(
        builder().trip(rate(0.5, 0, calls(5), None)),
        "trip.minimum_calls",
        "0",
        COUNT,
    );
    refused(
        builder().trip(rate(0.5, 1, calls(0), None)),
        "trip.window.calls",
        "0",
        COUNT,
    );
    refused(
        builder().hold(Hold::new(0, secs(1), secs(1))),
        "hold.capacity",
        "0",
        COUNT,
    );
}

/// Every setting that is a span, in a builder that is otherwise valid.
fn with_span(span: Duration) -> Vec<(&'static str, BreakerConfigBuilder)> {
    let slow = Some(SlowCall::new(span, 0.5));
    vec![
        ("call_timeout", builder().call_timeout(span)),
        ("break_duration", builder().break_duration(span)),
        ("backoff.max", builder().backoff(Backoff::new(2.0, span))),
        ("probe_timeout", builder().probe_timeout(span)),
        (
            "ramp_up.duration",
            builder().ramp_up(RampUp::new(span, 0.5)),
        ),
        ("trip.within", builder().trip(consecutive(1, Some(span)))),
        ("trip.within", builder().trip(count(1, span))),
        (
            "trip.window.time",
            builder().trip(rate(0.5, 1, Window::Time(span), None)),
        ),
        (
            "trip.slow_call.duration",
            builder().trip(rate(0.5, 1, Window::Calls(1), slow)),
        ),
        ("trip.lookback", builder().trip(custom(span))),
        ("hold.held_ttl", builder().hold(Hold::new(1, span, secs(1)))),
        (
            "hold.release_interval",
            builder().hold(Hold::new(1, secs(1), span)),
        ),
    ]
}

// R33, FAILURE_CASES 88, 92, 98
#[test]
fn a_span_of_zero_or_below_a_microsecond_is_refused() {
    for (span, value) in [
        (Duration::ZERO, "0s"),
        (Duration::from_nanos(1), "1ns"),
        (Duration::from_nanos(999), "999ns"),
    ] {
        for (field, builder) in with_span(span) {
            refused(builder, field, value, SPAN);
        }
    }
}

// R33, R3, FAILURE_CASES 97
#[test]
fn a_span_of_two_to_the_53_microseconds_or_more_is_refused() {
    for (span, value) in [
        (TOO_LONG, "285years 5months 1day 12h 59m 34s 740ms 992us"),
        (
            micros(u64::MAX),
            "584542years 16days 20h 1m 49s 551ms 615us",
        ),
        (
            Duration::MAX,
            "584542046090years 7months 15days 17h 5m 3s 999ms 999us 999ns",
        ),
    ] {
        for (field, builder) in with_span(span) {
            refused(builder, field, value, SPAN);
        }
    }
}

// R33, R20
#[test]
fn the_longest_span_and_a_century_are_accepted() {
    for span in [LONGEST, CENTURY] {
        builder().break_duration(span).build().unwrap();
        builder().backoff(Backoff::new(2.0, span)).build().unwrap();
        builder().probe_timeout(span).build().unwrap();
        builder().ramp_up(RampUp::new(span, 0.5)).build().unwrap();
        builder().trip(consecutive(1, Some(span))).build().unwrap();
        builder().trip(count(1, span)).build().unwrap();
        builder()
            .trip(rate(0.5, 1, Window::Time(span), None))
            .build()
            .unwrap();
        builder().trip(custom(span)).build().unwrap();
        builder().hold(Hold::new(1, span, span)).build().unwrap();
    }
    let config = builder().call_timeout(CENTURY).build().unwrap();
    assert_eq!(config.probe_timeout(), CENTURY * 2);
    // The derived probe timeout cannot be longer than the longest span.
    let config = builder().call_timeout(LONGEST - micros(1)).build().unwrap();
    assert_eq!(config.probe_timeout(), LONGEST);
    let error = builder().call_timeout(LONGEST).build().unwrap_err();
    assert_eq!(error.field(), "call_timeout");
}

// R33, FAILURE_CASES 98
#[test]
fn the_shortest_span_is_a_microsecond_and_fractions_are_cut() {
    let least = micros(1);
    let config = builder()
        .call_timeout(least)
        .break_duration(least)
        .build()
        .unwrap();
    assert_eq!(config.probe_timeout(), micros(2));
    let config = builder()
        .break_duration(Duration::from_nanos(1_999))
        .build()
        .unwrap();
    assert_eq!(config.break_duration(), least);
    let config = builder()
        .trip(count(1, Duration::from_nanos(2_999)))
        .build()
        .unwrap();
    assert_eq!(config.trip(), &count(1, micros(2)));
    let config = builder()
        .ramp_up(RampUp::new(Duration::from_nanos(1_999), 0.5))
        .build()
        .unwrap();
    assert_eq!(config.ramp_up(), Some(RampUp::new(least, 0.5)));
}

// R33, R36, FAILURE_CASES 91
#[test]
fn a_rate_outside_its_range_is_refused() {
    for (share, value) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (0.0, "0"),
        (-0.0, "-0"),
        (-0.1, "-0.1"),
        (1.0001, "1.0001"),
    ] {
        let slow = Some(SlowCall::new(secs(1), share));
        refused(
            builder().trip(rate(share, 1, Window::Calls(1), None)),
            "trip.rate",
            value,
            SHARE,
        );
        refused(
            builder().trip(rate(0.5, 1, Window::Time(secs(1)), slow)),
            "trip.slow_call.rate",
            value,
            SHARE,
        );
        refused(
            builder().ramp_up(RampUp::new(secs(30), share)),
            "ramp_up.initial_share",
            value,
            SHARE,
        );
    }
    for share in [f64::MIN_POSITIVE, 0.5, 1.0] {
        builder()
            .ramp_up(RampUp::new(secs(30), share))
            .build()
            .unwrap();
        let slow = Some(SlowCall::new(secs(1), share));
        builder()
            .trip(rate(share, 1, Window::Calls(1), slow))
            .build()
            .unwrap();
    }
}

// R33
#[test]
fn a_jitter_or_enforcement_outside_its_range_is_refused() {
    for (share, value) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (-0.01, "-0.01"),
        (1.01, "1.01"),
    ] {
        for (builder, field) in [
            (builder().jitter(share), "jitter"),
            (builder().enforcement(share), "enforcement"),
        ] {
            refused(builder, field, value, "a number from 0 to 1");
        }
    }
    for share in [0.0, 0.5, 1.0] {
        assert_eq!(
            builder().jitter(share).build().unwrap().jitter().to_bits(),
            share.to_bits()
        );
        let config = builder().enforcement(share).build().unwrap();
        assert_eq!(config.enforcement().to_bits(), share.to_bits());
    }
}

// R33
#[test]
fn a_backoff_factor_below_one_or_not_finite_is_refused() {
    for (factor, value) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (0.0, "0"),
        (0.999, "0.999"),
        (-2.0, "-2"),
    ] {
        let backoff = Backoff::new(factor, secs(60));
        refused(
            builder().backoff(backoff),
            "backoff.factor",
            value,
            "a finite number of 1 or more",
        );
    }
    builder()
        .backoff(Backoff::new(1.0, secs(60)))
        .build()
        .unwrap();
}

// R33
#[test]
fn a_backoff_max_below_the_break_duration_is_refused() {
    refused(
        builder().backoff(Backoff::new(2.0, secs(29))),
        "backoff.max",
        "29s",
        "at least `break_duration`, which is 30s",
    );
    let below = Backoff::new(2.0, secs(30) - micros(1));
    assert_eq!(
        builder().backoff(below).build().unwrap_err().field(),
        "backoff.max"
    );
    builder()
        .backoff(Backoff::new(2.0, secs(30)))
        .build()
        .unwrap();
}

// R33
#[test]
fn more_minimum_calls_than_the_window_holds_are_refused() {
    refused(
        builder().trip(rate(0.5, 6, Window::Calls(5), None)),
        "trip.minimum_calls",
        "6",
        "at most `trip.window.calls`, which is 5",
    );
    builder()
        .trip(rate(0.5, 5, Window::Calls(5), None))
        .build()
        .unwrap();
    builder()
        .trip(rate(0.5, u32::MAX, Window::Time(secs(1)), None))
        .build()
        .unwrap();
}

// R33
#[test]
fn a_slow_call_as_long_as_the_call_timeout_is_refused() {
    let slow = |duration| rate(0.5, 1, Window::Calls(1), Some(SlowCall::new(duration, 0.5)));
    for (duration, value) in [(secs(5), "5s"), (secs(6), "6s")] {
        refused(
            builder().trip(slow(duration)),
            "trip.slow_call.duration",
            value,
            "less than `call_timeout`, which is 5s",
        );
    }
    builder().trip(slow(secs(5) - micros(1))).build().unwrap();
    builder()
        .trip(slow(secs(5)))
        .call_timeout(secs(6))
        .build()
        .unwrap();
}

// R33, R16
#[test]
fn a_probe_timeout_not_above_the_call_timeout_is_refused() {
    for (timeout, value) in [(secs(5), "5s"), (secs(4), "4s")] {
        refused(
            builder().probe_timeout(timeout),
            "probe_timeout",
            value,
            "more than `call_timeout`, which is 5s",
        );
    }
    let least = secs(5) + micros(1);
    assert_eq!(
        builder()
            .probe_timeout(least)
            .build()
            .unwrap()
            .probe_timeout(),
        least
    );
}

// R16
#[test]
fn the_probe_timeout_is_derived_from_break_and_call_timeout() {
    let derived = |call, length| {
        let config = builder()
            .call_timeout(secs(call))
            .break_duration(secs(length));
        config.build().unwrap().probe_timeout()
    };
    assert_eq!(derived(5, 30), secs(30));
    assert_eq!(derived(20, 30), secs(40));
    assert_eq!(derived(15, 30), secs(30));
    // Derived anew from changed settings, unless it was set.
    let config = builder().build().unwrap();
    let longer = config
        .to_builder()
        .break_duration(secs(90))
        .build()
        .unwrap();
    assert_eq!(longer.probe_timeout(), secs(90));
    let config = builder().probe_timeout(secs(31)).build().unwrap();
    let longer = config
        .to_builder()
        .break_duration(secs(90))
        .build()
        .unwrap();
    assert_eq!(longer.probe_timeout(), secs(31));
}

// R33, R13
#[test]
fn more_successes_to_close_than_probes_at_once_are_accepted() {
    let config = builder()
        .max_probes(1)
        .successes_to_close(4)
        .build()
        .unwrap();
    assert_eq!((config.max_probes(), config.successes_to_close()), (1, 4));
}

// R33, R18
#[test]
fn a_custom_rule_that_panics_when_asked_for_its_lookback_is_refused() {
    struct Panics;

    impl TripRule for Panics {
        fn trips(&self, _failures: &[Timestamp], _now: Timestamp) -> bool {
            false
        }

        fn lookback(&self) -> Duration {
            panic!("no lookback");
        }
    }

    refused(
        builder().trip(TripPolicy::Custom(Arc::new(Panics))),
        "trip.custom",
        "a rule that panics",
        "a rule that can say its lookback",
    );
}

// R33, R23
#[test]
fn a_ttl_of_zero_or_too_long_is_refused_and_changes_nothing() {
    let now = Timestamp::from_micros(1_000);
    let mut circuit = Circuit::new(BreakerConfig::default(), now);
    circuit
        .force_closed(Some(micros(5)), "a reason", now)
        .unwrap();
    while circuit.pop_transition().is_some() {}
    let record = circuit.record().clone();
    let later = now + secs(1);
    for (ttl, value) in [
        (Duration::ZERO, "0s"),
        (Duration::from_nanos(999), "999ns"),
        (TOO_LONG, "285years 5months 1day 12h 59m 34s 740ms 992us"),
        (
            Duration::MAX,
            "584542046090years 7months 15days 17h 5m 3s 999ms 999us 999ns",
        ),
    ] {
        says(
            &circuit.force_open(Some(ttl), "no", later).unwrap_err(),
            "ttl",
            value,
            SPAN,
        );
        says(
            &circuit.force_closed(Some(ttl), "no", later).unwrap_err(),
            "ttl",
            value,
            SPAN,
        );
        assert_eq!(circuit.record(), &record);
        assert_eq!(circuit.pop_transition(), None);
    }
    circuit
        .force_open(Some(CENTURY), "for good", later)
        .unwrap();
    circuit
        .force_closed(Some(micros(1)), "hardly", later)
        .unwrap();
}

// FAILURE_CASES 97
#[test]
fn a_break_of_a_century_ends_after_a_century() {
    let trip = consecutive(1, None);
    let config = builder()
        .trip(trip)
        .break_duration(CENTURY)
        .build()
        .unwrap();
    let now = Timestamp::from_micros(1_754_000_000_000_000);
    let mut circuit = Circuit::new(config, now);
    let permit = circuit.try_acquire(now).unwrap();
    circuit.settle(permit, actix_circuit_breaker::Outcome::Failure, now);
    let decade = now + secs(10 * 365 * 86_400);
    let refused = circuit.try_acquire(decade).unwrap_err();
    assert_eq!(
        refused.retry_after(),
        Some(CENTURY - secs(10 * 365 * 86_400))
    );
    assert!(circuit.try_acquire(now + CENTURY).unwrap().is_probe());
}

// ---------------------------------------------------------------------------------------------------
// Text.

fn toml(text: &str) -> Result<BreakerConfig, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

fn json(text: &str) -> Result<BreakerConfig, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The same in both formats; the JSON is made from the TOML.
#[track_caller]
fn read(text: &str) -> Result<BreakerConfig, (String, String)> {
    let table: toml::Table = toml::from_str(text).expect("valid TOML");
    let as_json = serde_json::to_string(&table).unwrap();
    match (toml(text), json(&as_json)) {
        (Ok(from_toml), Ok(from_json)) => {
            assert_eq!(from_toml, from_json, "{text}");
            Ok(from_toml)
        }
        (Err(from_toml), Err(from_json)) => Err((from_toml, from_json)),
        (from_toml, from_json) => panic!("{text}: {from_toml:?}, but {as_json}: {from_json:?}"),
    }
}

/// Asserts that both formats refuse the text and say all of `parts`.
#[track_caller]
fn text_refused(text: &str, parts: &[&str]) {
    let (from_toml, from_json) = read(text).expect_err(text);
    for error in [from_toml, from_json] {
        for part in parts {
            assert!(
                error.contains(part),
                "{text}: {error:?} does not say {part:?}"
            );
        }
    }
}

#[track_caller]
fn text_says(text: &str, field: &str, value: &str, range: &str) {
    text_refused(text, &[&format!("`{field}` is {value}, must be {range}")]);
}

const COUNT_TEXT: &str = "a whole number from 1 to 4294967295";

// R33, FAILURE_CASES 88
#[test]
fn text_with_a_count_of_zero_is_refused() {
    text_says("max_probes = 0", "max_probes", "0", COUNT);
    text_says("successes_to_close = 0", "successes_to_close", "0", COUNT);
    text_says("max_inconclusive = 0", "max_inconclusive", "0", COUNT);
    text_says(
        "trip.consecutive_failures.failures = 0",
        "trip.failures",
        "0",
        COUNT,
    );
    text_says(
        "trip.failure_count = { failures = 0, within = '1s' }",
        "trip.failures",
        "0",
        COUNT,
    );
    text_says(
        "trip.failure_rate = { rate = 0.5, minimum_calls = 0, window.calls = 5 }",
        "trip.minimum_calls",
        "0",
        COUNT,
    );
    text_says(
        "trip.failure_rate = { rate = 0.5, minimum_calls = 1, window.calls = 0 }",
        "trip.window.calls",
        "0",
        COUNT,
    );
}

// R33
#[test]
fn text_with_a_count_that_is_no_count_is_refused() {
    for value in ["-1", "1.5", "4294967296", "true", "\"3\""] {
        for field in ["max_probes", "successes_to_close", "max_inconclusive"] {
            text_says(&format!("{field} = {value}"), field, value, COUNT_TEXT);
        }
        let trip = format!("trip.consecutive_failures.failures = {value}");
        text_says(&trip, "trip.failures", value, COUNT_TEXT);
    }
}

/// Every setting that is a span, as text.
fn text_with_span(span: &str) -> [(&'static str, String); 11] {
    let rate = "rate = 0.5, minimum_calls = 1";
    [
        (
            "hold.held_ttl",
            format!("hold = {{ capacity = 1, held_ttl = {span}, release_interval = '1s' }}"),
        ),
        (
            "hold.release_interval",
            format!("hold = {{ capacity = 1, held_ttl = '1s', release_interval = {span} }}"),
        ),
        ("call_timeout", format!("call_timeout = {span}")),
        ("break_duration", format!("break_duration = {span}")),
        (
            "backoff.max",
            format!("backoff = {{ factor = 2.0, max = {span} }}"),
        ),
        ("probe_timeout", format!("probe_timeout = {span}")),
        (
            "ramp_up.duration",
            format!("ramp_up = {{ duration = {span}, initial_share = 0.1 }}"),
        ),
        (
            "trip.within",
            format!("trip.consecutive_failures = {{ failures = 1, within = {span} }}"),
        ),
        (
            "trip.within",
            format!("trip.failure_count = {{ failures = 1, within = {span} }}"),
        ),
        (
            "trip.window.time",
            format!("trip.failure_rate = {{ {rate}, window.time = {span} }}"),
        ),
        (
            "trip.slow_call.duration",
            format!(
                "trip.failure_rate = {{ {rate}, window.calls = 1, \
                 slow_call = {{ duration = {span}, rate = 0.5 }} }}"
            ),
        ),
    ]
}

// R33
#[test]
fn text_with_a_span_out_of_range_is_refused() {
    for (span, value) in [
        ("'0s'", "0s"),
        ("'999ns'", "999ns"),
        ("'300years'", "300years"),
        (
            "'9007199254740992us'",
            "285years 5months 1day 12h 59m 34s 740ms 992us",
        ),
    ] {
        for (field, text) in text_with_span(span) {
            text_says(&text, field, value, SPAN);
        }
    }
}

// R33, FAILURE_CASES 95
#[test]
fn a_bare_number_is_no_span() {
    for span in ["30", "0", "-5", "1.5", "true"] {
        for (field, text) in text_with_span(span) {
            text_says(&text, field, span, TEXT_SPAN);
        }
    }
}

// R33, FAILURE_CASES 95
#[test]
fn a_span_without_a_unit_or_with_a_sign_is_refused() {
    for span in [
        "\"30\"",
        "\"\"",
        "\"-5s\"",
        "\"5 parsecs\"",
        "\"s\"",
        "\"99999999999999999999s\"",
    ] {
        for (field, text) in text_with_span(span) {
            text_refused(
                &text,
                &[&format!("`{field}` is {span}, must be {TEXT_SPAN} (")],
            );
        }
    }
}

// R33
#[test]
fn text_with_a_share_out_of_range_is_refused() {
    let with_rate = |share: &str| {
        format!("trip.failure_rate = {{ rate = {share}, minimum_calls = 1, window.calls = 5 }}")
    };
    let with_slow = |share: &str| {
        format!(
            "trip.failure_rate = {{ rate = 1, minimum_calls = 1, window.time = '5s', \
             slow_call = {{ duration = '1s', rate = {share} }} }}"
        )
    };
    for (share, value) in [
        ("0.0", "0"),
        ("0", "0"),
        ("-0.5", "-0.5"),
        ("-1", "-1"),
        ("1.5", "1.5"),
        ("2", "2"),
    ] {
        text_says(&with_rate(share), "trip.rate", value, SHARE);
        text_says(&with_slow(share), "trip.slow_call.rate", value, SHARE);
    }
    for (share, value) in [("-0.5", "-0.5"), ("-1", "-1"), ("1.5", "1.5"), ("2", "2")] {
        for field in ["jitter", "enforcement"] {
            let text = format!("{field} = {share}");
            text_says(&text, field, value, "a number from 0 to 1");
        }
    }
    text_says(&with_rate("\"half\""), "trip.rate", "\"half\"", "a number");
    text_says("jitter = true", "jitter", "true", "a number");
    text_says("enforcement = 'off'", "enforcement", "\"off\"", "a number");
    let with_ramp = |share| format!("ramp_up = {{ duration = '1m', initial_share = {share} }}");
    for share in ["0.0", "-0.5", "1.5"] {
        let value = share.trim_end_matches(".0");
        text_says(&with_ramp(share), "ramp_up.initial_share", value, SHARE);
    }
    text_says(
        &with_ramp("'10%'"),
        "ramp_up.initial_share",
        "\"10%\"",
        "a number",
    );
    // JSON has none of these.
    for (share, value) in [("nan", "NaN"), ("inf", "inf"), ("-inf", "-inf")] {
        for (text, field) in [
            (with_rate(share), "trip.rate"),
            (with_slow(share), "trip.slow_call.rate"),
            (format!("jitter = {share}"), "jitter"),
            (format!("enforcement = {share}"), "enforcement"),
            (with_ramp(share), "ramp_up.initial_share"),
            (
                format!("backoff = {{ factor = {share}, max = '1h' }}"),
                "backoff.factor",
            ),
        ] {
            let error = toml(&text).unwrap_err();
            assert!(
                error.contains(&format!("`{field}` is {value}, must be ")),
                "{error}"
            );
        }
    }
}

// R33
#[test]
fn text_with_settings_that_do_not_fit_each_other_is_refused() {
    text_says(
        "backoff = { factor = 2, max = '29s' }",
        "backoff.max",
        "29s",
        "at least `break_duration`, which is 30s",
    );
    text_says(
        "backoff = { factor = 0.5, max = '1h' }",
        "backoff.factor",
        "0.5",
        "a finite number of 1 or more",
    );
    text_says(
        "trip.failure_rate = { rate = 0.5, minimum_calls = 6, window.calls = 5 }",
        "trip.minimum_calls",
        "6",
        "at most `trip.window.calls`, which is 5",
    );
    text_says(
        "trip.failure_rate = { rate = 0.5, minimum_calls = 1, window.calls = 5, \
         slow_call = { duration = '5s', rate = 0.5 } }",
        "trip.slow_call.duration",
        "5s",
        "less than `call_timeout`, which is 5s",
    );
    text_says(
        "probe_timeout = '5s'",
        "probe_timeout",
        "5s",
        "more than `call_timeout`, which is 5s",
    );
    let hold = "held_ttl = '1s', release_interval = '1s'";
    text_says(
        &format!("hold = {{ capacity = 0, {hold} }}"),
        "hold.capacity",
        "0",
        COUNT,
    );
    text_says(
        &format!("hold = {{ capacity = 1, growing = 1, {hold} }}"),
        "hold.growing",
        "1",
        "true or false",
    );
    text_says(
        "trip.failure_count = { failures = 1, within = '1s', reset_on_success = 1 }",
        "trip.reset_on_success",
        "1",
        "true or false",
    );
}

// R33
#[test]
fn unknown_and_missing_fields_are_refused_by_name() {
    text_refused(
        "break_time = '5s'",
        &["unknown field `break_time`", "`break_duration`"],
    );
    text_refused(
        "backoff = { factor = 2, max = '1h', min = '1s' }",
        &["`backoff`", "unknown field `min`"],
    );
    text_refused(
        "backoff = { factor = 2 }",
        &["`backoff`", "missing field `max`"],
    );
    text_refused(
        "backoff = { max = '1h' }",
        &["`backoff`", "missing field `factor`"],
    );
    text_refused(
        "hold = { capacity = 1, held_ttl = '1s' }",
        &["`hold`", "missing field `release_interval`"],
    );
    text_refused(
        "hold = { capacity = 1, held_ttl = '1s', release_interval = '1s', ttl = '1s' }",
        &["`hold`", "unknown field `ttl`"],
    );
    text_refused(
        "ramp_up = { duration = '30s', initial_share = 0.1, steps = 3 }",
        &["`ramp_up`", "unknown field `steps`"],
    );
    text_refused(
        "ramp_up = { duration = '30s' }",
        &["`ramp_up`", "missing field `initial_share`"],
    );
    text_refused(
        "ramp_up = { initial_share = 0.1 }",
        &["`ramp_up`", "missing field `duration`"],
    );
    text_refused(
        "trip.failure_counts.failures = 1",
        &["`trip`", "unknown variant `failure_counts`"],
    );
    text_refused(
        "trip.consecutive_failures = { failures = 1, window = '1s' }",
        &["`trip`", "window", "failures", "within"],
    );
    text_refused(
        "trip.failure_count.failures = 1",
        &["`trip`", "missing field `within`"],
    );
    text_refused(
        "trip.failure_rate = { rate = 0.5, minimum_calls = 1, window.days = 5 }",
        &["`window`", "unknown variant `days`"],
    );
    text_refused(
        "trip.failure_rate = { rate = 0.5, minimum_calls = 1, window.calls = 5, \
         slow_call = { duration = '1s', rate = 0.5, burst = 1 } }",
        &["`slow_call`", "unknown field `burst`"],
    );
}

// R33
#[test]
fn empty_text_reads_as_the_defaults() {
    assert_eq!(read("").unwrap(), BreakerConfig::default());
    assert_eq!(json("{}").unwrap(), builder().build().unwrap());
}

// R33, FAILURE_CASES 95
#[test]
fn spans_are_read_with_their_units() {
    for (text, span) in [
        ("30s", secs(30)),
        ("250ms", Duration::from_millis(250)),
        ("1m 30s", secs(90)),
        ("1m30s", secs(90)),
        ("7us", micros(7)),
        ("2h", secs(7_200)),
        ("1day", secs(86_400)),
        ("1500ns", micros(1)),
    ] {
        let config = read(&format!("break_duration = '{text}'")).unwrap();
        assert_eq!(config.break_duration(), span, "{text}");
    }
}

// R33
#[test]
fn text_sets_every_setting() {
    let config = read(
        "call_timeout = '800ms'\n\
         break_duration = '10s'\n\
         backoff = { factor = 2, max = '2m' }\n\
         jitter = 0.25\n\
         max_probes = 3\n\
         successes_to_close = 4\n\
         probe_timeout = '11s'\n\
         max_inconclusive = 7\n\
         hold = { capacity = 1000, held_ttl = '10m', release_interval = '100ms', growing = true }\n\
         ramp_up = { duration = '30s', initial_share = 0.125 }\n\
         enforcement = 0.5\n\
         [trip.failure_rate]\n\
         rate = 1\n\
         minimum_calls = 20\n\
         window.time = '1m'\n\
         slow_call = { duration = '500ms', rate = 0.75 }\n",
    );
    let slow = Some(SlowCall::new(Duration::from_millis(500), 0.75));
    let same = builder()
        .call_timeout(Duration::from_millis(800))
        .break_duration(secs(10))
        .backoff(Backoff::new(2.0, secs(120)))
        .jitter(0.25)
        .max_probes(3)
        .successes_to_close(4)
        .probe_timeout(secs(11))
        .max_inconclusive(7)
        .hold(Hold::new(1000, secs(600), Duration::from_millis(100)).growing())
        .ramp_up(RampUp::new(secs(30), 0.125))
        .enforcement(0.5)
        .trip(rate(1.0, 20, Window::Time(secs(60)), slow));
    assert_eq!(config.unwrap(), same.clone().build().unwrap());
    let without = same.hold(None).build().unwrap();
    assert_eq!(without.hold(), None);
    let hold = "hold = { capacity = 1, held_ttl = '1s', release_interval = '1ms' }";
    let hold = read(hold).unwrap().hold().unwrap();
    assert_eq!(hold, Hold::new(1, secs(1), Duration::from_millis(1)));
    let config = read("trip.consecutive_failures.failures = 3").unwrap();
    assert_eq!(config.trip(), &consecutive(3, None));
    let config = read("trip.failure_count = { failures = 3, within = '1s' }").unwrap();
    assert_eq!(config.trip(), &count(3, secs(1)));
}

// R33
#[test]
fn a_custom_policy_is_written_as_custom_and_refused_when_read() {
    let config = builder().trip(custom(secs(60))).build().unwrap();
    let value = serde_json::to_value(&config).unwrap();
    assert_eq!(value["trip"], "custom");
    let written = toml::to_string(&config).unwrap();
    assert!(written.contains("trip = \"custom\""), "{written}");
    text_refused(
        &written,
        &["`trip` is \"custom\", must be a built-in policy"],
    );
    text_refused(
        "trip = 'custom'",
        &["`trip` is \"custom\", must be a built-in policy"],
    );
}

// R33
#[test]
fn custom_policies_are_equal_when_they_are_the_same_arc() {
    let rule: Arc<dyn TripRule> = Arc::new(Rule { lookback: secs(60) });
    let of = |rule: &Arc<dyn TripRule>| {
        builder()
            .trip(TripPolicy::Custom(Arc::clone(rule)))
            .build()
            .unwrap()
    };
    assert_eq!(of(&rule), of(&rule));
    assert_eq!(of(&rule), of(&rule).clone());
    let other: Arc<dyn TripRule> = Arc::new(Rule { lookback: secs(60) });
    assert_ne!(of(&rule), of(&other));
    assert_ne!(custom(secs(1)), count(1, secs(1)));
}

// R35, R32: what acts alike is equal, however it was written
#[test]
fn a_probe_timeout_that_equals_the_derived_one_makes_no_other_config() {
    let derived = BreakerConfig::default();
    let set = builder()
        .probe_timeout(derived.probe_timeout())
        .build()
        .unwrap();
    assert_eq!(derived, set);
    assert_ne!(derived, builder().probe_timeout(secs(31)).build().unwrap());
}

#[test]
fn configs_that_differ_in_one_setting_are_not_equal() {
    let default = BreakerConfig::default();
    for other in [
        builder().trip(consecutive(5, None)),
        builder().trip(count(4, secs(10))),
        builder().call_timeout(secs(4)),
        builder().break_duration(secs(29)).probe_timeout(secs(30)),
        builder().backoff(Backoff::new(1.0, secs(30))),
        builder().jitter(0.1),
        builder().max_probes(2),
        builder().successes_to_close(2),
        builder().probe_timeout(secs(31)),
        builder().max_inconclusive(9),
        builder().ramp_up(RampUp::new(secs(30), 0.1)),
        builder().enforcement(0.99),
    ] {
        assert_ne!(default, other.build().unwrap());
    }
}

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![1..5_000_u64, 1..100_000_000_000_u64, Just((1 << 53) - 1)].prop_map(micros)
}

/// Hundredths, which JSON reads back as they are.
fn any_share() -> impl Strategy<Value = f64> {
    (1..=100_u32).prop_map(|hundredths| f64::from(hundredths) / 100.0)
}

fn any_policy(call_timeout: Duration) -> impl Strategy<Value = TripPolicy> {
    let longest_slow = u64::try_from(call_timeout.as_micros()).unwrap() - 1;
    let slow = proptest::option::of(
        ((1..=longest_slow).prop_map(micros), any_share())
            .prop_map(|(duration, rate)| SlowCall::new(duration, rate)),
    );
    let window = prop_oneof![
        (100..u32::MAX).prop_map(Window::Calls),
        any_span().prop_map(Window::Time),
    ];
    prop_oneof![
        (1..u32::MAX, proptest::option::of(any_span()))
            .prop_map(|(failures, within)| consecutive(failures, within)),
        (1..u32::MAX, any_span(), any::<bool>()).prop_map(
            |(failures, within, reset_on_success)| {
                TripPolicy::FailureCount {
                    failures,
                    within,
                    reset_on_success,
                }
            }
        ),
        (any_share(), 1..100_u32, window, slow)
            .prop_map(|(share, minimum, window, slow)| rate(share, minimum, window, slow)),
    ]
}

fn any_config() -> impl Strategy<Value = BreakerConfig> {
    let call_timeout = (2..10_000_000_000_u64).prop_map(micros);
    call_timeout.prop_flat_map(|call_timeout| {
        (
            any_policy(call_timeout),
            any_span(),
            proptest::option::of((1.0..10.0_f64, any_span())),
            (
                proptest::option::of(any_share()),
                proptest::option::of(any_share()),
            ),
            (1..u32::MAX, 1..u32::MAX, 1..u32::MAX),
            proptest::option::of(any_span()),
            proptest::option::of((1..u32::MAX, any_span(), any_span(), any::<bool>())),
            proptest::option::of((any_span(), any_share())),
        )
            .prop_map(
                move |(trip, length, backoff, shares, counts, probe_timeout, hold, ramp_up)| {
                    let mut builder = builder()
                        .trip(trip)
                        .call_timeout(call_timeout)
                        .break_duration(length)
                        .jitter(shares.0.unwrap_or(0.0))
                        .enforcement(shares.1.unwrap_or(0.0))
                        .max_probes(counts.0)
                        .successes_to_close(counts.1)
                        .max_inconclusive(counts.2);
                    if let Some((factor, max)) = backoff {
                        // Halves are read back by every format.
                        builder = builder
                            .backoff(Backoff::new((factor * 2.0).floor() / 2.0, max.max(length)));
                    }
                    if let Some(timeout) = probe_timeout {
                        let timeout = timeout.max(call_timeout + micros(1));
                        builder = builder.probe_timeout(timeout);
                    }
                    if let Some((duration, share)) = ramp_up {
                        builder = builder.ramp_up(RampUp::new(duration, share));
                    }
                    let hold = hold.map(|(capacity, ttl, interval, growing)| {
                        let hold = Hold::new(capacity, ttl, interval);
                        if growing { hold.growing() } else { hold }
                    });
                    builder.hold(hold).build().expect("valid settings")
                },
            )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// R33
    #[test]
    fn what_is_written_is_read_back_equal(config in any_config()) {
        let written = toml::to_string(&config).unwrap();
        prop_assert_eq!(&toml(&written).expect(&written), &config);
        let written = serde_json::to_string(&config).unwrap();
        prop_assert_eq!(&json(&written).expect(&written), &config);
    }

    /// R33: no number makes a rate or jitter that the validator lets through by accident.
    #[test]
    fn a_share_is_accepted_when_it_is_in_its_range_and_not_else(share in any::<f64>()) {
        let of_rate = builder().trip(rate(share, 1, Window::Calls(1), None)).build().is_ok();
        prop_assert_eq!(of_rate, share > 0.0 && share <= 1.0);
        let of_jitter = builder().jitter(share).build().is_ok();
        prop_assert_eq!(of_jitter, (0.0..=1.0).contains(&share));
        let of_dial = builder().enforcement(share).build().is_ok();
        prop_assert_eq!(of_dial, of_jitter);
        let of_ramp = builder().ramp_up(RampUp::new(secs(1), share)).build().is_ok();
        prop_assert_eq!(of_ramp, of_rate);
    }
}

#[test]
fn the_default_config_is_read_back_equal() {
    let config = BreakerConfig::default();
    assert_eq!(read(&toml::to_string(&config).unwrap()).unwrap(), config);
}

// ---------------------------------------------------------------------------------------------------
// The defaults.

/// The table in the documentation of `BreakerConfig`: setting and default.
fn documented() -> Vec<(String, String)> {
    let source = include_str!("../src/config.rs");
    let (before, _) = source
        .split_once("pub struct BreakerConfig {")
        .expect("the struct");
    let doc: Vec<&str> = before
        .lines()
        .rev()
        .take_while(|line| line.starts_with("///") || line.starts_with("#["))
        .filter_map(|line| line.strip_prefix("/// |"))
        .collect();
    let rows = doc.iter().rev().skip(2);
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 4, "setting, default, range: {row}");
        (
            cells[0].trim_matches('`').to_owned(),
            cells[1].trim_matches('`').to_owned(),
        )
    })
    .collect()
}

/// A span as the documentation writes it: `30 s`.
fn in_doc(span: Duration) -> String {
    assert_eq!(span.subsec_nanos(), 0);
    format!("{} s", span.as_secs())
}

// FAILURE_CASES 100
#[test]
fn the_documented_defaults_are_the_defaults() {
    let config = BreakerConfig::default();
    assert_eq!(config, builder().build().unwrap());
    let TripPolicy::FailureCount {
        failures,
        within,
        reset_on_success,
    } = config.trip()
    else {
        panic!("another policy: {:?}", config.trip());
    };
    let trip = format!(
        "FailureCount {{ failures: {failures}, within: {}, reset_on_success: {reset_on_success} }}",
        in_doc(*within)
    );
    assert_eq!(
        config.probe_timeout(),
        config.break_duration().max(config.call_timeout() * 2),
        "as the table says in words"
    );
    let actual = [
        ("trip", trip.clone()),
        ("call_timeout", in_doc(config.call_timeout())),
        ("break_duration", in_doc(config.break_duration())),
        (
            "backoff",
            config
                .backoff()
                .map_or("none".to_owned(), |backoff| format!("{backoff:?}")),
        ),
        ("jitter", config.jitter().to_string()),
        ("max_probes", config.max_probes().to_string()),
        (
            "successes_to_close",
            config.successes_to_close().to_string(),
        ),
        (
            "probe_timeout",
            "the greater of `break_duration` and twice `call_timeout".to_owned(),
        ),
        ("max_inconclusive", config.max_inconclusive().to_string()),
        (
            "hold",
            config
                .hold()
                .map_or("none".to_owned(), |hold| format!("{hold:?}")),
        ),
        (
            "ramp_up",
            config
                .ramp_up()
                .map_or("none".to_owned(), |ramp_up| format!("{ramp_up:?}")),
        ),
        ("enforcement", config.enforcement().to_string()),
    ];
    let documented = documented();
    let documented: Vec<_> = documented
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    assert_eq!(documented, actual);

    // What is written down has the same fields as the table, but for those that are not there.
    let serde_json::Value::Object(written) = serde_json::to_value(&config).unwrap() else {
        panic!("not an object");
    };
    for (name, _) in documented {
        let absent = ["backoff", "hold", "ramp_up"].contains(&name);
        assert_eq!(written.contains_key(name), !absent, "{name}");
    }

    // R18
    assert_eq!(config.trip(), &TripPolicy::default());
    let policy = include_str!("../src/policy.rs");
    assert!(
        policy.contains(&format!("/// `{trip}`.")),
        "the documentation of TripPolicy"
    );
}
