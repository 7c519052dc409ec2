//! The layout of the word: nothing of it covers anything else.

use super::*;

const STATES: [CircuitState; 5] = [
    CircuitState::Closed,
    CircuitState::ForcedClosed,
    CircuitState::Open,
    CircuitState::HalfOpen,
    CircuitState::ForcedOpen,
];

const FLAGS: [Flags; 6] = [
    Flags::DUE,
    Flags::TALLY,
    Flags::TELL,
    Flags::REPORT,
    Flags::ODD,
    Flags::NEAR,
];

#[test]
fn word_gives_back_what_was_put_into_it() {
    let all = FLAGS.into_iter().fold(Flags::default(), Flags::with);
    let sets = FLAGS.into_iter().chain([Flags::default(), all]);
    for flags in sets {
        for state in STATES {
            for epoch in [0, 1, 1 << 53] {
                let word = Word::new(state, epoch, flags);
                assert_eq!((word.state(), word.epoch()), (state, epoch));
                assert_eq!(word.flags(), flags);
                assert!(FLAGS.iter().all(|flag| word.has(*flag) == flags.has(*flag)));
                let passes = matches!(state, CircuitState::Closed | CircuitState::ForcedClosed);
                assert_eq!(word.passes(), passes);
                assert_eq!(Word::from_bits(word.bits()), word);
            }
        }
    }
}

// R36, R37
#[test]
fn a_state_that_is_not_for_all_calls_is_a_code_of_its_own() {
    for epoch in [0, 1 << 53] {
        let dialled = Word::new(CircuitState::Open, epoch, Flags::DIAL.with(Flags::DUE));
        assert_eq!(
            (dialled.state(), dialled.epoch()),
            (CircuitState::Open, epoch)
        );
        assert!(dialled.is_dialled() && dialled.has(Flags::DUE));
        assert!(!dialled.passes() && dialled.asks() && !dialled.is_ramping());
        let ramping = Word::new(CircuitState::Closed, epoch, Flags::RAMP);
        assert_eq!(
            (ramping.state(), ramping.epoch()),
            (CircuitState::Closed, epoch)
        );
        assert!(ramping.is_ramping() && ramping.asks());
        assert!(!ramping.passes() && !ramping.is_dialled());
        for state in STATES {
            let word = Word::new(state, epoch, Flags::default());
            assert!(!word.is_dialled() && !word.is_ramping());
            assert_eq!(word.asks(), state == CircuitState::HalfOpen);
        }
    }
}

// R37
#[test]
fn a_spared_call_passes_in_an_epoch_that_there_is_not() {
    assert!(Word::SPARED.passes());
    assert_eq!(Word::SPARED.epoch(), SPARED);
    assert_eq!(Word::SPARED.flags(), Flags::default());
    assert_ne!(Word::SPARED.epoch(), Word::UNKNOWN.epoch());
    const { assert!(SPARED > 1 << 53) };
}

#[test]
fn flags_are_put_together_and_taken_away_one_by_one() {
    for one in FLAGS {
        for other in FLAGS {
            let both = one.with(other);
            assert!(both.has(one) && both.has(other));
            assert_eq!(one.has(other), one == other);
            let rest = both.without(other);
            assert_eq!(rest.has(one), one != other);
            assert!(!rest.has(other));
        }
        assert_eq!(one.when(true), one);
        assert_eq!(one.when(false), Flags::default());
    }
}
