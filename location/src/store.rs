//! Files in an object store.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode};

use crate::runtime::wait;
use crate::{Entry, LISTED_MAX, LocationError};

/// The name of an object, or what the names of a folder's objects begin with.
#[derive(Clone)]
pub(crate) struct StorePath {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) path: Path,
}

impl StorePath {
    pub(crate) fn child(&self, name: &str) -> Result<Self, String> {
        let path = if self.path.as_ref().is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        Ok(Self { store: self.store.clone(), path: Path::parse(path).map_err(|error| error.to_string())? })
    }

    pub(crate) fn list(&self, name: &str) -> Result<Vec<Entry>, LocationError> {
        let Self { store, path } = self.clone();
        let listed = wait(async move {
            let found = store.list(Some(&path)).take(LISTED_MAX + 1);
            let entry = |meta: object_store::ObjectMeta| {
                let name = meta.location.as_ref().strip_prefix(path.as_ref())?.trim_start_matches('/').to_owned();
                let modified = u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0);
                let modified = SystemTime::UNIX_EPOCH + Duration::from_millis(modified);
                // The object of this very name is no file below it.
                (!name.is_empty()).then_some(Entry { name, bytes: meta.size, modified })
            };
            found.map_ok(entry).try_filter_map(|entry| async { Ok(entry) }).try_collect::<Vec<Entry>>().await
        });
        let entries = done("list", name, listed)?;
        if entries.len() > LISTED_MAX {
            return Err(LocationError::TooMany { place: name.to_owned(), max: LISTED_MAX });
        }
        Ok(entries)
    }

    pub(crate) fn size(&self, name: &str) -> Result<u64, LocationError> {
        let Self { store, path } = self.clone();
        if path.as_ref().is_empty() {
            return Err(LocationError::NotFound { place: name.to_owned() });
        }
        done("read", name, wait(async move { store.head(&path).await.map(|meta| meta.size) }))
    }

    pub(crate) fn modified(&self, name: &str) -> Result<SystemTime, LocationError> {
        let Self { store, path } = self.clone();
        let modified = wait(async move { store.head(&path).await.map(|meta| meta.last_modified.timestamp_millis()) });
        let milliseconds = u64::try_from(done("read", name, modified)?).unwrap_or(0);
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds))
    }

    pub(crate) fn read_range(&self, range: Range<u64>, name: &str) -> Result<Bytes, LocationError> {
        let Self { store, path } = self.clone();
        let start = range.start;
        let read = wait(async move {
            let options = GetOptions::new().with_range(Some(GetRange::Bounded(range)));
            store.get_opts(&path, options).await?.bytes().await
        });
        match done("read", name, read) {
            // Stores refuse a range that begins behind the end, each in its own way.
            Err(LocationError::Store { .. }) if self.size(name).is_ok_and(|size| size <= start) => Ok(Bytes::new()),
            read => read,
        }
    }

    pub(crate) fn put(&self, contents: Bytes, name: &str) -> Result<(), LocationError> {
        let Self { store, path } = self.clone();
        done("write", name, wait(async move { store.put(&path, contents.into()).await.map(drop) }))
    }

    pub(crate) fn put_if_absent(&self, contents: Bytes, name: &str) -> Result<bool, LocationError> {
        let Self { store, path } = self.clone();
        let put = wait(async move {
            match store.put_opts(&path, contents.into(), PutMode::Create.into()).await {
                Ok(_) => Ok(true),
                Err(Error::AlreadyExists { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        });
        done("write", name, put)
    }

    pub(crate) fn delete(&self, name: &str) -> Result<(), LocationError> {
        let Self { store, path } = self.clone();
        let deleted = wait(async move {
            match store.delete(&path).await {
                Err(Error::NotFound { .. }) => Ok(()),
                deleted => deleted,
            }
        });
        done("delete", name, deleted)
    }
}

/// The outcome of a request, with the name of the place in its error.
pub(crate) fn done<T>(
    action: &'static str,
    name: &str,
    outcome: io::Result<Result<T, Error>>,
) -> Result<T, LocationError> {
    let outcome = outcome.map_err(|source| LocationError::io(action, name, source))?;
    outcome.map_err(|source| LocationError::store(action, name, source))
}
