//! The place of backups, and what is in it.
//!
//! | name              | contents                                                                      |
//! |-------------------|-------------------------------------------------------------------------------|
//! | `backups/ID.json` | the manifest of a backup                                                      |
//! | `files/SHA256`    | a file of one backup or several                                               |
//! | `making/ID.json`  | a backup that is being made, or was interrupted: the files that are there     |
//! | `PRUNING`         | while files are removed                                                       |
//!
//! A backup that relies on a file that is there must not lose it to a removal at the same time. So each first says that it
//! is there, and then looks for the other: at least one of two sees the other. A removal gives way, a backup waits.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use celeris_location::{Location, LocationError};
use celeris_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::manifest::{Manifest, is_id, is_sha256};
use crate::Failure;

/// A mark that was not renewed for this time was left by a process that has ended.
const MARK_AGE_MAX: Duration = Duration::from_secs(3600);

/// What other programs cannot have made of a manifest.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;

const PRUNING: &str = "PRUNING";

pub struct Place {
    location: Location,
}

/// A backup that is being made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Making {
    /// The files that are there already, by what the node knows them by.
    pub files: HashMap<String, KnownFile>,
}

/// A file that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFile {
    pub sha256: String,
    pub bytes: u64,
}

impl From<LocationError> for Failure {
    fn from(error: LocationError) -> Self {
        match error {
            LocationError::Invalid { .. } | LocationError::NotFound { .. } => Self::bad_input(error),
            other => Self::other(other),
        }
    }
}

impl Place {
    pub fn open(text: &str) -> Result<Self, Failure> {
        let location = Location::parse(text)?;
        // A folder that was meant for something else would be filled, and pruned.
        if location.as_path().is_some_and(|path| path.join("FORMAT").exists()) {
            return Err(Failure::bad_input(format!("{location} is a data directory; name another place for backups")));
        }
        Ok(Self { location })
    }

    pub fn name(&self) -> String {
        self.location.to_string()
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    /// All backups, the first one first.
    pub fn manifests(&self) -> Result<Vec<Manifest>, Failure> {
        let mut manifests = Vec::new();
        for entry in self.location.child("backups")?.list()? {
            if let Some(id) = entry.name.strip_suffix(".json").filter(|id| is_id(id)) {
                manifests.push(self.manifest(id)?);
            }
        }
        manifests.sort_by(|left, right| (left.at, &left.id).cmp(&(right.at, &right.id)));
        Ok(manifests)
    }

    /// One backup.
    pub fn manifest(&self, id: &str) -> Result<Manifest, Failure> {
        if !is_id(id) {
            return Err(Failure::bad_input(format!("{id:?} is no id of a backup; `celeris backup list` shows them")));
        }
        match self.at_manifest(id)?.read_all(MANIFEST_BYTES_MAX) {
            Ok(text) => {
                Manifest::read(id, &text).map_err(|flaw| Failure::bad_input(format!("{}: {flaw}", self.location)))
            }
            Err(LocationError::NotFound { .. }) => Err(Failure::bad_input(format!(
                "{} has no backup {id}; `celeris backup list` shows those that it has",
                self.location
            ))),
            Err(error) => Err(error.into()),
        }
    }

    pub fn at_manifest(&self, id: &str) -> Result<Location, Failure> {
        Ok(self.location.child(&format!("backups/{id}.json"))?)
    }

    /// The file with these contents.
    pub fn at_file(&self, sha256: &str) -> Result<Location, Failure> {
        Ok(self.location.child(&format!("files/{sha256}"))?)
    }

    /// The files that are there, with their lengths.
    pub fn files(&self) -> Result<HashMap<String, u64>, Failure> {
        let entries = self.location.child("files")?.list()?;
        Ok(entries.into_iter().filter(|entry| is_sha256(&entry.name)).map(|entry| (entry.name, entry.bytes)).collect())
    }

    /// The backups that are being made or were interrupted, each with whether it is over for sure.
    pub fn making(&self) -> Result<Vec<(String, bool)>, Failure> {
        let entries = self.location.child("making")?.list()?;
        Ok(entries.into_iter().map(|entry| (entry.name, is_old(entry.modified))).collect())
    }

    /// The mark of a backup, by the name of its file.
    pub fn at_making(&self, name: &str) -> Result<Location, Failure> {
        Ok(self.location.child("making")?.child(name)?)
    }

    /// What backups that were interrupted have left; nothing if it cannot be read.
    pub fn left_by(&self, name: &str) -> Making {
        let text = self.at_making(name).ok().and_then(|at| at.read_all(MANIFEST_BYTES_MAX).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Whether files are being removed.
    pub fn is_pruned(&self) -> Result<bool, Failure> {
        Ok(self.at_pruning()?.modified()?.is_some_and(|modified| !is_old(modified)))
    }

    pub fn at_pruning(&self) -> Result<Location, Failure> {
        Ok(self.location.child(PRUNING)?)
    }
}

fn is_old(modified: SystemTime) -> bool {
    modified.elapsed().is_ok_and(|age| age > MARK_AGE_MAX)
}

/// A time as people read it.
pub fn shown(time: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(time.0)
        .map_or_else(|_| time.0.to_string(), |time| time.strftime("%FT%TZ").to_string())
}
