//! Codes: every finding has one, and every code has a page that explains it.
//!
//! ```text
//!   RK01..  the shape of the file      RK02..  values      RK03..  lints
//!   RK036.  geography  RK04..  the rate limit service's configuration files
//! ```
//!
//! A page begins with `# CODE: TITLE`, which no other line of a page does. It is a paragraph, a
//! file that shows the finding, and the same file put right. Both files are run through the parser by a
//! test, so a page cannot go stale.

/// Pages of the codes, in files of at most 400 lines.
const PAGES: &[&str] = &[
    include_str!("codes/file.md"),
    include_str!("codes/limits.md"),
    include_str!("codes/requests.md"),
    include_str!("codes/listeners.md"),
    include_str!("codes/plans.md"),
    include_str!("codes/lints.md"),
    include_str!("codes/rollouts.md"),
    include_str!("codes/overrides.md"),
    include_str!("codes/chains.md"),
    include_str!("codes/bans.md"),
    include_str!("codes/envoy.md"),
    include_str!("codes/envoy_files.md"),
];

/// Declares each code once.
macro_rules! codes {
    ($($(#[$attribute:meta])* $name:ident = $code:literal;)*) => {
        $($(#[$attribute])* pub(crate) const $name: &str = $code;)*

        /// All codes.
        #[cfg(test)]
        const CODES: &[&str] = &[$($code,)*];
    };
}

codes! {
    TOO_LARGE = "RK0100";
    SYNTAX = "RK0101";
    TYPE = "RK0102";
    UNKNOWN_FIELD = "RK0103";
    MISSING_FIELD = "RK0105";
    UNKNOWN_WORD = "RK0106";
    TOO_MANY = "RK0107";
    EMPTY_FILE = "RK0108";
    DUPLICATE_FIELD = "RK0109";
    VERSION = "RK0110";
    EMPTY_VALUE = "RK0111";
    OUT_OF_RANGE = "RK0112";
    TOO_MANY_FINDINGS = "RK0113";
    NO_LIMITS = "RK0114";
    #[doc = "Reported by the server; its page stands with the others."]
    #[expect(dead_code, reason = "used by the server, which watches the file")]
    RELOAD_REFUSED = "RK0150";

    NAME = "RK0201";
    DUPLICATE_NAME = "RK0202";
    NO_QUANTITY = "RK0203";
    TWO_QUANTITIES = "RK0204";
    QUOTA = "RK0205";
    SPAN = "RK0206";
    NOT_COUNTABLE = "RK0207";
    ALGORITHM = "RK0209";
    ZONE = "RK0210";
    NO_ZONE = "RK0211";
    KEY_PART = "RK0212";
    MATCH_VALUE = "RK0213";
    MATCH_NAME = "RK0214";
    MISSING_KEY = "RK0215";
    COST = "RK0216";
    COST_TOO_HIGH = "RK0217";
    UNKNOWN_RESPONSE = "RK0218";
    UNKNOWN_LIMIT = "RK0219";
    RESPONSE_TEXT = "RK0220";
    ADDRESS = "RK0221";
    PROXY = "RK0222";
    TRUSTS_ALL = "RK0223";
    HEADER_NAME = "RK0224";
    BYTES = "RK0225";
    PARAMETERS = "RK0226";
    DESCRIPTOR = "RK0230";
    REDIS = "RK0231";
    SAME_ADDRESS = "RK0232";
    LIST = "RK0233";
    UNRECEIVED = "RK0234";
    SECRET = "RK0235";
    ACTIVE = "RK0240";
    ANCHOR = "RK0241";
    PLAN = "RK0250";
    OVERRIDE = "RK0251";
    OVERRIDES_FILE = "RK0252";
    ALERT = "RK0253";
    ALERTS = "RK0254";
    TELEMETRY = "RK0255";
    TOKENS = "RK0260";
    GATEWAY = "RK0270";
    ROUTE = "RK0271";

    NEVER_REFUSES = "RK0304";
    UNUSED_RESPONSE = "RK0306";
    NEVER_MATCHES = "RK0307";
    EXEMPTS_ALL = "RK0308";
    FOREIGN_PATTERN = "RK0309";
    NO_SHARE = "RK0310";
    HEADER = "RK0313";
    VISITORS = "RK0314";
    ACTIVE_TIMES = "RK0330";
    REPLACES = "RK0340";
    ALWAYS_REPLACED = "RK0341";
    PERCENT = "RK0342";
    CANDIDATE = "RK0343";
    OVERRIDE_ENDED = "RK0350";
    OVERRIDE_HIDDEN = "RK0351";
    PLAN_UNUSED = "RK0352";
    BAN = "RK0380";
    BAN_BESIDE = "RK0381";
    BANS_ALL = "RK0382";
    NO_GEO = "RK0360";
    PLACE = "RK0361";
    GEO_HEADER = "RK0362";
    DATABASE = "RK0363";
    DATABASE_OLD = "RK0364";
    NOT_CORRECTABLE = "RK0390";
    REPORT = "RK0391";
    EXTRA = "RK0370";
    OTHERWISE = "RK0371";
    SIGNAL = "RK0372";
    BALANCE = "RK0373";
    BALANCE_FORGOTTEN = "RK0374";
    UNIT = "RK0375";
    DISTINCT = "RK0376";
    PRIORITY = "RK0377";

    ENVOY_YAML = "RK0401";
    ENVOY_KEY_TYPE = "RK0402";
    ENVOY_LIST = "RK0403";
    ENVOY_NO_KEY = "RK0404";
    ENVOY_DESCRIPTOR_TWICE = "RK0405";
    ENVOY_UNIT = "RK0406";
    ENVOY_UNLIMITED = "RK0407";
    ENVOY_REPLACES_ITSELF = "RK0408";
    ENVOY_REPLACES_NOTHING = "RK0409";
    ENVOY_SHARE = "RK0410";
    ENVOY_DOMAIN_TWICE = "RK0411";
    ENVOY_NO_DOMAIN = "RK0412";
    ENVOY_BOUNDS = "RK0413";
    ENVOY_IGNORED = "RK0414";
    ENVOY_DOCUMENT = "RK0415";
    ENVOY_BLOCKS = "RK0416";
    NGINX_SYNTAX = "RK0417";
}

/// Explains a code: `ratekeeper help RK0103`.
///
/// ```
/// use ratekeeper_policy::config::explain;
/// assert!(explain("RK0103").unwrap().contains("unknown field"));
/// assert!(explain("RK9999").is_none());
/// ```
pub fn explain(code: &str) -> Option<&'static str> {
    let heading = format!("# {}: ", code.to_ascii_uppercase());
    PAGES.iter().find_map(|pages| {
        let page = &pages[pages.find(&heading)?..];
        let end = page.find("\n# RK").unwrap_or(page.len());
        Some(&page[..end])
    })
}

/// Returns each code with its title, such as `RK0103: an unknown field`.
pub fn code_titles() -> impl Iterator<Item = &'static str> {
    let lines = PAGES.iter().flat_map(|pages| pages.lines());
    lines.filter_map(|line| line.strip_prefix("# ").filter(|it| it.starts_with("RK")))
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Origin;

    use super::*;
    use crate::config::{Context, Diagnostic, parse};
    use crate::envoy::{EnvoySettings, File, load};

    fn findings(text: &str) -> Vec<Diagnostic> {
        match parse(text, Context::default()) {
            Ok(loaded) => loaded.warnings,
            Err(errors) => errors,
        }
    }

    /// Returns the findings for a block: a policy, or files of the rate limit service.
    fn findings_of(block: &Block<'_>) -> Vec<Diagnostic> {
        if block.language == "toml" {
            return findings(block.text);
        }
        let texts = block.text.split("# other file\n");
        let files: Vec<_> = texts
            .map(|text| File {
                name: "a.yaml",
                text,
            })
            .collect();
        let found = match load(&files, EnvoySettings::default(), Origin::UNIX) {
            Ok(loaded) => loaded.warnings,
            Err(errors) => errors,
        };
        found.into_iter().flatten().collect()
    }

    /// A file on a page.
    struct Block<'p> {
        language: &'p str,
        text: &'p str,
    }

    fn blocks(page: &str) -> Vec<Block<'_>> {
        let blocks = page.split("```").skip(1).step_by(2);
        let split = |block| str::split_once(block, '\n').unwrap();
        let named = |(language, text)| Block { language, text };
        blocks.map(split).map(named).collect()
    }

    #[test]
    fn pages_show_the_finding_and_its_correction() {
        let headings = PAGES.iter().flat_map(|pages| pages.lines());
        let headings = headings.filter(|line| line.starts_with("# RK"));
        assert_eq!(headings.count(), CODES.len());
        for code in CODES {
            let page = explain(code).unwrap();
            assert!(page.is_ascii(), "{code}");
            let blocks = blocks(page);
            let (right, wrong) = blocks.split_last().unwrap();
            for block in wrong {
                let found: Vec<_> = findings_of(block).iter().map(|found| found.code).collect();
                assert_eq!(found, [*code], "{}", block.text);
            }
            assert_eq!(findings_of(right), [], "{code}: {}", right.text);
        }
    }
}
