//! Described: how clients are shown a limit that no policy describes.
//!
//! The program sets the name, the refusal and the fields; [`ShownLimit`] is made of them once, and
//! again when the limit is changed.

use std::sync::Arc;

use ratekeeper_core::{Decision, Nanos, Permits, Verdict};
use ratekeeper_policy::{Body, HeaderStyle, Refusal};
use smallvec::{SmallVec, smallvec};

use super::denial::{Denial, DeniedBy, ShownDecision};
use super::gate::Ruling;
use super::hold::RequestHold;
use super::key_source::no_key::NoKey;
use super::pass::{FieldsToSend, Pass, PassTerms};
use super::shown::{Appearance, Limited, ShownLimit};
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
        if self.is_silent() && decision.verdict == Verdict::Allow {
            return Ruling::Pass(Pass { hold, terms: None });
        }
        let terms = Some(Box::new(self.terms(limited, decision)));
        Ruling::Pass(Pass { hold, terms })
    }

    #[inline(never)]
    fn terms(&self, limited: impl FnOnce() -> Limited, decision: Decision) -> PassTerms {
        let fields = if self.is_silent() {
            FieldsToSend::Nothing
        } else {
            FieldsToSend::Limits(smallvec![self.decided(limited(), decision, Permits::ZERO)])
        };
        let delay = decision.verdict.wait().unwrap_or(Nanos::ZERO);
        PassTerms::new(delay, fields)
    }

    /// Returns the ruling for a request that is denied.
    #[cold]
    pub(super) fn denied(&self, limited: Limited, decision: Decision, cost: Permits) -> Ruling {
        let shown: SmallVec<[ShownDecision; 1]> = smallvec![self.decided(limited, decision, cost)];
        let denial = Denial(DeniedBy::Limits(shown.clone()));
        Ruling::denied(denial, FieldsToSend::Limits(shown))
    }

    /// Returns a decision as clients are shown it.
    pub(super) fn decided(
        &self,
        limited: Limited,
        decision: Decision,
        cost: Permits,
    ) -> ShownDecision {
        ShownDecision {
            limit: self.shown(limited),
            decision,
            cost,
            outage: None,
        }
    }

    /// Returns true if responses have no fields about the limit.
    pub(super) fn is_silent(&self) -> bool {
        self.look.headers == HeaderStyle::Off
    }

    /// Returns the ruling for a request that has no key.
    #[cold]
    pub(super) fn without_key(&self, reason: NoKey) -> Ruling {
        let limit = Arc::clone(&self.look.name);
        let denial = Denial(DeniedBy::NoKey { limit, reason });
        Ruling::denied(denial, FieldsToSend::Nothing)
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
