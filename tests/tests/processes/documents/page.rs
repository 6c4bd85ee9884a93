//! The blocks of a page that run, in order, with the replies that the page shows.

use std::ops::Range;

/// The node that a page's commands address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// `celeris demo`.
    Demo,
    /// `celeris serve` on an empty folder.
    Empty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Shell,
    Python,
    JavaScript,
    /// A configuration file.
    Toml,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its line in the page, from 1.
    pub line: usize,
    pub is_json: bool,
    /// Whether the numbers are measured, and differ from run to run.
    pub is_measured: bool,
    /// The bytes of the page that it takes.
    pub range: Range<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Its line in the page, from 1.
    pub line: usize,
    pub language: Language,
    pub code: String,
    pub reply: Option<Reply>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Node(Node),
    Run(Block),
}

/// What a comment says of the block below it.
#[derive(Debug, Clone, Copy)]
enum Said {
    NotRun,
    Measured,
}

impl Said {
    /// `None` if the comment is another one, or has no reason.
    fn of(directive: &str) -> Option<Self> {
        let (name, reason) = directive.split_once(':')?;
        match name {
            _ if reason.trim().is_empty() => None,
            "not run" => Some(Self::NotRun),
            "numbers differ" => Some(Self::Measured),
            _ => None,
        }
    }
}

/// Lines with their byte offsets in the page.
struct Lines<'a> {
    lines: Vec<(usize, &'a str)>,
    next: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let mut offset = 0;
        let lines = text.split_inclusive('\n').map(|line| {
            offset += line.len();
            (offset - line.len(), line.trim_end_matches('\n'))
        });
        Self { lines: lines.collect(), next: 0 }
    }

    /// Takes the lines up to and without the first that ends the block, and takes that too.
    /// Returns the bytes that they take.
    fn until(&mut self, text: &str, is_end: impl Fn(&str) -> bool) -> Option<Range<usize>> {
        let start = self.lines.get(self.next).map_or(text.len(), |(offset, _)| *offset);
        let end = self.lines[self.next..].iter().position(|(_, line)| is_end(line))? + self.next;
        self.next = end + 1;
        Some(start..self.lines[end].0)
    }
}

/// The comments around figures that a command writes.
const FIGURES: [&str; 2] = ["figures:", "end of figures:"];

/// The steps of a page.
///
/// # Errors
/// The line and what is wrong with it, if a block neither runs nor has a reason.
pub fn steps(text: &str) -> Result<Vec<Step>, (usize, String)> {
    let mut lines = Lines::new(text);
    let mut steps = Vec::new();
    // What the comment above the next block says of it.
    let mut said: Option<(usize, Said)> = None;
    // Whether nothing but empty lines came since the block that ran last, and whether it measures.
    let (mut is_reply, mut measured) = (false, false);
    while let Some((_, line)) = lines.lines.get(lines.next).copied() {
        lines.next += 1;
        let number = lines.next;
        let wrong = |what: &str| (number, what.to_owned());
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            let range = lines.until(text, |line| line.trim() == "```").ok_or_else(|| wrong("the block has no end"))?;
            let (is_left_out, is_measured) = match said.take() {
                None => (false, false),
                Some((_, Said::NotRun)) => (true, false),
                Some((_, Said::Measured)) => (false, true),
            };
            match fence.trim() {
                _ if is_left_out => is_reply = false,
                shown @ ("json" | "text") if is_reply => {
                    let is_measured = std::mem::take(&mut measured);
                    let reply = Reply { line: number, is_json: shown == "json", is_measured, range };
                    if let Some(Step::Run(block)) = steps.last_mut() {
                        block.reply = Some(reply);
                    }
                    is_reply = false;
                }
                "text" => is_reply = false,
                "console" => {
                    steps.extend(console(text, range, number, is_measured));
                    is_reply = false;
                }
                name => {
                    let language = language(name).ok_or_else(|| {
                        wrong(&format!("a block of {name:?} neither runs nor has `<!-- not run: REASON -->` above it"))
                    })?;
                    steps.push(Step::Run(Block { line: number, language, code: text[range].to_owned(), reply: None }));
                    (is_reply, measured) = (true, is_measured);
                }
            }
        } else if let Some(comment) = line.strip_prefix("<!--") {
            is_reply = false;
            let directive = comment.trim().trim_end_matches("-->").trim();
            if directive == "run" {
                let range = lines.until(text, |line| line == "-->").ok_or_else(|| wrong("the comment has no end"))?;
                let code = text[range].to_owned();
                steps.push(Step::Run(Block { line: number, language: Language::Shell, code, reply: None }));
            } else if FIGURES.iter().any(|mark| directive.starts_with(mark)) {
                // Between these lines is what `celeris evaluate --write` has written.
            } else if let Some(node) = directive.strip_prefix("node:") {
                steps.push(Step::Node(match node.trim() {
                    "demo" => Node::Demo,
                    "empty" => Node::Empty,
                    other => return Err(wrong(&format!("there is no node {other:?}"))),
                }));
            } else {
                said = Some((
                    number,
                    Said::of(directive).ok_or_else(|| wrong("an unknown comment, or one without a reason"))?,
                ));
            }
        } else if !line.trim().is_empty() {
            is_reply = false;
        }
        if let Some((number, _)) = said.filter(|(said, _)| number > *said) {
            return Err((number, "the comment is not above a block".to_owned()));
        }
    }
    Ok(steps)
}

fn language(name: &str) -> Option<Language> {
    match name {
        "sh" => Some(Language::Shell),
        "python" => Some(Language::Python),
        "js" => Some(Language::JavaScript),
        "toml" => Some(Language::Toml),
        _ => None,
    }
}

/// The commands of a block, which are the lines after `$ `, each with the lines below as its reply.
fn console(text: &str, block: Range<usize>, line: usize, is_measured: bool) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut offset = block.start;
    for (number, shown) in text[block].split_inclusive('\n').enumerate() {
        let range = offset..offset + shown.len();
        offset = range.end;
        let line = line + 1 + number;
        if let Some(command) = shown.strip_prefix("$ ") {
            let reply = Reply { line: line + 1, is_json: false, is_measured, range: range.end..range.end };
            let code = command.to_owned();
            steps.push(Step::Run(Block { line, language: Language::Shell, code, reply: Some(reply) }));
        } else if let Some(Step::Run(Block { reply: Some(reply), .. })) = steps.last_mut() {
            reply.range.end = range.end;
        }
    }
    steps
}

#[test]
fn a_block_that_neither_runs_nor_has_a_reason_is_refused() {
    assert_eq!(steps("```sh\ntrue\n```\n").unwrap().len(), 1);
    assert!(steps("```sql\nselect 1;\n```\n").is_err());
    assert!(steps("text\n\n```json\n{}\n```\n").is_err());
    assert!(steps("<!-- not run: -->\n```sql\nselect 1;\n```\n").is_err());
    assert!(steps("<!-- not run: no block -->\n\ntext\n").is_err());
    assert_eq!(steps("<!-- not run: needs DuckDB -->\n```sql\nselect 1;\n```\n").unwrap(), []);
}
