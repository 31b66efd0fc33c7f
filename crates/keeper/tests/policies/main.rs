//! Policies end to end in virtual time: the text of a policy in, answers out.

mod active;
mod bans;
mod by_hand;
mod call;
mod chains;
mod counting;
mod elastic;
mod fields_come_true;
mod geo;
mod late_reports;
mod loans;
mod months;
mod pipeline;
mod plans;
mod rate_limit;
mod reports;
mod tokens;
mod trials;
mod units;
