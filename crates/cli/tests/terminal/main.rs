//! The command as a user sees it: every verb is run as a process, and the whole terminal
//! (stdout, stderr, exit code) is compared with a snapshot.

mod broken;
mod comments;
mod desk;
mod envoy;
mod explain;
mod geo;
mod help;
mod import;
mod init;
#[path = "../../../policy/tests/mmdb/mod.rs"]
mod mmdb;
mod obstacles;
mod pictures;
mod replay;
mod service;
mod simulate;
mod trial;
mod validate;
