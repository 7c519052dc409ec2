//! Who counts where. That the sums are exact is tested in `tests/exact_totals.rs`.

use super::*;

#[test]
fn first_threads_own_a_stripe_each_and_all_others_share_them_evenly() {
    for nth in 0..10 * STRIPES {
        let place = Place::nth(nth);
        assert_eq!(place.owns(), nth < STRIPES, "{nth}");
        assert_eq!(place.0 % STRIPES, nth % STRIPES, "{nth}");
        assert!(place != Place::NONE, "{nth}");
    }
}

#[test]
fn thread_keeps_its_place() {
    let places = [Place::mine(), Place::mine()];
    assert!(places.iter().all(|place| *place != Place::NONE));
    assert!(places[0] == places[1]);
}

#[test]
fn threads_whose_turns_are_as_many_apart_as_there_are_stripes_share_one() {
    let stripes = Stripes::new(0);
    let at = |nth| -> *const Stripe { stripes.at(Place::nth(nth)) };
    for nth in 0..STRIPES {
        assert_eq!(at(nth), at(nth + STRIPES), "{nth}");
        assert_eq!(at(nth), at(nth + 5 * STRIPES), "{nth}");
        assert!((0..nth).all(|other| at(nth) != at(other)), "{nth}");
    }
}

// R11: in the very step in which it would be counted.
#[test]
fn success_of_another_epoch_than_the_stripe_counts_for_is_late() {
    let stripes = Stripes::new(7);
    stripes.mine().tally(7);
    stripes.mine().tally(7);
    stripes.mine().tally(6);
    assert_eq!((stripes.tallied(), stripes.unsent().late), (2, 1));
    assert_eq!(stripes.fold(7), 2);
    assert_eq!(stripes.fold(7), 0);
    stripes.mine().tally(7);
    assert_eq!(stripes.begin_epoch(8), 1);
    stripes.mine().tally(7);
    stripes.mine().tally(8);
    assert_eq!((stripes.tallied(), stripes.unsent().late), (1, 2));
    assert_eq!(stripes.fold(8), 1);
}
