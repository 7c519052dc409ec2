//! How ends are added up. What becomes of them is tested in `tests/shell_life.rs`.

use super::*;

fn end(outcome: Outcome) -> End {
    End::from(Ending::Outcome {
        outcome,
        slow: false,
    })
}

// R11, R17
#[test]
fn ends_of_the_newest_epoch_are_kept_in_runs_and_those_before_are_late() {
    let (good, bad) = (end(Outcome::Success), end(Outcome::Failure));
    let mut letters = Letters::default();
    letters.add(1, bad);
    letters.add(1, bad);
    letters.add(1, good);
    for ending in [bad, bad, good, good, good, bad] {
        letters.add(2, ending);
    }
    letters.add(1, bad);
    let taken = letters.taken();
    assert_eq!(taken.epoch, 2);
    assert_eq!(taken.counts, [(bad, 2), (good, 3), (bad, 1)]);
    assert_eq!(taken.late, 3 + 1);
}

// R21: a blocked breaker's memory is bounded, and none is forgotten.
#[test]
fn ends_beyond_a_thousand_runs_are_counted_without_their_order() {
    let (good, bad) = (end(Outcome::Success), end(Outcome::Failure));
    let mut letters = Letters::default();
    for _ in 0..RUNS {
        letters.add(1, bad);
        letters.add(1, good);
        letters.add(1, good);
    }
    let taken = letters.taken();
    assert_eq!(taken.counts.len(), RUNS);
    let count = |of: End| -> u64 {
        let runs = taken.counts.iter().filter(|run| run.0 == of);
        runs.map(|run| run.1).sum()
    };
    assert_eq!((count(bad), count(good)), (1024, 2048));
}
