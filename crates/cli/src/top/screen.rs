//! Screen: the board in a terminal: its lines, and the actions of the keyboard.
//!
//! ```text
//!   keyboard --Screen::press--> request or act --> poller (a thread) --> board --> Screen::lines
//! ```

mod drawing;

use std::collections::BTreeMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::act::Act;
use super::board::{Board, TopRequest};
use super::poller::Found;
use super::row::KeyRow;
use super::times::Times;
use super::trend::Trend;

/// Maximum length of the numbers of an override, and of a filter.
const MAX_TYPED: usize = 40;
/// The table that the arrows move in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Focus {
    #[default]
    Limits,
    Keys,
}

/// The answer to a key press.
#[derive(Debug)]
pub(super) enum Press {
    Nothing,
    /// The list changes.
    List,
    Act(Act),
    /// The words about a limit are wanted.
    Explain(String),
    Quit,
}

/// The part of the screen below the limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Below {
    #[default]
    Keys,
    Countries,
    /// A limit in words, from the line with that index on.
    Words {
        limit: String,
        lines: Vec<String>,
        first: usize,
    },
}

/// State of the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(super) request: TopRequest,
    board: Board,
    focus: Focus,
    below: Below,
    limit: usize,
    key: usize,
    /// The act that waits for `y`.
    asked: Option<Act>,
    /// The override that is being typed.
    typed: Option<Act>,
    /// Keys without this text are not shown.
    filter: String,
    /// True while the filter is being typed.
    filters: bool,
    message: String,
    rates: BTreeMap<String, Trend>,
    times: Times,
}

impl Screen {
    pub(crate) fn new(request: TopRequest) -> Self {
        Self {
            request,
            board: Board::default(),
            focus: Focus::default(),
            below: Below::default(),
            limit: 0,
            key: 0,
            asked: None,
            typed: None,
            filter: String::new(),
            filters: false,
            message: "asking ..".into(),
            rates: BTreeMap::new(),
            times: Times::default(),
        }
    }

    pub(super) fn show(&mut self, found: Found) {
        match found {
            Found::Board(Ok(board)) => {
                if self.board.answered.is_empty() {
                    self.message.clear();
                }
                self.note(&board);
                self.limit = self.limit.min(board.limits.len().saturating_sub(1));
                self.board = *board;
                self.key = self.key.min(self.keys().len().saturating_sub(1));
            }
            Found::Board(Err(failure)) => self.message = failure.sentence(),
            Found::Done(text) => self.message = text,
            Found::Explained { limit, lines } => {
                let first = 0;
                self.below = Below::Words {
                    limit,
                    lines,
                    first,
                };
            }
        }
    }

    /// Notes the rates since the last board. A server that was restarted counts from zero.
    fn note(&mut self, board: &Board) {
        if board.at_ms <= self.board.at_ms {
            return;
        }
        self.times.note(&board.times);
        let rates = &mut self.rates;
        rates.retain(|name, _| board.limits.iter().any(|row| row.name == *name));
        for row in &board.limits {
            let trend = rates.entry(row.name.clone()).or_default();
            trend.note(&row.decided);
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Press {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return Press::Quit;
        }
        if let Some(act) = self.typed.take() {
            self.type_override(act, key.code);
            return Press::Nothing;
        }
        if self.filters {
            self.type_filter(key.code);
            return Press::Nothing;
        }
        if key.code == KeyCode::Char('q') {
            return Press::Quit;
        }
        if let Some(act) = self.asked.take() {
            self.message.clear();
            return if key.code == KeyCode::Char('y') {
                Press::Act(act)
            } else {
                Press::Nothing
            };
        }
        match key.code {
            KeyCode::Char('l') => {
                self.focus = Focus::Limits;
                self.below = Below::Keys;
            }
            KeyCode::Char('k') => {
                self.focus = Focus::Keys;
                self.below = Below::Keys;
            }
            KeyCode::Char('c') if !self.board.countries.is_empty() => {
                self.focus = Focus::Limits;
                self.below = Below::Countries;
            }
            KeyCode::Char('e') => {
                if let Some(limit) = self.board.limit.clone() {
                    return Press::Explain(limit);
                }
            }
            _ if self.below != Below::Keys && !matches!(key.code, KeyCode::Up | KeyCode::Down) => {
                self.below = Below::Keys;
            }
            KeyCode::Char('r') => self.ask(|limit, key| Act::Reset { limit, key }),
            KeyCode::Char('b') => self.ask(|limit, key| Act::Ban { limit, key }),
            KeyCode::Char('o') => {
                let set = String::new();
                self.ask(|limit, key| Act::Override { limit, key, set });
                self.typed = self.asked.take();
            }
            KeyCode::Char('/') => {
                self.filters = true;
                self.type_filter(KeyCode::Null);
            }
            KeyCode::Up => return self.select(|place| place.saturating_sub(1)),
            KeyCode::Down => return self.select(|place| place + 1),
            _ => {}
        }
        Press::Nothing
    }

    fn select(&mut self, to: impl Fn(usize) -> usize) -> Press {
        if let Below::Words { lines, first, .. } = &mut self.below {
            *first = to(*first).min(lines.len().saturating_sub(1));
            return Press::Nothing;
        }
        if self.focus == Focus::Keys {
            self.key = to(self.key).min(self.keys().len().saturating_sub(1));
            return Press::Nothing;
        }
        self.limit = to(self.limit).min(self.board.limits.len().saturating_sub(1));
        self.key = 0;
        self.request.limit = self
            .board
            .limits
            .get(self.limit)
            .map(|row| row.name.clone());
        Press::List
    }

    /// Returns the keys that the filter leaves.
    fn keys(&self) -> Vec<&KeyRow> {
        let keys = self.board.keys.iter();
        keys.filter(|row| row.text().contains(&self.filter))
            .collect()
    }

    /// Takes one key press of the filter: Enter keeps it, Esc shows all keys again.
    fn type_filter(&mut self, pressed: KeyCode) {
        match pressed {
            KeyCode::Char(c) if self.filter.len() < MAX_TYPED => self.filter.push(c),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Esc => {
                self.filter.clear();
                self.filters = false;
            }
            KeyCode::Enter => self.filters = false,
            _ => {}
        }
        self.key = 0;
        self.message = match (self.filters, self.filter.as_str()) {
            (false, "") => String::new(),
            (false, filter) => format!("keys with `{filter}`; / and Esc show all"),
            (true, filter) => format!("keys with: {filter}"),
        };
    }

    /// Takes one key press of the numbers of an override.
    fn type_override(&mut self, mut act: Act, pressed: KeyCode) {
        if let Act::Override { set, .. } = &mut act {
            match pressed {
                KeyCode::Char(c) if set.len() < MAX_TYPED => set.push(c),
                KeyCode::Backspace => drop(set.pop()),
                KeyCode::Esc => return self.message.clear(),
                KeyCode::Enter if !set.is_empty() => {
                    self.message = format!("{} [y/n]", act.question());
                    return self.asked = Some(act);
                }
                _ => {}
            }
        }
        self.message = act.question();
        self.typed = Some(act);
    }

    /// Asks for the confirmation of an act on the selected key.
    fn ask(&mut self, act: impl FnOnce(String, Vec<String>) -> Act) {
        let selected = self.keys().get(self.key).copied().cloned();
        let (Some(limit), Some(row)) = (&self.board.limit, selected) else {
            self.message = "no key is selected".into();
            return;
        };
        if self.board.reveal_keys != "raw" {
            self.message = "keys are hidden; set reveal_keys = \"raw\" in the policy".into();
            return;
        }
        let act = act(limit.clone(), row.key);
        self.message = act.question();
        self.asked = Some(act);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a screen with those keys of a limit.
    fn screen(keys: &[&str]) -> Screen {
        let request = TopRequest {
            limit: None,
            by: "denied".into(),
            window: "1m".into(),
            count: 20,
        };
        let mut screen = Screen::new(request);
        screen.board.limit = Some("login".into());
        screen.board.reveal_keys = "raw".into();
        let row = |key: &&str| KeyRow {
            key: vec![(*key).into()],
            ..KeyRow::default()
        };
        screen.board.keys = keys.iter().map(row).collect();
        screen
    }

    fn press(screen: &mut Screen, code: KeyCode) -> Press {
        screen.press(KeyEvent::from(code))
    }

    #[test]
    fn a_filter_leaves_the_keys_with_its_text() {
        let mut screen = screen(&["ip=192.0.2.1", "ip=192.0.2.9", "ip=198.51.100.9"]);
        for c in "/2.9".chars() {
            press(&mut screen, KeyCode::Char(c));
        }
        press(&mut screen, KeyCode::Enter);
        press(&mut screen, KeyCode::Char('r'));
        assert_eq!(screen.message, "reset ip=192.0.2.9 under login? [y/n]");
        press(&mut screen, KeyCode::Char('n'));
        press(&mut screen, KeyCode::Char('/'));
        press(&mut screen, KeyCode::Esc);
        assert_eq!(screen.keys().len(), 3);
    }

    #[test]
    fn a_limit_in_words_is_scrolled() {
        let mut screen = screen(&["ip=192.0.2.1"]);
        let Press::Explain(limit) = press(&mut screen, KeyCode::Char('e')) else {
            panic!("it asks");
        };
        assert_eq!(limit, "login");
        let lines = vec![
            "    for       all".to_owned(),
            "    limit     20/1m".to_owned(),
        ];
        screen.show(Found::Explained { limit, lines });
        let shown = |screen: &Screen| {
            let lines = screen.lines(80, 24);
            lines
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert!(
            shown(&screen).contains("for       all"),
            "{}",
            shown(&screen)
        );
        press(&mut screen, KeyCode::Down);
        assert!(
            !shown(&screen).contains("for       all"),
            "{}",
            shown(&screen)
        );
        assert!(shown(&screen).contains("limit     20/1m"));
        press(&mut screen, KeyCode::Esc);
        assert!(shown(&screen).contains("ip=192.0.2.1"));
    }

    #[test]
    fn countries_are_shown_where_there_are_some() {
        let mut screen = screen(&["ip=192.0.2.1"]);
        press(&mut screen, KeyCode::Char('c'));
        assert_eq!(screen.below, Below::Keys);
        screen.board.countries = vec![("NO".into(), vec![[5, 1]; 24])];
        press(&mut screen, KeyCode::Char('c'));
        let lines = screen.lines(80, 24);
        let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        assert!(
            lines.iter().any(|line| line.starts_with("NO  ")),
            "{lines:?}"
        );
        assert!(
            lines.iter().all(|line| line.chars().count() <= 80),
            "{lines:?}"
        );
        assert!(lines[23].contains("[c]ountry"), "{lines:?}");
    }

    #[test]
    fn an_override_is_typed_and_confirmed() {
        let mut screen = screen(&["ip=192.0.2.1"]);
        let typed = |screen: &mut Screen, text: &str| {
            for c in text.chars() {
                assert!(matches!(press(screen, KeyCode::Char(c)), Press::Nothing));
            }
        };
        typed(&mut screen, "oq9");
        press(&mut screen, KeyCode::Backspace);
        press(&mut screen, KeyCode::Backspace);
        press(&mut screen, KeyCode::Enter); // nothing is typed yet
        typed(&mut screen, "20/1m");
        press(&mut screen, KeyCode::Enter);
        let question = "numbers of ip=192.0.2.1 under login, such as 20/1m: 20/1m [y/n]";
        assert_eq!(screen.message, question);
        let Press::Act(act) = press(&mut screen, KeyCode::Char('y')) else {
            panic!("it is confirmed");
        };
        let expected = Act::Override {
            limit: "login".into(),
            key: vec!["ip=192.0.2.1".into()],
            set: "20/1m".into(),
        };
        assert_eq!(act, expected);
        typed(&mut screen, "o2");
        press(&mut screen, KeyCode::Esc);
        assert!(screen.typed.is_none() && screen.message.is_empty());
        assert!(matches!(
            press(&mut screen, KeyCode::Char('q')),
            Press::Quit
        ));
    }
}
