//! Checks the modules within crates: components form no cycles, and none uses the object that owns
//! them all.
//!
//! A component is a top-level module of a crate: `src/NAME.rs` and everything below `src/NAME/`. It
//! uses another one if a path in its sources leads there, also through a name that the crate's root
//! re-exports. Test code does not count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::manifest::Crate;
use crate::paths;
use crate::unused::rust_files;

/// The types that own the components of their crates.
const OWNERS: [(&str, &str); 4] = [
    ("celeris-cluster", "Cluster"),
    ("celeris-manager", "Manager"),
    ("celeris-predictor", "Predictor"),
    ("celeris-storage", "Storage"),
];

/// A source of a crate.
struct Source {
    /// Relative to the crate's `src`, such as `users/cache.rs`.
    file: String,
    text: String,
}

/// Returns one line for each cycle and for each use of an owner.
///
/// # Errors
/// If a source cannot be read.
pub fn check(crates: &[Crate]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for member in crates {
        let owner = OWNERS.iter().find(|(name, _)| *name == member.name).map(|(_, owner)| *owner);
        let found = check_crate(&read_sources(member)?, owner);
        findings.extend(found.into_iter().map(|finding| format!("{}: {finding}", member.name)));
    }
    Ok(findings)
}

fn read_sources(member: &Crate) -> Result<Vec<Source>> {
    let folder = member.folder.join("src");
    let files = rust_files(member)?.into_iter().filter(|file| file.starts_with(&folder));
    let read = |file: std::path::PathBuf| {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let file = file.strip_prefix(&folder).unwrap_or(&file).display().to_string();
        Ok(Source { file, text })
    };
    files.filter(|file| !is_test(file)).map(read).collect()
}

/// Whether a file contains only tests.
fn is_test(file: &Path) -> bool {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem == "tests" || stem.ends_with("_tests") || file.components().any(|part| part.as_os_str() == "tests")
}

/// The path of a file's module: empty for the root of the crate.
fn module_of(file: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if matches!(parts.as_slice(), [.., "mod"] | ["lib" | "main"]) {
        parts.pop();
    }
    parts
}

/// For each component, the components that it uses, each with `FILE:LINE` of the first use.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, String>>;

fn check_crate(sources: &[Source], owner: Option<&str>) -> Vec<String> {
    let components: BTreeSet<&str> =
        sources.iter().filter_map(|source| module_of(&source.file).first().copied()).collect();
    let mut reexported: BTreeMap<&str, &str> = BTreeMap::new();
    for root in sources.iter().filter(|source| module_of(&source.file).is_empty()) {
        let imports = paths::imports(&root.text).into_iter();
        reexported.extend(imports.filter(|import| components.contains(import.names[0])).map(|i| (i.name, i.names[0])));
    }
    let mut graph: Graph = BTreeMap::new();
    let mut findings = Vec::new();
    for source in sources {
        let module = module_of(&source.file);
        let Some(component) = module.first().copied() else { continue };
        let is_owner = owner.is_some_and(|owner| paths::defines(&source.text, owner));
        for path in paths::paths(&source.text) {
            let place = format!("{}:{}", source.file, path.line);
            let kept = path.up.map_or(0, |up| module.len().saturating_sub(up));
            let full: Vec<&str> = module[..kept].iter().copied().chain(path.names).collect();
            if let Some(owner) = owner.filter(|owner| !is_owner && full.contains(owner)) {
                findings.push(format!("{place}: component {component} uses {owner}, which owns the components"));
            }
            let Some(used) = full.first().map(|name| reexported.get(name).copied().unwrap_or(*name)) else { continue };
            if let Some(used) = components.get(used).filter(|used| **used != component) {
                graph.entry(component).or_default().entry(used).or_insert(place);
            }
        }
    }
    findings.extend(cycles(&graph));
    findings
}

/// One line for each group of components that use each other, with a shortest cycle.
fn cycles(graph: &Graph) -> Vec<String> {
    let mut grouped: BTreeSet<&str> = BTreeSet::new();
    let mut findings = Vec::new();
    for start in graph.keys().copied() {
        if grouped.contains(start) {
            continue;
        }
        let Some(cycle) = shortest_cycle(graph, start) else { continue };
        let below = reachable(graph, start);
        let group: Vec<&str> = below.into_iter().filter(|other| reachable(graph, other).contains(start)).collect();
        let steps = cycle.windows(2).map(|pair| format!("{} -> {} ({})", pair[0], pair[1], graph[pair[0]][pair[1]]));
        findings.push(format!(
            "components {} use each other: {}",
            group.join(", "),
            steps.collect::<Vec<_>>().join(", ")
        ));
        grouped.extend(group);
    }
    findings
}

/// The components that `start` uses, directly or not.
fn reachable<'a>(graph: &Graph<'a>, start: &str) -> BTreeSet<&'a str> {
    let used = |component: &str| graph.get(component).into_iter().flat_map(|used| used.keys().copied());
    let (mut found, mut open) = (BTreeSet::new(), used(start).collect::<Vec<_>>());
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(used(next));
        }
    }
    found
}

/// A shortest path from `start` to itself.
fn shortest_cycle<'a>(graph: &Graph<'a>, start: &'a str) -> Option<Vec<&'a str>> {
    let mut open = VecDeque::from([vec![start]]);
    let mut seen = BTreeSet::new();
    while let Some(path) = open.pop_front() {
        let last = path[path.len() - 1];
        for next in graph.get(last).into_iter().flat_map(|used| used.keys().copied()) {
            if next == start || seen.insert(next) {
                let path: Vec<&str> = path.iter().copied().chain([next]).collect();
                if next == start {
                    return Some(path);
                }
                open.push_back(path);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_files(files: &[(&str, &str)], owner: Option<&str>) -> Vec<String> {
        let source = |(file, text): &(&str, &str)| Source { file: (*file).to_owned(), text: (*text).to_owned() };
        check_crate(&files.iter().map(source).collect::<Vec<_>>(), owner)
    }

    #[test]
    fn components_without_cycles_pass() {
        let files = [
            ("lib.rs", "mod engine;\nmod users;\nmod error;\npub use engine::Engine;"),
            ("engine.rs", "use crate::users::UserStore;\nuse crate::error::Error;\npub struct Engine(UserStore);"),
            ("users/mod.rs", "mod cache;\nuse self::cache::Cache;\nuse crate::error::Error;"),
            ("users/cache.rs", "use super::Record;\n#[cfg(test)]\nmod tests { use crate::engine::Engine; }"),
            ("error.rs", "// Not crate::users::UserStore.\npub enum Error {}"),
        ];
        assert_eq!(check_files(&files, Some("Engine")), Vec::<String>::new());
    }

    #[test]
    fn a_cycle_is_reported_with_its_places() {
        let files = [
            ("lib.rs", "pub use users::UserStore;"),
            ("users/mod.rs", "\nuse crate::{error::Error, log::{Log, Entry}};"),
            ("log.rs", "use crate::keys;"),
            // Through a re-export of the root, from a file deep in its component.
            ("keys/text.rs", "fn f() { super::super::UserStore::new() }"),
            ("error.rs", ""),
        ];
        let expected = "components keys, log, users use each other: keys -> users (keys/text.rs:1), \
                        users -> log (users/mod.rs:2), log -> keys (log.rs:1)";
        assert_eq!(check_files(&files, None), [expected]);
    }

    #[test]
    fn separate_cycles_are_reported_separately() {
        let files = [
            ("a.rs", "use crate::b::B;\nuse crate::c::C;"),
            ("b.rs", "use super::a::A;"),
            ("c.rs", "use crate::d::D;"),
            ("d/mod.rs", "use super::c::C;"),
        ];
        let expected = [
            "components a, b use each other: a -> b (a.rs:1), b -> a (b.rs:1)",
            "components c, d use each other: c -> d (c.rs:1), d -> c (d/mod.rs:1)",
        ];
        assert_eq!(check_files(&files, None), expected);
    }

    #[test]
    fn the_owner_is_used_by_no_component() {
        let files = [
            ("lib.rs", "pub use engine::Engine;"),
            ("engine.rs", "pub struct Engine;\nimpl super::Engine {}"),
            ("users/mod.rs", "impl crate::Engine {}"),
        ];
        let findings = check_files(&files, Some("Engine"));
        assert_eq!(findings, ["users/mod.rs:1: component users uses Engine, which owns the components"]);
    }
}
