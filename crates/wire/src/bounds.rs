//! Bounds: a request is measured before anything is built from it.
//!
//! ```text
//!   bytes --size--> --count descriptors, entries--> --decode--> RateLimitRequest
//!            |               |                         |
//!            +---------------+-------------------------+--> Refusal
//! ```
//!
//! An empty descriptor takes two bytes on the wire and fifty times as many in memory. So
//! descriptors and entries are counted while they are still bytes.

use std::fmt;

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::RateLimitRequest;

/// Maximum size of a request, in bytes.
pub const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Maximum number of descriptors in a request.
pub const MAX_DESCRIPTORS: usize = 100;
/// Maximum number of entries in a descriptor.
pub const MAX_ENTRIES: usize = 32;

/// Field number of `descriptors` in a request.
const DESCRIPTORS: u32 = 2;
/// Field number of `entries` in a descriptor.
const ENTRIES: u32 = 1;

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
            Self::Malformed(why) => write!(f, "the message cannot be read: {why}"),
        }
    }
}

impl std::error::Error for WireRefusal {}

/// Reads a request within its bounds.
///
/// # Errors
/// See [`WireRefusal`].
pub fn read_request(bytes: &[u8]) -> Result<RateLimitRequest, WireRefusal> {
    if bytes.len() > MAX_REQUEST_BYTES {
        return Err(WireRefusal::TooLarge { bytes: bytes.len() });
    }
    let mut descriptors = 0;
    each_of(DESCRIPTORS, bytes, |descriptor| {
        descriptors += 1;
        if descriptors > MAX_DESCRIPTORS {
            return Err(WireRefusal::TooManyDescriptors);
        }
        let mut entries = 0;
        each_of(ENTRIES, descriptor, |_| {
            entries += 1;
            if entries > MAX_ENTRIES {
                return Err(WireRefusal::TooManyEntries);
            }
            Ok(())
        })
    })?;
    RateLimitRequest::decode(bytes).map_err(malformed)
}

/// Calls `show` with every message of field `number` in an encoded message.
fn each_of<'a>(
    number: u32,
    mut rest: &'a [u8],
    mut show: impl FnMut(&'a [u8]) -> Result<(), WireRefusal>,
) -> Result<(), WireRefusal> {
    while !rest.is_empty() {
        let (tag, wire_type) = decode_key(&mut rest).map_err(malformed)?;
        if tag != number || wire_type != WireType::LengthDelimited {
            let context = DecodeContext::default();
            skip_field(wire_type, tag, &mut rest, context).map_err(malformed)?;
            continue;
        }
        let length = decode_varint(&mut rest).map_err(malformed)?;
        let message = usize::try_from(length).ok();
        let message = message.and_then(|length| rest.get(..length));
        let message =
            message.ok_or_else(|| WireRefusal::Malformed("the message ends too early".into()))?;
        show(message)?;
        rest.advance(message.len());
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "called by `map_err`")]
fn malformed(error: prost::DecodeError) -> WireRefusal {
    WireRefusal::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
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

    /// The corpus that the fuzzer begins with; the fuzzer checks further properties.
    #[test]
    fn the_corpus_is_read_or_refused() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/rls");
        let files = std::fs::read_dir(corpus).unwrap();
        let read = files.map(|file| read_request(&std::fs::read(file.unwrap().path()).unwrap()));
        let (read, refused): (Vec<_>, Vec<_>) = read.partition(Result::is_ok);
        assert!(read.len() >= 5 && !refused.is_empty());
        for request in read.into_iter().flatten() {
            let again = read_request(&request.encode_to_vec());
            assert_eq!(again, Ok(request));
        }
    }
}
