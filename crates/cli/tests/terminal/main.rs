//! The command as a user sees it: every verb is run as a process, and the whole terminal
//! (stdout, stderr, exit code) is compared with a reviewed text.

mod broken;
mod comments;
mod desk;
mod diff;
mod envoy;
mod explain;
mod gateway;
mod geo;
mod help;
mod import;
mod init;
#[path = "../../../policy/tests/mmdb/mod.rs"]
mod mmdb;
mod obstacles;
mod pictures;
mod replay;
#[path = "../../../policy/tests/reviewed/mod.rs"]
mod reviewed;
mod service;
mod simulate;
mod trial;
mod validate;

#[test]
fn every_reviewed_text_has_its_test() {
    reviewed::check_all("tests/terminal", 66);
}
