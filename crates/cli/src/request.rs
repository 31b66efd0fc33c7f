//! Request: arguments that describe a request, for the service and for the policy here.
//!
//! ```text
//!   ip=192.0.2.1 header:x-user=u1  --parts-->  Request --body-->  POST /v1/check
//!   --request 'POST /login' --ip ..  -------->         --facts--> Policy::charges
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use clap::Args;
use ratekeeper_core::Permits;
use ratekeeper_policy::{BodyField, Descriptor, Facts};
use serde_json::{Map, Value, json};

use crate::client::percent_encoded;
use crate::{Failure, Result, words};

/// Known properties of one request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CliRequest {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) ip: Option<IpAddr>,
    /// Names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) cost: Option<u64>,
    /// Replaces all but the cost.
    pub(crate) descriptor: Option<DescriptorEntries>,
}

/// A descriptor, as the rate limit protocol of Envoy sends it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DescriptorEntries {
    pub(crate) domain: String,
    pub(crate) entries: Vec<(String, String)>,
}

impl DescriptorEntries {
    fn body(&self, limit: &str) -> Value {
        let entry = |(key, value): &(String, String)| json!({ "key": key, "value": value });
        let entries: Vec<Value> = self.entries.iter().map(entry).collect();
        let descriptor = json!({ "domain": self.domain, "entries": entries });
        json!({ "descriptor": descriptor, "limits": [limit] })
    }
}

/// Names of the parts of a request; `:X` stands for a name.
const PARTS: [&str; 13] = [
    "ip", "method", "path", "host", "header:", "query:", "cookie:", "attr:", "bearer", "api_key",
    "query", "form:", "json:",
];

impl CliRequest {
    /// Reads `ip=192.0.2.1`, `header:x-user-id=u1`, `attr:plan=pro`, ...
    pub(crate) fn from_parts(parts: &[String]) -> Result<Self> {
        let mut request = Self::default();
        parts.iter().try_for_each(|part| request.add_part(part))?;
        Ok(request)
    }

    fn add_part(&mut self, text: &str) -> Result<()> {
        let hint = "ip=192.0.2.1, attr:user_id=u1 or header:x-api-key=secret";
        let (part, value) = split(text, "PART=VALUE", hint)?;
        let (kind, name) = part
            .split_once(':')
            .map_or((part, None), |(k, n)| (k, Some(n)));
        match (kind, name) {
            ("ip", None) => self.ip = Some(ip(value)?),
            ("method", None) => self.method = value.into(),
            ("path", None) => self.path = value.into(),
            ("host", None) => self.host = value.to_ascii_lowercase(),
            ("query", None) => self.add_query(value),
            ("api_key", None) => self.add_header("x-api-key", value),
            ("bearer", None) => self.add_header("authorization", &format!("Bearer {value}")),
            ("header", Some(name)) if !name.is_empty() => self.add_header(name, value),
            ("query", Some(name)) if !name.is_empty() => {
                let [name, value] = [name, value].map(percent_encoded);
                self.add_query(&format!("{name}={value}"));
            }
            ("cookie", Some(name)) if !name.is_empty() => self.add_cookie(name, value),
            ("attr", Some(name)) if !name.is_empty() => {
                self.attributes.push((name.into(), value.into()));
            }
            ("form" | "json", Some(_)) => {
                // The service reads no body here: an attribute of this name stands for the value.
                let field = BodyField::parse(part);
                let field = field.map_err(|error| Failure::new(error.reason).hint(error.help))?;
                self.attributes.push((field.to_string(), value.into()));
            }
            ("descriptor", Some(name)) if !name.is_empty() => {
                return Err(
                    Failure::new(format!("`{part}` is not a part of a request")).hint(format!(
                        "write --descriptor {name}={value}, which replaces the request"
                    )),
                );
            }
            _ => return Err(unknown_part(part)),
        }
        Ok(())
    }

    fn add_header(&mut self, name: &str, value: &str) {
        let name = name.trim().to_ascii_lowercase();
        let value = value.trim();
        if name == "host" {
            let address = value.find(']').unwrap_or(0); // has colons of its own
            let port = value[address..]
                .find(':')
                .map_or(value.len(), |at| address + at);
            self.host = value[..port].to_ascii_lowercase();
        }
        self.headers.push((name, value.into()));
    }

    fn add_query(&mut self, pair: &str) {
        if !self.query.is_empty() {
            self.query.push('&');
        }
        self.query.push_str(pair);
    }

    fn add_cookie(&mut self, name: &str, value: &str) {
        let pair = format!("{name}={value}");
        let cookies = self.headers.iter_mut().find(|(name, _)| name == "cookie");
        if let Some((_, cookies)) = cookies {
            cookies.push_str("; ");
            cookies.push_str(&pair);
        } else {
            self.headers.push(("cookie".into(), pair));
        }
    }

    /// Returns the body of a call to the service about the limit `name`.
    pub(crate) fn body(&self, limit: &str) -> Value {
        let mut body = match &self.descriptor {
            Some(asked) => asked.body(limit),
            None => self.facts_body(limit),
        };
        if let Some(cost) = self.cost {
            body["cost"] = cost.into();
        }
        body
    }

    fn facts_body(&self, limit: &str) -> Value {
        let mut request = Map::new();
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                request.insert(name.into(), value.into());
            }
        };
        put("method", &self.method);
        put("host", &self.host);
        put("path", &self.path);
        put("query", &self.query);
        put("ip", &self.ip.map(|ip| ip.to_string()).unwrap_or_default());
        let mut headers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in &self.headers {
            headers.entry(name).or_default().push(value);
        }
        if !headers.is_empty() {
            let headers = headers
                .into_iter()
                .map(|(name, all)| (name, all.join(", ")));
            request.insert("headers".into(), json!(headers.collect::<BTreeMap<_, _>>()));
        }
        let mut body = json!({ "request": request, "limits": [limit] });
        if !self.attributes.is_empty() {
            let attributes: BTreeMap<_, _> = self.attributes.iter().cloned().collect();
            body["attributes"] = json!(attributes);
        }
        body
    }

    /// Calls `look` with the facts that a policy sees.
    pub(crate) fn with_facts<T>(&self, look: impl FnOnce(&Facts<'_>) -> T) -> T {
        let headers = self.headers.iter();
        let headers: Vec<(&str, &[u8])> = headers
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let attributes = borrowed(&self.attributes);
        let entries = borrowed(self.descriptor.iter().flat_map(|asked| &asked.entries));
        look(&Facts {
            method: &self.method,
            host: &self.host,
            path: &self.path,
            query: &self.query,
            ip: self.ip,
            headers: &headers,
            cost: self.cost.map(Permits::new),
            attributes: &attributes,
            descriptor: self.descriptor.as_ref().map(|asked| Descriptor {
                domain: &asked.domain,
                entries: &entries,
                instead: None,
            }),
            ..Facts::default()
        })
    }
}

fn borrowed<'a>(pairs: impl IntoIterator<Item = &'a (String, String)>) -> Vec<(&'a str, &'a str)> {
    let pairs = pairs.into_iter();
    pairs.map(|(name, value)| (&**name, &**value)).collect()
}

/// `POST /login?next=x from 192.0.2.1`, `descriptor plan=pro user=ada in edge`
impl fmt::Display for CliRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(asked) = &self.descriptor {
            f.write_str("descriptor")?;
            for (key, value) in &asked.entries {
                write!(f, " {key}={value}")?;
            }
            return match asked.domain.as_str() {
                "" => Ok(()),
                domain => write!(f, " in {domain}"),
            };
        }
        write!(f, "{} {}", self.method, self.path)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if !self.host.is_empty() {
            write!(f, " at {}", self.host)?;
        }
        self.ip.map_or(Ok(()), |ip| write!(f, " from {ip}"))
    }
}

/// A request in the words of HTTP.
#[derive(Args)]
pub(crate) struct RequestArgs {
    /// Method and target: 'POST /login', '/search?q=x', 'GET URL'
    #[arg(long, value_name = "'METHOD TARGET'", conflicts_with = "descriptor")]
    pub(crate) request: Option<String>,
    /// A header field; may be repeated
    #[arg(long, value_name = "NAME:VALUE", requires = "request")]
    header: Vec<String>,
    /// Address of the client
    #[arg(long, value_name = "ADDRESS", requires = "request")]
    ip: Option<String>,
    /// An attribute from the application; may be repeated
    #[arg(long, value_name = "NAME=VALUE", requires = "request")]
    attr: Vec<String>,
    /// Cost of the request
    #[arg(long, value_name = "PERMITS")]
    cost: Option<u64>,
    #[command(flatten)]
    descriptor: DescriptorArgs,
}

/// A descriptor instead of a request, as Envoy sends it.
#[derive(Args)]
pub(crate) struct DescriptorArgs {
    /// Entries of a descriptor, as Envoy sends it, instead of a request; may be repeated
    #[arg(long, value_name = "KEY=VALUE,..")]
    descriptor: Vec<String>,
    /// Domain of the descriptor
    #[arg(long, requires = "descriptor")]
    domain: Option<String>,
}

impl DescriptorArgs {
    /// Returns the descriptor; `None` if none is described.
    pub(crate) fn read(&self) -> Result<Option<DescriptorEntries>> {
        if self.descriptor.is_empty() {
            return Ok(None);
        }
        let entries: Result<Vec<_>> = self.descriptor.iter().map(|it| entries(it)).collect();
        Ok(Some(DescriptorEntries {
            domain: self.domain.clone().unwrap_or_default(),
            entries: entries?.concat(),
        }))
    }
}

impl RequestArgs {
    /// Returns the request; `None` if none is described.
    pub(crate) fn read(&self) -> Result<Option<CliRequest>> {
        let mut request = CliRequest {
            cost: self.cost,
            descriptor: self.descriptor.read()?,
            ..CliRequest::default()
        };
        let Some(line) = &self.request else {
            return Ok(request.descriptor.is_some().then_some(request));
        };
        let (method, target) = line.trim().split_once(' ').unwrap_or(("GET", line.trim()));
        request.method = method.to_ascii_uppercase();
        request.set_target(target.trim())?;
        for header in &self.header {
            let (name, value) = split(header, "NAME:VALUE", "--header 'x-user-id: u1'")?;
            request.add_header(name, value);
        }
        for attribute in &self.attr {
            let (name, value) = split(attribute, "NAME=VALUE", "--attr plan=pro")?;
            request.attributes.push((name.into(), value.into()));
        }
        request.ip = self.ip.as_deref().map(ip).transpose()?;
        Ok(Some(request))
    }
}

impl CliRequest {
    /// Sets `/path?query`, or a URL with scheme and host.
    fn set_target(&mut self, target: &str) -> Result<()> {
        let rest = match target.split_once("://") {
            Some((_, rest)) => {
                let (host, _) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
                self.add_header("host", host);
                &rest[host.len()..]
            }
            None => target,
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = if path.is_empty() { "/" } else { path };
        if !path.starts_with('/') {
            let hint =
                "write for example --request 'POST /login' or 'GET http://api.example.com/v1'";
            return Err(Failure::new(format!("`{target}` is not a path or a URL")).hint(hint));
        }
        self.path = path.into();
        self.query = query.into();
        Ok(())
    }
}

/// Splits a text at the sign of its form, `NAME:VALUE` or `NAME=VALUE`.
fn split<'t>(text: &'t str, form: &str, example: &str) -> Result<(&'t str, &'t str)> {
    let sign = if form.contains(':') { ':' } else { '=' };
    text.split_once(sign).ok_or_else(|| {
        Failure::new(format!("`{text}` is not {form}")).hint(format!("write for example {example}"))
    })
}

/// Reads `plan=pro,user=ada`; text after a comma without `=` belongs to the value before.
fn entries(text: &str) -> Result<Vec<(String, String)>> {
    let mut entries: Vec<(String, String)> = Vec::new();
    for piece in text.split(',') {
        match (piece.split_once('='), entries.last_mut()) {
            (Some((key, value)), _) if !key.is_empty() => {
                entries.push((key.into(), value.into()));
            }
            (None, Some((_, value))) => {
                value.push(',');
                value.push_str(piece);
            }
            _ => {
                return Err(Failure::new(format!("`{piece}` is not KEY=VALUE"))
                    .hint("write for example --descriptor plan=pro,user=ada --domain edge"));
            }
        }
    }
    Ok(entries)
}

fn ip(text: &str) -> Result<IpAddr> {
    text.parse().map_err(|_| {
        Failure::new(format!("`{text}` is not an IP address"))
            .hint("write for example 192.0.2.1 or 2001:db8::1")
    })
}

fn unknown_part(part: &str) -> Failure {
    let kind = part.split_inclusive(':').next().unwrap_or(part);
    let failure = Failure::new(format!("unknown part `{part}`"));
    match words::near(kind, PARTS.into_iter()) {
        Some(near) if near == part => failure.hint(format!("add a name: {part}NAME=VALUE")),
        near => failure.meant(
            near,
            "write one of ip, method, path, host, query, header:X, query:X, cookie:X, attr:X, \
             form:X, json:/X, bearer, api_key",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(parts: &[&str]) -> Result<CliRequest> {
        CliRequest::from_parts(&parts.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn parts_become_the_body_of_a_check() {
        let rows: [(&[&str], Value); 8] = [
            (
                &["ip=192.0.2.1"],
                json!({"request": {"ip": "192.0.2.1"}, "limits": ["l"]}),
            ),
            (
                &["header:X-User=u1"],
                json!({"request": {"headers": {"x-user": "u1"}}, "limits": ["l"]}),
            ),
            (
                &["query:a=b c", "query:d=&"],
                json!({"request": {"query": "a=b%20c&d=%26"}, "limits": ["l"]}),
            ),
            (
                &["cookie:a=1", "cookie:b=2"],
                json!({"request": {"headers": {"cookie": "a=1; b=2"}}, "limits": ["l"]}),
            ),
            (
                &["attr:user_id=a=b", "api_key=k"],
                json!({"request": {"headers": {"x-api-key": "k"}}, "attributes": {"user_id": "a=b"}, "limits": ["l"]}),
            ),
            (
                &["form:user=ann", "json:/a/0=1"],
                json!({"request": {}, "attributes": {"form:user": "ann", "json:/a/0": "1"}, "limits": ["l"]}),
            ),
            (
                &["method=POST", "path=/login", "host=A.Example"],
                json!({"request": {"method": "POST", "path": "/login", "host": "a.example"}, "limits": ["l"]}),
            ),
            (
                &["header:Host=[::1]:80"],
                json!({"request": {"host": "[::1]", "headers": {"host": "[::1]:80"}}, "limits": ["l"]}),
            ),
        ];
        for (given, body) in rows {
            assert_eq!(
                parts(given).expect("parts that read").body("l"),
                body,
                "{given:?}"
            );
        }
    }

    #[test]
    fn a_wrong_part_is_named_with_a_way_out() {
        let rows = [
            (
                "ip",
                "`ip` is not PART=VALUE",
                "write for example ip=192.0.2.1",
            ),
            (
                "ip=x",
                "`x` is not an IP address",
                "write for example 192.0.2.1",
            ),
            (
                "heder:a=b",
                "unknown part `heder:a`",
                "did you mean `header:`?",
            ),
            (
                "attr:=b",
                "unknown part `attr:`",
                "add a name: attr:NAME=VALUE",
            ),
            (
                "form:=b",
                "`form:` is not a field of a body",
                "write \"form:NAME\"",
            ),
            (
                "json:a=b",
                "`json:a` is not a JSON pointer",
                "write a JSON pointer",
            ),
            ("zebra=1", "unknown part `zebra`", "write one of ip"),
        ];
        for (part, expected, hints) in rows {
            let Err(Failure {
                message,
                hint: Some(hint),
                ..
            }) = parts(&[part])
            else {
                panic!("`{part}` must be refused with a hint");
            };
            assert_eq!(message, expected);
            assert!(hint.starts_with(hints), "{hint}");
        }
    }

    #[test]
    fn a_target_is_a_path_or_a_url() {
        let rows = [
            ("/login", "", "/login", ""),
            ("/a?b=c?d", "", "/a", "b=c?d"),
            (
                "http://API.example.com:8443/v1?x",
                "api.example.com",
                "/v1",
                "x",
            ),
            ("https://a.example", "a.example", "/", ""),
            ("https://a.example?x=1", "a.example", "/", "x=1"),
        ];
        for (target, host, path, query) in rows {
            let mut request = CliRequest::default();
            assert_eq!(request.set_target(target), Ok(()));
            assert_eq!(
                (&*request.host, &*request.path, &*request.query),
                (host, path, query)
            );
        }
        assert!(CliRequest::default().set_target("login").is_err());
    }
}
