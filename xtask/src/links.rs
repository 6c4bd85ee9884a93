//! Relative links of Markdown pages, and paths below `docs/` in sources.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// Extensions of the sources whose comments and strings name documents.
const SOURCES: [&str; 6] = ["html", "js", "py", "rs", "sh", "toml"];

/// Returns one line for each link to a file or heading that does not exist.
///
/// # Errors
/// If a file below `root` cannot be read.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut texts = BTreeMap::new();
    for file in &files {
        let path = file.strip_prefix(root).context("a file lies outside of the workspace")?.to_path_buf();
        texts.insert(path, fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    let mut findings = Vec::new();
    for (path, text) in &texts {
        if is_page(path) {
            let broken = links(text).filter_map(|(line, link)| {
                problem(root, &texts, path, link).map(|problem| format!("{}:{line}: {link}: {problem}", path.display()))
            });
            findings.extend(broken);
        } else {
            let missing = named_documents(text).filter(|(_, name)| !root.join(name).exists());
            findings.extend(missing.map(|(line, name)| format!("{}:{line}: {name}: no such file", path.display())));
        }
    }
    Ok(findings)
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// Adds the pages and sources at or below `place`, except in hidden folders and those of compiled
/// code and packages.
fn collect(place: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(place).with_context(|| format!("cannot list {}", place.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
                collect(&path, files)?;
            }
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| e == "md" || SOURCES.contains(&e)) {
            files.push(path);
        }
    }
    Ok(())
}

/// Why a relative link of `page` leads nowhere, if it does.
fn problem(root: &Path, texts: &BTreeMap<PathBuf, String>, page: &Path, link: &str) -> Option<String> {
    let is_absolute = link.starts_with('/') || link.split_once(':').is_some_and(|(scheme, _)| !scheme.contains('/'));
    if is_absolute {
        return None;
    }
    let (file, heading) = link.split_once('#').map_or((link, None), |(file, heading)| (file, Some(heading)));
    let target = if file.is_empty() { page.to_path_buf() } else { resolved(&page.with_file_name(file)) };
    if !root.join(&target).exists() {
        return Some("no such file".to_owned());
    }
    let heading = heading?;
    match texts.get(&target).filter(|_| is_page(&target)) {
        Some(text) if anchors(text).contains(&heading.to_owned()) => None,
        Some(_) => Some(format!("no heading \"{heading}\" in {}", target.display())),
        None => Some(format!("{} has no headings", target.display())),
    }
}

/// A path without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            Component::CurDir => {}
            part => found.push(part),
        }
    }
    found
}

/// The lines of a page outside of fenced code, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of a page's inline links and images, outside of code.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        // Every second part between backticks is code; a link's text may contain some.
        let targets = line.match_indices("](").filter_map(|(at, opening)| {
            let is_code = line[..at].matches('`').count() % 2 == 1;
            let rest = &line[at + opening.len()..];
            rest.find(')').filter(|_| !is_code).map(|end| &rest[..end])
        });
        targets.map(move |target| (number, target)).collect::<Vec<_>>()
    })
}

/// The anchors of a page's headings, by GitHub's rule: lower case, hyphens for spaces, no
/// punctuation, and a number for a repetition.
fn anchors(text: &str) -> Vec<String> {
    let mut seen = HashMap::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    let anchor = |title: &str| {
        let kept = title.trim().to_lowercase().replace(' ', "-");
        let anchor: String = kept.chars().filter(|c| c.is_alphanumeric() || ['-', '_'].contains(c)).collect();
        let repetitions = seen.entry(anchor.clone()).or_insert(0);
        *repetitions += 1;
        if *repetitions == 1 { anchor } else { format!("{anchor}-{}", *repetitions - 1) }
    };
    headings.map(anchor).collect()
}

/// The paths below `docs/` that a source names, with a file's extension.
fn named_documents(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).flat_map(|(number, line)| {
        let names = line.match_indices("docs/").filter_map(|(at, _)| {
            let rest = &line[at..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && !"/_-.".contains(c)).unwrap_or(rest.len());
            let name = rest[..end].trim_end_matches('.');
            let is_document = [".md", ".py", ".png", ".svg"].iter().any(|extension| name.ends_with(extension));
            let is_path = !line[..at].ends_with(|c: char| c.is_alphanumeric() || "-_".contains(c));
            (is_document && is_path).then_some(name)
        });
        names.map(move |name| (number, name)).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn links_to_missing_files_and_headings_are_found() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let page = "# A page\n[ok](deep/b.md#how-it-works-1) [none](deep/c.md) ![drawn](deep/d.svg)\n\
                    [here](#a-page) [nowhere](#b-page) [far](https://a.example/x.md) `[code](e.md)`\n\
                    ```\n# Not a heading\n[code](f.md)\n```\n[`code`](g.md) [folder](deep/) [fenced](#not-a-heading)\n";
        write("page.md", page);
        write("deep/b.md", "## How it works?\n## How it *works*\n[up](../page.md) [past](b.md#how-it-works-2)\n");
        write("deep/d.svg", "");
        // The names are put together here, so that this file names no documents.
        write("a.rs", &format!("// {0}/none.md, {0}/x.md. See my{0}/y.md and {0}/.\n", "docs"));
        write(&format!("{}/x.md", "docs"), "");
        write("target/page.md", "[compiled](none.md)\n");
        let expected = [
            "a.rs:1: docs-none.md: no such file".replace("docs-", "docs/"),
            "deep/b.md:3: b.md#how-it-works-2: no heading \"how-it-works-2\" in deep/b.md".to_owned(),
            "page.md:2: deep/c.md: no such file".to_owned(),
            "page.md:3: #b-page: no heading \"b-page\" in page.md".to_owned(),
            "page.md:8: g.md: no such file".to_owned(),
            "page.md:8: #not-a-heading: no heading \"not-a-heading\" in page.md".to_owned(),
        ];
        assert_eq!(check(root.path()).unwrap(), expected);
    }
}
