//! Finds the files behind the paths of the command line.

use std::fs;
use std::path::{Path, PathBuf};

use celeris_datasets::dsjson;
use celeris_datasets::movielens::locate_ratings;

use crate::error::ImportError;
use crate::input::{Input, Layout, Origin};
use crate::source;

/// The path that means standard input.
pub const STDIN: &str = "-";

/// The inputs of these paths: files, `-`, folders of Parquet files, of logs in dsjson or of MovieLens, exports.
///
/// Names begin with `id_prefix`, if there is one.
///
/// # Errors
/// [`ImportError::Io`], [`ImportError::Usage`], [`ImportError::File`], [`ImportError::Dataset`].
pub fn find(paths: &[PathBuf], id_prefix: Option<&str>) -> Result<Vec<Input>, ImportError> {
    let mut inputs: Vec<Input> = Vec::new();
    for path in paths {
        for mut input in of_path(path)? {
            if let Some(prefix) = id_prefix {
                input.name = format!("{prefix}/{}", input.name);
            }
            let is_part_of_one =
                |other: &Input| parent(other) == parent(&input) && input.part.is_some() && other.part != input.part;
            if let Some(other) = inputs.iter().find(|other| other.name == input.name && !is_part_of_one(other)) {
                return Err(ImportError::Usage(format!(
                    "{} and {} have one name, so their equal rows would count once; import them one at a time, with \
                     different --id-prefix",
                    other.shown(),
                    input.shown()
                )));
            }
            inputs.push(input);
        }
    }
    Ok(inputs)
}

fn parent(input: &Input) -> Option<&Path> {
    match &input.origin {
        Origin::File(path) => path.parent(),
        Origin::Stdin => None,
    }
}

fn of_path(path: &Path) -> Result<Vec<Input>, ImportError> {
    let shown = path.display().to_string();
    if path.as_os_str() == STDIN {
        return Ok(vec![Input { origin: Origin::Stdin, name: "stdin".to_owned(), part: None, layout: Layout::Open }]);
    }
    let metadata = path.metadata().map_err(ImportError::io(&shown))?;
    if !metadata.is_dir() {
        return Ok(vec![of_file(path)?]);
    }
    let segments = stream_folder(path)?;
    let folder = segments.as_deref().unwrap_or(path);
    let parquet = files_of(folder, "parquet")?;
    if !parquet.is_empty() {
        return Ok(parquet.into_iter().map(|file| of_segment(folder, file)).collect());
    }
    let logs = dsjson::files::of_log(path)?;
    if !logs.is_empty() {
        return Ok(logs.into_iter().map(|file| of_log(path, file)).collect());
    }
    match locate_ratings(path) {
        Ok(ratings) => {
            let header = ratings.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ratings.csv"));
            Ok(vec![Input {
                name: name_of(&ratings),
                part: None,
                layout: Layout::MovieLens { header },
                origin: Origin::File(ratings),
            }])
        }
        Err(_) => Err(ImportError::file(
            &shown,
            "is a folder without Parquet files, an export, logs in dsjson or a ratings file of MovieLens (ratings.csv, \
             ratings.dat, u.data); name the files themselves",
        )),
    }
}

fn of_file(path: &Path) -> Result<Input, ImportError> {
    let mut input =
        Input { origin: Origin::File(path.to_owned()), name: name_of(path), part: None, layout: Layout::Open };
    // A pipe could not be read again.
    if !input.is_stream() {
        input.layout = layout_of(&source::first_line(&input)?);
    }
    Ok(input)
}

/// Recognises the published ratings files of MovieLens by their first lines.
fn layout_of(first_line: &str) -> Layout {
    let fields: Vec<&str> = first_line.split('\t').collect();
    let is_number = |field: &&str| field.parse::<f64>().is_ok();
    let double_colons: Vec<&str> = first_line.split("::").collect();
    if first_line.starts_with("userId,movieId,rating") {
        Layout::MovieLens { header: true }
    } else if fields.len() == 4 && fields[2..].iter().all(is_number)
        || double_colons.len() == 4 && double_colons[2..].iter().all(is_number)
    {
        Layout::MovieLens { header: false }
    } else {
        Layout::Open
    }
}

/// The folder with the observations of an export; `None` if `path` is no export.
fn stream_folder(path: &Path) -> Result<Option<PathBuf>, ImportError> {
    let shown = path.display().to_string();
    let observations = path.join("observations");
    if !observations.is_dir() {
        return Ok(None);
    }
    if !path.join("_SUCCESS").is_file() && !path.join("FORMAT").is_file() {
        return Err(ImportError::file(
            &shown,
            "has observations but no _SUCCESS file, so it is an incomplete export; export again",
        ));
    }
    let mut streams: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(&observations).map_err(ImportError::io(&shown))? {
        let folder = entry.map_err(ImportError::io(&shown))?.path();
        if folder.is_dir() {
            streams.push(folder);
        }
    }
    streams.sort();
    match streams.as_slice() {
        [] => Err(ImportError::file(&shown, "has no observations of any stream")),
        [stream] => Ok(Some(stream.clone())),
        several => {
            let names: Vec<String> = several.iter().map(|stream| stream.display().to_string()).collect();
            Err(ImportError::file(&shown, format!("has several streams; name one of {}", names.join(", "))))
        }
    }
}

/// The files of a folder with this extension, in the order of their names.
fn files_of(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, ImportError> {
    let shown = folder.display().to_string();
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(ImportError::io(&shown))? {
        let path = entry.map_err(ImportError::io(&shown))?.path();
        // Files that are being written have names that begin with a dot.
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if path.extension().is_some_and(|found| found == extension) && !is_hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A file of a folder of Parquet files. Those of a stream share its name: the same row may be in
/// another file tomorrow, with the id that it has today.
fn of_segment(folder: &Path, file: PathBuf) -> Input {
    let folder_name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file_name = name_of(&file);
    let (name, part) = match folder_name.strip_prefix("stream=") {
        Some(stream) => (stream.to_owned(), Some(file_name)),
        None => (format!("{folder_name}/{file_name}"), None),
    };
    Input { name, part, layout: Layout::Open, origin: Origin::File(file) }
}

/// A file of a folder of logs, which has folders for years, months and days: its name is its path there.
fn of_log(folder: &Path, file: PathBuf) -> Input {
    let name = file.strip_prefix(folder).unwrap_or(&file).to_string_lossy().into_owned();
    Input { name, part: None, layout: Layout::Open, origin: Origin::File(file) }
}

/// The name of a file, which is the same whether it is compressed or not.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".gz").unwrap_or(&name).to_owned()
}
