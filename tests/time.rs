//! Instants and clocks: saturation, monotonicity, what follows which time (R3, R5).
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests; a panic is a failed test"
)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix_circuit_breaker::{Clock, ManualClock, SystemClock, Timestamp};

const LAST: u64 = (1 << 53) - 1;

// R3
#[test]
fn an_instant_is_below_two_to_the_53() {
    assert_eq!(Timestamp::MAX.as_micros(), LAST);
    assert_eq!(Timestamp::ZERO.as_micros(), 0);
    assert_eq!(Timestamp::default(), Timestamp::ZERO);
    assert_eq!(Timestamp::from_micros(LAST), Timestamp::MAX);
    assert_eq!(Timestamp::from_micros(LAST - 1).as_micros(), LAST - 1);
    assert_eq!(Timestamp::from_micros(LAST + 1), Timestamp::MAX);
    assert_eq!(Timestamp::from(u64::MAX), Timestamp::MAX);
}

// R3
#[test]
fn adding_saturates() {
    let micro = Duration::from_micros(1);
    assert_eq!((Timestamp::from_micros(LAST - 1) + micro), Timestamp::MAX);
    assert_eq!(Timestamp::MAX + micro, Timestamp::MAX);
    assert_eq!(Timestamp::MAX + Duration::ZERO, Timestamp::MAX);
    assert_eq!(Timestamp::ZERO + Duration::MAX, Timestamp::MAX);
    assert_eq!(
        Timestamp::ZERO + Duration::from_micros(LAST),
        Timestamp::MAX
    );
    assert_eq!(
        Timestamp::ZERO + Duration::from_micros(u64::MAX),
        Timestamp::MAX
    );
}

// R3
#[test]
fn adding_cuts_to_whole_microseconds() {
    let start = Timestamp::from_micros(7);
    assert_eq!(start + Duration::from_nanos(999), start);
    assert_eq!((start + Duration::from_nanos(1_999)).as_micros(), 8);
    assert_eq!((start + Duration::from_secs(2)).as_micros(), 2_000_007);
}

// R3
#[test]
fn the_time_since_a_later_instant_is_zero() {
    let (early, late) = (Timestamp::from_micros(3), Timestamp::from_micros(10));
    assert_eq!(late.since(early), Duration::from_micros(7));
    assert_eq!(early.since(late), Duration::ZERO);
    assert_eq!(late.since(late), Duration::ZERO);
    assert_eq!(
        Timestamp::MAX.since(Timestamp::ZERO),
        Duration::from_micros(LAST)
    );
    assert!(early < late);
}

// R3: what a script may have written
#[test]
fn an_instant_is_read_and_written_as_a_number_within_its_range() {
    let text = |instant: Timestamp| serde_json::to_string(&instant).unwrap();
    assert_eq!(text(Timestamp::from_micros(42)), "42");
    assert_eq!(text(Timestamp::MAX), "9007199254740991");
    let read = |text: &str| serde_json::from_str::<Timestamp>(text);
    assert_eq!(read("42").unwrap(), Timestamp::from_micros(42));
    assert_eq!(read("18446744073709551615").unwrap(), Timestamp::MAX);
    assert!(read("-1").is_err());
    assert!(read("\"42\"").is_err());
    assert_eq!(Timestamp::from_micros(42).to_string(), "42 µs");
}

// R5
#[test]
fn the_system_clock_never_goes_back() {
    let clock = SystemClock::new();
    let mut last = clock.now();
    for _ in 0..10_000 {
        let now = clock.now();
        assert!(now >= last);
        last = now;
    }
}

// R5
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "compares the system clock with the wall clock"
)]
fn the_system_clock_shows_the_wall_time_of_its_creation() {
    let wall = || {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp::ZERO + wall
    };
    let before = wall();
    let now = SystemClock::new().now();
    let after = wall();
    // The wall clock may be slewed between the readings, though hardly by a second.
    let slack = Duration::from_secs(1);
    assert!(before <= now + slack, "{before} to {after}: {now}");
    assert!(now <= after + slack, "{before} to {after}: {now}");
    assert!(SystemClock::default().drives_timers());
}

// R5
#[tokio::test(start_paused = true)]
async fn the_system_clock_follows_paused_time_to_the_microsecond() {
    let clock = SystemClock::new();
    let start = clock.now();
    assert_eq!(clock.now(), start);
    tokio::time::advance(Duration::from_micros(1)).await;
    assert_eq!(clock.now().since(start), Duration::from_micros(1));
    tokio::time::advance(Duration::from_secs(86_400)).await;
    assert_eq!(
        clock.now().since(start),
        Duration::from_micros(86_400_000_001)
    );
}

// R5
#[tokio::test(start_paused = true)]
async fn clones_of_the_system_clock_show_the_same_time() {
    let clock = SystemClock::new();
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(clock.clone().now(), clock.now());
}

// R5
#[test]
fn a_manual_clock_moves_only_when_told_to() {
    let clock = ManualClock::new();
    assert_eq!(clock.now(), Timestamp::ZERO);
    clock.advance(Duration::from_millis(3));
    clock.advance(Duration::from_nanos(1_500));
    assert_eq!(clock.now().as_micros(), 3_001);
    assert_eq!(clock.now().as_micros(), 3_001);
    assert!(!clock.drives_timers());
}

// R5, FAILURE_CASES 83: a clock that is set back, which the circuit has to bear
#[test]
fn a_manual_clock_can_be_set_backwards() {
    let clock = ManualClock::new();
    clock.set(Timestamp::from_micros(100));
    clock.set(Timestamp::from_micros(40));
    assert_eq!(clock.now().as_micros(), 40);
    clock.advance(Duration::from_micros(2));
    assert_eq!(clock.now().as_micros(), 42);
}

// R3
#[test]
fn a_manual_clock_stops_at_the_last_instant() {
    let clock = ManualClock::new();
    clock.advance(Duration::MAX);
    assert_eq!(clock.now(), Timestamp::MAX);
    clock.advance(Duration::from_micros(1));
    assert_eq!(clock.now(), Timestamp::MAX);
    clock.set(Timestamp::from_micros(u64::MAX));
    assert_eq!(clock.now(), Timestamp::MAX);
}

// R5
#[test]
fn clones_of_a_manual_clock_share_the_time() {
    let clock = ManualClock::new();
    let clone = clock.clone();
    clone.advance(Duration::from_micros(9));
    assert_eq!(clock.now().as_micros(), 9);
}
