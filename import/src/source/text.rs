//! Text from a file, an object or standard input, plain or compressed, with its beginning read in advance.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use crate::error::ImportError;
use crate::input::{Input, Origin};

/// Maximum length of a row, in bytes.
pub(super) const ROW_BYTES_MAX: usize = 1 << 20;

pub(super) const PARQUET_MAGIC: [u8; 4] = *b"PAR1";

/// The mark of the users, with which a binary dump of Gorse begins.
const GORSE_DUMP: [u8; 8] = (-1_i64).to_le_bytes();

/// Bytes from which delimiter and columns are recognised.
const HEAD_BYTES: u64 = 256 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const UTF8_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Other kinds of files, by their first bytes, and what to do with them.
const OTHERS: [(&[u8], &str); 6] = [
    (b"\xff\xfe", "is UTF-16; save it as UTF-8 (in Excel: \"CSV UTF-8\"), or convert it by `iconv -f utf-16 -t utf-8`"),
    (b"\xfe\xff", "is UTF-16; save it as UTF-8 (in Excel: \"CSV UTF-8\"), or convert it by `iconv -f utf-16 -t utf-8`"),
    (b"PK\x03\x04", "is a zip archive or an Excel workbook; unpack it, or save the sheet as CSV"),
    (b"\x28\xb5\x2f\xfd", "is compressed with zstd; pipe it: `zstdcat FILE | celeris import - …`"),
    (b"BZh", "is compressed with bzip2; pipe it: `bzcat FILE | celeris import - …`"),
    (b"\xfd7zXZ", "is compressed with xz; pipe it: `xzcat FILE | celeris import - …`"),
];

/// Text being read.
pub(super) struct Text {
    /// The first bytes, without a byte order mark.
    pub(super) head: Vec<u8>,
    /// Everything after the head.
    rest: Box<dyn Read>,
    pub(super) bytes_read: Arc<AtomicU64>,
}

impl Text {
    /// Opens the input, and decompresses it if it starts with the gzip magic bytes.
    pub(super) fn open(input: &Input) -> Result<Self, ImportError> {
        let file = input.shown();
        let opened: Box<dyn Read> = match &input.origin {
            Origin::File(path) => Box::new(File::open(path).map_err(ImportError::io(&file))?),
            Origin::Object(object) => {
                let reader = object.location.read()?;
                if celeris_location::Reader::bytes(&reader) != object.bytes {
                    return Err(ImportError::file(&file, "was changed since the import began; run it again"));
                }
                Box::new(reader)
            }
            Origin::Stdin => Box::new(io::stdin().lock()),
        };
        let bytes_read = Arc::new(AtomicU64::new(0));
        let mut plain: Box<dyn Read> = Box::new(Counted { inner: opened, bytes: bytes_read.clone() });
        let mut magic = Vec::new();
        plain.by_ref().take(8).read_to_end(&mut magic).map_err(ImportError::io(&file))?;
        let is_gzip = magic.starts_with(&GZIP_MAGIC);
        if magic.starts_with(&PARQUET_MAGIC) {
            return Err(ImportError::file(
                &file,
                "is Parquet, which cannot be read from a pipe or standard input; write it to a file first, and name that",
            ));
        }
        let whole = Cursor::new(magic).chain(plain);
        let mut text: Box<dyn Read> =
            if is_gzip { Box::new(MultiGzDecoder::new(BufReader::new(whole))) } else { Box::new(whole) };
        let mut head = Vec::new();
        text.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(ImportError::io(&file))?;
        if let Some((_, problem)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(ImportError::file(&file, *problem));
        }
        if head.starts_with(&GORSE_DUMP) {
            return Ok(Self { head, rest: text, bytes_read });
        }
        if head.starts_with(&UTF8_MARK) {
            head.drain(..UTF8_MARK.len());
        }
        if head.contains(&0) {
            return Err(ImportError::file(
                &file,
                "is not text; import reads CSV, TSV, other delimited text, JSON lines and Parquet",
            ));
        }
        Ok(Self { head, rest: text, bytes_read })
    }

    /// Whether it is no text, but a binary dump of Gorse.
    pub(super) fn is_gorse_dump(&self) -> bool {
        self.head.starts_with(&GORSE_DUMP)
    }

    /// The first byte that is not white space.
    pub(super) fn first_byte(&self) -> Option<u8> {
        self.head.iter().copied().find(|byte| !byte.is_ascii_whitespace())
    }

    /// The complete lines of the head that are not blank.
    pub(super) fn first_lines(&self) -> impl Iterator<Item = &[u8]> {
        let is_whole = (self.head.len() as u64) < HEAD_BYTES - UTF8_MARK.len() as u64;
        let end = match self.head.iter().rposition(|byte| *byte == b'\n') {
            Some(last_break) if !is_whole => last_break,
            _ => self.head.len(),
        };
        self.head[..end].split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
    }

    /// All of the text.
    pub(super) fn into_reader(self) -> Box<dyn Read> {
        Box::new(Cursor::new(self.head).chain(self.rest))
    }
}

/// Counts the bytes read, for the progress.
struct Counted {
    inner: Box<dyn Read>,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
