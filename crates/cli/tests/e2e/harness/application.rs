//! A real Express, Flask, Django, PHP or Rack with its default settings.
//!
//! `cargo xtask test` brings them: `target/express-5.1.0` and `target/cookie-parser-1.4.7` (npm),
//! `target/flask-3.1.2` and `target/django-5.2.8` (`PyPI`), PHP and Rack as Debian packages.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::clock;
use super::free_address;
use super::process::{self, Process};

const START_WITHIN: Duration = Duration::from_secs(60);

/// Routes: a handler for `/login`, one for `/api/login`, and one for everything else below `/api`.
/// Each names itself in `x-handler`. And `/work`, which takes 300 ms whatever its client does,
/// `/held`, which takes until `/end`, and `/most`, which returns how many of both were at work at a
/// time.
pub(crate) const EXPRESS_ROUTES: &str = r#"
const express = require("express");
const application = express();
const handler = (name) => (request, response) => response.set("x-handler", name).send(name);
application.all("/login", handler("login"));
application.all("/api/login", handler("nested"));
application.all("/api/{*rest}", handler("api"));
let [atWork, most, held] = [0, 0, []];
const work = (wait) => (request, response) => {
  atWork += 1;
  most = Math.max(most, atWork);
  wait(() => { atWork -= 1; response.send("done"); });
};
application.all("/work", work((end) => setTimeout(end, 300)));
application.all("/held", work((end) => held.push(end)));
application.get("/end", (request, response) => {
  held.forEach((end) => end());
  held = [];
  response.send("ended");
});
application.get("/most", (request, response) => { response.json({ most, atWork }); });
application.listen(Number(process.argv[2]), "127.0.0.1");
"#;

/// The handlers of the first three.
pub(crate) const FLASK_ROUTES: &str = r#"
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
    Django,
    Gunicorn,
    Uvicorn,
    Php,
    Rack,
}

/// How an application is started.
struct Setup {
    /// Program, and its arguments before the file.
    program: &'static [&'static str],
    /// Variable for the directories of the libraries.
    variable: &'static str,
    /// A file in each of these directories that is there once the library is.
    libraries: &'static [&'static str],
}

pub(crate) struct Application {
    pub(crate) process: Process,
    address: SocketAddr,
}

impl Framework {
    fn setup(self) -> Setup {
        let (program, variable, libraries): (&[_], _, &[_]) = match self {
            Self::Express => (
                &["node"],
                "NODE_PATH",
                &[
                    "target/express-5.1.0/node_modules/express/package.json",
                    "target/cookie-parser-1.4.7/node_modules/cookie-parser/package.json",
                ],
            ),
            Self::Flask => (
                &["python3"],
                "PYTHONPATH",
                &["target/flask-3.1.2/flask/__init__.py"],
            ),
            Self::Django => (
                &["python3"],
                "PYTHONPATH",
                &["target/django-5.2.8/django/__init__.py"],
            ),
            Self::Gunicorn => (
                &["python3"],
                "PYTHONPATH",
                &["target/uvicorn-0.54.0/gunicorn/__init__.py"],
            ),
            Self::Uvicorn => (
                &["python3"],
                "PYTHONPATH",
                &["target/uvicorn-0.54.0/uvicorn/__init__.py"],
            ),
            Self::Php => (&["php", "-q", "-S"], "", &[]),
            Self::Rack => (&["ruby"], "", &[]),
        };
        Setup {
            program,
            variable,
            libraries,
        }
    }
}

impl Application {
    /// Starts an application with this source, which takes its port as argument; `None` if the
    /// framework is not installed.
    pub(crate) fn start(framework: Framework, source: &str, dir: &Path) -> Option<Self> {
        let setup = framework.setup();
        let program = process::find(setup.program[0])?;
        if framework == Framework::Rack {
            process::find("rackup")?;
        }
        let libraries = setup.libraries.iter().map(|place| {
            let file = process::carried(place)?;
            file.ancestors().nth(2).map(Path::to_owned)
        });
        let libraries: Vec<PathBuf> = libraries.collect::<Option<_>>()?;
        std::fs::write(dir.join("application"), source).expect("the test's directory is writable");
        let address = free_address();
        let mut command = Command::new(program);
        command.args(&setup.program[1..]);
        match framework {
            Framework::Php => command.args([&address.to_string(), "application"]),
            _ => command.args(["application", &address.port().to_string()]),
        };
        if !libraries.is_empty() {
            let directories = std::env::join_paths(libraries).expect("no path has a colon");
            command.env(setup.variable, directories);
        }
        command.current_dir(dir);
        let (out, log) = (dir.join("application.out"), dir.join("application.log"));
        let mut process = Process::start(setup.program[0], &mut command, out, log);
        let ready = clock::poll("listening application", START_WITHIN, || {
            assert_eq!(process.ended(), None, "{}", process.log());
            TcpStream::connect(address).is_ok().then_some(())
        });
        ready.unwrap_or_else(|error| panic!("{error}"));
        Some(Self { process, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
