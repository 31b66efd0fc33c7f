//! Described: how clients are shown a limit that no policy describes.
//!
//! The fields of such a limit that never change are written once. They are written again when the
//! program changes the limit.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Decision, Nanos, Permits, Quota, Verdict};
use ratekeeper_policy::{Body, HeaderStyle, Refusal};

use super::denial::{Denial, DeniedBy};
use super::gate::{Denied, Ruling};
use super::hold::RequestHold;
use super::pass::{FieldsToSend, Pass, put, put_text};
use crate::LimitReport;
use crate::headers::{FieldValue, names, put_balance, put_promise, put_wait};
use crate::latest::Latest;

/// The longest name of a limit, as in policies.
const MAX_NAME: usize = 40;

/// The appearance of a limit. Clones show the same limit.
#[derive(Clone, Debug)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Described {
    look: Appearance,
    shown: Arc<Latest<Arc<ShownLimit>>>,
}

/// The settings of the program.
#[derive(Clone, Debug)]
struct Appearance {
    name: Arc<str>,
    refusal: Arc<Refusal>,
    headers: HeaderStyle,
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
    limited: Limited,
    look: Appearance,
    text: String,
    /// The value of `RateLimit-Policy`, where that is sent.
    promise: Option<HeaderValue>,
}

impl Described {
    pub(super) fn new(name: &str, limited: Limited) -> Self {
        let look = Appearance {
            name: name.into(),
            refusal: Arc::default(),
            headers: HeaderStyle::default(),
        };
        let shown = Arc::new(Latest::new(Arc::new(ShownLimit::new(limited, &look))));
        Self { look, shown }
    }

    /// Sets the name: letters, digits and `-`, at most 40, so that it can be sent unescaped.
    pub(super) fn set_name(&mut self, name: &str) {
        let plain = |letter: char| match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9' | '-') => letter,
            _ => '-',
        };
        let name: String = name.chars().take(MAX_NAME).map(plain).collect();
        self.look.name = name.into();
        self.show_again();
    }

    pub(super) fn set_refusal(&mut self, status: u16, body: Body) {
        self.look.refusal = Arc::new(Refusal {
            status: if (400..600).contains(&status) {
                status
            } else {
                429
            },
            body,
            detail: None,
        });
        self.show_again();
    }

    pub(super) fn set_headers(&mut self, headers: HeaderStyle) {
        self.look.headers = headers;
        self.show_again();
    }

    /// Changes are shown by this one and its later clones, not by earlier ones.
    fn show_again(&mut self) {
        let limited = self.shown.with(|shown| shown.limited.clone());
        let shown = Arc::new(ShownLimit::new(limited, &self.look));
        self.shown = Arc::new(Latest::new(shown));
    }

    /// Returns the ruling for a request that passes.
    #[inline]
    pub(super) fn passes(
        &self,
        limited: impl FnOnce() -> Limited,
        decision: Decision,
        hold: Option<RequestHold>,
    ) -> Ruling {
        let told = if self.look.headers == HeaderStyle::Off {
            FieldsToSend::Nothing
        } else {
            FieldsToSend::Limit(self.shown(limited()), decision)
        };
        let delay = match decision.verdict {
            Verdict::AllowAfter(wait) => wait,
            _ => Nanos::ZERO,
        };
        Ruling::Pass(Pass { told, delay, hold })
    }

    /// Returns the ruling for a request that is denied.
    #[cold]
    pub(super) fn denied(&self, limited: Limited, decision: Decision, cost: Permits) -> Ruling {
        let limit = self.shown(limited);
        Ruling::Denied(Denied {
            told: FieldsToSend::Limit(Arc::clone(&limit), decision),
            denial: Denial(DeniedBy::Limit {
                limit,
                decision,
                cost,
            }),
            hold: None,
        })
    }

    /// Returns the current limit, rebuilt if it was changed.
    fn shown(&self, limited: Limited) -> Arc<ShownLimit> {
        let shown = self.shown.with(Arc::clone);
        if shown.limited == limited {
            return shown;
        }
        let shown = Arc::new(ShownLimit::new(limited, &self.look));
        self.shown.store(Arc::new(Arc::clone(&shown))); // of two at once one is kept: either is right
        shown
    }
}

impl ShownLimit {
    fn new(limited: Limited, look: &Appearance) -> Self {
        let mut shown = Self {
            text: limited.text(),
            limited,
            look: look.clone(),
            promise: None,
        };
        let fresh = Decision {
            verdict: Verdict::Allow,
            remaining: shown.limited.quota(),
            reset_after: Nanos::ZERO,
            more_after: Nanos::ZERO,
        };
        let (mut value, mut promise) = (FieldValue::new(), None);
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
            decision,
            cost,
            key_missing: false,
            refusal: &self.look.refusal,
        }
    }

    /// Adds a decision to the fields of a response.
    pub(super) fn put_into(&self, decision: Decision, headers: &mut HeaderMap) {
        if let Some(promise) = &self.promise {
            put(headers, names::RATELIMIT_POLICY, promise.clone());
        }
        let (report, mut value) = (self.report(decision, Permits::ZERO), FieldValue::new());
        let mut put = |name, value: &str| put_text(headers, name, value);
        put_balance(&[report], self.look.headers, &mut value, &mut put);
        put_wait(decision.verdict.retry_after(), &mut value, &mut put);
    }
}
