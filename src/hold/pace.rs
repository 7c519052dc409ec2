//! When the next waiting message may go: at the end of a break one as the probe, and then never two at once
//! but by growing steps.

use crate::circuit::{CircuitState, Peek};
use crate::clock::Timestamp;
use crate::config::Hold;

/// How those who wait leave at present.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Not at all.
    #[default]
    Still,
    /// One by one, as far as the circuit admits probes.
    Probing { next: Timestamp },
    /// `step` of them at `next`, and again after each interval.
    Draining { next: Timestamp, step: u32 },
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing, until then at least. Without an instant, until the circuit changes.
    Wait(Option<Timestamp>),
    /// Send so many.
    Release(u32),
}

impl Pace {
    /// Looks at the circuit, as `peek` shows it at `now`; `until` is when its state ends by itself.
    pub(crate) fn turn(
        &mut self,
        peek: &Peek,
        until: Option<Timestamp>,
        hold: &Hold,
        now: Timestamp,
    ) -> Turn {
        let after = now + hold.release_interval;
        let refused = || Turn::Wait(peek.retry_after.map(|rest| now + rest));
        match (peek.state, *self) {
            // At the end of a break the first goes, however long ago the last went.
            (CircuitState::Open, _) if peek.probe_due => {
                *self = Self::Probing { next: after };
                Turn::Release(1)
            }
            (CircuitState::Open | CircuitState::ForcedOpen, _) => {
                *self = Self::Still;
                Turn::Wait(until)
            }
            (CircuitState::HalfOpen, Self::Probing { next }) if now < next => {
                Turn::Wait(Some(next))
            }
            (CircuitState::HalfOpen, _) if peek.refusal.is_some() => refused(),
            (CircuitState::HalfOpen, _) => {
                *self = Self::Probing { next: after };
                Turn::Release(1)
            }
            (CircuitState::Closed | CircuitState::ForcedClosed, Self::Draining { next, step }) => {
                if now < next {
                    return Turn::Wait(Some(next));
                }
                if peek.refusal.is_some() {
                    return refused();
                }
                let grown = if hold.growing {
                    step.saturating_mul(2)
                } else {
                    1
                };
                // Counted from now: what a busy arbiter was late for is not made up for by a burst.
                *self = Self::Draining {
                    next: after,
                    step: grown,
                };
                Turn::Release(step)
            }
            (
                CircuitState::Closed | CircuitState::ForcedClosed,
                Self::Still | Self::Probing { .. },
            ) => {
                *self = Self::Draining {
                    next: after,
                    step: 1,
                };
                Turn::Wait(Some(after))
            }
        }
    }

    /// Begins again with single releases: one of those released has failed.
    pub(crate) fn set_back(&mut self) {
        if let Self::Draining { step, .. } = self {
            *step = 1;
        }
    }

    /// When it is to be looked at again after a release.
    pub(crate) fn next(self) -> Option<Timestamp> {
        match self {
            Self::Still => None,
            Self::Probing { next } | Self::Draining { next, .. } => Some(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::circuit::Circuit;
    use crate::config::BreakerConfig;
    use crate::outcome::Outcome;
    use crate::policy::TripPolicy;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    /// Trips at once; breaks of 10 s, releases each second.
    fn circuit(hold: Hold) -> Circuit {
        let config = BreakerConfig::builder()
            .trip(TripPolicy::ConsecutiveFailures {
                failures: 1,
                within: None,
            })
            .break_duration(Duration::from_secs(10))
            .hold(hold);
        let mut circuit = Circuit::new(config.build().unwrap(), at(0));
        fail(&mut circuit, 0);
        circuit
    }

    fn fail(circuit: &mut Circuit, seconds: u64) {
        let permit = circuit.try_acquire(at(seconds)).unwrap();
        circuit.settle(permit, Outcome::Failure, at(seconds));
    }

    fn steady() -> Hold {
        Hold::new(10, Duration::from_secs(100), SECOND)
    }

    fn turn(pace: &mut Pace, circuit: &Circuit, seconds: u64) -> Turn {
        let hold = circuit.config().hold().unwrap();
        let now = at(seconds);
        pace.turn(&circuit.peek(now), circuit.next_deadline(), &hold, now)
    }

    #[test]
    fn at_the_end_of_a_break_one_goes_and_the_others_wait_for_the_circuit() {
        let mut circuit = circuit(steady());
        let mut pace = Pace::default();
        assert_eq!(turn(&mut pace, &circuit, 3), Turn::Wait(Some(at(10))));
        assert_eq!(turn(&mut pace, &circuit, 10), Turn::Release(1));
        let probe = circuit.try_acquire(at(10)).unwrap();
        assert_eq!(pace.next(), Some(at(11)));
        assert_eq!(turn(&mut pace, &circuit, 10), Turn::Wait(Some(at(11))));
        // The slot is in use, so it comes again after the circuit's own retry time.
        assert_eq!(turn(&mut pace, &circuit, 11), Turn::Wait(Some(at(12))));
        circuit.settle(probe, Outcome::Ignored, at(12));
        assert_eq!(turn(&mut pace, &circuit, 12), Turn::Release(1));
        assert_eq!(turn(&mut pace, &circuit, 12), Turn::Wait(Some(at(13))));
    }

    #[test]
    fn after_closing_one_goes_at_each_interval() {
        let mut circuit = circuit(steady());
        let mut pace = Pace::default();
        assert_eq!(turn(&mut pace, &circuit, 10), Turn::Release(1));
        let probe = circuit.try_acquire(at(10)).unwrap();
        circuit.settle(probe, Outcome::Success, at(10));
        assert_eq!(turn(&mut pace, &circuit, 10), Turn::Wait(Some(at(11))));
        for second in 11..20 {
            assert_eq!(turn(&mut pace, &circuit, second), Turn::Release(1));
            let next = Some(at(second + 1));
            assert_eq!(turn(&mut pace, &circuit, second), Turn::Wait(next));
        }
        // What it was late for is not made up for.
        assert_eq!(turn(&mut pace, &circuit, 90), Turn::Release(1));
        assert_eq!(turn(&mut pace, &circuit, 90), Turn::Wait(Some(at(91))));
    }

    #[test]
    fn steps_grow_until_one_fails_and_a_trip_ends_them() {
        let mut circuit = circuit(steady().growing());
        let mut pace = Pace::default();
        circuit.reset(at(1));
        assert_eq!(turn(&mut pace, &circuit, 1), Turn::Wait(Some(at(2))));
        assert_eq!(turn(&mut pace, &circuit, 2), Turn::Release(1));
        assert_eq!(turn(&mut pace, &circuit, 3), Turn::Release(2));
        assert_eq!(turn(&mut pace, &circuit, 4), Turn::Release(4));
        pace.set_back();
        assert_eq!(turn(&mut pace, &circuit, 5), Turn::Release(1));
        assert_eq!(turn(&mut pace, &circuit, 6), Turn::Release(2));
        fail(&mut circuit, 6);
        assert_eq!(turn(&mut pace, &circuit, 7), Turn::Wait(Some(at(16))));
        assert_eq!(pace, Pace::Still);
    }

    // R23
    #[test]
    fn forced_open_keeps_them_and_forced_closed_lets_them_go_in_turn() {
        let mut circuit = circuit(steady());
        let mut pace = Pace::default();
        circuit.force_open(None, "x", at(1)).unwrap();
        assert_eq!(turn(&mut pace, &circuit, 50), Turn::Wait(None));
        circuit.force_open(Some(SECOND), "x", at(50)).unwrap();
        assert_eq!(turn(&mut pace, &circuit, 50), Turn::Wait(Some(at(51))));
        assert_eq!(turn(&mut pace, &circuit, 51), Turn::Release(1));
        circuit.force_closed(None, "x", at(52)).unwrap();
        assert_eq!(turn(&mut pace, &circuit, 52), Turn::Wait(Some(at(53))));
        assert_eq!(turn(&mut pace, &circuit, 53), Turn::Release(1));
    }

    #[test]
    fn a_growing_step_stays_a_number() {
        let mut circuit = circuit(steady().growing());
        circuit.reset(at(1));
        let mut pace = Pace::Draining {
            next: at(2),
            step: u32::MAX,
        };
        assert_eq!(turn(&mut pace, &circuit, 2), Turn::Release(u32::MAX));
        assert_eq!(turn(&mut pace, &circuit, 3), Turn::Release(u32::MAX));
    }
}
