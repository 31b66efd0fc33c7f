//! Other words: names of nginx, Envoy, Kong and express-rate-limit, and what to write instead.
//!
//! A name is found in any of its spellings: `windowMs`, `window_ms` and `window-ms` are one. The
//! words of the language itself need no row: near spellings and fields of another table are found
//! in the table of fields (`complaint.rs`).

/// A name of another program, in lower case without `_` and `-`, and what to write in its place.
type OtherWord = (&'static str, &'static str);

const NUMBER: &str = "write number and period as one string: limit = \"100/1m\"";
const SECOND: &str = "write number and period as one string: limit = \"100/1s\"";
const HOUR: &str = "write number and period as one string: limit = \"100/1h\"";
const DAY: &str = "write number and period as one string: limit = \"100/24h\"";
const MONTH: &str = "write number and period as one string: limit = \"100/30d\"";
const BUCKET: &str =
    "write rate and burst as one table: bucket = { size = 20, refill = \"10/1s\" }";
const KEY: &str = "group requests with `key`: key = [\"ip\"]";
const TABLE: &str = "write each limit as a table of its own: [[limit]]";
const EXEMPT: &str = "write [[exempt]] with the names of the limits, or limits = [\"*\"], and with \
    match = { ip = \"192.0.2.0/24\" }";
const SHADOW: &str = "to decide and count but never refuse, write mode = \"shadow\"";
/// In words, because the value of a flag turns the meaning of its name around.
pub(super) const MODE: &str = "choose for the limit, or for all in [defaults]: mode = \"enforce\" \
    refuses, \"shadow\" decides and counts but never refuses, \"off\" does nothing";
const PLANS: &str = "write [plan] with from and default, and `plans` in each [[limit]]";
const STATUS: &str = "write the number as `status`, as in status = 429";
const DETAIL: &str =
    "put it into a response: [response.slow-down] with detail = \"Try again in {retry_after}.\"";
const HEADERS: &str = "choose the headers for the whole policy, at the top: headers = \"ietf\", \
    \"legacy\", \"both\" or \"off\"";
const STORE: &str = "to share the counters, write [store.redis] with url = \
    \"redis://127.0.0.1:6379\"; without it each process counts by itself";
const STORE_ERROR: &str = "while the store fails, on_store_error = \"allow\" lets requests \
    pass, \"deny\" refuses them, and \"local\" applies a share of the limit in each process";
const FILE_OF_ENVOY: &str = "match it in a limit: match = { descriptor.user = \"*\" }; a file of \
    Envoy's rate limit service is read by [envoy] with config = \"FILE\"";

/// For a limit without a number.
pub(crate) const UNLIMITED: &str =
    "write a number, or remove the limit: without one nothing is refused";

/// Names of fields.
#[rustfmt::skip]
const FIELDS: &[OtherWord] = &[
    // prices are a list
    ("is", "write cost = [{ path = \"/export\", is = 10 }]"),
    // the mode, in many programs
    ("dryrun", MODE),
    ("shadow", MODE),
    ("logonly", MODE),
    ("reportonly", MODE),
    ("monitor", MODE),
    ("enforce", MODE),
    ("enabled", MODE),
    ("disabled", MODE),
    // nginx
    ("limitreq", TABLE),
    ("limitreqzone", TABLE),
    ("limitconn", "write concurrency = { max = 50, lease = \"60s\" }"),
    ("limitreqdryrun", MODE),
    ("limitreqstatus", STATUS),
    ("zone", KEY),
    ("rate", NUMBER),
    ("burst", "the burst of a bucket is its `size`: bucket = { size = 40, refill = \"20/1s\" }"),
    ("nodelay", "leave it out: a bucket refuses excess requests, unless it has a `queue` beside it"),
    ("delay", "write queue = { max = 100, max_wait = \"2s\" } beside a bucket"),
    ("proxypass", "write upstream = \"http://127.0.0.1:3000\" under [listen.proxy]"),
    ("clientheadertimeout", "write head_timeout = \"10s\""),
    ("keepalivetimeout", "write idle_timeout = \"75s\""),
    ("whitelist", EXEMPT),
    ("geo", "to match places, write match = { country = \"NO\" }; to exempt addresses, [[exempt]]"),
    // Envoy
    ("descriptors", FILE_OF_ENVOY),
    ("ratelimit", NUMBER),
    ("requestsperunit", NUMBER),
    ("shadowmode", MODE),
    ("maxtokens", BUCKET),
    ("tokensperfill", BUCKET),
    ("fillinterval", BUCKET),
    ("mergedomainconfig", "its name in [envoy] is `merge_domains`"),
    ("stopcachekeyincrementwhenoverlimit", "its name in [envoy] is `stop_increment`"),
    ("limitresponseheadersenabled", "to report limits, write headers = \"draft-03\" in [envoy]"),
    ("limitlimitheader", "write header_names = { limit = \"x-limit\" }"),
    ("limitremainingheader", "write header_names = { remaining = \"x-remaining\" }"),
    ("limitresetheader", "write header_names = { reset = \"x-reset\" }"),
    ("responsedynamicmetadata", "its name in [envoy] is `dynamic_metadata`"),
    ("failuremodedeny", STORE_ERROR),
    // Kong
    ("second", SECOND),
    ("minute", NUMBER),
    ("hour", HOUR),
    ("day", DAY),
    ("month", MONTH),
    ("limitby", KEY),
    ("windowsize", NUMBER),
    ("windowtype", "write algorithm = \"sliding-window-counter\", or \"fixed-window\""),
    ("policy", STORE),
    ("faulttolerant", STORE_ERROR),
    ("hideclientheaders", HEADERS),
    ("errorcode", STATUS),
    ("errormessage", DETAIL),
    ("consumergroups", PLANS),
    // express-rate-limit
    ("windowms", NUMBER),
    ("period", NUMBER),
    ("max", NUMBER),
    ("keygenerator", KEY),
    ("skip", "write [[exempt]] with the names of the limits, or limits = [\"*\"], and with match = { path = \"/health\" }"),
    ("skipsuccessfulrequests", "to count failed requests alone, write count = { status = [\"4xx\", \"5xx\"] }"),
    ("skipfailedrequests", "to count successful requests alone, write count = { status = [\"2xx\", \"3xx\"] }"),
    ("requestwassuccessful", "list the statuses that count, as in count = { status = [401, 403] }"),
    ("standardheaders", HEADERS),
    ("legacyheaders", HEADERS),
    ("message", DETAIL),
    ("statuscode", STATUS),
    ("handler", DETAIL),
    ("passonstoreerror", STORE_ERROR),
    ("ipv6subnet", "write ipv6_prefix = 64 under [client_ip]"),
    // Cloudflare, Upstash and others
    ("action", "to refuse, leave it out; to log only, write mode = \"shadow\""),
    ("limiter", NUMBER),
    ("tokenbucket", BUCKET),
    ("conditions", "write match = { path = \"/login\" }"),
    ("include", "write lists of values into files: match = { path = \"file:paths.txt\" }"),
    ("admintoken", "set RATEKEEPER_ADMIN_TOKEN in the environment of the service"),
    ("trustproxy", "to trust a proxy, write [client_ip] with trusted_proxies = [\"10.0.0.0/8\"]; without it none is trusted"),
];

/// Values: the field, the word, and what to write in its place.
#[rustfmt::skip]
const VALUES: &[(&str, &str, &str)] = &[
    ("mode", "dryrun", SHADOW),
    ("headers", "xratelimit", "write \"legacy\" for X-RateLimit-* headers"),
    ("on_store_error", "failopen", "to let every request pass, write \"allow\""),
    ("on_store_error", "failclosed", "to refuse every request, write \"deny\""),
    ("algorithm", "gcra", TOKEN_BUCKET),
    ("algorithm", "bucket", TOKEN_BUCKET),
    ("algorithm", "leakymeter", TOKEN_BUCKET),
    ("algorithm", "leakyqueue", "write \"leaky-bucket\" and queue = { max = 100 }"),
    ("algorithm", "limitreq", "write \"leaky-bucket\"; its `burst` is queue = { max = 100 }, and with \
        `nodelay` bucket = { size = 101, refill = \"10/1s\" } in place of `limit`"),
    ("algorithm", "fixedwindowcounter", "write \"fixed-window\""),
    ("algorithm", "slidingwindow", "write \"sliding-window-counter\", or \"sliding-window-log\" for \
        the exact one"),
    ("algorithm", "rollingwindow", "write \"sliding-window-log\", or \"sliding-window-counter\" for \
        less memory"),
    ("algorithm", "slidinglog", "write \"sliding-window-log\""),
    ("algorithm", "rollinglog", "write \"sliding-window-log\"; for refused requests to count as \
        well, count_denied = true beside it"),
    ("algorithm", "semaphore", "write it as a field of its own: concurrency = { max = 50, lease = \
        \"60s\" }, or \"fixed-window\" if all permits return at the end of a period"),
    ("algorithm", "concurrency", "write it as a field of its own: concurrency = { max = 50, lease = \
        \"60s\" }"),
    ("algorithm", "intervalbucket", "write a bucket that refills in whole amounts: bucket = { size \
        = 20, refill = \"10/1s\", step = true }"),
    ("algorithm", "quotalinear", HYBRID),
    ("algorithm", "hybridquotalinear", HYBRID),
    ("algorithm", "smoothwarmingup", WARMUP),
    ("algorithm", "warmup", WARMUP),
    ("algorithm", "guava", "write \"smooth-bursty\", or warmup = { period = \"10s\" } beside `limit`"),
];

const HYBRID: &str = "write \"hybrid\"";
const WARMUP: &str =
    "write it as a field of its own, beside `limit`: warmup = { period = \"10s\" }";
const TOKEN_BUCKET: &str = "write \"token-bucket\", or leave it out: it is the default";

const ADDRESS: &str = "write \"ip\"";

/// Parts of a key, up to a `:`.
#[rustfmt::skip]
const PARTS: &[OtherWord] = &[
    ("remoteaddress", "write \"ip\"; for an entry of Envoy, \"descriptor:remote_address\""),
    ("generickey", "write it as an entry: \"descriptor:generic_key\""),
    ("requestheaders", "name the header: \"header:x-tenant\""),
    ("consumer", "write its source: \"api_key\", \"jwt:sub\" or \"header:x-consumer-id\""),
    ("credential", "write \"api_key\", or \"bearer\" for the token alone"),
    ("body", "name a value of it: \"form:username\" or \"json:/user/id\""),
    ("clientip", ADDRESS),
    ("remoteaddr", ADDRESS),
    ("sourceip", ADDRESS),
    ("sourceaddress", ADDRESS),
    ("ipaddress", ADDRESS),
    ("address", ADDRESS),
    ("location", "write \"country\""),
    ("global", "write \"all\""),
    ("server", "write \"all\" for one counter of them all, or \"host\" for one of each host name"),
    ("jwt", "name the claim: \"jwt:sub\""),
];

/// Returns what to write in place of a field of another program.
pub(super) fn field(name: &str) -> Option<&'static str> {
    find(FIELDS, name)
}

/// Returns the names of fields of other programs.
pub(super) fn fields() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|(name, _)| *name)
}

/// Returns what to write in place of a value of another program.
pub(super) fn value(field: &str, word: &str) -> Option<&'static str> {
    let word = plain(word);
    let mut rows = VALUES.iter();
    let row = rows.find(|(of, known, _)| *of == field && *known == word)?;
    Some(row.2)
}

/// Returns what to write in place of a value of a list of words that is not known.
pub(super) fn choice(field: &str) -> String {
    match field {
        "mode" => MODE.to_owned(),
        "on_store_error" => STORE_ERROR.to_owned(),
        "algorithm" | "name" => "`ratekeeper help terms` lists the algorithms".to_owned(),
        _ => format!("choose by meaning: `ratekeeper help {field}` explains the field"),
    }
}

/// Returns true for a word that switches a part of a program off.
pub(super) fn is_off(word: &str) -> bool {
    const WORDS: [&str; 7] = ["off", "none", "no", "false", "never", "disable", "disabled"];
    WORDS.contains(&&*plain(word))
}

/// Returns what to write in place of a key part of another program.
pub(super) fn part(text: &str) -> Option<&'static str> {
    find(PARTS, text.split([':', '/']).next()?)
}

fn find(words: &[OtherWord], name: &str) -> Option<&'static str> {
    let name = plain(name);
    let (_, instead) = words.iter().find(|(known, _)| *known == name)?;
    Some(instead)
}

fn plain(word: &str) -> String {
    word.to_ascii_lowercase().replace(['_', '-', ' '], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_known_in_each_of_its_spellings() {
        for name in ["windowMs", "window_ms", "window-ms"] {
            assert_eq!(field(name), Some(NUMBER), "{name}");
        }
        assert_eq!(field("windowmsec"), None);
        assert_eq!(value("algorithm", "GCRA"), Some(TOKEN_BUCKET));
        assert_eq!(value("mode", "gcra"), None);
        assert_eq!(part("client_ip/64"), Some("write \"ip\""));
    }

    #[test]
    fn words_are_written_as_they_are_compared() {
        let fields = FIELDS.iter().chain(PARTS).map(|(word, _)| *word);
        for word in fields.chain(VALUES.iter().map(|(_, word, _)| *word)) {
            assert_eq!(plain(word), word);
        }
    }
}
