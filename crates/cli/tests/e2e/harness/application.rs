//! A real Express or a real Flask with its default settings: a handler for `/login`, one for
//! `/api/login`, and one for everything else below `/api`. Each names itself in `x-handler`.
//! Express also has `/work`, which takes 300 ms whatever its client does, and `/most`, which returns
//! how many requests worked at a time.
//!
//! `cargo xtask test` brings both: `target/express-5.1.0` (npm), `target/flask-3.1.2` (`PyPI`).

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::clock;
use super::ports::free_address;
use super::process::{self, Process};

const START_WITHIN: Duration = Duration::from_secs(60);

const EXPRESS: &str = r#"
const express = require("express");
const application = express();
const handler = (name) => (request, response) => response.set("x-handler", name).send(name);
application.all("/login", handler("login"));
application.all("/api/login", handler("nested"));
application.all("/api/{*rest}", handler("api"));
let [atWork, most] = [0, 0];
application.all("/work", (request, response) => {
  atWork += 1;
  most = Math.max(most, atWork);
  setTimeout(() => { atWork -= 1; response.send("done"); }, 300);
});
application.get("/most", (request, response) => { response.json({ most, atWork }); });
application.listen(Number(process.argv[2]), "127.0.0.1");
"#;

const FLASK: &str = r#"
import sys
from flask import Flask

application = Flask(__name__)
methods = ["GET", "POST"]


def handler(name):
    return lambda rest="": (name, 200, {"x-handler": name})


application.add_url_rule("/login", "login", handler("login"), methods=methods)
application.add_url_rule("/api/login", "nested", handler("nested"), methods=methods)
application.add_url_rule("/api/<path:rest>", "api", handler("api"), methods=methods)
application.run("127.0.0.1", int(sys.argv[1]))
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framework {
    Express,
    Flask,
}

pub(crate) struct Application {
    _process: Process,
    address: SocketAddr,
}

impl Application {
    /// Starts the application; `None` if the framework is not installed.
    pub(crate) fn start(framework: Framework, dir: &Path) -> Option<Self> {
        let (name, interpreter, variable, text, file, place) = match framework {
            Framework::Express => {
                let place = "target/express-5.1.0/node_modules/express/package.json";
                (
                    "node",
                    "node",
                    "NODE_PATH",
                    EXPRESS,
                    "application.js",
                    place,
                )
            }
            Framework::Flask => {
                let place = "target/flask-3.1.2/flask/__init__.py";
                (
                    "flask",
                    "python3",
                    "PYTHONPATH",
                    FLASK,
                    "application.py",
                    place,
                )
            }
        };
        let interpreter = process::find(interpreter)?;
        let library = process::carried(place)?;
        let library: PathBuf = library.ancestors().nth(2)?.to_owned();
        std::fs::write(dir.join(file), text).expect("the test's directory is writable");
        let address = free_address();
        let mut command = Command::new(interpreter);
        command
            .arg(file)
            .arg(address.port().to_string())
            .env(variable, library)
            .current_dir(dir);
        let (out, log) = (dir.join("application.out"), dir.join("application.log"));
        let mut process = Process::start(name, &mut command, out, log);
        let ready = clock::poll("listening application", START_WITHIN, || {
            assert_eq!(process.ended(), None, "{}", process.log());
            TcpStream::connect(address).is_ok().then_some(())
        });
        ready.unwrap_or_else(|error| panic!("{error}"));
        Some(Self {
            _process: process,
            address,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
