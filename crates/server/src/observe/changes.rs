//! Changes: the last events and acts of operators, for the dashboard.
//!
//! ```text
//!   events (reload, store, alert, override) --+
//!   admin listener (reset, ban, lift) --------+--> the last MAX_CHANGES
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper::{Clock, Keeper};
use ratekeeper_core::Time;
use ratekeeper_store::AnyStore;
use strum::AsRefStr;

use super::event::Sink;
use super::metrics::ConfigSource;
use crate::Event;
use crate::clock::ServiceClock;

/// Number of changes kept.
const MAX_CHANGES: usize = 100;
/// Maximum length of the text of a change, in characters: a report of a refused policy may be
/// long, and texts come from policies and keys.
const MAX_TEXT_CHARS: usize = 400;

tokio::task_local! {
    /// The operator whose call is being answered.
    static OPERATOR: SocketAddr;
}

/// Answers a call of an operator: changes meanwhile are theirs.
pub(crate) async fn by<F: Future>(operator: SocketAddr, answer: F) -> F::Output {
    OPERATOR.scope(operator, answer).await
}

/// Returns the same work for another thread: its changes are of the same operator.
pub(crate) fn by_the_same<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let operator = OPERATOR.try_with(|operator| *operator);
    move || match operator {
        Ok(operator) => OPERATOR.sync_scope(operator, work),
        Err(_) => work(), // no call is being answered
    }
}

/// What a crash costs while files of the state cannot be written.
pub(crate) const NOT_SAVED: &str =
    "the state cannot be saved: a crash forgives the usage since the last save";

/// The last changes, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Changes(Mutex<VecDeque<Change>>);

/// Something that happened to the service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// By the clock that is never set.
    pub(crate) at: Time,
    /// By the wall clock, as it was then.
    pub(crate) unix_millis: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) text: String,
    /// The operator whose call made it, as [`crate::doors`] logs it; `None` for other changes.
    pub(crate) by: Option<SocketAddr>,
}

/// How a change is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum ChangeKind {
    Change,
    Warning,
    Error,
    /// An error that ends when the files of this source are good again.
    #[strum(serialize = "error")]
    Refused(ConfigSource),
}

impl ChangeKind {
    /// Returns the kind of an event; `None` if it is not kept.
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Listening { .. } | Event::Stopped => None,
            Event::Reloaded { .. }
            | Event::EnvoyReloaded { .. }
            | Event::StoreUp { .. }
            | Event::StoreServerUp { .. }
            | Event::UpstreamUp { .. }
            | Event::OverrideChanged { .. } => Some(Self::Change),
            Event::Notice(_) | Event::Alert(_) | Event::Stopping => Some(Self::Warning),
            Event::ReloadRejected { .. } => Some(Self::Refused(ConfigSource::Policy)),
            Event::EnvoyRejected { .. } => Some(Self::Refused(ConfigSource::Envoy)),
            Event::StoreDown { .. }
            | Event::StoreServerDown { .. }
            | Event::UpstreamDown { .. } => Some(Self::Error),
        }
    }
}

impl Changes {
    /// Returns a sink that keeps the events on their way to `sink`.
    pub(crate) fn listening(
        self: &Arc<Self>,
        sink: Sink,
        keeper: Arc<Keeper<AnyStore, ServiceClock>>,
    ) -> Sink {
        let changes = Arc::clone(self);
        Sink(Arc::new(move |event| {
            if let Some(kind) = ChangeKind::of(event) {
                let now = keeper.clock().now();
                let unix = keeper.wall_origin().unix_nanos(now);
                changes.note(now, unix / 1_000_000, kind, &event.to_string());
            }
            (sink.0)(event);
        }))
    }

    /// Keeps a change, with its time by the clock and by the wall clock.
    pub(crate) fn note(&self, at: Time, unix_millis: u64, kind: ChangeKind, text: &str) {
        let mut changes = self.0.lock();
        if changes.len() == MAX_CHANGES {
            changes.pop_front();
        }
        changes.push_back(Change {
            at,
            unix_millis,
            kind,
            text: text.chars().take(MAX_TEXT_CHARS).collect(),
            by: OPERATOR.try_with(|operator| *operator).ok(),
        });
    }

    /// Turns the errors of files that are good again into changes of the past.
    pub(crate) fn end_refusals(&self, source: ConfigSource) {
        for change in self.0.lock().iter_mut() {
            if change.kind == ChangeKind::Refused(source) {
                change.kind = ChangeKind::Change;
            }
        }
    }

    /// Returns the changes, the newest first.
    pub(crate) fn latest(&self) -> Vec<Change> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_changes_are_kept_and_long_texts_are_cut() {
        let changes = Changes::default();
        for at in 0..250 {
            changes.note(Time::ZERO, at, ChangeKind::Change, &"\u{e9}".repeat(1_000));
        }
        let kept = changes.latest();
        assert_eq!(kept.len(), MAX_CHANGES);
        assert_eq!((kept[0].unix_millis, kept[99].unix_millis), (249, 150));
        assert_eq!(kept[0].text.chars().count(), MAX_TEXT_CHARS);
    }
}
