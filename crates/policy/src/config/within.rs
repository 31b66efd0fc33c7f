//! Within: limits on some requests that can never refuse, because a tighter one on every request
//! refuses first.

use ratekeeper_core::Denials;

use super::diagnostic::Findings;
use super::limit::Draft;
use super::lints::{MAX_COMPARED, admits_less, alike, counts_less, report};

/// Finds limits on some requests that one on every request, with the same key, makes needless.
pub(super) fn never_refuse(drafts: &[Draft<'_>], out: &mut Findings<'_>) {
    let of_requests = |draft: &&Draft<'_>| !draft.rule.is_for_descriptors();
    let (wide, narrow): (Vec<&Draft<'_>>, Vec<&Draft<'_>>) = drafts
        .iter()
        .filter(of_requests)
        .partition(|draft| draft.same.is_empty());
    for loose in narrow {
        let wide = wide.iter().take(MAX_COMPARED);
        let same_key = wide.filter(|strict| strict.rule.key == loose.rule.key);
        if let Some(strict) = same_key
            .into_iter()
            .find(|strict| covers_within(strict, loose))
        {
            report(loose, strict, out);
        }
    }
}

/// Returns true if `strict` refuses every request that `loose` would refuse, although it is charged
/// for other requests as well: one more charge never lets a refused request pass.
fn covers_within(strict: &Draft<'_>, loose: &Draft<'_>) -> bool {
    let is_less = counts_less(strict, loose) || admits_less(strict, loose);
    alike(strict, loose) && strict.denials == Denials::Free && is_less
}
