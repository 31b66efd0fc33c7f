//! The verbs, one per file: arguments, implementation and help.

pub(crate) mod bans;
pub(crate) mod check;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod grant;
pub(crate) mod health;
pub(crate) mod help;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod overrides;
pub(crate) mod package;
pub(crate) mod replay;
pub(crate) mod reset;
pub(crate) mod run;
pub(crate) mod simulate;
pub(crate) mod top;
pub(crate) mod r#try;
pub(crate) mod validate;
