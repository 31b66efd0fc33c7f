//! Notices: what the codes of notices mean, which a running service writes into its log.

/// Explains each notice, and what to do.
const PAGES: &str = include_str!("notices.md");

/// Returns the explanation of a notice, as `ratekeeper help RK-W104` shows it; `None` for a code
/// that no notice has.
pub fn explain_notice(code: &str) -> Option<&'static str> {
    page_of(PAGES, code)
}

/// Returns the page of a code, which begins with a line `# CODE: TITLE`.
pub(crate) fn page_of(pages: &'static str, code: &str) -> Option<&'static str> {
    let mut pages = pages
        .split("\n# ")
        .map(|page| page.trim_start_matches("# "));
    let page = pages.find(|page| page.split(':').next() == Some(code));
    page.map(str::trim_end)
}

/// Returns each notice with its title, such as `RK-W102: every user of the machine may write the
/// policy`.
pub fn notice_titles() -> impl Iterator<Item = &'static str> {
    PAGES.lines().filter_map(|line| line.strip_prefix("# "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_notice_of_the_source_is_explained() {
        let sources = [
            include_str!("context.rs"),
            include_str!("source/policy_file.rs"),
            include_str!("store.rs"),
            include_str!("background/missing_keys.rs"),
        ];
        for (source, code) in sources.iter().zip(1..) {
            let code = format!("RK-W10{code}");
            assert!(source.contains(&format!("\"{code}: ")), "{code}");
            assert!(explain_notice(&code).is_some(), "{code}");
        }
        assert_eq!(explain_notice("RK-W105"), None);
    }
}
