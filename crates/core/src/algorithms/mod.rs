//! The algorithms, one core a file. (table to come)

pub mod gcra;
pub mod window;
