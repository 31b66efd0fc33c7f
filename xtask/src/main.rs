//! Checks and chores of the repository. Skeleton.
fn main() {}
