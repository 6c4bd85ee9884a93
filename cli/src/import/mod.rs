//! `celeris import` and `celeris import-personalizer`: read files of feedback and stream them into a running node.
//!
//! Reading and mapping are in `celeris-import`. Here: [`args`] is the command line ([`row_args`]
//! the part that `evaluate` shares), [`node`] the
//! HTTP client, [`sending`] sends the observations and items of the checked files, [`bad_rows`]
//! writes the rows set aside, [`progress`] and [`report`] are what the user sees.

mod args;
pub mod bad_rows;
mod node;
mod progress;
pub mod report;
pub mod row_args;
mod sending;

use std::time::Instant;

use celeris_datasets::movielens::read_beside;
use celeris_import::check::Checked;
use celeris_import::items::Content;
use celeris_import::source::is_dsjson;
use celeris_import::{ImportError, Input, Origin, Rules, check, find};
use celeris_model::Loss;

pub use args::Args;

use self::bad_rows::BadRowsFile;
use self::node::{Labels, Node};
use self::progress::Progress;
use self::sending::{Counts, Sending};
use crate::Failure;

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Io { .. } | ImportError::Usage(_) | ImportError::File { .. } => Self::bad_input(error),
            ImportError::Dataset(error) => error.into(),
            ImportError::Format(error) => Self::bad_input(error),
        }
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    import(args, &find(&args.paths()?, args.id_prefix.as_deref())?)
}

/// `celeris import-personalizer`: the same for logs of decisions only.
pub fn run_personalizer(args: &Args) -> Result<(), Failure> {
    let inputs = find(&args.paths()?, args.id_prefix.as_deref())?;
    for input in inputs.iter().filter(|input| !input.is_stream()) {
        if !is_dsjson(input)? {
            let shown = input.shown();
            return Err(Failure::bad_input(format!(
                "{shown}: is no log of decisions in dsjson; `celeris import` reads other files"
            )));
        }
    }
    import(args, &inputs)
}

fn import(args: &Args, inputs: &[Input]) -> Result<(), Failure> {
    let started = Instant::now();
    let mut rules = args.rules()?;
    let mut bad_rows = args.rows.skip_bad.as_deref().map(|file| BadRowsFile::new(file, inputs)).transpose()?;
    let node = if args.dry_run {
        None
    } else {
        Some(Node::connect(&args.node, args.model()?, || suitable_loss(inputs, &rules))?)
    };
    let labels = match &node {
        Some(node) => Some(node.labels),
        None => args.model().ok().and_then(|model| node::labels_if_known(&args.node, &model)),
    };
    if let Some(Labels { loss, range }) = labels {
        (rules.loss, rules.label_range) = (loss, range);
    }
    let progress = Progress::new();
    progress.clear_when_interrupted(args.dry_run);
    let checked = check_all(inputs, &rules, args, &mut bad_rows, &progress);
    let checked = checked
        .map_err(|failure| if args.dry_run { failure } else { report::with_counts(failure, &Counts::default()) })?;
    let Some(node) = node else {
        progress.done();
        return report::dry_run(args, &checked, labels.is_some());
    };
    let mut sending = Sending::new(&node, &rules, bad_rows, &progress);
    let outcome = send_all(&mut sending, inputs, checked).and_then(|()| sending.check_model());
    let counts = sending.counts;
    progress.done();
    outcome.map_err(|failure| report::with_counts(failure, &counts))?;
    report::last_line(&counts, started.elapsed(), args.rows.skip_bad.as_deref());
    report::next_steps(&node, counts.example_user.as_deref());
    Ok(())
}

/// The loss of a model for these files.
fn suitable_loss(inputs: &[Input], rules: &Rules) -> Loss {
    let first = inputs.iter().find(|input| !input.is_stream());
    let checked = first.and_then(|input| check(input, rules, &mut |_| Ok(()), &mut |_, _| {}).ok());
    checked.and_then(|checked| checked.observations).map_or(Loss::Squared, |found| found.suitable_loss())
}

/// Reads all files that can be read twice, before anything is sent. In a dry run, also the others.
fn check_all(
    inputs: &[Input],
    rules: &Rules,
    args: &Args,
    bad_rows: &mut Option<BadRowsFile>,
    progress: &Progress,
) -> Result<Vec<Checked>, Failure> {
    let mut checked = Vec::new();
    for input in inputs.iter().filter(|input| args.dry_run || !input.is_stream()) {
        progress.begin("checking", input);
        // Another reading follows unless this is a dry run: bad rows are written in the last one.
        let mut on_bad = |row: &celeris_import::BadRow| match bad_rows {
            Some(file) if args.dry_run => file.write(row),
            _ => Ok(()),
        };
        let found = check(input, rules, &mut on_bad, &mut |rows, bytes| progress.at(rows, bytes));
        let found = found.inspect_err(|_| progress.done())?;
        if !args.dry_run {
            progress.say(&report::mapping_line(&found));
            if let Some(note) = report::unsuitable(&found, rules.loss) {
                progress.say(&note);
            }
            if let Some(bad) = found.first_bad.as_ref().filter(|_| bad_rows.is_none()) {
                progress.done();
                return Err(report::first_bad(bad, found.bad));
            }
        }
        checked.push(found);
    }
    let describes = |checked: &Checked| checked.content != Content::Observations;
    if !rules.attributes.is_empty() && !checked.iter().any(describes) {
        let names = rules.attributes.join(", ");
        return Err(Failure::bad_input(format!("--attributes {names}: no file has such columns")));
    }
    Ok(checked)
}

fn send_all(sending: &mut Sending<'_>, inputs: &[Input], checked: Vec<Checked>) -> Result<(), Failure> {
    let mut checked = checked.into_iter();
    for input in inputs {
        if let (celeris_import::input::Layout::MovieLens { .. }, Origin::File(file)) = (input.layout, &input.origin) {
            sending.titles(input, &read_beside(file)?)?;
        }
        if input.is_stream() {
            sending.observations(input, None)?;
            continue;
        }
        let Some(found) = checked.next() else { continue };
        if let Some(items) = &found.items {
            sending.items(input, items, found.content)?;
        }
        if let Some(observations) = found.observations {
            sending.observations(input, Some(observations))?;
        }
    }
    Ok(())
}
