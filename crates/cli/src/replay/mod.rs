//! Parts of `replay` and `diff`: the log with its progress, conditions, curves, and the report as
//! text and as a page.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares, coordinates and numbers to try are rounded anyway"
)]

pub(crate) mod choose;
pub(crate) mod compare;
pub(crate) mod condition;
pub(crate) mod page;
pub(crate) mod session;
pub(crate) mod table;
pub(crate) mod text;
