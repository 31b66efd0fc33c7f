//! Unpack: the content of a file that may be compressed, by its first bytes.

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::errors::ReadFrameHeaderError::SkipFrame;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes that are read at a time.
pub(crate) const BLOCK: usize = 256 << 10;

/// First bytes of files that are not read, and what to do.
const UNREAD: &[(&[u8], &str)] = &[
    (
        b"BZh",
        "it is compressed by bzip2; unpack it by bzcat, and name - for standard input",
    ),
    (
        b"\xfd7zXZ",
        "it is compressed by xz; unpack it by xzcat, and name - for standard input",
    ),
    (b"PK\x03\x04", "it is a zip archive; unpack it"),
    (b"\xff\xfe", UTF_16),
    (b"\xfe\xff", UTF_16),
];
const UTF_16: &str = "its text is UTF-16; convert it by iconv -f UTF-16 -t UTF-8";

/// Returns the reader of the content, without a byte order mark.
pub(crate) fn unpacked(raw: impl Read + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    let mut raw = BufReader::with_capacity(BLOCK, raw);
    let magic = raw.fill_buf()?;
    if let Some((_, why)) = UNREAD.iter().find(|(start, _)| magic.starts_with(start)) {
        return Err(io::Error::other(*why));
    }
    let mut content: Box<dyn BufRead + Send> = if magic.starts_with(&[0x1f, 0x8b]) {
        let content = flate2::bufread::MultiGzDecoder::new(raw);
        Box::new(BufReader::with_capacity(BLOCK, content))
    } else if let [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] = magic {
        let frame = FrameDecoder::new();
        Box::new(BufReader::with_capacity(BLOCK, Frames { raw, frame }))
    } else {
        Box::new(raw)
    };
    if content.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        content.consume(3);
    }
    Ok(content)
}

/// The content of a file of zstd, which may have several frames.
struct Frames<R: BufRead> {
    raw: R,
    /// The frame that is read; finished before the first.
    frame: FrameDecoder,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.frame.read(into)?;
            if read > 0 {
                return Ok(read);
            }
            if !self.frame.is_finished() {
                let blocks = BlockDecodingStrategy::UptoBytes(BLOCK);
                let decoded = self.frame.decode_blocks(&mut self.raw, blocks);
                decoded.map_err(io::Error::other)?;
            } else if self.raw.fill_buf()?.is_empty() {
                return Ok(0);
            } else if let Err(why) = self.frame.init(&mut self.raw) {
                // Metadata, such as pzstd writes.
                let FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. }) = why else {
                    return Err(io::Error::other(why));
                };
                let length = u64::from(length);
                if io::copy(&mut (&mut self.raw).take(length), &mut io::sink())? < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}
