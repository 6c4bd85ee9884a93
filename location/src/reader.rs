//! Reading a file from its beginning.

use std::fs::File;
use std::io::{self, Read};

use bytes::{Buf as _, Bytes};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use object_store::{Error, GetOptions, GetRange};

use crate::LocationError;
use crate::runtime::wait;
use crate::store::{StorePath, done};

/// Chunks of the network are gathered to this many bytes, since each hand-over between threads costs as much as reading
/// some kilobytes.
const GATHERED_BYTES: usize = 256 << 10;

/// How often in a row a transfer may break off without a byte in between.
const RESUMED_MAX: u32 = 5;

type Chunks = BoxStream<'static, Result<Bytes, Error>>;

/// A file that is being read.
pub struct Reader {
    from: From,
    bytes: u64,
}

enum From {
    Disk(File),
    Store(Box<Transfer>),
}

/// An object on its way.
struct Transfer {
    path: StorePath,
    name: String,
    /// Of the object that was begun with: another one is not continued with.
    e_tag: Option<String>,
    /// Until it broke off.
    chunks: Option<Chunks>,
    received: Bytes,
    /// Bytes that were received.
    position: u64,
    bytes: u64,
    resumed: u32,
}

impl Reader {
    pub(crate) fn of_file(file: File, name: &str) -> Result<Self, LocationError> {
        let bytes = file.metadata().map_err(|source| LocationError::io("read", name, source))?.len();
        Ok(Self { from: From::Disk(file), bytes })
    }

    pub(crate) fn of_object(path: StorePath, name: &str) -> Result<Self, LocationError> {
        let StorePath { store, path: of_object } = path.clone();
        let begun = wait(async move { store.get_opts(&of_object, GetOptions::new()).await });
        let begun = done("read", name, begun)?;
        let bytes = begun.meta.size;
        let transfer = Transfer {
            path,
            name: name.to_owned(),
            e_tag: begun.meta.e_tag.clone(),
            chunks: Some(begun.into_stream()),
            received: Bytes::new(),
            position: 0,
            bytes,
            resumed: 0,
        };
        Ok(Self { from: From::Store(Box::new(transfer)), bytes })
    }

    /// The length of the file when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.from {
            From::Disk(file) => file.read(buffer),
            From::Store(transfer) => transfer.read(buffer),
        }
    }
}

impl Transfer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.received.is_empty() && self.position < self.bytes {
            self.receive()?;
        }
        let read = buffer.len().min(self.received.len());
        self.received.split_to(read).copy_to_slice(&mut buffer[..read]);
        Ok(read)
    }

    /// Receives the next chunks, over a new request if the last one broke off.
    fn receive(&mut self) -> Result<(), LocationError> {
        let chunks = match self.chunks.take() {
            Some(chunks) => chunks,
            None => self.resume()?,
        };
        let failed = |source| LocationError::io("read", &self.name, source);
        let (chunks, gathered, ended) = wait(gather(chunks)).map_err(failed)?;
        if !gathered.is_empty() {
            self.resumed = 0;
        }
        self.position += gathered.len() as u64;
        self.received = gathered;
        if self.position > self.bytes {
            return Err(LocationError::invalid(&self.name, "the store sent more bytes than the file has"));
        }
        match ended {
            None => self.chunks = Some(chunks),
            Some(Err(error)) if self.resumed >= RESUMED_MAX => {
                return Err(LocationError::store("read", &self.name, error));
            }
            // Also one that ended too early: what is missing is asked for.
            Some(_) if self.resumed >= RESUMED_MAX => {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            Some(_) => self.resumed += 1,
        }
        Ok(())
    }

    fn resume(&self) -> Result<Chunks, LocationError> {
        let StorePath { store, path } = self.path.clone();
        let range = (self.position > 0).then_some(GetRange::Offset(self.position));
        let options = GetOptions::new().with_range(range).with_if_match(self.e_tag.clone());
        let resumed = done("read", &self.name, wait(async move { store.get_opts(&path, options).await }))?;
        if resumed.meta.size != self.bytes {
            return Err(LocationError::invalid(&self.name, "it was changed while it was read"));
        }
        Ok(resumed.into_stream())
    }
}

/// The next bytes, and how the stream ended if it did.
async fn gather(mut chunks: Chunks) -> (Chunks, Bytes, Option<Result<(), Error>>) {
    let mut gathered: Vec<u8> = Vec::new();
    while gathered.len() < GATHERED_BYTES {
        match chunks.next().await {
            Some(Ok(chunk)) => gathered.extend_from_slice(&chunk),
            Some(Err(error)) => return (chunks, gathered.into(), Some(Err(error))),
            None => return (chunks, gathered.into(), Some(Ok(()))),
        }
    }
    (chunks, gathered.into(), None)
}
