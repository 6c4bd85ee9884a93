//! External trainers for tests: shell scripts that produce prepared outputs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::builder::{Float32Builder, ListBuilder};
use arrow_array::{ArrayRef, Float32Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A trainer that copies a prepared folder to the output folder of its job.
const COPYING: &str = r#"
prepared=$1
while [ "$1" != --job ]; do shift; done
folder=$(dirname "$2")
echo '{"phase": "training", "fraction": 0.5}'
cp "$prepared"/* "$folder/raw/"
"#;

/// Item features in the format of a trainer's output.
#[must_use]
pub fn item_features(items: &[String], features: &[Vec<f32>]) -> RecordBatch {
    let mut lists = ListBuilder::new(Float32Builder::new());
    for row in features {
        lists.values().append_slice(row);
        lists.append(true);
    }
    table(vec![
        ("item", Arc::new(StringArray::from(items.to_vec()))),
        ("offset", Arc::new(Float32Array::from(vec![0.0; items.len()]))),
        ("features", Arc::new(lists.finish())),
    ])
}

/// A table of these columns.
///
/// # Panics
/// If they differ in length.
#[must_use]
pub fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

/// Writes a Parquet file.
///
/// # Panics
/// If writing fails.
pub fn write_parquet(path: &Path, rows: &RecordBatch) {
    let file = fs::File::create(path).expect("the folder is there");
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).expect("a plain schema");
    writer.write(rows).expect("the disk has room");
    writer.close().expect("the disk has room");
}

/// Writes the `_SUCCESS` file of an output folder, with the number of rows and the SHA-256 of each
/// file.
///
/// # Panics
/// If a file does not exist.
pub fn write_success(folder: &Path, rows: &[(&str, usize)]) {
    let files: BTreeMap<&str, Value> = rows
        .iter()
        .map(|(name, rows)| {
            let digest = Sha256::digest(fs::read(folder.join(name)).expect("the file was written"));
            let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            (*name, json!({"rows": rows, "sha256": sha256}))
        })
        .collect();
    fs::write(folder.join("_SUCCESS"), json!({"format": 1, "files": files}).to_string()).expect("the folder is there");
}

/// The scripts and prepared outputs of a test's trainers, in one folder.
pub struct Trainers {
    folder: PathBuf,
}

impl Trainers {
    /// Creates `folder` for scripts and prepared outputs.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        fs::create_dir_all(&folder).expect("the folder can be made");
        fs::write(folder.join("copy.sh"), COPYING).expect("the folder is there");
        Self { folder }
    }

    /// The command line of a trainer whose output is the files that `prepare` writes.
    ///
    /// # Panics
    /// If the folder cannot be created.
    pub fn copying(&self, name: &str, prepare: impl FnOnce(&Path)) -> Vec<String> {
        let prepared = self.folder.join(name);
        fs::create_dir_all(&prepared).expect("the folder can be made");
        prepare(&prepared);
        with_job(&["sh", &text(&self.folder.join("copy.sh")), &text(&prepared)])
    }

    /// The command line of a trainer that is a shell script; `$1` is `--job`, `$2` the job file.
    ///
    /// # Panics
    /// If the script cannot be written.
    #[must_use]
    pub fn script(&self, name: &str, text_of_script: &str) -> Vec<String> {
        let script = self.folder.join(format!("{name}.sh"));
        fs::write(&script, text_of_script).expect("the folder is there");
        with_job(&["sh", &text(&script)])
    }
}

/// A command line of these words and the job file.
#[must_use]
pub fn with_job(words: &[&str]) -> Vec<String> {
    words.iter().chain(&["--job", "{job}"]).map(|word| (*word).to_owned()).collect()
}

/// The section of a node's configuration that defines these trainers.
#[must_use]
pub fn section<'a>(trainers: impl IntoIterator<Item = (&'a str, &'a Vec<String>)>) -> String {
    let lines = trainers.into_iter().map(|(name, command)| format!("{name} = {}\n", json!(command)));
    std::iter::once("[training.trainers]\n".to_owned()).chain(lines).collect()
}

fn text(path: &Path) -> String {
    path.to_str().expect("temporary folders have plain names").to_owned()
}

/// Whether a process whose command line contains `words` runs in a folder below `below`.
///
/// # Panics
/// If `/proc` cannot be read.
#[must_use]
pub fn runs(below: &Path, words: &str) -> bool {
    fs::read_dir("/proc").expect("Linux has /proc").flatten().any(|process| {
        let folder = fs::read_link(process.path().join("cwd")).unwrap_or_default();
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        folder.starts_with(below) && String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
    })
}

/// The first Python that has these modules: `CELERIS_PYTHON`, the Python of the peers, or
/// `python3`.
#[must_use]
pub fn python(modules: &[&str]) -> Option<String> {
    let peers = std::env::var("CELERIS_PEERS").ok().or_else(|| {
        let home = std::env::var("HOME").ok()?;
        Some(format!("{home}/.cache/celeris/peers"))
    });
    let named = std::env::var("CELERIS_PYTHON").ok();
    let candidates = [named, peers.map(|peers| format!("{peers}/bin/python")), Some("python3".to_owned())];
    let script = modules.iter().map(|module| format!("import {module}\n")).collect::<String>();
    candidates
        .into_iter()
        .flatten()
        .find(|python| Command::new(python).args(["-c", &script]).output().is_ok_and(|found| found.status.success()))
}
