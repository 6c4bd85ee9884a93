//! Finds the files behind the paths of the command line.

use std::fs;
use std::path::{Path, PathBuf};

use celeris_datasets::dsjson;
use celeris_datasets::movielens::locate_ratings;

use crate::error::ImportError;
use crate::input::{Input, Origin};
use crate::layout::{self, Layout, Program, Subject, gorse};
use crate::objects;
use crate::source::{self, Beginning, Reading};

/// The path that means standard input.
pub const STDIN: &str = "-";

/// What the caller says of all inputs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Finding<'a> {
    /// What names begin with.
    pub id_prefix: Option<&'a str>,
    /// The program that wrote the files; recognised if missing.
    pub program: Option<Program>,
}

/// The inputs of these paths: files, URLs, `-`, folders of Parquet files, of logs in dsjson or of MovieLens, exports, dumps.
///
/// # Errors
/// [`ImportError::Io`], [`ImportError::Location`], [`ImportError::Usage`], [`ImportError::File`], [`ImportError::Dataset`].
pub fn find(paths: &[PathBuf], finding: Finding<'_>) -> Result<Vec<Input>, ImportError> {
    let mut inputs: Vec<Input> = Vec::new();
    for path in paths {
        for mut input in of_path(path, finding.program)? {
            if let Some(prefix) = finding.id_prefix {
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

fn parent(input: &Input) -> Option<PathBuf> {
    match &input.origin {
        Origin::File(path) => path.parent().map(Path::to_owned),
        Origin::Object(object) => Path::new(&object.location.to_string()).parent().map(Path::to_owned),
        Origin::Stdin => None,
    }
}

fn of_path(path: &Path, program: Option<Program>) -> Result<Vec<Input>, ImportError> {
    let shown = path.display().to_string();
    if path.as_os_str() == STDIN {
        let input = Input { origin: Origin::Stdin, name: "stdin".to_owned(), part: None, layout: Layout::Open };
        return of_input(input, program);
    }
    if objects::is_url(&shown) {
        let found: Result<Vec<Vec<Input>>, ImportError> =
            objects::find(&shown)?.into_iter().map(|input| of_input(input, program)).collect();
        return Ok(found?.into_iter().flatten().collect());
    }
    let metadata = path.metadata().map_err(ImportError::io(&shown))?;
    if !metadata.is_dir() {
        let name = name_of(path);
        let input = Input { origin: Origin::File(path.to_owned()), name, part: None, layout: Layout::Open };
        return of_input(input, program);
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

/// The input with its layout; a dump of Gorse is several.
fn of_input(mut input: Input, program: Option<Program>) -> Result<Vec<Input>, ImportError> {
    // A pipe could not be read again.
    if input.is_stream() {
        input.layout = match program {
            Some(Program::Gorse) => Layout::Gorse(Subject::Feedback),
            Some(Program::Personalize) => Layout::Personalize(Subject::Feedback),
            None => Layout::Open,
        };
        if program == Some(Program::Gorse) {
            gorse::NAME.clone_into(&mut input.name);
        }
        return Ok(vec![input]);
    }
    match (source::beginning(&input)?, program) {
        (Beginning::GorseDump, _) => {
            let part = |subject, name: &str| Input {
                layout: Layout::Gorse(subject),
                name: name.to_owned(),
                origin: input.origin.clone(),
                part: None,
            };
            return Ok(vec![
                part(Subject::Items, "gorse items"),
                part(Subject::Feedback, gorse::NAME),
                part(Subject::Users, "gorse users"),
            ]);
        }
        (_, Some(program)) => {
            let rows = source::open(&input, &Reading::default())?;
            let layout = program.layout(rows.columns());
            input.layout = layout.map_err(|problem| ImportError::file(&input.shown(), problem))?;
        }
        (Beginning::Line(line), None) => input.layout = layout::of_first_line(&line),
        (Beginning::Parquet, None) => {}
    }
    // All exports of Gorse have the same feedback, whatever their files are called.
    if input.layout == Layout::Gorse(Subject::Feedback) {
        gorse::NAME.clone_into(&mut input.name);
    }
    Ok(vec![input])
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
    objects::name_of(&path.file_name().unwrap_or_default().to_string_lossy()).to_owned()
}
