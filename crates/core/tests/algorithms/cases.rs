//! Numbers of cases of long searches: few in a usual run, all of them before a release.

/// Returns `usual`, or `all` in `cargo xtask test --all`.
pub(crate) fn cases<N>(usual: N, all: N) -> N {
    match std::env::var("RATEKEEPER_TESTS").as_deref() {
        Err(_) => usual,
        Ok("all") => all,
        Ok(other) => panic!("RATEKEEPER_TESTS=`{other}`; expected `all`, or nothing"),
    }
}
