//! Shown: a limit as clients are shown it, and the fields of a response.
//!
//! The fields that never change are written once, when the limit is made or changed.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Decision, Nanos, Permits, Quota, Verdict};
use ratekeeper_policy::{HeaderStyle, Refusal};

use crate::LimitReport;
use crate::headers::{FieldText, names, put_balance, put_promise, put_wait};

/// Field that lists the limits in shadow mode that would have refused.
pub(super) const SHADOW: &str = "x-ratekeeper-shadow";

/// The settings of the program.
#[derive(Clone, Debug)]
pub(super) struct Appearance {
    pub(super) name: Arc<str>,
    pub(super) refusal: Arc<Refusal>,
    pub(super) headers: HeaderStyle,
}

/// The limit that is shown.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Limited {
    /// A maximum number of concurrent requests.
    Level(Permits),
    By(AnyAlgorithm),
}

impl Limited {
    fn quota(&self) -> Permits {
        match self {
            Self::Level(most) => *most,
            Self::By(algorithm) => algorithm.capacity(),
        }
    }

    fn is_level(&self) -> bool {
        match self {
            Self::Level(_) => true,
            Self::By(algorithm) => algorithm.concurrency().is_some(),
        }
    }

    fn window(&self) -> Option<Nanos> {
        match self {
            Self::Level(_) => None,
            Self::By(algorithm) => algorithm.window(),
        }
    }

    fn text(&self) -> String {
        let quota = self.quota();
        match self.window() {
            _ if self.is_level() => format!("{quota} at once"),
            Some(window) => Quota::new(quota, window)
                .map_or_else(|_| quota.to_string(), |quota| quota.to_string()),
            None => format!("{quota} at once, and more with time"),
        }
    }
}

/// A limit with its appearance.
#[derive(Debug)]
pub(super) struct ShownLimit {
    pub(super) limited: Limited,
    look: Appearance,
    text: String,
    /// The value of `RateLimit-Policy`, where that is sent.
    promise: Option<HeaderValue>,
}

impl ShownLimit {
    pub(super) fn new(limited: Limited, look: &Appearance) -> Self {
        let mut shown = Self {
            text: limited.text(),
            limited,
            look: look.clone(),
            promise: None,
        };
        let fresh = Decision::without_times(Verdict::Allow, shown.limited.quota());
        let (mut value, mut promise) = (FieldText::new(), None);
        let report = shown.report(fresh, Permits::ZERO);
        put_promise(&[report], look.headers, &mut value, &mut |_, value| {
            promise = HeaderValue::from_str(value).ok();
        });
        shown.promise = promise;
        shown
    }

    pub(super) fn report(&self, decision: Decision, cost: Permits) -> LimitReport<'_> {
        let window = self.limited.window();
        let more_after = match &self.limited {
            Limited::By(algorithm) if !self.limited.is_level() => {
                algorithm.effective_window(&decision).or(window)
            }
            _ => None,
        };
        LimitReport {
            name: &self.look.name,
            quota: self.limited.quota(),
            window,
            more_after,
            is_level: self.limited.is_level(),
            text: &self.text,
            unit: None,
            decision,
            cost,
            key_missing: false,
            outage: None,
            refusal: &self.look.refusal,
        }
    }

    /// Adds a report of this limit to the fields of a response.
    pub(super) fn put_into(&self, report: LimitReport<'_>, headers: &mut HeaderMap) {
        if let Some(promise) = &self.promise {
            put(headers, names::RATELIMIT_POLICY, promise.clone());
        }
        let (wait, mut value) = (report.decision.verdict.retry_after(), FieldText::new());
        let mut put = |name, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                put(headers, name, value);
            }
        };
        put_balance(&[report], self.look.headers, &mut value, &mut put);
        put_wait(wait, &mut value, &mut put);
    }
}

/// Adds a field. Lists are appended to, so that nested layers are all shown; of the others the
/// service's own, or the inner layer's, is kept.
pub(super) fn put(headers: &mut HeaderMap, name: &'static str, value: HeaderValue) {
    const RATELIMIT_POLICY: HeaderName = HeaderName::from_static(names::RATELIMIT_POLICY);
    const RATELIMIT: HeaderName = HeaderName::from_static(names::RATELIMIT);
    let list = match name {
        names::RATELIMIT_POLICY => RATELIMIT_POLICY,
        names::RATELIMIT => RATELIMIT,
        SHADOW => HeaderName::from_static(SHADOW),
        names::RETRY_AFTER => {
            headers.entry(header::RETRY_AFTER).or_insert(value);
            return;
        }
        other => {
            headers.entry(other).or_insert(value);
            return;
        }
    };
    headers.append(list, value);
}
