//! Breakers by the name that an operator knows: of one's own, or of a key of a family.
//! Who owns them is in `supervisor.rs`.

use super::answer::Problem;
use crate::breaker::Breaker;
use crate::family::Family;
use crate::supervisor::Breakers;

/// The breaker of that name, if there is one now; makes none.
pub(super) fn present(breakers: &Breakers, name: &str) -> Option<Breaker> {
    breakers.get(name).or_else(|| {
        let (family, key) = member(breakers, name)?;
        family.contains(key).then(|| family.breaker(key))
    })
}

/// The breaker of that name, also that of a key of which a family knows nothing yet.
pub(super) fn any(breakers: &Breakers, name: &str) -> Option<Breaker> {
    breakers.get(name).or_else(|| {
        let (family, key) = member(breakers, name)?;
        Some(family.breaker(key))
    })
}

/// The family of that name.
pub(super) fn family(breakers: &Breakers, name: &str) -> Result<Family, Problem> {
    let mut families = breakers.families().into_iter();
    families
        .find(|family| family.name() == name)
        .ok_or_else(|| Problem::unknown("family", name))
}

/// The family and the key; of families whose names begin alike, the one with the longest name.
fn member<'n>(breakers: &Breakers, name: &'n str) -> Option<(Family, &'n str)> {
    let families = breakers.families().into_iter();
    families
        .filter_map(|family| {
            let key = name.strip_prefix(family.name())?.strip_prefix('/')?;
            (!key.is_empty()).then_some((family, key))
        })
        .min_by_key(|(_, key)| key.len())
}
