//! Live: the screen in a terminal, and the thread that asks the service each second.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::widgets::Paragraph;

use super::board::{Board, TopRequest};
use super::screen::{Press, Screen};
use crate::client::Client;
use crate::{Failure, Result};

/// Maximum time for which the keyboard waits for a new board.
const TICK: Duration = Duration::from_millis(100);
/// Time between two polls.
const POLL: Duration = Duration::from_secs(1);

/// A board, or the reason why there is none.
type Found = Result<Board>;

/// Shows the board until the user quits.
///
/// # Errors
/// Returns an error if the terminal cannot be used.
pub(crate) fn live(client: Client, request: TopRequest) -> Result<()> {
    let (ask, asked) = channel();
    let (show, shown) = channel();
    let first = request.clone();
    thread::spawn(move || poll(&client, first, &asked, &show));
    let mut terminal = ratatui::try_init().map_err(|why| unusable(&why))?;
    let ended = draw(&mut terminal, Screen::new(request), &ask, &shown);
    ratatui::restore();
    ended.map_err(|why| unusable(&why))
}

fn unusable(why: &io::Error) -> Failure {
    Failure::new(format!("the terminal cannot be used: {why}"))
        .hint("print the table once: ratekeeper top --once")
}

/// Polls the service each second, and for each new request, until the screen is gone.
fn poll(
    client: &Client,
    mut request: TopRequest,
    asked: &Receiver<TopRequest>,
    show: &Sender<Found>,
) {
    while show.send(Board::poll(client, &request)).is_ok() {
        match asked.recv_timeout(POLL) {
            Ok(new) => request = new,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn draw(
    terminal: &mut ratatui::DefaultTerminal,
    mut screen: Screen,
    ask: &Sender<TopRequest>,
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
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => match screen.press(key) {
                Press::Quit => return Ok(()),
                Press::Nothing => {}
                // Without a poller the loop ends above.
                Press::List => drop(ask.send(screen.request.clone())),
            },
            _ => {}
        }
    }
}
