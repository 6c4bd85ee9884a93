//! Files as people have them, read without a node.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod gorse;
mod kinds;
mod mistakes;
mod personalize;
mod pipes;
mod reading;

use std::fs;
use std::path::PathBuf;

use celeris_import::check::CheckedObservations;
use celeris_import::error::Fault;
use celeris_import::mapping::Wish;
use celeris_import::{
    BadRow, Checked, DescribedRow, DescribedRows, Finding, ImportError, Input, Observations, Rules, Taken, check, find,
};
use tempfile::TempDir;

/// A folder with files.
struct Folder(TempDir);

impl Folder {
    fn of(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, bytes) in files {
            folder.write(name, bytes);
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn input(&self, name: &str) -> Result<Input, ImportError> {
        Ok(find(&[self.path(name)], Finding::default())?.remove(0))
    }
}

/// Rules that take every time up to the year 9999.
fn rules(map: &[&str]) -> Rules {
    let wishes = map.iter().map(|wish| Wish::parse(wish).unwrap()).collect();
    Rules { wishes, latest: 253_402_300_799_000, ..Rules::default() }
}

fn checked(input: &Input, rules: &Rules) -> Result<(Checked, Vec<BadRow>), ImportError> {
    let mut bad = Vec::new();
    let checked = check(
        input,
        rules,
        &mut |row| {
            bad.push(row.clone());
            Ok(())
        },
        &mut |_, _| {},
    )?;
    Ok((checked, bad))
}

/// The observations of a file without bad rows, as an import would send them.
fn taken(input: &Input, rules: &Rules) -> Vec<Taken> {
    let (checked, bad) = checked(input, rules).unwrap();
    assert_eq!(bad, []);
    let CheckedObservations { repeats, context_kinds, .. } = checked.observations.unwrap();
    let mut rows = Observations::open_again(input, rules, repeats, context_kinds).unwrap();
    std::iter::from_fn(|| rows.advance().unwrap()).collect()
}

fn taken_of(bytes: &[u8], rules: &Rules) -> Vec<Taken> {
    let folder = Folder::of(&[("file.csv", bytes)]);
    taken(&folder.input("file.csv").unwrap(), rules)
}

fn items(input: &Input, rules: &Rules) -> (Vec<DescribedRow>, u64) {
    let (checked, _) = checked(input, rules).unwrap();
    let mut rows = DescribedRows::open(input, rules, checked.content).unwrap();
    let kinds = checked.items.or(checked.users).unwrap().kinds;
    let mut items = Vec::new();
    loop {
        match rows.advance(&kinds) {
            Ok(Some(row)) => items.push(row),
            Ok(None) => return (items, rows.contradictions()),
            Err(Fault::Row(_)) => {}
            Err(Fault::File(error)) => panic!("{error}"),
        }
    }
}
