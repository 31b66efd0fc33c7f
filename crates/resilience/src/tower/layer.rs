//! Layer: makes clients that retry within a budget.

use std::sync::Arc;

use tower_layer::Layer;

use super::service::Resilient;
use super::settings::{CallContext, CallSettings};
use crate::Budget;

/// Makes clients that retry within a budget, and stop in time; see the
/// [module](crate::tower). All clients of one layer share its budget and its guard.
#[derive(Clone, Debug)]
pub struct ResilienceLayer {
    shared: Arc<CallContext>,
}

impl ResilienceLayer {
    /// Creates a layer with `budget` for its calls; others may share it, and the guard, too.
    ///
    /// Time is that of the tokio runtime, counted from a zero that all layers of the process
    /// have in common: do not use a shared budget or guard with another clock.
    pub fn new(settings: CallSettings, budget: Arc<Budget>) -> Self {
        Self {
            shared: Arc::new(CallContext { settings, budget }),
        }
    }
}

impl<S> Layer<S> for ResilienceLayer {
    type Service = Resilient<S>;

    fn layer(&self, inner: S) -> Resilient<S> {
        Resilient::new(inner, Arc::clone(&self.shared))
    }
}
