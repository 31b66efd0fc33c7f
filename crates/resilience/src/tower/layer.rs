//! Layer: makes clients that retry within a budget.

use std::sync::Arc;

use tower_layer::Layer;

use super::service::Resilient;
use super::settings::HttpSettings;

/// Makes clients that retry within a budget, and stop in time; see the
/// [module](crate::tower). All clients of one layer share its budget and its guard.
///
/// ```
/// use ratekeeper_resilience::tower::{HttpSettings, ResilienceLayer, RetryIf};
///
/// // As a rule:
/// let layer = ResilienceLayer::default();
/// // For a server that does nothing before it refuses:
/// let layer = ResilienceLayer::new(HttpSettings {
///     retry_if: RetryIf::refusals(),
///     ..HttpSettings::default()
/// });
/// # let _ = layer;
/// ```
#[derive(Clone, Debug, Default)]
pub struct ResilienceLayer {
    settings: Arc<HttpSettings>,
}

impl ResilienceLayer {
    /// Creates a layer by [`HttpSettings`], or by [`CallSettings`](crate::CallSettings) alone.
    pub fn new(settings: impl Into<HttpSettings>) -> Self {
        Self {
            settings: Arc::new(settings.into()),
        }
    }
}

impl<S> Layer<S> for ResilienceLayer {
    type Service = Resilient<S>;

    fn layer(&self, inner: S) -> Resilient<S> {
        Resilient::new(inner, Arc::clone(&self.settings))
    }
}
