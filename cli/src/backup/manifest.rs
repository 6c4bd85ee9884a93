//! What a backup says of itself.

use std::collections::HashSet;
use std::path::{Component, Path};

use celeris_model::Timestamp;
use celeris_storage::Position;
use serde::{Deserialize, Serialize};

/// The form of the manifests that this version writes, and the only one that it reads.
const FORMAT: u32 = 1;

/// Files of one backup.
const FILES_MAX: usize = 1_000_000;

/// A backup: written last, so that one that has it is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    format: u32,
    pub id: String,
    /// The time whose state it has.
    pub at: Timestamp,
    /// The version of the node.
    pub celeris: String,
    /// The same for all backups of a node, and of all nodes of a cluster.
    pub store: String,
    pub cluster: Option<OfCluster>,
    pub records: u64,
    pub versions: usize,
    pub missing: Vec<String>,
    /// The last record of each partition of each stream.
    pub position: Position,
    pub files: Vec<StoredFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfCluster {
    pub name: String,
    pub incarnation: u64,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Its path in the data directory.
    pub name: String,
    pub bytes: u64,
    /// Of its contents, under which they are stored.
    pub sha256: String,
    /// By which the node knows contents that never change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_by: Option<String>,
}

/// A copy that a node holds, as it describes it.
#[derive(Debug, Clone, Deserialize)]
pub struct Copy {
    pub id: String,
    at: Timestamp,
    celeris: String,
    pub store: String,
    cluster: Option<OfCluster>,
    pub records: u64,
    pub position: Position,
    versions: usize,
    pub missing: Vec<String>,
    pub files: Vec<CopyFile>,
}

/// A file of a copy.
#[derive(Debug, Clone, Deserialize)]
pub struct CopyFile {
    pub name: String,
    pub bytes: u64,
    pub known_by: Option<String>,
}

impl Manifest {
    /// The manifest of a copy with these files.
    pub fn of(copy: &Copy, files: Vec<StoredFile>) -> Self {
        let Copy { id, at, celeris, store, cluster, records, position, versions, missing, .. } = copy.clone();
        Self { format: FORMAT, id, at, celeris, store, cluster, records, versions, missing, position, files }
    }

    /// Reads a manifest, and checks all that a restore relies on: nothing before has.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(id: &str, text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let unreadable = |error: serde_json::Error| format!("the manifest of backup {id} is damaged: {error}");
        let Form { format } = serde_json::from_slice(text).map_err(unreadable)?;
        if format != FORMAT {
            return Err(format!(
                "backup {id} has format {format}; this version reads {FORMAT}; use the one that wrote it"
            ));
        }
        let manifest: Self = serde_json::from_slice(text).map_err(unreadable)?;
        let flaw = |flaw: String| Err(format!("the manifest of backup {id} is damaged: {flaw}"));
        if manifest.id != id {
            return flaw(format!("it is that of {:?}", manifest.id));
        }
        if manifest.files.len() > FILES_MAX {
            return flaw(format!("it has more than {FILES_MAX} files"));
        }
        let mut names = HashSet::new();
        for file in &manifest.files {
            if !is_of_data_dir(&file.name) || !names.insert(&file.name) {
                return flaw(format!("{:?} is no file of a data directory, or is there twice", file.name));
            }
            if !is_sha256(&file.sha256) {
                return flaw(format!("{} has no checksum", file.name));
            }
        }
        if !names.contains(&"FORMAT".to_owned()) {
            return flaw("it has no file FORMAT".to_owned());
        }
        Ok(manifest)
    }

    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are valid JSON")
    }

    /// The size of its files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// Whether a text is a checksum, which is a part of a path.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Whether a text may be the id of a backup, which is a part of a path.
pub fn is_id(text: &str) -> bool {
    let is_of_id = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    (1..=64).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_of_id)
}

/// Whether a file of this name is one that a data directory is restored from; none leads out of it.
pub fn is_of_data_dir(name: &str) -> bool {
    let parts: Vec<Component> = Path::new(name).components().collect();
    let is_plain = parts.iter().all(|part| matches!(part, Component::Normal(_))) && !name.contains(['\0', '\\']);
    let first = name.split('/').next().unwrap_or_default();
    let depth = match first {
        "FORMAT" => 1,
        "db" | "decisions" | "objects" => 2,
        "versions" => 4,
        _ => return false,
    };
    is_plain && parts.len() == depth && name.split('/').count() == depth
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn text(files: &str) -> String {
        format!(
            r#"{{"format":1,"id":"b1","at":1700000000000,"celeris":"0.1.0","store":"aa","cluster":null,"records":0,"versions":0,"missing":[],"position":{{}},"files":[{files}]}}"#
        )
    }

    #[test]
    fn manifests_keep_their_stored_format() {
        let sha256 = "0".repeat(64);
        let format = format!(r#"{{"name":"FORMAT","bytes":3,"sha256":"{sha256}"}}"#);
        let text = text(&format!(r#"{format},{{"name":"db/1.sst","bytes":4,"sha256":"{sha256}","known_by":"x"}}"#));
        let manifest = Manifest::read("b1", text.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(manifest.text()).unwrap(), text);
        assert_eq!(manifest.bytes(), 7);
    }

    #[test]
    fn manifests_that_lead_elsewhere_are_refused() {
        let sha256 = "0".repeat(64);
        for name in [
            "../x",
            "/etc/passwd",
            "db/../x",
            "db",
            "db/a/b",
            "versions/a/1/../x",
            "LOCK",
            "db//x",
            "./FORMAT",
            "db/..",
        ] {
            let files = format!(
                r#"{{"name":"FORMAT","bytes":3,"sha256":"{sha256}"}},{{"name":"{name}","bytes":3,"sha256":"{sha256}"}}"#
            );
            assert!(Manifest::read("b1", text(&files).as_bytes()).is_err(), "{name}");
        }
        let file = |sha256: &str| format!(r#"{{"name":"FORMAT","bytes":3,"sha256":"{sha256}"}}"#);
        assert!(Manifest::read("b1", text(&file("../../x")).as_bytes()).is_err());
        let whole = text(&file(&sha256));
        assert!(Manifest::read("b2", whole.as_bytes()).is_err(), "it is another backup");
        assert!(Manifest::read("b1", whole.replace("\"format\":1", "\"format\":2").as_bytes()).is_err());
        assert!(Manifest::read("b1", &whole.as_bytes()[..whole.len() - 5]).is_err());
        assert!(Manifest::read("b1", text("").as_bytes()).is_err(), "there is no FORMAT");
    }
}
