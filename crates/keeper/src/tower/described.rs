//! Described: a limit of the program, shown to clients as a policy of one rule would be.
//!
//! ```text
//!   allowed --> fields: quotas, made once; standing, made for this request
//!   denied  --> an answer by a policy of one rule
//! ```
//!
//! Headers, body and status of a refusal have one definition, that of policies; so a limiter
//! without a policy answers by a policy of its own, rebuilt when its limit is changed.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Decision, Key, Limit, LimitId, Nanos, Outage, Permits, Quota,
    Time, Verdict,
};
use ratekeeper_policy::{
    Body, Charges, Cost, Entry, HeaderStyle, Matcher, MissingKey, Policy, Refusal, Rule, RuleMode,
    Rules,
};
use ratekeeper_store::Decisions;
use smallvec::smallvec;

use super::gate::{Denied, RequestHold, Ruling};
use super::pass::{FieldsToSend, Pass, put, put_text};
use crate::headers::{FieldValue, names, put_balance, put_promise, put_wait};
use crate::latest::Latest;
use crate::{Answer, Outcome};

/// The longest name of a limit, as in policies.
const MAX_NAME: usize = 40;

/// The appearance of a limit. Clones show the same limit.
#[derive(Clone, Debug)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Described {
    look: Appearance,
    shown: Arc<Latest<Arc<Shown>>>,
}

/// The settings of the program.
#[derive(Clone, Debug)]
struct Appearance {
    name: Arc<str>,
    refusal: Arc<Refusal>,
    headers: HeaderStyle,
}

/// The current limit.
#[derive(Debug)]
pub(super) struct Shown {
    /// A policy of one rule.
    policy: Arc<Policy>,
    /// The value of `RateLimit-Policy`, where that is sent.
    promise: Option<HeaderValue>,
}

/// An algorithm, and the quota to show for it.
pub(super) type Limited = (AnyAlgorithm, Permits);

/// Pairs an algorithm with its own quota.
pub(super) fn limited(algorithm: AnyAlgorithm) -> Limited {
    let quota = algorithm.capacity();
    (algorithm, quota)
}

impl Described {
    pub(super) fn new(name: &str, limited: Limited) -> Self {
        let look = Appearance {
            name: name.into(),
            refusal: Arc::default(),
            headers: HeaderStyle::default(),
        };
        let shown = Arc::new(Latest::new(Arc::new(look.at(limited))));
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
        let limited = self.shown.with(|shown| {
            let mut rules = shown.policy.rules.iter();
            rules
                .next()
                .map(|rule| (rule.limit.algorithm.clone(), rule.quota))
        });
        if let Some(limited) = limited {
            self.shown = Arc::new(Latest::new(Arc::new(self.look.at(limited))));
        }
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
            FieldsToSend::Limit(self.shown(&limited()), decision)
        };
        let delay = match decision.verdict {
            Verdict::AllowAfter(wait) => wait,
            _ => Nanos::ZERO,
        };
        Ruling::Pass(Pass { told, delay, hold })
    }

    /// Returns the ruling for a request that is denied.
    #[cold]
    pub(super) fn denied(
        &self,
        limited: &Limited,
        decision: Decision,
        cost: Permits,
        now: Time,
    ) -> Ruling {
        let shown = self.shown(limited);
        let policy = Arc::clone(&shown.policy);
        let mut charges = Charges::default();
        charges.entries.push(Entry {
            rule: 0,
            key: 0..0,
            cost,
            fallback: false,
            replaced: None,
        });
        let decisions = Decisions {
            admitted: false,
            each: smallvec![decision],
        };
        Ruling::Denied(Denied {
            answer: Box::new(Answer::new(policy, charges, decisions, now)),
            told: FieldsToSend::Limit(shown, decision),
            hold: None,
        })
    }

    /// Returns the current limit, rebuilt if it was changed.
    fn shown(&self, limited: &Limited) -> Arc<Shown> {
        let shown = self.shown.with(Arc::clone);
        if shown.is(limited) {
            return shown;
        }
        let shown = Arc::new(self.look.at(limited.clone()));
        self.shown.store(Arc::new(Arc::clone(&shown))); // of two at once one is kept: either is right
        shown
    }
}

impl Shown {
    fn is(&self, (algorithm, quota): &Limited) -> bool {
        let rule = self.policy.rules.first();
        rule.is_some_and(|rule| rule.quota == *quota && rule.limit.algorithm == *algorithm)
    }

    /// Adds a decision to the fields of a response.
    pub(super) fn tell(&self, decision: Decision, headers: &mut HeaderMap) {
        if let Some(promise) = &self.promise {
            put(headers, names::RATELIMIT_POLICY, promise.clone());
        }
        if let Some(rule) = self.policy.rules.first() {
            let (shown, mut value) = ([outcome(rule, decision)], FieldValue::new());
            let mut put = |name, value: &str| put_text(headers, name, value);
            put_balance(&shown, self.policy.headers, &mut value, &mut put);
            put_wait(decision.verdict.retry_after(), &mut value, &mut put);
        }
    }
}

/// Returns the shown part of a decision; the fields use neither key nor cost.
fn outcome(rule: &Rule, decision: Decision) -> Outcome<'_> {
    Outcome {
        rule,
        limit: &rule.limit,
        decision,
        key: Key::ALL,
        cost: Permits::ZERO,
        numbers: None,
        key_missing: false,
    }
}

impl Appearance {
    /// Shows `limited` with this appearance.
    fn at(&self, limited: Limited) -> Shown {
        let rule = self.rule(limited);
        let fresh = Decision {
            verdict: Verdict::Allow,
            remaining: rule.quota,
            reset_after: Nanos::ZERO,
            more_after: Nanos::ZERO,
        };
        let mut promise = None;
        let shown = [outcome(&rule, fresh)];
        put_promise(
            &shown,
            self.headers,
            &mut FieldValue::new(),
            &mut |_, value| {
                promise = HeaderValue::from_str(value).ok();
            },
        );
        let policy = Policy {
            rules: Rules::new(vec![rule]),
            headers: self.headers,
            ..Policy::default()
        };
        Shown {
            policy: Arc::new(policy),
            promise,
        }
    }

    fn rule(&self, (algorithm, quota): Limited) -> Rule {
        let window = algorithm.window();
        let text = match (window, algorithm.concurrency()) {
            (_, Some(_)) => format!("{quota} at once"),
            (Some(window), None) => Quota::new(quota, window)
                .map_or_else(|_| quota.to_string(), |quota| quota.to_string()),
            (None, None) => format!("{quota} at once, and more with time"),
        };
        Rule {
            limit: Limit {
                name: Arc::clone(&self.name),
                id: LimitId::default(),
                version: 0,
                algorithm,
                outage: Outage::default(),
            },
            mode: RuleMode::Enforce,
            matcher: Matcher::default(),
            key: Vec::new(),
            missing_key: MissingKey::default(),
            cost: Cost::Request,
            exemptions: Vec::new(),
            refusal: Arc::clone(&self.refusal),
            quota,
            window,
            keeps_to: window.and_then(|window| Quota::new(quota, window).ok()),
            text,
            line: 0,
        }
    }
}
