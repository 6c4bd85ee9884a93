//! Checks the write-ahead log before RocksDB reads it, and distinguishes a torn tail from damage.
//!
//! RocksDB's recovery cannot do that: with a flipped bit in the length of one record in the last
//! block of a file, the record extends past the end, which looks like a write cut short by a crash,
//! and every acknowledged record after it is dropped silently. So the files are checked here, byte
//! by byte, and RocksDB opens only intact ones.
//!
//! The physical format (RocksDB wiki, "Write Ahead Log File Format"): blocks of 32 KiB; in them
//! records of a masked CRC-32C, a 16-bit length and a type, little-endian, then the payload; the
//! checksum covers type and payload, *not* the length. A batch is one `Full` record, or a `First`,
//! any number of `Middle`, and a `Last`. Fewer than seven bytes at the end of a block are padding.
//!
//! State after a crash: every batch is synced before the next one is written, so only the last
//! batch can be torn. It is truncated, or (after a power failure) some of its sectors were never
//! written and read as zeros. Everything else is damage:
//!
//! - anything valid that begins a batch after the first invalid byte, in this file or a later one;
//! - later fragments of the same batch, or a last record that is complete but wrong, without an
//!   unwritten sector;
//! - a last record that is valid with another length.
//!
//! Known limit: if the last batch of all has lost whole sectors or its end, the check cannot know
//! whether it had been acknowledged; it is treated as torn.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crc32c::{crc32c, crc32c_append};

use crate::error::StorageError;

const BLOCK_BYTES: usize = 32 << 10;

/// Checksum, length, type.
const HEADER_BYTES: usize = 7;

/// The recyclable header has the log number in addition. RocksDB is configured not to recycle
/// files.
const RECYCLABLE_HEADER_BYTES: usize = 11;

/// The unit of a disk's atomic writes.
const SECTOR_BYTES: usize = 512;

/// Checks the write-ahead log in `dir` and truncates a torn tail. Returns whether the log was
/// empty, as after a clean stop.
///
/// # Errors
/// [`StorageError::CorruptLog`], with nothing changed; [`StorageError::Io`].
pub(crate) fn check_and_cut(dir: &Path) -> Result<bool, StorageError> {
    let files = wal_files(dir)?;
    let mut is_empty = true;
    for (index, file) in files.iter().enumerate() {
        let data = read(file)?;
        is_empty &= data.is_empty();
        let Some(stop) = first_invalid(&data) else { continue };
        let damage =
            |reason: String| Err(StorageError::CorruptLog { file: file.clone(), offset: Some(stop.at as u64), reason });
        for later in &files[index + 1..] {
            if next_valid(&read(later)?, 0).is_some() {
                return damage(format!("{}, but {} continues after it", stop.reason, later.display()));
            }
        }
        if let Err(reason) = classify_tail(&data, &stop) {
            return damage(reason);
        }
        let bytes = data.len() - stop.batch_start;
        tracing::warn!(file = %file.display(), bytes, reason = stop.reason, "cutting a torn write off the log's end");
        cut(file, stop.batch_start as u64)?;
        break;
    }
    Ok(is_empty)
}

/// The files of the write-ahead log, oldest first.
fn wal_files(dir: &Path) -> Result<Vec<PathBuf>, StorageError> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(StorageError::io("list", dir))? {
        let path = entry.map_err(StorageError::io("list", dir))?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        if let (Some("log"), Some(number)) = (path.extension().and_then(|extension| extension.to_str()), number) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

fn read(file: &Path) -> Result<Vec<u8>, StorageError> {
    fs::read(file).map_err(StorageError::io("read", file))
}

fn cut(path: &Path, length: u64) -> Result<(), StorageError> {
    let file = File::options().write(true).open(path).map_err(StorageError::io("open", path))?;
    file.set_len(length).map_err(StorageError::io("truncate", path))?;
    file.sync_all().map_err(StorageError::io("sync", path))
}

/// The part of a batch in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Full,
    First,
    Middle,
    Last,
}

impl Part {
    /// The part and the header's length, if RocksDB knows the type.
    fn of_type(number: u8) -> Option<(Self, usize)> {
        let header = if matches!(number, 5..=8 | 11 | 131) { RECYCLABLE_HEADER_BYTES } else { HEADER_BYTES };
        let part = match number {
            // Besides whole batches: metadata records, which stand alone.
            1 | 5 | 9 | 10 | 11 | 130 | 131 => Self::Full,
            2 | 6 => Self::First,
            3 | 7 => Self::Middle,
            4 | 8 => Self::Last,
            _ => return None,
        };
        Some((part, header))
    }

    fn begins_batch(self) -> bool {
        matches!(self, Self::Full | Self::First)
    }
}

/// A record with a valid checksum.
struct Physical {
    part: Part,
    bytes: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalid {
    /// The file or block ends before the record.
    CutShort,
    /// Complete but invalid.
    Wrong,
}

/// The record that begins at `at`.
fn physical(data: &[u8], at: usize) -> Result<Physical, Invalid> {
    let rest = &data[at..block_end(data, at)];
    let Some((header, _)) = rest.split_first_chunk::<HEADER_BYTES>() else { return Err(Invalid::CutShort) };
    let [c0, c1, c2, c3, l0, l1, number] = *header;
    let length = usize::from(u16::from_le_bytes([l0, l1]));
    // Checked with the plain header, so that a flipped bit in the type does not make a record look
    // too long.
    if HEADER_BYTES + length > rest.len() {
        return Err(Invalid::CutShort);
    }
    let (part, header_bytes) = Part::of_type(number).ok_or(Invalid::Wrong)?;
    let covered = rest.get(HEADER_BYTES - 1..header_bytes + length).ok_or(Invalid::Wrong)?;
    if mask(crc32c(covered)) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Err(Invalid::Wrong);
    }
    Ok(Physical { part, bytes: at..at + header_bytes + length })
}

fn block_end(data: &[u8], at: usize) -> usize {
    data.len().min((at / BLOCK_BYTES + 1) * BLOCK_BYTES)
}

/// RocksDB masks stored checksums, so that checksums of data that contains checksums stay sound.
fn mask(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The position at which a file becomes invalid.
struct Stop {
    /// The first byte that is not part of a valid record.
    at: usize,
    /// The start of the batch that contains it; everything before is intact.
    batch_start: usize,
    invalid: Invalid,
    reason: &'static str,
}

/// Follows the records from the start of the file.
fn first_invalid(data: &[u8]) -> Option<Stop> {
    let mut at = 0;
    let mut batch_start = 0;
    let mut in_batch = false;
    while at < data.len() {
        let end = block_end(data, at);
        if is_padding(data, at, end) {
            at = end;
            continue;
        }
        let stop = |invalid, reason| Some(Stop { at, batch_start, invalid, reason });
        let record = match physical(data, at) {
            Ok(record) => record,
            Err(Invalid::CutShort) => return stop(Invalid::CutShort, "a record runs past the end"),
            Err(Invalid::Wrong) => return stop(Invalid::Wrong, "a record does not match its checksum"),
        };
        if record.part.begins_batch() == in_batch {
            return stop(Invalid::Wrong, "a part of a batch is missing");
        }
        if record.part == Part::First {
            batch_start = at;
        }
        in_batch = matches!(record.part, Part::First | Part::Middle);
        at = record.bytes.end;
        if !in_batch {
            batch_start = at;
        }
    }
    in_batch.then_some(Stop { at, batch_start, invalid: Invalid::CutShort, reason: "a batch has no end" })
}

/// Whether a block's last bytes are too few for a header.
fn is_padding(data: &[u8], at: usize, end: usize) -> bool {
    let left = BLOCK_BYTES - at % BLOCK_BYTES;
    left < HEADER_BYTES || left < RECYCLABLE_HEADER_BYTES && is_zero(&data[at..end])
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The next valid record at or after `from`, at any byte.
fn next_valid(data: &[u8], from: usize) -> Option<Physical> {
    (from..data.len()).find_map(|at| physical(data, at).ok())
}

/// Classifies the end of the last file, from its first invalid byte on.
///
/// # Errors
/// The reason why it is damage and not a torn write.
fn classify_tail(data: &[u8], stop: &Stop) -> Result<(), String> {
    let mut fragment = None;
    let mut at = stop.at;
    while let Some(record) = next_valid(data, at) {
        if record.part.begins_batch() {
            return Err(format!("{}, but the log continues at byte {}", stop.reason, record.bytes.start));
        }
        at = record.bytes.end;
        fragment.get_or_insert(record.bytes.start);
    }
    if has_unwritten_sector(data, stop.at..fragment.unwrap_or(data.len())) {
        return Ok(());
    }
    if let Some(start) = fragment {
        return Err(format!("{}, but its batch continues at byte {start}", stop.reason));
    }
    match stop.invalid {
        Invalid::Wrong => Err(stop.reason.to_owned()),
        Invalid::CutShort if fits_another_length(data, stop.at) => Err("a record's length is wrong".to_owned()),
        Invalid::CutShort => Ok(()),
    }
}

/// Whether a sector is all zeros in its part within `range`.
fn has_unwritten_sector(data: &[u8], range: Range<usize>) -> bool {
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES);
        if is_zero(&data[at..end]) {
            return true;
        }
        at = end;
    }
    false
}

/// Whether the record at `at` matches its checksum with any other length.
fn fits_another_length(data: &[u8], at: usize) -> bool {
    let rest = &data[at..block_end(data, at)];
    let Some((header, payload)) = rest.split_first_chunk::<HEADER_BYTES>() else { return false };
    let [c0, c1, c2, c3, _, _, number] = *header;
    let expected = u32::from_le_bytes([c0, c1, c2, c3]);
    let mut checksum = crc32c(&[number]);
    mask(checksum) == expected
        || payload.iter().any(|byte| {
            checksum = crc32c_append(checksum, &[*byte]);
            mask(checksum) == expected
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;
    use crate::database::{self, Column, Database, Durability, Recovery, Tuning};
    use celeris_model::wire::Writer;

    const FULL: u8 = 1;
    const FIRST: u8 = 2;
    const MIDDLE: u8 = 3;
    const LAST: u8 = 4;

    fn push(data: &mut Vec<u8>, number: u8, payload: &[u8]) {
        let mut covered = vec![number];
        covered.extend_from_slice(payload);
        data.extend_from_slice(&mask(crc32c(&covered)).to_le_bytes());
        data.extend_from_slice(&u16::try_from(payload.len()).expect("a short payload").to_le_bytes());
        data.extend_from_slice(&covered);
    }

    fn verdict(data: &[u8]) -> Result<usize, String> {
        let Some(stop) = first_invalid(data) else { return Ok(data.len()) };
        classify_tail(data, &stop).map(|()| stop.batch_start)
    }

    /// The write-ahead log of these batches, in the format above.
    fn log_of(batches: &[Vec<u8>]) -> Vec<u8> {
        let mut data = Vec::new();
        for batch in batches {
            let mut rest = &batch[..];
            let mut is_first = true;
            while is_first || !rest.is_empty() {
                let left = BLOCK_BYTES - data.len() % BLOCK_BYTES;
                let (part, after) = rest.split_at(rest.len().min(left - HEADER_BYTES));
                let number = match (is_first, after.is_empty()) {
                    (true, true) => FULL,
                    (true, false) => FIRST,
                    (false, false) => MIDDLE,
                    (false, true) => LAST,
                };
                push(&mut data, number, part);
                (rest, is_first) = (after, false);
            }
        }
        data
    }

    /// A write of one key and value in RocksDB's log format: sequence, count, tag, column family,
    /// key, value.
    fn batch_of(sequence: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        const PUT_INTO_COLUMN_FAMILY: u8 = 5;
        const FIRST_COLUMN_FAMILY: u64 = 1;
        let mut batch = Writer([&sequence.to_le_bytes()[..], &1_u32.to_le_bytes(), &[PUT_INTO_COLUMN_FAMILY]].concat());
        batch.varint(FIRST_COLUMN_FAMILY);
        for bytes in [key, value] {
            batch.varint(bytes.len() as u64);
            batch.0.extend_from_slice(bytes);
        }
        batch.0
    }

    #[test]
    fn the_format_equals_that_of_the_linked_rocksdb() {
        // If this fails after an upgrade, the format has changed, and this check must be changed
        // first.
        let dir = tempfile::tempdir().unwrap();
        let cache = database::block_cache(1 << 20);
        let tuning =
            Tuning { recovery: Recovery::Refuse, cache: &cache, write_buffer_bytes: 1 << 20, wal_bytes_max: 1 << 20 };
        let database = Database::open(dir.path(), Column::MAIN, &tuning).unwrap();
        let mut batches = Vec::new();
        for length in [5, 3 * BLOCK_BYTES, 1] {
            let value = vec![b'v'; length];
            let mut batch = database.batch();
            batch.put(Column::Log, b"key", &value);
            batch.commit(Durability::Synced).unwrap();
            batches.push(batch_of(database.latest_write(), b"key", &value));
        }
        let files = wal_files(dir.path()).unwrap();
        let written = files.iter().map(|file| read(file).unwrap()).find(|data| !data.is_empty()).unwrap();
        assert!(written == log_of(&batches), "the write-ahead log has another format than the one that is checked");
        assert_eq!(verdict(&written), Ok(written.len()));
    }

    /// A complete batch, then one over three blocks; returns the start of the second.
    fn two_batches() -> (Vec<u8>, usize) {
        let mut data = Vec::new();
        push(&mut data, FULL, &[7; 100]);
        let start = data.len();
        push(&mut data, FIRST, &vec![1; BLOCK_BYTES - start - HEADER_BYTES]);
        push(&mut data, MIDDLE, &[2; BLOCK_BYTES - HEADER_BYTES]);
        push(&mut data, LAST, &[3; 2000]);
        (data, start)
    }

    #[test]
    fn a_batch_over_several_blocks_is_intact_or_truncated_as_one() {
        let (data, start) = two_batches();
        assert_eq!(verdict(&data), Ok(data.len()));
        for length in [start + 3, start + 500, BLOCK_BYTES, BLOCK_BYTES + 9, 2 * BLOCK_BYTES, data.len() - 1] {
            assert_eq!(verdict(&data[..length]), Ok(start), "cut to {length}");
        }
    }

    #[test]
    fn unwritten_sectors_of_the_last_batch_are_torn_and_flipped_bits_are_not() {
        let (data, start) = two_batches();
        for hole in [1024..1536, BLOCK_BYTES..BLOCK_BYTES + 4096, 2 * BLOCK_BYTES..2 * BLOCK_BYTES + 512] {
            let mut torn = data.clone();
            torn[hole.clone()].fill(0);
            assert_eq!(verdict(&torn), Ok(start), "hole {hole:?}");
        }
        for byte in [0, 5, 50, start, start + 5, start + 6, 1100, BLOCK_BYTES + 4, BLOCK_BYTES + 6, data.len() - 2001] {
            for bit in 0..8 {
                let mut damaged = data.clone();
                damaged[byte] ^= 1 << bit;
                assert!(verdict(&damaged).is_err(), "byte {byte}, bit {bit}");
            }
        }
    }

    #[test]
    fn an_unwritten_sector_before_a_later_batch_is_damage() {
        let (mut data, _) = two_batches();
        push(&mut data, FULL, &[9; 10]);
        assert_eq!(verdict(&data), Ok(data.len()));
        data[1024..1536].fill(0);
        assert!(verdict(&data).is_err());
    }

    #[test]
    fn a_missing_fragment_is_damage() {
        let (data, start) = two_batches();
        let mut damaged = data[..start].to_vec();
        push(&mut damaged, LAST, &[3; 2000]);
        assert!(verdict(&damaged).is_err());
        let mut damaged = data[..start].to_vec();
        push(&mut damaged, FIRST, &[3; 20]);
        push(&mut damaged, FULL, &[3; 20]);
        assert!(verdict(&damaged).is_err());
    }
}
