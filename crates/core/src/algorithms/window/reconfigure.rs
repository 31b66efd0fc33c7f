//! Reconfigure: the same limit with other parameters.

use super::{Anchor, Counters, Window};
use crate::{AnyAlgorithm, Error, Nanos, Origin, Quota, Reconfigure};

impl<C: Counters> Reconfigure for Window<C>
where
    Self: Into<AnyAlgorithm>,
{
    /// Windows of other numbers; those of a calendar become windows since 1970.
    fn with_quota(&self, quota: Quota, origin: Origin) -> Result<AnyAlgorithm, Error> {
        let width = quota.per().as_nanos().div_ceil(u64::from(self.buckets));
        let phase = origin.phase(Nanos::from_nanos(width));
        let window = Self::new(quota, self.buckets, self.edge, phase)?;
        Ok(window.with_denials(self.denials).into())
    }

    fn on_clock(&self, from: Origin, to: Origin) -> Self {
        let anchor = match &self.anchor {
            Anchor::Grid { phase } => {
                let width = Nanos::from_nanos(self.width);
                Anchor::on_grid(from.phase_on(to, *phase, width), width)
            }
            Anchor::Calendar(calendar) => Anchor::Calendar(calendar.on_clock(to)),
        };
        Self {
            anchor,
            ..self.clone()
        }
    }
}
