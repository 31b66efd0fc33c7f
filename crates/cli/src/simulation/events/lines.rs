//! Lines: the input of events, in lines of bounded length.

use std::io::{self, BufRead, BufReader, Read};

use super::{BLOCK, MAX_LINE};
use crate::{Failure, Result};

/// Lines of bounded length.
pub(super) struct InputLines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
}

impl<R: Read> InputLines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input: BufReader::with_capacity(BLOCK, input),
            line: Vec::new(),
        }
    }

    /// Returns true if the next line can be read without waiting for input.
    pub(super) fn is_ready(&self) -> bool {
        self.input.buffer().contains(&b'\n')
    }

    /// Returns the next line, or why it cannot be used; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Result<&str, String>>> {
        let wrong = |why: io::Error| Failure::new(format!("cannot read the events: {why}"));
        self.line.clear();
        let most = MAX_LINE as u64 + 1;
        let input = self.input.by_ref();
        if input
            .take(most)
            .read_until(b'\n', &mut self.line)
            .map_err(wrong)?
            == 0
        {
            return Ok(None);
        }
        if self.line.len() > MAX_LINE && self.line.last() != Some(&b'\n') {
            self.input.skip_until(b'\n').map_err(wrong)?;
            return Ok(Some(Err(format!(
                "the line is longer than {MAX_LINE} bytes"
            ))));
        }
        Ok(Some(match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(text),
            Err(_) => Err("the line is not UTF-8".into()),
        }))
    }
}
