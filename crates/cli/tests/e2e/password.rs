//! A store password that changes while the service runs, of a user with the rights that the guide
//! lists. Real server, real binary.

use crate::harness::clock;
use crate::harness::redis::Redis;
use crate::store::{CHOICES, SHOWN_WITHIN, admitted, is_active, start, until};

const GUIDE: &str = include_str!("../../../../docs/guide/security.md");

#[test]
fn a_password_in_a_file_is_read_again() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let rights = GUIDE
        .lines()
        .find_map(|line| line.split_once(" >PASSWORD "));
    let (_, rights) = rights.expect("the page has a user for Redis");
    let user = ["acl", "setuser", "ada", "on", ">first-secret"].into_iter();
    redis.run(&user.chain(rights.split(' ')).collect::<Vec<_>>());
    let [name, password] = ["name", "password"].map(|file| dir.path().join(file));
    std::fs::write(&name, "ada\n").expect("the test's directory is writable");
    std::fs::write(&password, "first-secret\n").expect("the test's directory is writable");
    let store = format!(
        "url = \"{}\"\nusername = \"file:{}\"\npassword = \"file:{}\"\ndeadline = \"2s\"",
        redis.url(),
        name.display(),
        password.display()
    );
    let service = start(dir.path(), "node", &store, CHOICES);
    let http = service.http();
    assert_eq!(admitted(http, "/local", "ada", 30), 30);

    redis.run(&["acl", "setuser", "ada", "resetpass", ">second-secret"]);
    assert_eq!(
        admitted(http, "/deny", "ada", 1),
        1,
        "open connections go on"
    );
    redis.run(&["client", "kill", "user", "ada"]);
    let refused = clock::poll("refused login", SHOWN_WITHIN, || {
        let passed = admitted(http, "/deny", "ada", 10);
        (passed == 0 && is_active(&service)).then_some(())
    });
    refused.unwrap_or_else(|error| panic!("{error}"));
    service.process.log_with("store down");

    std::fs::write(&password, "second-secret\n").expect("the test's directory is writable");
    service
        .process
        .log_with("new connections to the store use the new passwords");
    until(&service, false);
    assert_eq!(
        admitted(http, "/local", "ada", 30),
        10,
        "the rest: no restart"
    );
    let log = service.process.log();
    assert!(!log.contains("-secret"), "{log}");
}
