//! Finds the terms of use in a data set's documentation.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::DatasetError;

/// Maximum number of bytes read; larger than any published documentation.
const README_BYTES_MAX: u64 = 1 << 20;

/// The documentation in `folder`: `README`, `README.txt` or similar, plain text before HTML.
pub(super) fn find_readme(folder: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_readme = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        name.starts_with("readme") && file.is_file()
    };
    files.filter(is_readme).min_by_key(|file| (is_html(file), file.clone()))
}

fn is_html(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
}

/// The section on usage and licence of a plain-text `readme`, including its heading.
pub(super) fn read_section(readme: &Path) -> Result<Option<String>, DatasetError> {
    if is_html(readme) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let file = File::open(readme).map_err(DatasetError::io(readme))?;
    file.take(README_BYTES_MAX).read_to_end(&mut bytes).map_err(DatasetError::io(readme))?;
    Ok(section(&String::from_utf8_lossy(&bytes)))
}

/// Headings are underlined; a section ends before the next heading.
fn section(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let is_heading = |at: usize| lines.get(at + 1).is_some_and(|below| is_underline(below)) && !lines[at].is_empty();
    let start = (0..lines.len()).find(|at| is_heading(*at) && lines[*at].to_ascii_lowercase().contains("license"))?;
    let end = (start + 1..lines.len()).find(|at| is_heading(*at)).unwrap_or(lines.len());
    Some(lines[start..end].join("\n").trim_end().to_owned())
}

fn is_underline(line: &str) -> bool {
    line.len() >= 3 && (line.bytes().all(|byte| byte == b'=') || line.bytes().all(|byte| byte == b'-'))
}
