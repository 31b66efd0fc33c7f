//! The clients of the guide in other languages: the sixth of six requests is refused, requests
//! pass without an answer of HTTP, and a wrong call is an error.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use ratekeeper_server::Door;

use crate::harness::in_process::InProcess;
use crate::harness::process::find;

const PAGE: &str = include_str!("../../../../docs/guide/http-api.md");

const POLICY: &str = "version = 1\n[[limit]]\nname = \"login\"\nmatch = { path = \"/login\" }\n\
                      key = [\"ip\"]\nlimit = \"5/1m\"\n";

/// The program of a language, the name of its blocks, and lines behind the client that print
/// the answers; `URL` is the service, `NOBODY` an address without a listener, `NOISE` one that
/// does not answer in HTTP.
const CLIENTS: [(&str, &str, &str); 3] = [
    (
        "python3",
        "python",
        r#"
asked = {"path": "/login", "ip": "192.0.2.1"}
for _ in range(5):
    assert check(asked, "URL", 60) == (True, None)
print(check(asked, "URL", 60))
print(check(asked, "NOBODY"))
print(check(asked, "NOISE", 60))
try:
    check({"pth": 1}, "URL", 60)
except urllib.error.HTTPError as error:
    print(error.code)
"#,
    ),
    (
        "node",
        "js",
        r#"
(async () => {
  const asked = { path: "/login", ip: "192.0.2.2" };
  for (let i = 0; i < 5; i++)
    if (!(await check(asked, "URL", 60000)).allowed) throw new Error("refused");
  const shown = ({ allowed, wait }) => `(${allowed ? "True" : "False"}, ${wait ? `'${wait}'` : "None"})`;
  console.log(shown(await check(asked, "URL", 60000)));
  console.log(shown(await check(asked, "NOBODY")));
  console.log(shown(await check(asked, "NOISE", 60000)));
  await check({ pth: 1 }, "URL", 60000).catch((error) => console.log(error.message.slice(-3)));
})();
"#,
    ),
    (
        "php",
        "php",
        r#"
$asked = ['path' => '/login', 'ip' => '192.0.2.3'];
for ($i = 0; $i < 5; $i++) {
    if (check($asked, 'URL', 60) !== [true, null]) {
        throw new Exception('refused');
    }
}
function shown(array $answer): void
{
    [$allowed, $wait] = $answer;
    echo '(', $allowed ? 'True' : 'False', ', ', $wait ? "'$wait'" : 'None', ")\n";
}
shown(check($asked, 'URL', 60));
shown(check($asked, 'NOBODY'));
shown(check($asked, 'NOISE', 60));
try {
    check(['pth' => 1], 'URL', 60);
} catch (RuntimeException $error) {
    echo substr($error->getMessage(), -3), "\n";
}
"#,
    ),
];

#[test]
fn the_clients_of_the_guide_are_refused_and_fail_open() {
    let service = InProcess::start(POLICY);
    let url = format!("http://{}/v1/check", service.door(Door::Http));
    let noise = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let garbage_url = format!("http://{}/", noise.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in noise.incoming() {
            let mut stream = stream.expect("a client");
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"garbage\r\n\r\n");
        }
    });
    for (program, language, calls) in CLIENTS {
        let Some(program) = find(program) else {
            continue;
        };
        let block = PAGE.split(&format!("```{language}\n")).nth(1);
        let client = block.and_then(|rest| rest.split("```").next());
        let client = client.unwrap_or_else(|| panic!("no block in {language}"));
        let calls = calls.replace("URL", &url);
        let calls = calls.replace("NOBODY", "http://127.0.0.1:1/v1/check");
        let calls = calls.replace("NOISE", &garbage_url);
        assert_eq!(
            run(&program, language, client, &calls),
            "(False, '12')\n(True, None)\n(True, None)\n400\n"
        );
    }
}

fn run(program: &Path, language: &str, client: &str, calls: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory of its own");
    let file = directory.path().join("client");
    let start = if language == "php" { "<?php\n" } else { "" };
    std::fs::write(&file, format!("{start}{client}{calls}")).expect("it is writable");
    let output = Command::new(program).arg(&file).output();
    let output = output.expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{language}: {errors}");
    String::from_utf8(output.stdout).expect("it is text")
}
