//! Every command in README.md and below docs/ runs, and every documented reply is the real one.
//!
//! A page is one session of bash, in a folder of its own. What the comments of a page mean is in
//! `CONTRIBUTING.md`; `page.rs` reads them, `session.rs` runs the blocks, `reply.rs` compares.
//! With `CELERIS_WRITE_REPLIES=1` the test writes the replies that it gets to the pages, and
//! `CELERIS_PAGE=tour` runs only pages with this in their path.

mod page;
mod reply;
mod session;

use std::path::{Path, PathBuf};
use std::{env, fs};

use celeris_skip::Need;

use page::{Block, Language, Step};
use session::Session;

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// README.md and all pages below docs/, relative to the checkout.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from("README.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(Path::new(CHECKOUT).join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if Path::new(CHECKOUT).join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// What a run of a page has found.
#[derive(Default)]
struct Findings {
    problems: Vec<String>,
    /// Byte ranges of the page and their new text.
    edits: Vec<reply::Edit>,
    ran: usize,
}

impl Findings {
    fn problem(&mut self, page: &Path, line: usize, what: &str) {
        self.problems.push(format!("{}:{line}: {what}", page.display()));
    }
}

/// Runs a page's steps until one fails: what follows depends on it.
fn run(page: &Path, text: &str, has_javascript: bool) -> Findings {
    let mut found = Findings::default();
    let steps = match page::steps(text) {
        Ok(steps) => steps,
        Err((line, problem)) => {
            found.problem(page, line, &problem);
            return found;
        }
    };
    let mut session: Option<Session> = None;
    for step in steps {
        match step {
            Step::Node(node) => {
                drop(session.take());
                session = Some(Session::start());
                let started = session.as_mut().map(|session| session.start_node(node));
                if let Some(Err(problem)) = started {
                    found.problem(page, 1, &problem);
                    return found;
                }
            }
            Step::Run(block) if block.language == Language::JavaScript && !has_javascript => {}
            Step::Run(block) => {
                let session = session.get_or_insert_with(Session::start);
                found.ran += 1;
                match session.run(block.language, &block.code) {
                    Ok(output) => check(page, text, &block, &output, &mut found),
                    Err(problem) => {
                        found.problem(page, block.line, &problem);
                        return found;
                    }
                }
            }
        }
    }
    found
}

/// Compares a block's output with the reply that the page shows.
fn check(page: &Path, text: &str, block: &Block, output: &str, found: &mut Findings) {
    let Some(shown) = &block.reply else {
        if let Some(refusal) = reply::refusal(output) {
            found.problem(page, block.line, &format!("a command was refused: {refusal}"));
        }
        return;
    };
    for difference in reply::differences(shown, &text[shown.range.clone()], output) {
        found.problem(page, shown.line, &difference.what);
        let (start, end) = (shown.range.start + difference.range.start, shown.range.start + difference.range.end);
        found.edits.push(reply::Edit { range: start..end, text: difference.text });
    }
}

/// The path of a program. The test, or what needs the program, is skipped if there is none.
fn unless_installed(program: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file());
    celeris_skip::unless(Need::Commands, found, &format!("there is no `{program}`"))
}

#[test]
fn commands_run_and_replies_are_those_shown() {
    if ["curl", "python3"].iter().any(|program| unless_installed(program).is_none()) {
        return;
    }
    let has_javascript = unless_installed("node").is_some();
    let writes = env::var_os("CELERIS_WRITE_REPLIES").is_some();
    let only = env::var("CELERIS_PAGE").unwrap_or_default();
    let (mut problems, mut ran) = (Vec::new(), 0);
    for page in pages().into_iter().filter(|page| page.to_string_lossy().contains(&only)) {
        let file = Path::new(CHECKOUT).join(&page);
        let mut text = fs::read_to_string(&file).unwrap();
        let found = run(&page, &text, has_javascript);
        ran += found.ran;
        if writes && !found.edits.is_empty() {
            reply::apply(&mut text, found.edits);
            fs::write(&file, text).unwrap();
        }
        problems.extend(found.problems);
    }
    assert!(problems.is_empty(), "the documents are not as the node:\n{}", problems.join("\n"));
    assert!(!only.is_empty() || ran > 50, "only {ran} blocks ran");
}
