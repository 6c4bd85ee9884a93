//! Figures as tables of a page: the reports of protocols write their part of `docs/guides/evaluation.md`,
//! or of any other Markdown file.
//!
//! The part of a protocol is between the lines `<!-- figures: NAME -->` and `<!-- end of figures: NAME -->`.
//! What else the page says stays as it is.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::accuracy::Rmse;

/// A report that has a part of the page.
pub trait Tabled {
    /// Its parts in Markdown, each with the name of its protocol.
    fn parts(&self) -> Vec<(&'static str, String)>;
}

/// Replaces the parts of the report in the page; those that the page does not have yet are added at
/// its end, and the page is made if there is none.
///
/// # Errors
/// If the page cannot be read or written, or lacks the end of a part.
pub fn write(page: &Path, report: &impl Tabled) -> anyhow::Result<()> {
    let mut text = match fs::read_to_string(page) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", page.display())),
    };
    for (name, part) in report.parts() {
        text = replaced(&text, name, &part).with_context(|| page.display().to_string())?;
    }
    fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

/// The text with another part of this name.
fn replaced(text: &str, name: &str, part: &str) -> anyhow::Result<String> {
    let (begin, end) = (format!("<!-- figures: {name} -->"), format!("<!-- end of figures: {name} -->"));
    let part = format!("{begin}\n{}\n{end}", part.trim());
    // Text may name the lines without being one.
    let line = |wanted: &str, from: usize| {
        let lines = text[from..]
            .split_inclusive('\n')
            .scan(from, |at, line| Some((std::mem::replace(at, *at + line.len()), line)));
        lines.into_iter().find(|(_, line)| line.trim_end() == wanted).map(|(at, _)| at)
    };
    let Some(from) = line(&begin, 0) else {
        let before = if text.is_empty() { "" } else { "\n" };
        return Ok(format!("{text}{before}{part}\n"));
    };
    let Some(last) = line(&end, from) else {
        bail!("the line {begin} has no line {end} after it; add it where the part ends");
    };
    Ok(format!("{}{part}{}", &text[..from], &text[last + end.len()..]))
}

/// A table in Markdown.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<&str> = cells.collect();
        format!("| {} |", cells.join(" | ")).replace("|  |", "| |").replace("|  |", "| |")
    };
    let mut lines = vec![line(&mut head.iter().copied()), format!("|{}", "---|".repeat(head.len()))];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

/// An error in a cell of a table.
pub(crate) fn cell(Rmse { rmse, std_error }: Rmse) -> String {
    format!("{rmse:.4} ± {std_error:.4}")
}

/// A share in a cell of a table.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn text_that_names_the_lines_is_left_alone() {
        let page = "Lines such as `<!-- figures: one -->` and `<!-- end of figures: one -->`.\n";
        let after = replaced(page, "one", "new").unwrap();
        assert_eq!(after, format!("{page}\n<!-- figures: one -->\nnew\n<!-- end of figures: one -->\n"));
        assert_eq!(replaced(&after, "one", "newer").unwrap(), after.replace("new", "newer"));
    }

    #[test]
    fn a_part_is_replaced_and_the_rest_stays() {
        let page = "# Page\n\n<!-- figures: one -->\nold\n<!-- end of figures: one -->\n\nend\n";
        let after = replaced(page, "one", "new\n\n").unwrap();
        assert_eq!(after, "# Page\n\n<!-- figures: one -->\nnew\n<!-- end of figures: one -->\n\nend\n");
        assert_eq!(replaced(&after, "one", "new").unwrap(), after);
    }

    #[test]
    fn a_missing_part_is_added_and_an_open_one_refused() {
        let after = replaced("# Page\n", "two", "new").unwrap();
        assert_eq!(after, "# Page\n\n<!-- figures: two -->\nnew\n<!-- end of figures: two -->\n");
        assert_eq!(replaced("", "two", "new").unwrap(), "<!-- figures: two -->\nnew\n<!-- end of figures: two -->\n");
        let problem = replaced("<!-- figures: two -->\n", "two", "new").unwrap_err().to_string();
        assert!(problem.contains("<!-- end of figures: two -->"), "{problem}");
    }

    #[test]
    fn empty_cells_are_one_space() {
        let rows = [vec![String::new(), "1".to_owned(), String::new(), String::new()]];
        assert_eq!(table(&["a", "b", "c", "d"], &rows), "| a | b | c | d |\n|---|---|---|---|\n| | 1 | | |");
    }
}
