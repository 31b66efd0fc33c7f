//! The policies that are explained.

pub(super) const CHAINS: &str = r#"
version = 1

[[limit]]
name  = "mails"
match = { path = "/mails" }
key   = ["ip"]
limit = "100/1m"
soft  = { extra = "10%" }

[[limit]]
name  = "api"
match = { path = "/api/**" }
key   = ["ip"]
limit = "1000/1d"
algorithm = "fixed-window"
on_store_error = "deny"
otherwise = ["promo", "reserve", "credits", "gone"]

[[limit]]
name   = "promo"
key    = ["ip"]
limit  = "500/1d"
algorithm = "sliding-window-log"
on_store_error = "deny"

[[limit]]
name  = "reserve"
key   = ["attr:team"]
missing_key = "skip"
limit = "10000/30d"
on_store_error = "deny"

[[limit]]
name    = "credits"
key     = ["all"]
balance = { start = 100, max = 100 }

[[limit]]
name  = "gone"
key   = ["ip"]
limit = "500/1d"
mode  = "off"
on_store_error = "deny"
"#;

pub(super) const SHARED: &str = r#"
version = 1

[store.redis]
url      = "redis://127.0.0.1:6379"
deadline = "20ms"

[[limit]]
name  = "per-ip"
key   = ["ip"]
limit = "10/1m"

[[limit]]
name  = "signup"
key   = ["ip"]
limit = "20/24h"
on_store_error = "deny"
"#;

pub(super) const DESCRIPTORS: &str = r#"
version = 1

[[limit]]
name  = "per-user"
match = { domain = "edge", descriptor.plan = ["free", "trial-*"] }
key   = ["descriptor:user"]
limit = "100/1m"

[[limit]]
name  = "edge"
match = { domain = "edge" }
key   = ["all"]
limit = "10000/1m"

[[limit]]
name  = "per-ip"
key   = ["ip"]
limit = "100/1m"

[[exempt]]
limits = ["per-user"]
match  = { descriptor.user = "probe" }
reason = "uptime probes"
"#;

/// Every algorithm that a policy can name, with the same number each.
pub(super) const ALGORITHMS: &str = r#"
version = 1
timezone = "UTC"

[defaults]
mode = "shadow"

[[limit]]
name = "sliding"
key = ["ip"]
limit = "10/1m"

[[limit]]
name = "fixed"
key = ["ip"]
limit = "10/1m"
algorithm = "fixed-window"

[[limit]]
name = "calendar"
key = ["ip"]
limit = "10/hour"

[[limit]]
name = "month"
key = ["ip"]
limit = "10/month"

[[limit]]
name = "quota-reset"
key = ["ip"]
limit = "10/1m"
algorithm = "quota-reset"

[[limit]]
name = "gcra"
key = ["ip"]
limit = "10/1m"
algorithm = "token-bucket"

[[limit]]
name = "in-flight"
key = ["ip"]
concurrency = { max = 10, lease = "1m" }

[[limit]]
name = "bucket"
key = ["ip"]
bucket = { size = 4, refill = "10/1s" }

[[limit]]
name = "queue"
key = ["ip"]
bucket = { size = 2, refill = "10/1s" }
queue = { max = 3 }

[[limit]]
name = "steps"
key = ["ip"]
bucket = { size = 10, refill = "5/1m", step = true }

[[limit]]
name = "spacing"
key = ["ip"]
spacing = "200ms"

[[limit]]
name = "shaped"
key = ["ip"]
spacing = "200ms"
queue = { max = 10, max_wait = "2s" }

[[limit]]
name = "sub-full"
key = ["ip"]
limit = "10/1m"
algorithm = "sub-buckets"

[[limit]]
name = "sub-weighted"
key = ["ip"]
limit = "10/1m"
algorithm = { name = "sub-buckets", edge = "weighted" }

[[limit]]
name = "sub-drop"
key = ["ip"]
limit = "10/1m"
algorithm = { name = "sub-buckets", edge = "drop" }

[[limit]]
name = "log"
key = ["ip"]
limit = "10/1m"
algorithm = "sliding-window-log"

[[limit]]
name = "log-gap"
key = ["ip"]
limit = "10/1m"
algorithm = { name = "sliding-window-log", min_gap = "1s" }

[[limit]]
name = "strict-log"
key = ["ip"]
limit = "10/1m"
algorithm = "sliding-window-log"
count_denied = true

[[limit]]
name = "hybrid"
key = ["ip"]
limit = "10/1m"
algorithm = "hybrid"

[[limit]]
name = "exponential"
key = ["ip"]
limit = "10/1m"
algorithm = "exponential"

[[limit]]
name = "smooth-bursty"
key = ["ip"]
limit = "10/1m"
algorithm = "smooth-bursty"

[[limit]]
name = "warm-up"
key = ["ip"]
limit = "10/1m"
warmup = { period = "1m", cold_factor = 3 }
"#;

pub(super) const RESULTS: &str = r#"
version = 1

[[limit]]
name     = "login-failures"
match    = { path = "/login" }
key      = ["ip"]
bucket   = { size = 10, refill = "1/1h" }
count    = { status = [401, "5xx"], outcome = "locked" }
reset_on = { status = 200 }
report_within = "10m"

[[limit]]
name   = "llm-tokens"
key    = ["attr:user"]
missing_key = "skip"
bucket = { size = 100000, refill = "40000/1m" }
cost   = { reserve = "attr:max_tokens" }

[[limit]]
name   = "chat"
key    = ["form:user"]
missing_key = "deny"
bucket = { size = 100000, refill = "40000/1m" }
cost   = { reserve = "json:/max_tokens", settle = "response.header:x-used", expire = "5m" }

[[limit]]
name   = "usage"
key    = ["all"]
bucket = { size = 100000, refill = "40000/1m" }
cost   = { reserve = 100, settle = "response.json:/usage/total_tokens" }

[[limit]]
name   = "dollars"
key    = ["all"]
bucket = { size = 50, refill = "50/1d", step = true }
cost   = { reserve = 1 }
"#;

pub(super) const DOLLARS: &str = r#"
version = 1

[[limit]]
name   = "purchases"
key    = ["ip"]
unit   = { name = "USD", decimals = 2 }
bucket = { size = "200.00", refill = "50.00/24h" }
cost   = "attr:amount"
alert  = { above = "80%", for = "2m" }
otherwise = ["credits"]
on_store_error = "deny"

[[limit]]
name    = "credits"
key     = ["ip"]
unit    = { name = "USD", decimals = 2 }
balance = { start = "10.50", max = "1000.00" }
cost    = "attr:amount"
"#;
