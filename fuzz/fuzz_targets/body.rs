//! Any body has values or none, and reading it ends without harm.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ratekeeper_policy::{BodyField, BodyFields};

const FIELDS: [&str; 4] = ["form:user", "json:/user", "json:/user/0/id", "json:/a~1b"];
const FORMS: [&str; 2] = ["application/x-www-form-urlencoded", "application/json"];

fuzz_target!(|body: &[u8]| {
    let fields = FIELDS.map(|field| BodyField::parse(field).expect("a field that reads"));
    for form in FORMS {
        let headers = [("content-type", form.as_bytes())];
        let read = || format!("{:?}", BodyFields::read(&fields, &headers, body));
        assert_eq!(read(), read());
    }
});
