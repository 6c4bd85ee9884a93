//! Writing a file that appears whole or not at all.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::mem;

use object_store::{Error, MultipartUpload, ObjectStoreExt as _};

use crate::LocationError;
use crate::folder::FolderFile;
use crate::runtime::{Running, handle, wait};
use crate::store::{StorePath, done};

/// The size of a part of an upload, the same for all: some stores demand that. S3 takes 10 000 parts, so a file has at
/// most 160 GB.
const PART_BYTES: usize = 16 << 20;

/// Parts that are sent at a time. With the one that is filled, they bound the memory of a writer.
const PARTS_SENT: usize = 3;

/// A file that is being written. Dropped before [`Self::finish`], it leaves nothing.
pub struct Writer(Into);

enum Into {
    Disk(FolderFile),
    Store(Box<Upload>),
}

struct Upload {
    path: StorePath,
    name: String,
    part: Vec<u8>,
    /// From the second part on.
    upload: Option<Box<dyn MultipartUpload>>,
    sent: VecDeque<Running<Result<(), Error>>>,
}

impl Writer {
    pub(crate) fn of_file(file: FolderFile) -> Self {
        Self(Into::Disk(file))
    }

    pub(crate) fn of_object(path: StorePath, name: &str) -> Self {
        let upload = Upload { path, name: name.to_owned(), part: Vec::new(), upload: None, sent: VecDeque::new() };
        Self(Into::Store(Box::new(upload)))
    }

    /// Makes the file appear, durable, in the place of one that was there.
    ///
    /// # Errors
    /// That the place cannot be written; it is as it was before then.
    pub fn finish(self) -> Result<(), LocationError> {
        match self.0 {
            Into::Disk(file) => file.finish(),
            Into::Store(mut upload) => upload.finish(),
        }
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Into::Disk(file) => file.write(bytes),
            Into::Store(upload) => Ok(upload.write(bytes)?),
        }
    }

    /// What is written becomes durable with [`Self::finish`] only.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, LocationError> {
        if self.part.len() == PART_BYTES {
            self.send_part()?;
        }
        let taken = bytes.len().min(PART_BYTES - self.part.len());
        self.part.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn send_part(&mut self) -> Result<(), LocationError> {
        if self.upload.is_none() {
            let StorePath { store, path } = self.path.clone();
            let begun = wait(async move { store.put_multipart(&path).await });
            self.upload = Some(done("write", &self.name, begun)?);
        }
        if self.sent.len() >= PARTS_SENT {
            self.wait_for_part()?;
        }
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let part = upload.put_part(mem::take(&mut self.part).into());
        self.sent.push_back(Running::start(part).map_err(|source| LocationError::io("write", &self.name, source))?);
        Ok(())
    }

    fn wait_for_part(&mut self) -> Result<(), LocationError> {
        match self.sent.pop_front() {
            Some(sent) => done("write", &self.name, sent.wait()),
            None => Ok(()),
        }
    }

    fn finish(&mut self) -> Result<(), LocationError> {
        if self.upload.is_none() {
            return self.path.put(mem::take(&mut self.part).into(), &self.name);
        }
        self.send_part()?;
        while !self.sent.is_empty() {
            self.wait_for_part()?;
        }
        let Some(mut upload) = self.upload.take() else { return Ok(()) };
        let completed = wait(async move {
            match upload.complete().await {
                Ok(_) => Ok(()),
                Err(error) => {
                    // What it leaves takes room; the store's own rules remove it in the end.
                    let _ = upload.abort().await;
                    Err(error)
                }
            }
        });
        done("write", &self.name, completed)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut upload) = self.upload.take() else { return };
        let sent = mem::take(&mut self.sent);
        if let Ok(handle) = handle() {
            handle.spawn(async move {
                // Best effort, as at the end.
                let _ = upload.abort().await;
            });
        }
        drop(sent);
    }
}
