//! Response: the header fields and the body that tell a client of an answer.

use ratekeeper_core::Mode;
use ratekeeper_policy::HeaderStyle;

use crate::headers::{FieldText, HeaderField, names, put_balance, put_promise, put_wait};
use crate::problem::{self, RefusalBody};
use crate::{Answer, LimitReport, LimitReports, Outcome};

impl Answer {
    /// Returns the header fields for the client, in the policy's style, with `Retry-After` if the
    /// request is refused and waiting helps.
    pub fn header_fields(&self) -> Vec<HeaderField> {
        let mut fields = Vec::new();
        self.put_header_fields(|name, value| fields.push((name, value.to_owned())));
        fields
    }

    /// Passes name and value of each of the [`header_fields`](Self::header_fields) to `put`; the
    /// values are written one after the other into the same buffer.
    pub fn put_header_fields(&self, mut put: impl FnMut(&'static str, &str)) {
        let style = self.policy().headers;
        let mut value = FieldText::new();
        if style != HeaderStyle::Off {
            let reports = self.reports();
            put_promise(&reports, style, &mut value, &mut put);
            put_balance(&reports, style, &mut value, &mut put);
        }
        put_wait(self.retry_after(), &mut value, &mut put);
        let soft = self.soft_denials().map(|outcome| &*outcome.rule.limit.name);
        let soft: Vec<_> = soft.collect();
        if !soft.is_empty() {
            put(names::SOFT, &soft.join(", "));
        }
    }

    /// Returns the reports to show to the client, the tightest limit first.
    pub fn reports(&self) -> LimitReports<'_> {
        let enforced = |outcome: &Outcome<'_>| outcome.mode() == Some(Mode::Enforce);
        let shown = self.outcomes().filter(enforced);
        LimitReport::tightest_first(shown.map(|outcome| outcome.report()))
    }

    /// Returns the body of the refusal, as the policy sets it; `None` if the request is allowed or
    /// the policy sets an empty body.
    pub fn body(&self) -> Option<RefusalBody<'_>> {
        self.body_sent_with(self.status())
    }

    /// Returns the [`body`](Self::body) of a refusal that is sent with another status than the
    /// limit's own, because a problem document contains its status (RFC 9457, section 3.1.2).
    pub fn body_sent_with(&self, status: u16) -> Option<RefusalBody<'_>> {
        let refused_by = self.refused_by()?;
        let violated = self.outcomes().filter(Outcome::refuses);
        let violated = violated.map(|outcome| &*outcome.rule.limit.name);
        problem::body(&refused_by.report(), violated, status)
    }
}
