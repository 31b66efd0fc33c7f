//! Described: a limit of the program, shown to clients as a policy of one rule would be.
//!
//! Headers, body and status of a refusal have one definition, that of policies; so a limiter
//! without a policy answers by one of its own, made anew when its limit is changed.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ratekeeper_core::{
    AnyAlgorithm, Decision, Limit, LimitId, Outage, Permits, Quota, Time, Verdict,
};
use ratekeeper_policy::{
    Body, Charges, Cost, Entry, HeaderStyle, Matcher, MissingKey, Policy, Refusal, Rule, RuleMode,
    Rules,
};
use ratekeeper_store::Decisions;
use smallvec::smallvec;

use crate::Answer;

/// The longest name of a limit, as in policies.
const MAX_NAME: usize = 40;

/// How a limit is shown. Clones show the same limit.
#[derive(Clone, Debug)]
#[expect(unnameable_types, reason = "gates are made in this module only")]
pub struct Described {
    name: Arc<str>,
    refusal: Arc<Refusal>,
    headers: HeaderStyle,
    shown: Arc<ArcSwap<Policy>>,
}

impl Described {
    pub(super) fn new(name: &str, algorithm: AnyAlgorithm) -> Self {
        let quota = algorithm.capacity();
        Self::with_quota(name, algorithm, quota)
    }

    /// Says another quota than the algorithm does.
    pub(super) fn with_quota(name: &str, algorithm: AnyAlgorithm, quota: Permits) -> Self {
        let mut described = Self {
            name: name.into(),
            refusal: Arc::default(),
            headers: HeaderStyle::default(),
            shown: Arc::default(),
        };
        described.show(algorithm, quota);
        described
    }

    /// Letters, digits and `-`, 40 at most: what can be sent as it is.
    pub(super) fn set_name(&mut self, name: &str) {
        let plain = |letter: char| match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9' | '-') => letter,
            _ => '-',
        };
        let name: String = name.chars().take(MAX_NAME).map(plain).collect();
        self.name = name.into();
        self.show_again();
    }

    pub(super) fn set_refusal(&mut self, status: u16, body: Body) {
        self.refusal = Arc::new(Refusal {
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
        self.headers = headers;
        self.show_again();
    }

    /// The answer that this decision is; none if nobody is told anything.
    pub(super) fn answer(
        &self,
        algorithm: AnyAlgorithm,
        decision: Decision,
        cost: Permits,
        now: Time,
    ) -> Option<Answer> {
        let quota = algorithm.capacity();
        self.answer_with((algorithm, quota), decision, cost, now)
    }

    /// As [`answer`](Self::answer), of a limit that says another quota than its algorithm.
    pub(super) fn answer_with(
        &self,
        (algorithm, quota): (AnyAlgorithm, Permits),
        decision: Decision,
        cost: Permits,
        now: Time,
    ) -> Option<Answer> {
        if self.headers == HeaderStyle::Off && decision.verdict == Verdict::Allow {
            return None;
        }
        let mut policy = self.shown.load_full();
        let shows = |rule: &Rule| rule.quota == quota && rule.limit.algorithm == algorithm;
        if !policy.rules.first().is_some_and(shows) {
            policy = Arc::new(self.policy(algorithm, quota));
            self.shown.store(Arc::clone(&policy));
        }
        let mut charges = Charges::default();
        charges.entries.push(Entry {
            rule: 0,
            key: 0..0,
            cost,
            fallback: false,
            replaced: None,
        });
        let decisions = Decisions {
            admitted: decision.verdict.allows(),
            each: smallvec![decision],
        };
        Some(Answer::new(policy, charges, decisions, now))
    }

    /// What has changed is shown by this one and its clones to come, not by those before it.
    fn show_again(&mut self) {
        let shown = self.shown.load_full();
        if let Some(rule) = shown.rules.first() {
            self.show(rule.limit.algorithm.clone(), rule.quota);
        }
    }

    fn show(&mut self, algorithm: AnyAlgorithm, quota: Permits) {
        self.shown = Arc::new(ArcSwap::from_pointee(self.policy(algorithm, quota)));
    }

    fn policy(&self, algorithm: AnyAlgorithm, quota: Permits) -> Policy {
        let window = algorithm.window();
        let text = match (window, algorithm.concurrency()) {
            (_, Some(_)) => format!("{quota} at once"),
            (Some(window), None) => Quota::new(quota, window)
                .map_or_else(|_| quota.to_string(), |quota| quota.to_string()),
            (None, None) => format!("{quota} at once, and more with time"),
        };
        let rule = Rule {
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
            text,
            line: 0,
        };
        Policy {
            rules: Rules::new(vec![rule]),
            headers: self.headers,
            ..Policy::default()
        }
    }
}
