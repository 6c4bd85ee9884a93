//! Limits of the process and settings of the kernel.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::Subject;
use super::finding::Findings;

/// Files that a store of moderate size has open, and some for the node itself.
const FILES_NEEDED: u64 = 1024;

/// Whether processes may ask for huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

pub fn check(subject: &Subject, findings: &mut Findings) {
    check_open_files(subject, findings);
    check_huge_pages(findings);
}

/// A node raises its own limit to the hard one, and keeps half of it for connections.
fn check_open_files(subject: &Subject, findings: &mut Findings) {
    let remedy = "raise it: `LimitNOFILE=65536` in the systemd unit, `ulimit -Hn 65536` in a shell, `--ulimit nofile=65536` of docker";
    let connections = subject.config.server.connections;
    let Some(files) = getrlimit(Resource::Nofile).maximum else {
        findings.ok("open files", "any number");
        return;
    };
    let what = format!("at most {files} (the hard limit)");
    if files < FILES_NEEDED {
        findings.problem("open files", format!("{what}, and a node needs {FILES_NEEDED}"), remedy);
    } else if files / 2 < connections as u64 {
        let what = format!("{what}, so {} connections in place of the {connections} of server.connections", files / 2);
        findings.warning("open files", what, remedy);
    } else {
        findings.ok("open files", what);
    }
}

fn check_huge_pages(findings: &mut Findings) {
    // Not Linux, or a kernel without them.
    let Ok(text) = fs::read_to_string(HUGE_PAGES) else { return };
    let chosen = text.split(['[', ']']).nth(1).unwrap_or_default();
    if chosen == "never" {
        findings.warning(
            "huge pages",
            format!("{HUGE_PAGES} is `never`: observations are stored and large tables are searched more slowly"),
            format!("`echo madvise > {HUGE_PAGES}` as root, at each start of the machine"),
        );
    } else {
        findings.ok("huge pages", format!("transparent huge pages: {chosen}"));
    }
}
