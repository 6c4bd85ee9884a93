//! External trainers of a node: complete command lines, by name.
//!
//! Requests and models name a trainer; its command line is in the node's configuration, up to the
//! last argument. The node only substitutes placeholders for paths that it created itself. So no
//! client can run a program that the configuration does not name, and no value that a client sends
//! is part of a command line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::ManagerError;

/// Names of the built-in trainers, which are reserved.
const ALS: &str = "als";
const POPULARITY: &str = celeris_retrain::POPULARITY;

/// Limits: trainers of a node, words of a command line, bytes of a word, bytes of a name.
const TRAINERS_MAX: usize = 100;
const WORDS_MAX: usize = 256;
const WORD_BYTES_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 64;

/// Placeholders in a word of a command line.
const JOB: &str = "{job}";
const FOLDER: &str = "{folder}";
const SPARK_SCRIPT: &str = "{spark_als}";

/// A trainer, identified by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Engine {
    /// The built-in alternating least squares, `als`.
    #[default]
    Als,
    /// The built-in trainer of offsets alone, `popularity`.
    Popularity,
    /// A trainer from the node's configuration.
    Named(TrainerName),
}

/// Name of an external trainer: letters, digits, `-` and `_`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrainerName(String);

impl Engine {
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Als => ALS,
            Self::Popularity => POPULARITY,
            Self::Named(TrainerName(name)) => name,
        }
    }

    pub(crate) fn is_built_in(&self) -> bool {
        !matches!(self, Self::Named(_))
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl TryFrom<String> for Engine {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name.as_str() {
            ALS => return Ok(Self::Als),
            POPULARITY => return Ok(Self::Popularity),
            _ => {}
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) {
            return Ok(Self::Named(TrainerName(name)));
        }
        Err(format!("the name of a trainer has 1 to {NAME_BYTES_MAX} letters, digits, `-` and `_`"))
    }
}

impl From<Engine> for String {
    fn from(engine: Engine) -> Self {
        engine.name().to_owned()
    }
}

/// Values of the placeholders.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) job: &'a Path,
    pub(crate) folder: &'a Path,
    /// The Spark script.
    pub(crate) spark_script: &'a Path,
}

/// A program and its arguments, with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    /// Checks the words of a command line.
    ///
    /// # Errors
    /// What is wrong and how to fix it.
    pub fn new(words: Vec<String>) -> Result<Self, String> {
        let Some(program) = words.first() else {
            return Err("must name a program, as in [\"/opt/trainer/run\", \"--job\", \"{job}\"]".to_owned());
        };
        if [JOB, FOLDER, SPARK_SCRIPT].iter().any(|place| program.contains(place)) {
            return Err(format!("must begin with a program, and {program:?} is a file of the job"));
        }
        if words.len() > WORDS_MAX || words.iter().any(|word| word.len() > WORD_BYTES_MAX) {
            return Err(format!("must have at most {WORDS_MAX} words of {WORD_BYTES_MAX} bytes"));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err("must not hold a zero byte".to_owned());
        }
        if !words.iter().any(|word| word.contains(JOB)) {
            return Err(format!("must say where the job file goes, as in \"--job\", \"{JOB}\""));
        }
        Ok(Self(words))
    }

    /// Whether it contains the placeholder of the Spark script.
    pub(crate) fn wants_spark_script(&self) -> bool {
        self.0.iter().any(|word| word.contains(SPARK_SCRIPT))
    }

    /// The words with the placeholders substituted.
    ///
    /// # Errors
    /// `Io` if a path is not UTF-8.
    pub(crate) fn filled(&self, places: Places) -> Result<Vec<String>, ManagerError> {
        let values = [
            (JOB, text_of(places.job)?),
            (FOLDER, text_of(places.folder)?),
            (SPARK_SCRIPT, text_of(places.spark_script)?),
        ];
        Ok(self.0.iter().map(|word| fill(word, &values)).collect())
    }
}

/// A path as a word of a command line.
///
/// # Errors
/// `Io` if it is not UTF-8.
pub(crate) fn text_of(path: &Path) -> Result<String, ManagerError> {
    let problem =
        || std::io::Error::new(std::io::ErrorKind::InvalidInput, "the path is not UTF-8; choose another folder");
    path.to_str().map(str::to_owned).ok_or_else(|| ManagerError::io(path)(problem()))
}

/// Substitutes placeholders in one pass from the left; substituted text is not scanned again.
fn fill(word: &str, values: &[(&str, String)]) -> String {
    let (mut filled, mut rest) = (String::new(), word);
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        if let Some((place, value)) = values.iter().find(|(place, _)| from.starts_with(place)) {
            filled.push_str(value);
            rest = &from[place.len()..];
        } else {
            filled.push('{');
            rest = &from[1..];
        }
    }
    filled + rest
}

/// The command lines of a node, by trainer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trainers(BTreeMap<Engine, CommandLine>);

impl Trainers {
    /// Checks names and command lines.
    ///
    /// # Errors
    /// What is wrong, with the name of the trainer.
    pub fn new(named: &BTreeMap<String, Vec<String>>) -> Result<Self, String> {
        if named.len() > TRAINERS_MAX {
            return Err(format!("at most {TRAINERS_MAX} trainers can be named, got {}", named.len()));
        }
        let mut trainers = BTreeMap::new();
        for (name, words) in named {
            let wrong = |problem: String| format!("{name:?}: {problem}");
            let engine = Engine::try_from(name.clone()).map_err(wrong)?;
            if engine.is_built_in() {
                return Err(wrong("is the name of a built-in trainer; choose another".to_owned()));
            }
            trainers.insert(engine, CommandLine::new(words.clone()).map_err(wrong)?);
        }
        Ok(Self(trainers))
    }

    /// The command line of a trainer; `None` for a built-in one.
    ///
    /// # Errors
    /// `TrainerSetting` if the node has no trainer of that name.
    pub(crate) fn command_of(&self, engine: &Engine) -> Result<Option<&CommandLine>, ManagerError> {
        if engine.is_built_in() {
            return Ok(None);
        }
        let unknown = || {
            let names: Vec<&str> = [ALS, POPULARITY].into_iter().chain(self.0.keys().map(Engine::name)).collect();
            let names = names.join(", ");
            let problem = format!(
                "names the trainer {engine}, and this node has {names}; name its command line in the section \
                 [training.trainers] of the node's configuration"
            );
            ManagerError::TrainerSetting { field: "engine", problem }
        };
        self.0.get(engine).map(Some).ok_or_else(unknown)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn trainers(named: &[(&str, &[&str])]) -> Result<Trainers, String> {
        Trainers::new(&named.iter().map(|(name, line)| ((*name).to_owned(), words(line))).collect())
    }

    #[test]
    fn places_are_filled_in_once_and_nothing_else_changes() {
        let line =
            CommandLine::new(words(&["run", "{job}", "--conf=dir={folder}/a{b}", "{spark_als}", "{", "x}"])).unwrap();
        assert!(line.wants_spark_script());
        let places =
            Places { job: Path::new("/{folder}/job.json"), folder: Path::new("/f"), spark_script: Path::new("/s.py") };
        let filled = ["run", "/{folder}/job.json", "--conf=dir=/f/a{b}", "/s.py", "{", "x}"];
        assert_eq!(line.filled(places).unwrap(), filled);
    }

    #[test]
    fn invalid_command_lines_are_rejected_with_the_name_of_the_trainer() {
        let refused = |name: &str, line: &[&str], why: &str| {
            let problem = trainers(&[(name, line)]).unwrap_err();
            assert!(problem.contains(why) && problem.contains(name), "{problem}");
        };
        refused("svd", &[], "must name a program");
        refused("svd", &["python3", "/opt/trainer.py"], "{job}");
        refused("svd", &["{folder}/run", "{job}"], "must begin with a program");
        refused("svd", &["run", "{job}", "\0"], "zero byte");
        refused("als", &["run", "{job}"], "built-in");
        refused("a b", &["run", "{job}"], "letters");
        refused("", &["run", "{job}"], "letters");
        let many: Vec<&str> = std::iter::repeat_n("{job}", WORDS_MAX + 1).collect();
        refused("svd", &[&["run"], many.as_slice()].concat(), "at most");
    }

    #[test]
    fn only_configured_trainers_are_run() {
        let trainers = trainers(&[("svd", &["python3", "/opt/trainer.py", "--job", "{job}"])]).unwrap();
        let engine = |name: &str| Engine::try_from(name.to_owned());
        assert_eq!(trainers.command_of(&Engine::Als).unwrap(), None);
        assert!(trainers.command_of(&engine("svd").unwrap()).unwrap().is_some());
        let refusal = trainers.command_of(&engine("spark").unwrap()).unwrap_err().to_string();
        assert!(refusal.contains("spark") && refusal.contains("als, popularity, svd"), "{refusal}");
        assert!(refusal.contains("[training.trainers]"), "{refusal}");
        for program in ["/bin/sh", "python3 -c", "sh;", "..", "é"] {
            assert!(engine(program).is_err(), "{program}");
        }
    }
}
