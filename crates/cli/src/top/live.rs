//! Live: the terminal, from the first board until the user quits.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::widgets::Paragraph;

use super::board::TopRequest;
use super::poller::{Asked, Found, poll};
use super::screen::{Press, Screen};
use crate::Failure;
use crate::client::Client;

/// Maximum time for which the keyboard waits for a new board.
const TICK: Duration = Duration::from_millis(100);

/// Shows the board until the user quits.
///
/// # Errors
/// Returns an error if the terminal cannot be used.
pub(crate) fn live(clients: Vec<(String, Client)>, request: TopRequest) -> Result<(), Failure> {
    let (ask, asked) = channel();
    let (show, shown) = channel();
    let first = request.clone();
    thread::spawn(move || poll(&clients, first, &asked, &show));
    let mut terminal = ratatui::try_init().map_err(|why| unusable(&why))?;
    let ended = draw(&mut terminal, Screen::new(request), &ask, &shown);
    ratatui::restore();
    ended.map_err(|why| unusable(&why))
}

fn unusable(why: &io::Error) -> Failure {
    Failure::new(format!("the terminal cannot be used: {why}"))
        .hint("print the table once: ratekeeper top --once")
}

fn draw(
    terminal: &mut ratatui::DefaultTerminal,
    mut screen: Screen,
    ask: &Sender<Asked>,
    shown: &Receiver<Found>,
) -> io::Result<()> {
    loop {
        loop {
            match shown.try_recv() {
                Ok(found) => screen.show(found),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()), // the poller has panicked
            }
        }
        terminal.draw(|frame| {
            let (width, height) = (frame.area().width, frame.area().height);
            let lines = screen.lines(width.into(), height.into());
            frame.render_widget(Paragraph::new(lines), frame.area());
        })?;
        if !event::poll(TICK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue;
        };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        let asked = match screen.press(key) {
            Press::Quit => return Ok(()),
            Press::Nothing => continue,
            Press::List => Asked::List(screen.request.clone()),
            Press::Act(act) => Asked::Act(act),
            Press::Explain(limit) => Asked::Explain(limit),
        };
        let _ = ask.send(asked); // without a poller the loop ends above
    }
}
