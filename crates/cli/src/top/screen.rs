//! Screen: the board in a terminal: its lines, and the actions of the keyboard.
//!
//! ```text
//!   keyboard --Screen::press--> request --> poller (a thread) --> board --> Screen::lines
//! ```

mod drawing;

use std::collections::BTreeMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::board::{Board, TopRequest};
use super::trend::Trend;
use crate::Result;

/// The answer to a key press.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Press {
    Nothing,
    /// Another limit is selected.
    List,
    Quit,
}

/// State of the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(super) request: TopRequest,
    board: Board,
    /// Place of the selected limit.
    limit: usize,
    message: String,
    rates: BTreeMap<String, Trend>,
}

impl Screen {
    pub(crate) fn new(request: TopRequest) -> Self {
        Self {
            request,
            board: Board::default(),
            limit: 0,
            message: "asking ..".into(),
            rates: BTreeMap::new(),
        }
    }

    pub(super) fn show(&mut self, found: Result<Board>) {
        match found {
            Ok(board) => {
                self.message.clear();
                self.note(&board);
                self.limit = self.limit.min(board.limits.len().saturating_sub(1));
                self.board = board;
            }
            Err(failure) => failure.sentence().clone_into(&mut self.message),
        }
    }

    /// Notes the rates since the last board.
    fn note(&mut self, board: &Board) {
        if board.at_ms <= self.board.at_ms {
            return;
        }
        let rates = &mut self.rates;
        rates.retain(|name, _| board.limits.iter().any(|row| row.name == *name));
        for row in &board.limits {
            let trend = rates.entry(row.name.clone()).or_default();
            trend.note(board.at_ms, row.decided());
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Press {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') => Press::Quit,
            KeyCode::Char('c') if control => Press::Quit,
            KeyCode::Up => self.select(self.limit.saturating_sub(1)),
            KeyCode::Down => self.select(self.limit + 1),
            _ => Press::Nothing,
        }
    }

    fn select(&mut self, limit: usize) -> Press {
        let limits = &self.board.limits;
        self.limit = limit.min(limits.len().saturating_sub(1));
        self.request.limit = limits.get(self.limit).map(|row| row.name.clone());
        Press::List
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::AdminArgs;
    use crate::top::row::BoardRow;

    /// Returns the screen of a call without options.
    pub(super) fn usual() -> Screen {
        Screen::new(TopRequest {
            limit: None,
            server: AdminArgs {
                server: String::new(),
            },
            by: "denied".into(),
            window: "1m".into(),
            count: 20,
        })
    }

    #[test]
    fn arrows_select_a_limit_within_the_list() {
        let mut screen = usual();
        let row = |name: &str| BoardRow {
            name: name.into(),
            ..BoardRow::default()
        };
        screen.board.limits = vec![row("login"), row("signup")];
        for (key, selected) in [
            (KeyCode::Down, "signup"),
            (KeyCode::Down, "signup"),
            (KeyCode::Up, "login"),
            (KeyCode::Up, "login"),
        ] {
            assert_eq!(screen.press(KeyEvent::from(key)), Press::List);
            assert_eq!(screen.request.limit.as_deref(), Some(selected));
        }
        let pressed = |screen: &mut Screen, key| screen.press(KeyEvent::from(key));
        assert_eq!(pressed(&mut screen, KeyCode::Char('c')), Press::Nothing);
        assert_eq!(pressed(&mut screen, KeyCode::Char('q')), Press::Quit);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(screen.press(control_c), Press::Quit);
    }
}
