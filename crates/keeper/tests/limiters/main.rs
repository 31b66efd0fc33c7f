//! Limits in a program: one limiter, one for each key, their clocks, and first programs.

mod any_clock;
#[path = "../../../core/tests/algorithms/cases.rs"]
mod cases;
mod changes;
mod configured;
mod costs;
mod defects;
mod first_programs;
mod guava;
mod keyed;
mod light;
mod limiter;
mod model;
mod owned;
mod tasks;
mod tokio_clock;
mod tokio_timer;
