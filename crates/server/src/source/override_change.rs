//! Override change: one line of the file of overrides, changed on the disk and in force.
//!
//! ```text
//!   policy and files read --> one line edited --> all parsed --> errors? --> nothing changes
//!                                                            --> file replaced --> in force
//! ```
//!
//! The file is the record, so a restart keeps its overrides, and other processes that watch it
//! follow. A reload and another change wait meanwhile.

use std::path::Path;
use std::sync::Arc;

use ratekeeper_policy::Policy;
use ratekeeper_policy::config::{OverrideLine, OverridesCsv, override_lines};

use super::policy_text::{PolicyText, beside};
use super::reload::Rejected;
use super::replace_file::{Contents, Replaced, replace};
use crate::admin::key_as_shown;
use crate::context::ServiceContext;
use crate::{Event, OverrideAct, Trigger};

/// Maximum number of attempts, if another program writes the file at the same time.
const MAX_ATTEMPTS: usize = 5;

/// A change of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OverrideChange {
    pub(crate) act: OverrideAct,
    /// The line that is set; for a removal its limit and key are used.
    pub(crate) line: OverrideLine,
}

/// The effect of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OverrideChanged {
    /// Version of the policy in force.
    pub(crate) version: u32,
    /// Name of the file, as the policy writes it.
    pub(crate) file: String,
    /// The line that was set; `None` for a removal.
    pub(crate) line: Option<usize>,
    /// Number of lines removed.
    pub(crate) removed: usize,
}

/// Why nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NotChanged {
    /// The policy names no file of overrides.
    NoFile,
    /// The file with this name is not edited, because it is written in TOML.
    NotCsv(String),
    /// The file cannot be read or written, for this reason.
    Failed(String),
    /// The policy would have errors.
    Rejected(Rejected),
    /// The override would never hold, for this reason.
    Useless(String),
}

/// An edited text.
struct Edited {
    text: String,
    line: Option<usize>,
    removed: usize,
}

impl OverrideChange {
    /// Returns the change with its key as the file writes it: a secret is there in full or as
    /// `/v1/keys` shows it, whichever of them the call has.
    fn as_written(&self, file: &str, text: &str, policy: &Policy) -> Self {
        let (mut meant, shown) = (self.clone(), key_as_shown(policy, &self.line));
        let mut lines = override_lines(file, text).into_iter().map(|(_, line)| line);
        let found =
            lines.find(|it| it.limit == self.line.limit && key_as_shown(policy, it) == shown);
        meant.line.key = found.map_or(meant.line.key, |line| line.key);
        meant
    }

    fn edit(&self, csv: OverridesCsv<'_>) -> Result<Edited, String> {
        let line = &self.line;
        Ok(match self.act {
            OverrideAct::Set => {
                let (text, number) = csv.set(line)?;
                Edited {
                    text,
                    line: Some(number),
                    removed: 0,
                }
            }
            OverrideAct::Removed => {
                let (text, removed) = csv.remove(&line.limit, &line.key);
                Edited {
                    text,
                    line: None,
                    removed,
                }
            }
        })
    }
}

impl ServiceContext {
    /// Returns the texts in force and their policy; `None` if it names no file of overrides. Waits
    /// for a reload or a change that goes on.
    pub(crate) fn overrides_in_force(&self) -> Option<(Arc<PolicyText>, Arc<Policy>)> {
        let seen = self.source.last_seen.lock();
        let names_one = seen.in_force.files.overrides().is_some();
        names_one.then(|| (Arc::clone(&seen.in_force), self.keeper.policy()))
    }

    /// Changes the file of overrides, and puts it in force together with everything else that has
    /// changed on the disk, as a reload does.
    ///
    /// # Errors
    /// Why nothing was changed. A writer that was given up may still finish; the file is read
    /// again then, as after any other change.
    pub(crate) fn change_overrides(
        &self,
        change: &OverrideChange,
    ) -> Result<OverrideChanged, NotChanged> {
        let path = self.source.path.as_deref().ok_or(NotChanged::NoFile)?;
        // Held to the end: changes and reloads never overtake each other.
        let mut seen = self.source.last_seen.lock();
        for _ in 0..MAX_ATTEMPTS {
            let read = self.read_policy(path, &seen);
            let text = read.map_err(NotChanged::Failed)?;
            let (file, old) = text.files.overrides().ok_or(NotChanged::NoFile)?;
            let failed = |why: &str| NotChanged::Failed(format!("`{file}`: {why}"));
            let old = old.map_err(failed)?.to_owned();
            let csv = OverridesCsv::of(file, &old);
            let csv = csv.ok_or_else(|| NotChanged::NotCsv(file.to_owned()))?;
            let meant = change.as_written(file, &old, &self.keeper.policy());
            let edited = meant.edit(csv).map_err(|why| failed(&why))?;
            let candidate = Arc::new(text.with_overrides(edited.text.clone()));
            let loaded = self.judge(path, &candidate);
            let loaded = loaded.map_err(NotChanged::Rejected)?;
            if let Some(line) = edited.line {
                self.holds(&loaded.policy, line, &change.line)
                    .map_err(NotChanged::Useless)?;
            }
            let replace = self.prepare_gateway(&loaded.policy.settings);
            let replace = replace.map_err(NotChanged::Rejected)?;
            if edited.text != old {
                let new = edited.text;
                let written = self.write(&beside(path, file), Contents { old, new });
                match written.map_err(|why| failed(&why))? {
                    Replaced::Done => {}
                    Replaced::ChangedMeanwhile => continue,
                }
                self.announce(&loaded.policy, change, edited.line);
            }
            let file = file.to_owned();
            seen.last = Some(Arc::clone(&candidate));
            if candidate != seen.in_force {
                replace();
                self.put_in_force(Trigger::Request, candidate, loaded, &mut seen);
            }
            return Ok(OverrideChanged {
                version: self.keeper.policy().version,
                file,
                line: edited.line,
                removed: edited.removed,
            });
        }
        let why = "another program changes the file of overrides all the time";
        Err(NotChanged::Failed(why.to_owned()))
    }

    /// Checks that the override of a line holds for its key now.
    fn holds(&self, policy: &Policy, line: usize, set: &OverrideLine) -> Result<(), String> {
        let rule = policy.rule(&set.limit);
        let mut overrides = rule.into_iter().flat_map(|rule| rule.variants.overrides());
        let found = overrides.find(|found| found.from_file && found.line == line);
        let Some(found) = found else {
            return Err(format!(
                "another override of limit `{}` has the same key and comes first; hint: change that \
                 one, in [[override]] of the policy or in another spelling in the file",
                set.limit
            ));
        };
        let now = self.unix_nanos();
        if found.has_ended(now) {
            return Err(format!(
                "`until={}` is in the past; hint: write a later time, or leave it out",
                set.until
            ));
        }
        Ok(())
    }

    fn write(&self, path: &Path, contents: Contents) -> Result<Replaced, String> {
        let path = path.to_owned();
        let write = move || replace(&path, &contents).map_err(|error| error.to_string());
        self.source.reader.read(write)
    }

    fn announce(&self, policy: &Policy, change: &OverrideChange, line: Option<usize>) {
        let (act, subject) = (change.act, &change.line);
        let reveals = self.keeper.policy().settings.alerts.reveal_keys;
        self.observers.metrics.override_changed(act);
        self.sink.emit(&Event::OverrideChanged {
            act,
            limit: subject.limit.as_str().into(),
            key: reveals.then(|| key_as_shown(policy, subject).into()),
            set: line.map(|_| subject.set.as_str().into()),
            line,
        });
    }
}
