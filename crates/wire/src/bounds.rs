//! Bounds: a request is measured before anything is built from it.
//!
//! ```text
//!   bytes --size--> --count descriptors, entries--> --decode--> RateLimitRequest
//!            |      --count fields----------------> --decode--> CheckRequest, ReportRequest
//!            |               |                         |
//!            +---------------+-------------------------+--> Refusal
//! ```
//!
//! An empty descriptor takes two bytes on the wire and fifty times as many in memory. So
//! descriptors, entries and fields are counted while they are still bytes.

use std::fmt;

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::RateLimitRequest;
use crate::rate_limiter::{CheckRequest, ReportRequest};

/// Maximum size of a request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Maximum number of descriptors in a request.
pub const MAX_DESCRIPTORS: usize = 100;
/// Maximum number of entries in a descriptor.
pub const MAX_ENTRIES: usize = 32;
/// Maximum number of texts and messages in a check or a report; those of its `request` and
/// `descriptor`, of its maps and of its lists count. The check API takes fewer.
pub const MAX_FIELDS: usize = 512;

/// Field number of `descriptors` in a request.
const DESCRIPTORS: u32 = 2;
/// Field number of `entries` in a descriptor.
const ENTRIES: u32 = 1;
/// Field numbers of `request` and `descriptor` in a check.
const PARTS: [u32; 2] = [1, 3];

/// Reason why a request is not read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WireRefusal {
    /// The request has more than [`MAX_REQUEST_BYTES`].
    TooLarge {
        /// Size of the request, in bytes.
        bytes: usize,
    },
    /// The request has more than [`MAX_DESCRIPTORS`].
    TooManyDescriptors,
    /// One descriptor has more than [`MAX_ENTRIES`].
    TooManyEntries,
    /// A check or a report has more than [`MAX_FIELDS`].
    TooManyFields,
    /// The bytes are not a message of this kind.
    Malformed(String),
}

impl fmt::Display for WireRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes } => {
                write!(
                    f,
                    "the request has {bytes} bytes; the maximum is {MAX_REQUEST_BYTES}"
                )
            }
            Self::TooManyDescriptors => {
                write!(f, "the request has more than {MAX_DESCRIPTORS} descriptors")
            }
            Self::TooManyEntries => write!(f, "a descriptor has more than {MAX_ENTRIES} entries"),
            Self::TooManyFields => write!(f, "the message has more than {MAX_FIELDS} fields"),
            Self::Malformed(why) => write!(f, "the message cannot be read: {why}"),
        }
    }
}

impl std::error::Error for WireRefusal {}

/// Reads a call of Envoy's rate limit service within its bounds.
///
/// # Errors
/// See [`WireRefusal`].
pub fn read_request(bytes: &[u8]) -> Result<RateLimitRequest, WireRefusal> {
    sized(bytes)?;
    let mut descriptors = 0;
    each_field(bytes, |number, descriptor| {
        if number != DESCRIPTORS {
            return Ok(());
        }
        descriptors += 1;
        if descriptors > MAX_DESCRIPTORS {
            return Err(WireRefusal::TooManyDescriptors);
        }
        let mut entries = 0;
        each_field(descriptor, |number, _| {
            entries += usize::from(number == ENTRIES);
            if entries > MAX_ENTRIES {
                return Err(WireRefusal::TooManyEntries);
            }
            Ok(())
        })
    })?;
    RateLimitRequest::decode(bytes).map_err(malformed)
}

/// Reads a check within its bounds.
///
/// # Errors
/// See [`WireRefusal`].
pub fn read_check(bytes: &[u8]) -> Result<CheckRequest, WireRefusal> {
    sized(bytes)?;
    let mut fields = 0;
    each_field(bytes, |number, part| {
        one_more(&mut fields)?;
        if PARTS.contains(&number) {
            each_field(part, |_, _| one_more(&mut fields))?;
        }
        Ok(())
    })?;
    CheckRequest::decode(bytes).map_err(malformed)
}

/// Reads a report within its bounds.
///
/// # Errors
/// See [`WireRefusal`].
pub fn read_report(bytes: &[u8]) -> Result<ReportRequest, WireRefusal> {
    sized(bytes)?;
    let mut fields = 0;
    each_field(bytes, |_, _| one_more(&mut fields))?;
    ReportRequest::decode(bytes).map_err(malformed)
}

fn sized(bytes: &[u8]) -> Result<(), WireRefusal> {
    if bytes.len() > MAX_REQUEST_BYTES {
        return Err(WireRefusal::TooLarge { bytes: bytes.len() });
    }
    Ok(())
}

fn one_more(fields: &mut usize) -> Result<(), WireRefusal> {
    *fields += 1;
    if *fields > MAX_FIELDS {
        return Err(WireRefusal::TooManyFields);
    }
    Ok(())
}

/// Calls `show` with the number and the bytes of every text, message and value of a map or list in an
/// encoded message. Numbers are skipped: they take no more memory than their field.
fn each_field<'a>(
    mut rest: &'a [u8],
    mut show: impl FnMut(u32, &'a [u8]) -> Result<(), WireRefusal>,
) -> Result<(), WireRefusal> {
    while !rest.is_empty() {
        let (number, wire_type) = decode_key(&mut rest).map_err(malformed)?;
        if wire_type != WireType::LengthDelimited {
            let context = DecodeContext::default();
            skip_field(wire_type, number, &mut rest, context).map_err(malformed)?;
            continue;
        }
        let length = decode_varint(&mut rest).map_err(malformed)?;
        let field = usize::try_from(length).ok();
        let field = field.and_then(|length| rest.get(..length));
        let field =
            field.ok_or_else(|| WireRefusal::Malformed("the message ends too early".into()))?;
        show(number, field)?;
        rest.advance(field.len());
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "called by `map_err`")]
fn malformed(error: prost::DecodeError) -> WireRefusal {
    WireRefusal::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use prost::encoding::encode_varint;

    use super::*;
    use crate::RateLimitDescriptor;
    use crate::rate_limit_descriptor::Entry;

    fn request(descriptors: usize, entries: usize) -> Vec<u8> {
        let entry = Entry {
            key: "k".into(),
            value: "v".into(),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry; entries],
            hits_addend: Some(0),
            ..Default::default()
        };
        let request = RateLimitRequest {
            domain: "d".into(),
            descriptors: vec![descriptor; descriptors],
            hits_addend: 3,
        };
        request.encode_to_vec()
    }

    #[test]
    fn the_maximum_numbers_are_accepted_and_no_more() {
        for (descriptors, entries, expected) in [
            (0, 0, Ok(())),
            (MAX_DESCRIPTORS, 1, Ok(())),
            (1, MAX_ENTRIES, Ok(())),
            (MAX_DESCRIPTORS + 1, 0, Err(WireRefusal::TooManyDescriptors)),
            (1, MAX_ENTRIES + 1, Err(WireRefusal::TooManyEntries)),
        ] {
            let bytes = request(descriptors, entries);
            let read = read_request(&bytes);
            if let Ok(read) = &read {
                assert_eq!(read.encode_to_vec(), bytes);
            }
            assert_eq!(read.map(drop), expected, "{descriptors} {entries}");
        }
    }

    #[test]
    fn size_is_bounded() {
        let bytes = vec![0; MAX_REQUEST_BYTES + 1];
        let expected = WireRefusal::TooLarge { bytes: bytes.len() };
        assert_eq!(read_request(&bytes), Err(expected));
    }

    #[test]
    fn bytes_that_are_not_a_request_are_refused() {
        let good = request(2, 2);
        for length in 0..good.len() {
            if let Ok(read) = read_request(&good[..length]) {
                assert!(read.encoded_len() <= length, "a prefix that is whole");
            }
        }
        for bytes in [
            &b"\xff"[..],
            b"\x12\xff\xff\xff\xff\x0f", // a length beyond the end
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x00\x00",         // field 0
            b"\x12\x02\x0a\x05", // an entry beyond its descriptor
            b"\x0a\x02\xc3\x28", // a domain that is no UTF-8
            b"\x0f\x00",         // a wire type that does not exist
        ] {
            let read = read_request(bytes);
            assert!(matches!(read, Err(WireRefusal::Malformed(_))), "{bytes:x?}");
        }
        let unknown = b"\x7a\x01x\x0a\x01d"; // fields of a newer Envoy are skipped
        assert_eq!(read_request(unknown).unwrap().domain, "d");
        let deep = [b"\x7b".repeat(30_000), b"\x7c".repeat(30_000)].concat(); // groups in groups
        assert!(matches!(
            read_request(&deep),
            Err(WireRefusal::Malformed(_))
        ));
    }

    #[test]
    fn fields_of_checks_and_reports_are_counted() {
        let limits = |number| b"\x2a\x00".repeat(number);
        let part = |tag: u8, fields: &[u8]| {
            let mut part = vec![tag];
            encode_varint(fields.len() as u64, &mut part);
            [&part, fields].concat()
        };
        let headers = |number| part(0x0a, &b"\x32\x00".repeat(number));
        let entries = |number| part(0x1a, &b"\x12\x00".repeat(number));
        for (bytes, expected) in [
            (limits(MAX_FIELDS), Ok(())),
            (limits(MAX_FIELDS + 1), Err(WireRefusal::TooManyFields)),
            (headers(MAX_FIELDS - 1), Ok(())),
            (headers(MAX_FIELDS), Err(WireRefusal::TooManyFields)),
            (entries(MAX_FIELDS - 1), Ok(())),
            (entries(MAX_FIELDS), Err(WireRefusal::TooManyFields)),
            (
                [headers(255), entries(255), limits(1)].concat(),
                Err(WireRefusal::TooManyFields),
            ),
        ] {
            assert_eq!(read_check(&bytes).map(drop), expected);
        }
        // Both parts of a message that came in two count.
        let twice = headers(300).repeat(2);
        assert_eq!(read_check(&twice), Err(WireRefusal::TooManyFields));
        let costs = |number| b"\x2a\x00".repeat(number);
        assert!(read_report(&costs(MAX_FIELDS)).is_ok());
        let refused = read_report(&costs(MAX_FIELDS + 1));
        assert_eq!(refused, Err(WireRefusal::TooManyFields));
        let large = vec![0; MAX_REQUEST_BYTES + 1];
        let expected = WireRefusal::TooLarge { bytes: large.len() };
        assert_eq!(read_check(&large), Err(expected.clone()));
        assert_eq!(read_report(&large), Err(expected));
    }

    /// Reads each file of a corpus that the fuzzer begins with; the fuzzer checks further properties.
    fn corpus<M: Message + Default + PartialEq + fmt::Debug>(
        name: &str,
        read: impl Fn(&[u8]) -> Result<M, WireRefusal>,
    ) {
        let corpus = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(corpus).unwrap();
        let messages = files.map(|file| read(&std::fs::read(file.unwrap().path()).unwrap()));
        let (messages, refused): (Vec<_>, Vec<_>) = messages.partition(Result::is_ok);
        assert!(messages.len() >= 4 && !refused.is_empty(), "{name}");
        for message in messages.into_iter().flatten() {
            let again = read(&message.encode_to_vec());
            assert_eq!(again, Ok(message));
        }
    }

    #[test]
    fn the_corpora_are_read_or_refused() {
        corpus("rls", read_request);
        corpus("check", read_check);
        corpus("check", read_report);
    }
}
