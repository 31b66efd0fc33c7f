//! Wrk: the load generator, a separate program, and its results.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Threads and connections.
pub(crate) const LOAD: [&str; 2] = ["-t1", "-c32"];

/// A request that is sent repeatedly.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) target: &'static str,
    pub(crate) method: &'static str,
    /// Must not contain `'`.
    pub(crate) body: &'static str,
}

/// Results of one run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    pub(crate) answers: u64,
    /// Answers with another status than 2xx or 3xx, which `answers` includes.
    pub(crate) refused: u64,
    /// Number of kinds of connection errors.
    pub(crate) errors: u64,
}

/// Times of answers, in microseconds.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Latency {
    pub(crate) median: f64,
    pub(crate) p99: f64,
}

/// The installed program.
pub(crate) struct Wrk {
    directory: tempfile::TempDir,
}

impl Wrk {
    /// Finds `wrk`; `None` if it is not installed.
    pub(crate) fn find() -> Option<Self> {
        let mut version = Command::new("wrk");
        version
            .arg("-v")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        version.status().ok()?; // it ends with 1 after its version
        let directory = tempfile::tempdir().expect("a directory for a script");
        Some(Self { directory })
    }

    /// Loads that port for `seconds`.
    pub(crate) fn run(&self, port: u16, question: &Question, seconds: u32) -> Counted {
        let output = Command::new("wrk")
            .args(LOAD)
            .arg(format!("-d{seconds}s"))
            .arg("-s")
            .arg(self.script(question))
            .arg(format!("http://127.0.0.1:{port}{}", question.target))
            .output()
            .expect("wrk runs");
        read(&String::from_utf8_lossy(&output.stdout))
    }

    /// Loads that port for `seconds` by clients that pause for 1 to 15 ms after each answer, 8 ms on
    /// average.
    pub(crate) fn paced(&self, port: u16, clients: u32, seconds: u32) -> (Counted, Latency) {
        let path = self.directory.path().join("paced.lua");
        let script = "function delay() return math.random(1, 15) end\n";
        fs::write(&path, script).expect("a script is written");
        let output = Command::new("wrk")
            .args(["-t1", "--latency", &format!("-c{clients}")])
            .arg(format!("-d{seconds}s"))
            .arg("-s")
            .arg(path)
            .arg(format!("http://127.0.0.1:{port}/"))
            .output()
            .expect("wrk runs");
        let text = String::from_utf8_lossy(&output.stdout);
        (read(&text), latency(&text))
    }

    fn script(&self, question: &Question) -> PathBuf {
        let path = self.directory.path().join("question.lua");
        let Question { method, body, .. } = question;
        let lines = match *body {
            "" => format!("wrk.method = '{method}'\n"),
            body => format!("wrk.method = '{method}'\nwrk.body = '{body}'\n"),
        };
        fs::write(&path, lines).expect("a script is written");
        path
    }
}

/// Reads the report.
fn read(text: &str) -> Counted {
    let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
    let mut counted = Counted::default();
    for line in text.lines().map(str::trim) {
        if let Some((answers, _)) = line.split_once(" requests in ") {
            counted.answers = number(answers);
        } else if let Some(refused) = line.strip_prefix("Non-2xx or 3xx responses:") {
            counted.refused = number(refused);
        } else if line.starts_with("Socket errors:") {
            counted.errors += 1;
        }
    }
    counted
}

/// Reads the times of a report.
fn latency(text: &str) -> Latency {
    let of = |share: &str| {
        let mut lines = text.lines().map(str::trim);
        let time = lines.find_map(|line| line.strip_prefix(share))?.trim();
        let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
        units.iter().find_map(|(unit, micros)| {
            let number: f64 = time.strip_suffix(unit)?.parse().ok()?;
            Some(number * micros)
        })
    };
    Latency {
        median: of("50%").unwrap_or(f64::NAN),
        p99: of("99%").unwrap_or(f64::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let text = "Running 1s test @ http://127.0.0.1:1/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   100.00us   10.00us   1.00ms   99.00%
  81234 requests in 1.00s, 20.00MB read
  Socket errors: connect 0, read 3, write 0, timeout 0
  Non-2xx or 3xx responses: 81214
Requests/sec:  81234.00
";
        let expected = Counted {
            answers: 81_234,
            refused: 81_214,
            errors: 1,
        };
        assert_eq!(read(text), expected);
        assert_eq!(read(""), Counted::default());
        let times = "  Latency Distribution\n     50%  390.00us\n     99%    1.25ms\n";
        let (median, p99) = (390.0, 1250.0);
        assert_eq!(latency(times), Latency { median, p99 });
    }
}
