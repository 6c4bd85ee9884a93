//! The pairs of files of a folder: `NAME.base` to train on, `NAME.test` to predict.

use std::path::{Path, PathBuf};

use celeris_evaluate::folds::{FOLDS_MAX, Fold};
use celeris_model::Loss;

use super::data::Reader;
use super::stages::Stages;
use crate::Failure;
use crate::import::row_args::RowArgs;

const TRAIN: &str = "base";
const TEST: &str = "test";

/// Reads the pairs of these names, or without names those of [`found`].
///
/// # Errors
/// If there are none, or a file cannot be read.
pub fn read(folder: &Path, names: &[String], rows: &RowArgs, stages: &Stages) -> Result<Vec<Fold>, Failure> {
    let names = if names.is_empty() { found(folder)? } else { names.to_vec() };
    let files: Vec<[PathBuf; 2]> =
        names.iter().map(|name| [TRAIN, TEST].map(|ending| folder.join(format!("{name}.{ending}")))).collect();
    let paths: Vec<&Path> = files.iter().flatten().map(PathBuf::as_path).collect();
    let mut reader = Reader::new(rows, &paths, Loss::Squared, stages)?;
    let mut folds = Vec::new();
    for (name, [train, test]) in names.into_iter().zip(&files) {
        folds.push(Fold { name, train: reader.read(train)?.ratings, test: reader.read(test)?.ratings });
    }
    Ok(folds)
}

/// The names of the pairs in the folder: those that end with a number, or all if there are none.
fn found(folder: &Path) -> Result<Vec<String>, Failure> {
    let problem = |error: &dyn std::fmt::Display| Failure::bad_input(format!("{}: {error}", folder.display()));
    let mut names = Vec::new();
    for entry in folder.read_dir().map_err(|error| problem(&error))? {
        let path = entry.map_err(|error| problem(&error))?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        if let Some(name) = name.filter(|_| path.extension().is_some_and(|ending| ending == TRAIN))
            && path.with_extension(TEST).is_file()
        {
            names.push(name);
        }
    }
    names.sort();
    let is_numbered = |name: &String| name.ends_with(|last: char| last.is_ascii_digit());
    if names.iter().any(is_numbered) {
        names.retain(is_numbered);
    }
    match names.len() {
        0 => {
            Err(problem(&"has no pairs of files such as u1.base and u1.test; --dataset names the folder that has them"))
        }
        count if count > FOLDS_MAX => {
            Err(problem(&format!("has {count} pairs, more than {FOLDS_MAX}; name some by --fold")))
        }
        _ => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn numbered_pairs_come_first_and_files_without_a_partner_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let touch = |name: &str| std::fs::write(folder.path().join(name), "").unwrap();
        let Err(Failure::BadInput(problem)) = found(folder.path()) else { panic!("there are no pairs") };
        assert!(problem.contains("u1.base and u1.test"), "{problem}");
        ["ua.base", "ua.test", "u3.base", "u.data"].into_iter().for_each(touch);
        assert_eq!(found(folder.path()).unwrap(), ["ua"], "u3 has no test file");
        ["u2.base", "u2.test", "u1.base", "u1.test"].into_iter().for_each(touch);
        assert_eq!(found(folder.path()).unwrap(), ["u1", "u2"]);
    }
}
