//! Within: limits on some requests that can never refuse, because a tighter one on every
//! request does so first.

use ratekeeper_core::Denials;

use super::algorithm::AlgorithmSpec;
use super::diagnostic::Findings;
use super::limit::Draft;
use super::lints::{MAX_COMPARED, admits_less, alike, report};
use super::quantity::QuantityKind;

/// Limits on some requests that one on every request, with the same key, always comes before.
pub(super) fn never_refuse(drafts: &[Draft], out: &mut Findings<'_>) {
    let of_requests = |draft: &&Draft| !draft.rule.is_for_descriptors();
    let (wide, narrow): (Vec<&Draft>, Vec<&Draft>) = drafts
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

/// Whether `strict` refuses whatever `loose` would refuse, although it is charged for other
/// requests as well. Careful: says no in doubt.
fn covers_within(strict: &Draft, loose: &Draft) -> bool {
    if !alike(strict, loose) || strict.denials == Denials::Counted {
        return false;
    }
    let (a, b) = (&strict.rule, &loose.rule);
    let in_step = strict.kind == loose.kind && a.window == b.window && a.quota <= b.quota;
    // A charge more never lets a request pass that was refused. Not so where windows begin
    // with a request, or the pace depends on the past.
    let monotone = match loose.kind {
        QuantityKind::Calendar(_) => true,
        QuantityKind::Windows(kind) => matches!(
            kind,
            AlgorithmSpec::TokenBucket
                | AlgorithmSpec::Fixed
                | AlgorithmSpec::SlidingCounter
                | AlgorithmSpec::SlidingLog { .. }
        ),
        _ => false,
    };
    in_step && monotone || admits_less(strict, loose)
}
