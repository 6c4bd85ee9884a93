//! Parquet files that are read by ranges of bytes, such as objects of an object store.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Bytes that are fetched at a time, at least: the headers of pages are a few bytes each.
const BLOCK_BYTES: u64 = 512 << 10;

/// Blocks that are kept, 64 MiB. Columns are read side by side, each from a block of its own.
const BLOCKS_MAX: usize = 128;

/// A file of which any range of bytes can be read.
pub trait Ranges: Send + Sync {
    /// Its length.
    fn bytes(&self) -> u64;

    /// These bytes, all within the length.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&self, range: Range<u64>) -> io::Result<Bytes>;
}

/// Blocks of a file, of which those read last are kept.
#[derive(Clone)]
pub(crate) struct Blocks {
    source: Arc<dyn Ranges>,
    /// The latest at the end.
    kept: Arc<Mutex<VecDeque<(u64, Bytes)>>>,
}

impl Blocks {
    pub(crate) fn new(source: Arc<dyn Ranges>) -> Self {
        Self { source, kept: Arc::default() }
    }

    /// The block of this number.
    fn block(&self, number: u64) -> Result<Bytes> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = kept.iter().position(|(known, _)| *known == number)
            && let Some(found) = kept.remove(index)
        {
            kept.push_back(found.clone());
            return Ok(found.1);
        }
        let start = number * BLOCK_BYTES;
        let bytes = self.fetch(start..(start + BLOCK_BYTES).min(self.source.bytes()))?;
        if kept.len() == BLOCKS_MAX {
            kept.pop_front();
        }
        kept.push_back((number, bytes.clone()));
        Ok(bytes)
    }

    fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.source.read(range.clone()).map_err(|error| ParquetError::External(Box::new(error)))?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(ParquetError::EOF(format!("the bytes {} to {} are not all there", range.start, range.end)));
        }
        Ok(bytes)
    }

    /// Bytes from a position on: those that its block has.
    fn at(&self, position: u64) -> Result<Bytes> {
        let block = self.block(position / BLOCK_BYTES)?;
        let within = usize::try_from(position % BLOCK_BYTES).unwrap_or(usize::MAX);
        Ok(block.slice(within.min(block.len())..))
    }
}

impl Length for Blocks {
    fn len(&self) -> u64 {
        self.source.bytes()
    }
}

impl ChunkReader for Blocks {
    type T = From;

    fn get_read(&self, start: u64) -> Result<From> {
        Ok(From { blocks: self.clone(), position: start })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64).filter(|end| *end <= self.len());
        let end = end.ok_or_else(|| ParquetError::EOF(format!("the file ends before byte {start} + {length}")))?;
        let first = if length == 0 { Bytes::new() } else { self.at(start)? };
        if first.len() >= length {
            return Ok(first.slice(..length));
        }
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&first);
        while bytes.len() < length {
            let more = self.at(start + bytes.len() as u64)?;
            bytes.extend_from_slice(&more[..more.len().min(length - bytes.len())]);
        }
        debug_assert_eq!(start + bytes.len() as u64, end);
        Ok(bytes.into())
    }
}

/// A file from a position on.
pub(crate) struct From {
    blocks: Blocks,
    position: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.blocks.len() {
            return Ok(0);
        }
        let bytes = self.blocks.at(self.position).map_err(io::Error::other)?;
        let read = bytes.len().min(buffer.len());
        buffer[..read].copy_from_slice(&bytes[..read]);
        self.position += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Bytes in memory that count what is read of them.
    struct Counted {
        bytes: Bytes,
        read: AtomicU64,
    }

    impl Ranges for Counted {
        fn bytes(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
            self.read.fetch_add(range.end - range.start, Ordering::Relaxed);
            Ok(self.bytes.slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()))
        }
    }

    #[test]
    fn ranges_across_blocks_are_whole_and_read_once() {
        let bytes: Bytes = (0..BLOCK_BYTES * 2 + 77).map(|number| (number * 7 % 251) as u8).collect::<Vec<u8>>().into();
        let source = Arc::new(Counted { bytes: bytes.clone(), read: AtomicU64::new(0) });
        let blocks = Blocks::new(source.clone());
        let block = usize::try_from(BLOCK_BYTES).unwrap();
        for (start, length) in [(0, 10), (block - 5, 10), (3, 2 * block + 60), (2 * block + 70, 7), (bytes.len(), 0)] {
            assert_eq!(blocks.get_bytes(start as u64, length).unwrap(), bytes[start..start + length]);
        }
        let mut rest = Vec::new();
        blocks.get_read(5).unwrap().read_to_end(&mut rest).unwrap();
        assert_eq!(rest, bytes[5..]);
        assert_eq!(source.read.load(Ordering::Relaxed), bytes.len() as u64);
        assert!(blocks.get_bytes(bytes.len() as u64 - 1, 2).is_err());
        assert!(blocks.get_bytes(u64::MAX, 2).is_err());
    }
}
