//! Any head of a request is refused, or reaches the upstream with the fields that it may have.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| ratekeeper_gateway::check_head(bytes));
