//! Format: the form of the lines of a log, named by the user or found from the first lines.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use jiff::tz::TimeZone;
use ratekeeper_policy::ClientIp;

use crate::json_lines::JsonFields;
use crate::record::{Batch, Row, RowWriter, SkipReason, Stamp};
use crate::template::Template;
use crate::timestamp::TimeReader;

/// The form of the lines of a log: a name, a format string of nginx, Apache, Envoy or `HAProxy`, or
/// `json` with the names of its fields.
///
/// ```
/// use ratekeeper_replay::LogFormat;
///
/// for format in [
///     "combined",
///     "$remote_addr [$time_local] \"$request\" $status $request_time",
///     "%h %l %u %t \"%r\" %>s %b",
///     "json time=at client=peer.ip path=url header:x-user=user",
/// ] {
///     assert!(format.parse::<LogFormat>().is_ok());
/// }
/// ```
#[derive(Clone, Debug)]
pub struct LogFormat {
    name: &'static str,
    lines: Lines,
}

impl Default for LogFormat {
    /// JSON lines with the usual names of fields.
    fn default() -> Self {
        let lines = Lines::Json(JsonFields::known());
        Self {
            name: "json",
            lines,
        }
    }
}

#[derive(Clone, Debug)]
enum Lines {
    Text(Template),
    Json(JsonFields),
}

const COMBINED_XFF: &str = "combined with x-forwarded-for";

/// Name of a format, and its format string; empty for JSON. In the order in which lines are tried.
const NAMED: &[(&str, &str)] = &[
    ("caddy", ""),
    ("json", ""),
    (
        "envoy",
        "[%START_TIME%] \"%REQ(:METHOD)% %REQ(:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
         %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %UPSTREAM_TIME% \
         \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \
         \"%REQ(:AUTHORITY)%\" \"",
    ),
    // Captured headers, which are there or not, are a part of the column before the request.
    (
        "haproxy",
        "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC \"%r\"",
    ),
    (
        COMBINED_XFF,
        "%h %l %u [%t] \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\" \"%{X-Forwarded-For}i\"",
    ),
    (
        "combined",
        "%h %l %u [%t] \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\"",
    ),
    ("common", "%h %l %u [%t] \"%r\" %>s %b"),
    // Of Apache, with the host and port of the server first.
    (
        "vhost_combined",
        "%v:%p %h %l %u [%t] \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"",
    ),
];

impl LogFormat {
    fn named(name: &str) -> Option<Self> {
        let (name, text) = NAMED.iter().find(|(known, _)| *known == name)?;
        let lines = match *name {
            "caddy" => Lines::Json(JsonFields::caddy()),
            "json" => Lines::Json(JsonFields::known()),
            _ => {
                let mut template = Template::compile(text).ok()?;
                template.is_open = true;
                if name.starts_with("com") {
                    template.stamp = Stamp::Unknown; // of nginx the end, of Apache the start
                }
                Lines::Text(template)
            }
        };
        Some(Self { name, lines })
    }

    /// Finds the format that reads the most of these lines; `None` if none reads half of them.
    pub(crate) fn detect(lines: &[&str]) -> Option<Self> {
        let mut best = (lines.len().div_ceil(2).max(1) - 1, None);
        for format in NAMED.iter().filter_map(|(name, _)| Self::named(name)) {
            let read = format.count(lines);
            if read > best.0 {
                best = (read, Some(format));
            }
        }
        best.1
    }

    /// Returns the number of lines that it reads.
    fn count(&self, lines: &[&str]) -> usize {
        let mut times = TimeReader::new(TimeZone::UTC);
        let read = |line: &str, row: RowWriter<'_>| self.read(line, row).ok();
        let batch = Batch::read(lines.join("\n"), &mut times, read);
        if self.name == COMBINED_XFF && !lists_addresses(&batch) {
            return 0;
        }
        batch.rows.len()
    }

    /// Reads one line.
    pub(crate) fn read(&self, line: &str, mut row: RowWriter<'_>) -> Result<Row, SkipReason> {
        let (mut read, stamp) = match &self.lines {
            Lines::Json(fields) => (fields.read(line, &mut row), fields.stamp),
            Lines::Text(template) => (template.read(line, &mut row), template.stamp),
        };
        // The line may have come by syslog: `Feb  6 12:14:14 host haproxy[14389]: ..`, `.. nginx: ..`.
        if read.is_err()
            && let Lines::Text(template) = &self.lines
            && let Some((_, rest)) = line.split_once(": ")
        {
            row.clear();
            read = template.read(rest, &mut row);
        }
        if read.is_err() {
            row.clear();
        }
        read.and_then(|()| row.row(stamp))
    }

    /// Returns in words which moment a time of this format states.
    pub fn time_words(&self) -> &'static str {
        let (Lines::Text(Template { stamp, .. }) | Lines::Json(JsonFields { stamp, .. })) =
            &self.lines;
        match stamp {
            Stamp::Start => "its times are starts of requests",
            Stamp::End => "its times are ends of requests, less the duration where a line has it",
            Stamp::Unknown => "its times are starts or ends of requests, as the program wrote them",
        }
    }
}

/// Returns true if the engine finds an address in most values of `x-forwarded-for`.
fn lists_addresses(batch: &Batch) -> bool {
    let peer = IpAddr::from(Ipv4Addr::LOCALHOST);
    let source = ClientIp {
        trusted_proxies: vec![peer.into()],
        ..ClientIp::default()
    };
    let lists = batch.named().filter(|(name, _)| *name == source.header);
    let (wrong, right): (Vec<_>, Vec<_>) =
        lists.partition(|(name, list)| source.is_unreadable(peer, &[(name, list.as_bytes())]));
    wrong.len() <= right.len()
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, lines) = if let Some(fields) = text.strip_prefix("json ") {
            let mut known = JsonFields::known();
            let mut fields = fields.split_whitespace();
            fields.try_for_each(|field| known.set(field))?;
            ("json", Lines::Json(known))
        } else if text.contains(['$', '%']) {
            ("text", Lines::Text(Template::compile(text)?))
        } else {
            return Self::named(text).ok_or_else(|| {
                let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
                format!(
                    "there is no format `{text}`; write one of {}, a format string such as \
                     '$remote_addr [$time_local] \"$request\" $status', or 'json time=FIELD \
                     client=FIELD path=FIELD'",
                    names.join(", ")
                )
            });
        };
        Ok(Self { name, lines })
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
