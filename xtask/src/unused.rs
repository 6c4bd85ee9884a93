//! Finds declared dependencies that no source file uses or no crate declares.
//!
//! It is a text search, not a compiler: it counts names in dead code as uses, but it needs no
//! nightly toolchain, no build and no other tool, and it has no false positives.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::manifest::{Crate, Workspace};

/// The places of a crate's sources.
const SOURCES: [&str; 5] = ["src", "tests", "benches", "examples", "build.rs"];

/// Returns one line for each dependency whose name occurs in no source of its crate, and for each
/// workspace dependency that no crate declares.
///
/// # Errors
/// If a source cannot be read.
pub fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let is_taken = |package: &String| {
        workspace.crates.iter().flat_map(|member| &member.dependencies).any(|dependency| dependency.package == *package)
    };
    let untaken = workspace.shared.iter().filter(|package| !is_taken(package));
    let mut findings: Vec<String> =
        untaken.map(|package| format!("workspace -> {package}: declared, but no crate takes it; remove it")).collect();
    for member in &workspace.crates {
        let mut missing: Vec<_> = member.dependencies.iter().collect();
        for file in rust_files(member)? {
            if missing.is_empty() {
                break;
            }
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            missing.retain(|dependency| !names(&text, &dependency.import));
        }
        findings.extend(missing.into_iter().map(|dependency| {
            format!("{} -> {}: declared, but no source names it; remove it", member.name, dependency.package)
        }));
    }
    Ok(findings)
}

/// The Rust files of a crate.
///
/// # Errors
/// If a folder cannot be listed.
pub fn rust_files(member: &Crate) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for place in SOURCES {
        collect(&member.folder.join(place), &mut files)?;
    }
    Ok(files)
}

/// Adds the Rust files at or below `place`, which may not exist.
fn collect(place: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if place.is_dir() {
        for entry in fs::read_dir(place).with_context(|| format!("cannot list {}", place.display()))? {
            collect(&entry?.path(), files)?;
        }
    } else if place.is_file() && place.extension().is_some_and(|extension| extension == "rs") {
        files.push(place.to_path_buf());
    }
    Ok(())
}

/// Whether `text` contains `import` as a whole word outside of line comments.
fn names(text: &str, import: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    text.lines().filter(|line| !line.trim_start().starts_with("//")).any(|line| {
        line.match_indices(import).any(|(start, _)| {
            let before = line[..start].chars().next_back();
            let after = line[start + import.len()..].chars().next();
            !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
        })
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;
    use crate::manifest::Dependency;

    fn dependency(package: &str, import: &str) -> Dependency {
        Dependency { package: package.to_owned(), import: import.to_owned() }
    }

    #[test]
    fn a_name_counts_as_a_whole_word_outside_comments() {
        assert!(names("use serde::Deserialize;", "serde"));
        assert!(names("let x = serde_json::json!({});\n#[derive(serde::Serialize)]", "serde"));
        assert!(!names("let x = serde_json::json!({});", "serde"));
        assert!(!names("    // serde would do this\n/// [`serde`]\nfn deserde() {}", "serde"));
    }

    #[test]
    fn only_dependencies_that_no_source_names_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("src/deep")).unwrap();
        fs::create_dir_all(folder.path().join("tests")).unwrap();
        fs::write(folder.path().join("src/lib.rs"), "mod deep;\nuse used_here::Thing;\n").unwrap();
        fs::write(folder.path().join("src/deep/mod.rs"), "use new_name::Other;\n").unwrap();
        fs::write(folder.path().join("tests/it.rs"), "fn f() { test_only::run() }\n").unwrap();
        fs::write(folder.path().join("build.rs"), "fn main() { builder::build() }\n").unwrap();
        fs::write(folder.path().join("src/notes.md"), "unused_one\n").unwrap();
        let member = Crate {
            name: "attic".to_owned(),
            folder: folder.path().to_path_buf(),
            dependencies: vec![
                dependency("builder", "builder"),
                dependency("old-name", "new_name"),
                dependency("test-only", "test_only"),
                dependency("unused-one", "unused_one"),
                dependency("used-here", "used_here"),
            ],
        };
        let shared = ["builder", "left-over"].map(str::to_owned).into();
        let findings = check(&Workspace { root: folder.path().to_path_buf(), crates: vec![member], shared }).unwrap();
        let expected = [
            "workspace -> left-over: declared, but no crate takes it; remove it",
            "attic -> unused-one: declared, but no source names it; remove it",
        ];
        assert_eq!(findings, expected);
    }
}
