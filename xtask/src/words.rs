//! Words that comments avoid, each with the plain word in its place.

use std::fs;

use anyhow::{Context, Result};

use crate::manifest::Workspace;
use crate::unused::rust_files;

/// What is avoided, and what to write.
const AVOIDED: [(&str, &str); 15] = [
    ("afresh", "again, or from the start"),
    ("anew", "again"),
    ("asker", "client, or audience"),
    ("catalogue", "catalog"),
    ("catalogues", "catalogs"),
    ("likeness", "similarity"),
    ("somebody", "a client, a user"),
    ("stranger", "anonymous user"),
    ("strangers", "anonymous users"),
    ("sweeps", "iterations"),
    ("thereby", "so"),
    ("told", "notified, passed, reported"),
    ("unasked", "untracked"),
    ("whoever", "the caller, the client"),
    ("whomever", "the caller, the client"),
];

/// One line for each avoided word in a comment of the workspace.
///
/// # Errors
/// A source that cannot be read.
pub fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for member in &workspace.crates {
        for file in rust_files(member)? {
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            findings.extend(
                avoided(&text)
                    .map(|(line, word, plain)| format!("{}:{line}: \"{word}\": write {plain}", file.display())),
            );
        }
    }
    Ok(findings)
}

/// The avoided words in the comments of a source, with their lines from 1.
fn avoided(text: &str) -> impl Iterator<Item = (usize, &'static str, &'static str)> {
    (1..).zip(text.lines()).flat_map(|(number, line)| {
        let comment = comment(line).to_lowercase();
        let found: Vec<_> = comment
            .split(|letter: char| !letter.is_alphanumeric())
            .filter_map(|word| AVOIDED.into_iter().find(|(avoided, _)| *avoided == word))
            .collect();
        found.into_iter().map(move |(word, plain)| (number, word, plain))
    })
}

/// The line comment of a line; the scheme of a URL begins none.
fn comment(line: &str) -> &str {
    let start = line.match_indices("//").find(|(at, _)| !line[..*at].ends_with(':'));
    start.map_or("", |(at, _)| &line[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn avoided_words_are_found_in_comments_only() {
        // The slashes are escaped, so that this file has no such comments.
        let text = "let anew = \"told\"; \u{2f}/ Told again\n\u{2f}/! See http:\u{2f}/a.example\n\
                    let url = \"http:\u{2f}/whoever.example\";\n\u{2f}\u{2f}/ Anew, not renewed.\n";
        let found: Vec<_> = avoided(text).map(|(line, word, _)| (line, word)).collect();
        assert_eq!(found, [(1, "told"), (4, "anew")]);
    }
}
