//! Screen: the board in a terminal: its lines, and what the keys of the keyboard do.
//!
//! ```text
//!   keyboard --Screen::press--> request or act --> poller (a thread) --> board --> Screen::lines
//! ```

use std::collections::BTreeMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::act::Act;
use super::board::{Board, TopRequest};
use super::poller::Found;
use super::row::{KeyRow, LimitRow};
use super::table::{LIMIT_HEAD, key_head, key_line, limit_line, note_line};
use super::times::Times;
use super::trend::Trend;
use crate::words;

/// Maximum length of the numbers of an override, and of a filter.
const MAX_TYPED: usize = 40;
/// Maximum number of notes.
const MAX_NOTES: usize = 3;
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
    Quit,
}

/// State of the screen.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(super) request: TopRequest,
    board: Board,
    focus: Focus,
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
            KeyCode::Char('l') => self.focus = Focus::Limits,
            KeyCode::Char('k') => self.focus = Focus::Keys,
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

    /// Returns the lines of a terminal of that size.
    pub(super) fn lines(&self, width: usize, height: usize) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::styled(self.title(), bold), Line::raw(self.totals())];
        let notes = self.board.notes.iter().take(MAX_NOTES);
        lines.extend(notes.map(|note| Line::styled(note_line(note), bold)));
        let limits = self.board.limits.len().clamp(1, (height / 3).max(1));
        lines.push(Line::styled(
            format!("{LIMIT_HEAD:TREND_COLUMN$}  TREND (60 s)"),
            bold,
        ));
        let first = self.limit.saturating_sub(limits - 1);
        let rows = self
            .board
            .limits
            .iter()
            .enumerate()
            .skip(first)
            .take(limits);
        for (index, row) in rows {
            let trend = self.rates.get(&row.name).map(Trend::text);
            let trend = trend.unwrap_or_default();
            let line = format!("{:TREND_COLUMN$}  {trend}", self.limit_line(row));
            lines.push(Line::styled(line, self.style(Focus::Limits, index)));
        }
        lines.push(Line::raw(""));
        let limit = self.board.limit.as_deref().unwrap_or_default();
        lines.push(Line::styled(key_head(limit), bold));
        let keys = height.saturating_sub(lines.len() + 2);
        let first = (self.key + 1).saturating_sub(keys);
        for (index, row) in self.keys().into_iter().enumerate().skip(first).take(keys) {
            let since = since(row, width);
            let line = format!("{}{since}", key_line(row));
            lines.push(Line::styled(line, self.style(Focus::Keys, index)));
        }
        lines.resize(height.saturating_sub(2), Line::raw(""));
        lines.push(Line::raw(self.message.clone()));
        lines.push(Line::styled(
            "l limits  k keys  arrows select  r reset  b ban  o override  / filter  q quit",
            Style::new().add_modifier(Modifier::DIM),
        ));
        lines
    }

    /// Returns the style of a row: the selected one is reversed.
    fn style(&self, table: Focus, index: usize) -> Style {
        let selected = match table {
            Focus::Limits => self.limit,
            Focus::Keys => self.key,
        };
        if (table, index) == (self.focus, selected) {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        }
    }

    fn title(&self) -> String {
        let answered = words::counted(self.board.answered.len(), "server");
        let failed = match self.board.failed.len() {
            0 => String::new(),
            failed => format!(", {failed} not answering"),
        };
        let policy = match self.board.policies.as_slice() {
            [] => String::new(),
            [one] => format!("   policy {one}"),
            more => format!("   {} different policies", more.len()),
        };
        let stores = self.board.stores.join(", ");
        let (by, window) = (&self.request.by, &self.request.window);
        format!("ratekeeper top   {answered}{failed}{policy}   {stores}   by {by}, {window}")
    }

    fn totals(&self) -> String {
        let [mut all, mut denied, mut shadow, mut near] = [0.0; 4];
        for row in &self.board.limits {
            let [decided, refused, close] = self
                .rates
                .get(&row.name)
                .map_or([0.0; 3], |trend| trend.rates);
            all += decided;
            near += close;
            *(if row.mode == "shadow" {
                &mut shadow
            } else {
                &mut denied
            }) += refused;
        }
        let percent = |part: f64| part * 100.0 / all.max(1.0);
        let time = self.times.within(99).unwrap_or_else(|| "-".into());
        format!(
            "{all:.1} decisions/s   denied {:.1} %   shadow {:.1} %   near {:.1} %   p99 {time}",
            percent(denied),
            percent(shadow),
            percent(near)
        )
    }

    /// Returns a limit with its rate since the last board, in place of that of the window.
    fn limit_line(&self, row: &LimitRow) -> String {
        let rate = self
            .rates
            .get(&row.name)
            .map_or(0.0, |trend| trend.rates[0]);
        limit_line(row, rate)
    }
}

/// Column of the trends.
const TREND_COLUMN: usize = 66;
/// Width from which the first refusal of a key is shown.
const WIDE: usize = 120;

fn since(row: &KeyRow, width: usize) -> String {
    match &row.since {
        Some(since) if width >= WIDE => format!("   refused since {since}"),
        _ => String::new(),
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
