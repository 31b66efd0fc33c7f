//! Any bytes are a check or a report within its bounds, or a refusal with a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use ratekeeper_wire::{MAX_REQUEST_BYTES, WireRefusal, read_check, read_report};

fuzz_target!(|bytes: &[u8]| {
    reads(bytes, read_check);
    reads(bytes, read_report);
});

fn reads<M: Message + Default + PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Result<M, WireRefusal>,
) {
    match read(bytes) {
        Ok(message) => {
            assert!(bytes.len() <= MAX_REQUEST_BYTES);
            let again = read(&message.encode_to_vec());
            assert_eq!(again.as_ref(), Ok(&message), "what was read can be read again");
        }
        Err(refusal) => {
            assert!(!refusal.to_string().is_empty(), "refused without a reason");
            // What prost would read is refused for its size or its count only.
            if matches!(refusal, WireRefusal::Malformed(_)) {
                assert!(M::decode(bytes).is_err(), "{refusal}");
            }
        }
    }
}
