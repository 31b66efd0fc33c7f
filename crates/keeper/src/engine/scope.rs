//! Scope: the limits that a call applies to.

use std::ops::Range;

use ratekeeper_core::Mode;
use ratekeeper_policy::{Charges, Policy};
use smallvec::SmallVec;

/// The limits that a call applies to.
///
/// ```
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{Keeper, Scope, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     limit = "2/1h"
///     "#,
/// )?;
/// let left = |scope| {
///     let answer = at_once(keeper.peek(&Facts::default(), scope)).unwrap();
///     answer.outcomes().count()
/// };
/// assert_eq!((left(Scope::All), left(Scope::Only(&["other"]))), (1, 0));
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub enum Scope<'a> {
    /// All limits that match.
    #[default]
    All,
    /// The named limits among those that match.
    Only(&'a [&'a str]),
}

/// Keeps the named rules: their entries, each with its alternatives and its condition, and those
/// that are not charged. An alternative that is named, of a limit that is not, is asked by itself,
/// once under each key.
pub(crate) fn keep_entries(charges: &mut Charges, policy: &Policy, named: impl Fn(&u32) -> bool) {
    charges.uncharged.retain(|it| named(&it.rule));
    let Charges { entries, bytes, .. } = charges;
    let mut kept: SmallVec<[(u32, Range<u32>); 4]> = SmallVec::new();
    let of = |key: &Range<u32>| bytes.get(key.start as usize..key.end as usize);
    let mut with_alternatives = false;
    let rules: SmallVec<[u32; 4]> = entries.iter().map(|entry| entry.rule).collect();
    let mut next = 0;
    entries.retain(|entry| {
        next += 1;
        let keeps = if entry.mode == Mode::Once {
            rules.get(next).is_some_and(&named)
        } else if entry.is_alternative() {
            if !with_alternatives {
                let rule = policy.rules.get(entry.rule as usize);
                let mode = rule.and_then(|rule| rule.mode.charge_mode());
                entry.mode = mode.unwrap_or(Mode::Enforce);
            }
            let is_kept =
                |(rule, key): &(u32, Range<u32>)| *rule == entry.rule && of(key) == of(&entry.key);
            with_alternatives || named(&entry.rule) && !kept.iter().any(is_kept)
        } else {
            with_alternatives = named(&entry.rule);
            with_alternatives
        };
        if keeps {
            kept.push((entry.rule, entry.key.clone()));
        }
        keeps
    });
}
