//! Finds the files behind a URL: one object, or those below a prefix.

use celeris_location::{Location, LocationError};

use crate::error::ImportError;
use crate::input::{Input, Object, Origin};
use crate::layout::Layout;

/// Endings of files of text, also followed by `.gz`.
const TEXTS: [&str; 7] = ["csv", "tsv", "txt", "json", "jsonl", "ndjson", "dat"];

/// The folder with the observations of an export.
const OBSERVATIONS: &str = "observations/";

/// What names the stream of a folder.
const STREAM: &str = "stream=";

/// Whether a path of the command line is a URL.
pub(crate) fn is_url(path: &str) -> bool {
    path.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

/// The inputs behind a URL, whose layouts are not known yet.
///
/// # Errors
/// [`ImportError::Location`], or [`ImportError::File`] if there is no file to read.
pub(crate) fn find(url: &str) -> Result<Vec<Input>, ImportError> {
    let location = Location::parse(url)?;
    if !url.ends_with('/') {
        match location.size() {
            Ok(bytes) => {
                let name = name_of(last_part(url)).to_owned();
                return Ok(vec![input(location, bytes, name, None)]);
            }
            Err(LocationError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let listed = location.list()?;
    let files: Vec<(String, u64)> = listed.into_iter().map(|entry| (entry.name, entry.bytes)).collect();
    let files = chosen(url, &files)?;
    let folder = last_part(url.trim_end_matches('/'));
    let mut inputs = Vec::with_capacity(files.len());
    for (file, bytes) in files {
        let (parent, own) = file.rsplit_once('/').unwrap_or((folder, &file));
        let (parent, own) = (last_part(parent), name_of(own));
        // As those of a folder on a disk, so that the ids of a copy are the same.
        let (name, part) = match parent.strip_prefix(STREAM) {
            Some(stream) => (stream.to_owned(), Some(own.to_owned())),
            None => (format!("{parent}/{own}"), None),
        };
        inputs.push(input(location.child(&file)?, bytes, name, part));
    }
    Ok(inputs)
}

fn input(location: Location, bytes: u64, name: String, part: Option<String>) -> Input {
    Input { origin: Origin::Object(Object { location, bytes }), name, part, layout: Layout::Open }
}

/// The files to read among those below a URL: Parquet if there is any, else text.
fn chosen(url: &str, files: &[(String, u64)]) -> Result<Vec<(String, u64)>, ImportError> {
    let is_export = files.iter().any(|(file, _)| file.starts_with(OBSERVATIONS));
    if is_export && !files.iter().any(|(file, _)| matches!(file.as_str(), "_SUCCESS" | "FORMAT")) {
        return Err(ImportError::file(
            url,
            "has observations but no _SUCCESS file, so it is an incomplete export; export again",
        ));
    }
    // Names that begin with a dot or an underscore are not data: they are being written, or say that all is.
    let is_data = |file: &str| {
        !file.split('/').any(|part| part.starts_with(['.', '_'])) && (!is_export || file.starts_with(OBSERVATIONS))
    };
    let ends = |file: &str, ending: &str| file.rsplit_once('.').is_some_and(|(_, found)| found == ending);
    let of = |is_kind: &dyn Fn(&str) -> bool| -> Vec<(String, u64)> {
        files.iter().filter(|(file, bytes)| *bytes > 0 && is_data(file) && is_kind(file)).cloned().collect()
    };
    let mut found = of(&|file| ends(file, "parquet"));
    if found.is_empty() {
        found = of(&|file| TEXTS.iter().any(|ending| ends(name_of(file), ending)));
    }
    let mut streams: Vec<&str> = found.iter().filter_map(|(file, _)| stream_of(file)).collect();
    streams.dedup();
    if let [_, _, ..] = streams.as_slice() {
        let names: Vec<String> =
            streams.iter().map(|stream| format!("{}/{stream}/", url.trim_end_matches('/'))).collect();
        return Err(ImportError::file(url, format!("has several streams; name one of {}", names.join(", "))));
    }
    if found.is_empty() {
        return Err(ImportError::file(
            url,
            "is no file, and no Parquet, CSV or JSON lines lie below it; check the name and the credentials",
        ));
    }
    Ok(found)
}

/// The folder of the stream that a file belongs to.
fn stream_of(file: &str) -> Option<&str> {
    let end = file.split('/').scan(0, |end, part| {
        *end += part.len() + 1;
        Some((part, *end - 1))
    });
    end.filter(|(part, _)| part.starts_with(STREAM)).last().map(|(_, end)| &file[..end])
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The name of a file, which is the same whether it is compressed or not.
pub(crate) fn name_of(file: &str) -> &str {
    file.strip_suffix(".gz").unwrap_or(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    fn chosen_of(files: &[&str]) -> Result<Vec<String>, String> {
        let files: Vec<(String, u64)> = files.iter().map(|file| ((*file).to_owned(), 1)).collect();
        let found = chosen("s3://b/p", &files).map_err(|error| error.to_string())?;
        Ok(found.into_iter().map(|(file, _)| file).collect())
    }

    #[test]
    fn data_are_chosen_below_a_prefix() {
        assert_eq!(
            chosen_of(&["a.csv", "b.jsonl.gz", "readme.md", "_x.csv", ".y/z.csv"]),
            Ok(vec!["a.csv".to_owned(), "b.jsonl.gz".to_owned()])
        );
        assert_eq!(chosen_of(&["a.csv", "x/b.parquet"]), Ok(vec!["x/b.parquet".to_owned()]));
        let export = ["_SUCCESS", "decisions/a.parquet", "observations/stream=films/a.parquet"];
        assert_eq!(chosen_of(&export), Ok(vec![export[2].to_owned()]));
        assert!(chosen_of(&export[1..]).unwrap_err().contains("incomplete export"));
        let two = ["stream=a/1.parquet", "stream=b/1.parquet"];
        assert!(chosen_of(&two).unwrap_err().contains("s3://b/p/stream=a/, s3://b/p/stream=b/"));
        assert!(chosen_of(&["readme.md"]).unwrap_err().contains("no Parquet"));
    }

    #[test]
    fn paths_are_no_urls() {
        assert!(is_url("s3://b/x") && is_url("https://x/y.csv"));
        assert!(!is_url("/tmp/a:b") && !is_url("a b://c") && !is_url("://x"));
    }
}
