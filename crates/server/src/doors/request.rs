//! Request: the JSON of a check, borrowed from the bytes it came in.
//!
//! The path of a wrong field is found by a second reading of a refused body, because its search
//! copies the name of each field. Reading waits for nothing, so at any time no more bodies than
//! there are threads take that memory.

use std::net::IpAddr;

use ratekeeper::{DecisionId, Permit};
use ratekeeper_core::Permits;
use serde::Deserialize;
use serde_path_to_error::Segment;

use super::facts::target;
use super::problem::{
    NOT_JSON, Problem, ProblemKind, UNKNOWN_FIELD, WRONG_VALUE, near_spelling, shown,
};
use super::values::{
    BodyText, BoundedList, Costs, JsonObject, Pairs, address, attributes, cost, costs, decision,
    entry_key, headers, null_as_default, permit, status,
};
use crate::observe::denial_log::{LoggedRequest, REQUEST_ID};

/// Maximum number of checks in a batch.
const MAX_CHECKS: usize = 1000;
/// Maximum number of names in `limits`.
const MAX_NAMES: usize = 100;
/// Maximum number of ids in `permits`.
const MAX_PERMITS: usize = 1000;
/// Maximum number of entries; a descriptor with more has no limit of its own.
const MAX_ENTRIES: usize = 64;

/// One check.
///
/// `default` stands at each field, because serde builds the default of a whole struct each time.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Check<'a> {
    #[serde(default, borrow, deserialize_with = "null_as_default")]
    pub(super) request: JsonObject<CheckRequest<'a>>,
    #[serde(default, borrow, deserialize_with = "attributes")]
    pub(super) attributes: Pairs<'a>,
    /// In place of `request` and `attributes`.
    #[serde(default, borrow)]
    pub(super) descriptor: Option<JsonObject<DescriptorField<'a>>>,
    #[serde(default, deserialize_with = "cost")]
    pub(super) cost: Option<Permits>,
    #[serde(default, borrow)]
    pub(super) limits: Option<BoundedList<BodyText<'a>, MAX_NAMES>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckRequest<'a> {
    #[serde(default, borrow, deserialize_with = "null_as_default")]
    pub(super) method: BodyText<'a>,
    #[serde(default, borrow, deserialize_with = "null_as_default")]
    pub(super) path: BodyText<'a>,
    #[serde(default, borrow, deserialize_with = "null_as_default")]
    pub(super) host: BodyText<'a>,
    /// The peer as the application saw it.
    #[serde(default, deserialize_with = "address")]
    pub(super) ip: Option<IpAddr>,
    #[serde(default, borrow, deserialize_with = "null_as_default")]
    pub(super) query: BodyText<'a>,
    #[serde(default, borrow, deserialize_with = "headers")]
    pub(super) headers: Pairs<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DescriptorField<'a> {
    #[serde(default, borrow, deserialize_with = "null_as_default")]
    pub(super) domain: BodyText<'a>,
    /// Keys may come twice, and their order counts then, as in the JSON of Envoy's service.
    #[serde(default, borrow)]
    pub(super) entries: BoundedList<JsonObject<DescriptorEntry<'a>>, MAX_ENTRIES>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DescriptorEntry<'a> {
    #[serde(borrow, deserialize_with = "entry_key")]
    pub(super) key: BodyText<'a>,
    #[serde(default, borrow)]
    pub(super) value: BodyText<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckBatch<'a> {
    #[serde(default, borrow)]
    checks: BoundedList<JsonObject<Check<'a>>, MAX_CHECKS>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PermitList {
    /// May be empty, because a client that took nothing gives nothing back.
    permits: Option<BoundedList<PermitId, MAX_PERMITS>>,
}

/// The result of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportBody<'a> {
    #[serde(deserialize_with = "decision")]
    pub(super) decision: DecisionId,
    #[serde(default, deserialize_with = "status")]
    pub(super) status: Option<u16>,
    #[serde(default, borrow)]
    pub(super) outcome: Option<BodyText<'a>>,
    #[serde(default, deserialize_with = "cost")]
    pub(super) cost: Option<Permits>,
    #[serde(default, borrow, deserialize_with = "costs")]
    pub(super) costs: Costs<'a>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct PermitId(#[serde(deserialize_with = "permit")] Permit);

impl<'a> Check<'a> {
    /// Returns the names in `limits`.
    pub(super) fn names(&self) -> impl Iterator<Item = &BodyText<'a>> {
        self.limits.iter().flat_map(|limits| &limits.0)
    }

    /// Returns the request for the log; `id` is [`request_id`](Self::request_id).
    pub(super) fn logged<'s>(&'s self, id: Option<&'s (&'s str, &'s [u8])>) -> LoggedRequest<'s> {
        LoggedRequest {
            method: &self.request.method,
            path: target(&self.request.path, &self.request.query).0,
            headers: id.map(std::slice::from_ref).unwrap_or_default(),
        }
    }

    /// Returns the header field with the id of the request.
    pub(super) fn request_id(&self) -> Option<(&str, &[u8])> {
        let mut headers = self.request.headers.iter();
        let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(REQUEST_ID));
        found.map(|(_, value)| (REQUEST_ID, value.as_bytes()))
    }

    /// Refuses a check that has both a descriptor and a request, or an empty list of limits.
    fn refuse_contradictions(&self) -> Result<(), Problem> {
        let of_request = || *self.request != CheckRequest::default() || !self.attributes.is_empty();
        if self.descriptor.is_some() && of_request() {
            let detail = "`descriptor` stands instead of `request` and `attributes`; a limit is \
                for one or the other";
            return Err(Problem::new(WRONG_VALUE, detail));
        }
        if let Some(BoundedList(names)) = &self.limits
            && names.is_empty()
        {
            let detail = format!("`limits` is empty; expected 1 to {MAX_NAMES} names");
            return Err(Problem::new(WRONG_VALUE, detail));
        }
        Ok(())
    }
}

/// Reads one check.
pub(super) fn check(body: &[u8]) -> Result<Check<'_>, Problem> {
    let check: Check<'_> = read(body)?;
    check.refuse_contradictions()?;
    Ok(check)
}

/// Reads a batch.
pub(super) fn batch(body: &[u8]) -> Result<Vec<JsonObject<Check<'_>>>, Problem> {
    let BoundedList(checks) = read::<CheckBatch<'_>>(body)?.checks;
    for check in &checks {
        check.refuse_contradictions()?;
    }
    Ok(checks)
}

/// Reads a report.
pub(super) fn report(body: &[u8]) -> Result<ReportBody<'_>, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        let detail = "the body is empty; send {\"decision\": \"..\", \"status\": 401}";
        return Err(Problem::new(NOT_JSON, detail));
    }
    read(body)
}

/// Reads the ids of permits.
pub(super) fn permits(body: &[u8]) -> Result<Vec<Permit>, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::new(NOT_JSON, no_ids("the body is empty")));
    }
    let missing = || Problem::new(WRONG_VALUE, no_ids("`permits` is missing"));
    let BoundedList(ids) = read::<PermitList>(body)?.permits.ok_or_else(missing)?;
    Ok(ids.into_iter().map(|PermitId(permit)| permit).collect())
}

fn no_ids(what: &str) -> String {
    format!("{what}; send {{\"permits\": [..]}} with the ids that /v1/acquire returned")
}

/// Reads a JSON object; an unknown or wrong field is named with its path.
pub(crate) fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        let detail = "the body is empty; send `{}` for a request without any fields";
        return Err(Problem::new(NOT_JSON, detail));
    }
    let message = match serde_json::from_slice(body) {
        Ok(JsonObject(fields)) => return Ok(fields),
        Err(error) if error.is_data() => message(&error),
        Err(error) => return Err(Problem::new(NOT_JSON, error.to_string())),
    };
    // serde marks an unknown field by nothing but these words, and lists the known ones.
    let kind = if message.starts_with("unknown field `") {
        UNKNOWN_FIELD
    } else {
        WRONG_VALUE
    };
    Err(at_field::<T>(body, kind, &message))
}

/// Returns the parser's message; one that quotes a long value is cut, its position kept.
fn message(error: &serde_json::Error) -> String {
    let (whole, cut) = (error.to_string(), bounded(error));
    if cut == whole {
        return whole;
    }
    let (line, column) = (error.line(), error.column());
    format!("{cut} at line {line} column {column}")
}

/// Returns the message of an error; one that quotes a long value is cut.
pub(super) fn bounded(error: &impl ToString) -> String {
    /// Maximum length of a message that is passed on whole.
    const MAX_MESSAGE: usize = 300;
    let whole = error.to_string();
    if whole.len() <= MAX_MESSAGE {
        return whole;
    }
    shown(&whole)
}

/// Names the field at which reading the body failed with `message`.
fn at_field<'a, T: Deserialize<'a>>(body: &'a [u8], kind: ProblemKind, message: &str) -> Problem {
    let json = &mut serde_json::Deserializer::from_slice(body);
    let Err(error) = serde_path_to_error::deserialize::<_, JsonObject<T>>(json) else {
        return Problem::new(kind, message);
    };
    let path = error.path().to_string();
    let (mut place, mut near) = (&*path, String::new());
    match error.path().iter().next_back() {
        None => place = "",
        Some(Segment::Map { key }) if kind == UNKNOWN_FIELD => {
            let known = message.rsplit_once("`, expected ").unwrap_or_default().1;
            near = near_spelling(key, known.split('`').skip(1).step_by(2));
            let parent = path.strip_suffix(key.as_str()).unwrap_or(&path);
            place = parent.trim_end_matches('.');
        }
        Some(_) => {}
    }
    let place = match place {
        "" => String::new(),
        place => format!("`{}`: ", shown(place)),
    };
    Problem::new(kind, format!("{place}{message}{near}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_mistake_is_the_same_in_a_large_body() {
        let kind = |body: &str| super::check(body.as_bytes()).unwrap_err().kind.code;
        let long = "x".repeat(1 << 20);
        for (small, large) in [
            (
                r#"{"reqest":{}}"#.to_owned(),
                format!(r#"{{"cost":1,"reqest":"{long}"}}"#),
            ),
            (r#"{"{long}":1}"#.to_owned(), format!(r#"{{"{long}":1}}"#)),
            (
                r#"{"cost":"x"}"#.to_owned(),
                format!(r#"{{"cost":"{long}"}}"#),
            ),
            ("{".to_owned(), format!(r#"{{"cost":"{long}"#)),
        ] {
            assert_eq!(kind(&large), kind(&small), "{small}");
        }
    }

    #[test]
    fn a_wrong_field_of_a_large_batch_is_named_by_its_path() {
        let mut checks =
            vec![r#"{"request":{"path":"/a/path/of/some/more/length","ip":"192.0.2.1"}}"#; 999];
        checks.push(r#"{"request":{"ip":"192.0.2"}}"#);
        let body = format!(r#"{{"checks":[{}]}}"#, checks.join(","));
        assert!(body.len() > 64 << 10);
        let problem = batch(body.as_bytes()).unwrap_err();
        assert!(
            problem.detail.starts_with("`checks[999].request.ip`: "),
            "{}",
            problem.detail
        );
    }

    #[test]
    fn only_texts_with_escapes_are_copied() {
        let body = r#"{"request":{"method":"GET","path":"/","host":"h","query":"q",
            "headers":{"a":"1"}},"attributes":{"b":"2"},"limits":["l"]}"#;
        let check = check(body.as_bytes()).unwrap();
        let request = &check.request;
        let pairs = request.headers.iter().chain(&check.attributes);
        let mut texts = vec![
            &request.method,
            &request.path,
            &request.host,
            &request.query,
        ];
        texts.extend(check.names());
        texts.extend(pairs.flat_map(|(name, value)| [name, value]));
        assert_eq!(texts.len(), 9);
        for text in texts {
            let bytes = body.as_bytes().as_ptr_range();
            assert!(bytes.contains(&text.as_ptr()), "{text:?}");
        }
        let escaped = super::check(br#"{"request":{"p\u0061th":"\u002fa"}}"#).unwrap();
        assert_eq!(&*escaped.request.path, "/a");
    }
}
