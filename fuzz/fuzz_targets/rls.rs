//! Any bytes are a rate limit request within its bounds, or a refusal with a reason.

#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use ratekeeper_wire::{
    MAX_DESCRIPTORS, MAX_ENTRIES, MAX_REQUEST_BYTES, RateLimitRequest, WireRefusal, read_request,
};

fuzz_target!(|bytes: &[u8]| {
    match read_request(bytes) {
        Ok(request) => {
            assert!(bytes.len() <= MAX_REQUEST_BYTES);
            assert!(request.descriptors.len() <= MAX_DESCRIPTORS);
            let mut descriptors = request.descriptors.iter();
            assert!(descriptors.all(|one| one.entries.len() <= MAX_ENTRIES));
            let again = read_request(&request.encode_to_vec());
            assert_eq!(again.as_ref(), Ok(&request), "what was read can be read again");
        }
        Err(refusal) => {
            assert!(!refusal.to_string().is_empty(), "refused without a reason");
            // What prost would read is refused for its size or its counts only.
            if matches!(refusal, WireRefusal::Malformed(_)) {
                assert!(RateLimitRequest::decode(bytes).is_err(), "{refusal}");
            }
        }
    }
});
