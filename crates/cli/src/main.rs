//! The ratekeeper command. Skeleton.
fn main() {}
