//! The names of the metrics and of what their labels say. They are part of the crate's interface: dashboards
//! are made of them.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

use crate::circuit::{Cause, CircuitState};

pub(super) const CALLS: &str = "circuit_breaker_calls_total";
pub(super) const REJECTIONS: &str = "circuit_breaker_rejections_total";
pub(super) const SIMULATED: &str = "circuit_breaker_simulated_rejections_total";
pub(super) const ENFORCEMENT: &str = "circuit_breaker_enforcement";
pub(super) const TRANSITIONS: &str = "circuit_breaker_transitions_total";
pub(super) const STATE: &str = "circuit_breaker_state";
pub(super) const DURATION: &str = "circuit_breaker_call_duration_seconds";
pub(super) const IN_FLIGHT: &str = "circuit_breaker_calls_in_flight";
pub(super) const PROBES: &str = "circuit_breaker_probes_in_flight";
pub(super) const HELD: &str = "circuit_breaker_held";
pub(super) const OVERRIDES: &str = "circuit_breaker_overrides";
pub(super) const RESTARTS: &str = "circuit_breaker_restarts_total";
pub(super) const EVICTIONS: &str = "circuit_breaker_evictions_total";
pub(super) const STORE_DEGRADED: &str = "circuit_breaker_store_degraded";
pub(super) const STORE_STEPS: &str = "circuit_breaker_store_steps_total";
pub(super) const KEYS: &str = "circuit_breaker_family_keys";
pub(super) const UNGUARDED: &str = "circuit_breaker_family_unguarded_total";

/// How calls end, in the order in which they are told.
pub(super) const OUTCOMES: [&str; 5] = ["success", "failure", "ignored", "late", "timeout"];

/// Why calls are rejected, in the order in which they are counted.
pub(super) const REASONS: [&str; 4] = ["open", "probes_in_use", FORCED_OPEN, "ramp_up"];
pub(super) const FORCED_OPEN: &str = "forced_open";

/// All states.
pub(super) const STATES: [CircuitState; 5] = [
    CircuitState::Closed,
    CircuitState::Open,
    CircuitState::HalfOpen,
    CircuitState::ForcedOpen,
    CircuitState::ForcedClosed,
];

/// A state as snapshots write it.
pub(super) fn state(state: CircuitState) -> &'static str {
    match state {
        CircuitState::Closed => "closed",
        CircuitState::Open => "open",
        CircuitState::HalfOpen => "half_open",
        CircuitState::ForcedOpen => "forced_open",
        CircuitState::ForcedClosed => "forced_closed",
    }
}

/// A cause as events write it.
pub(super) fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Tripped => "tripped",
        Cause::ProbeDue => "probe_due",
        Cause::ProbeFailed => "probe_failed",
        Cause::Inconclusive => "inconclusive",
        Cause::Recovered => "recovered",
        Cause::Forced => "forced",
        Cause::Released => "released",
        Cause::Expired => "expired",
        Cause::Reset => "reset",
        Cause::Present => "present",
    }
}

pub(super) fn describe() {
    let count = Unit::Count;
    describe_counter!(
        CALLS,
        count,
        "Calls that ended, by outcome; each under one."
    );
    describe_counter!(
        REJECTIONS,
        count,
        "Calls that were not let through, by reason."
    );
    describe_counter!(
        SIMULATED,
        count,
        "Calls that were refused and let through all the same, by reason."
    );
    describe_gauge!(
        ENFORCEMENT,
        count,
        "The share of refused calls that is rejected: 0 in shadow mode."
    );
    describe_counter!(TRANSITIONS, count, "Changes of state.");
    describe_gauge!(STATE, count, "1 for the present state, 0 for the others.");
    describe_histogram!(
        DURATION,
        Unit::Seconds,
        "How long a sample of the calls was waited for."
    );
    describe_gauge!(IN_FLIGHT, count, "Calls under way.");
    describe_gauge!(PROBES, count, "Probes under way.");
    describe_gauge!(HELD, count, "Messages that wait inside the breaker.");
    describe_gauge!(OVERRIDES, count, "Operator's orders in force.");
    describe_counter!(RESTARTS, count, "Restarts of the breaker's actor.");
    describe_counter!(
        EVICTIONS,
        count,
        "Idle breakers that had to go to make room."
    );
    describe_gauge!(
        STORE_DEGRADED,
        count,
        "1 while the store that records are shared through does not answer."
    );
    describe_counter!(
        STORE_STEPS,
        count,
        "Steps that the store was asked for, each a round trip."
    );
    describe_gauge!(KEYS, count, "Keys of a family that are kept, by state.");
    describe_counter!(
        UNGUARDED,
        count,
        "Breakers given out that guard nothing, for want of room."
    );
}
