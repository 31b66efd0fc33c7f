//! The first programs of a new user stay short: the code blocks of the documents, which the
//! documentation tests compile and run, counted.

const CRATE: &str = include_str!("../../README.md");
const LAYER: &str = include_str!("../../middleware.md");
const REDIS: &str = include_str!("../../../../docs/guide/redis.md");

/// Returns the lines that a reader types of the first block with `word`: no blank line, no line
/// that is hidden.
fn lines<'a>(document: &'a str, word: &str) -> Vec<&'a str> {
    let blocks = document.split("```rust\n").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split("```").next());
    let block = blocks.find(|block| block.contains(word));
    let lines = block.unwrap_or_default().lines();
    let typed = lines.filter(|line| !line.trim().is_empty() && !line.starts_with("# "));
    typed.collect()
}

#[test]
fn first_programs_are_short() {
    for (task, document, word, most) in [
        ("a limit", CRATE, "Limiter::per(", 6),
        ("a limit for each key", CRATE, "KeyedLimiter::per(", 8),
        ("a layer of axum", LAYER, "axum::serve(", 10),
        ("limits in Redis", REDIS, "Limits::redis(", 12),
    ] {
        let lines = lines(document, word);
        assert!(lines.len() >= 3, "{task}: found {lines:?}");
        assert!(
            lines.len() <= most,
            "{task} takes {}: {lines:?}",
            lines.len()
        );
    }
}
