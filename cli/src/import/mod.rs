//! `celeris import` and `celeris import-personalizer`: read files of feedback and stream them into a running node.
//!
//! Reading and mapping are in `celeris-import`. Here: [`args`] is the command line ([`row_args`]
//! the part that `evaluate` shares), [`node`] the
//! HTTP client, [`sending`] sends the observations and items of the checked files, [`users`] the users, [`patience`] waits
//! for a node that is away, [`resume`] keeps how far the import has come, [`bad_rows`] writes the rows set aside,
//! [`progress`] and [`report`] are what the user sees.

mod args;
pub mod bad_rows;
mod batch;
mod node;
mod patience;
mod progress;
pub mod report;
mod resume;
pub mod row_args;
mod sending;
mod users;

use std::time::{Duration, Instant};

use celeris_datasets::movielens::read_beside;
use celeris_import::check::Checked;
use celeris_import::described::Content;
use celeris_import::layout::Layout;
use celeris_import::source::is_dsjson;
use celeris_import::{Finding, ImportError, Input, Origin, Rules, check, find};
use celeris_model::Loss;

pub use args::Args;

use self::bad_rows::BadRowsFile;
use self::node::{Labels, Node};
use self::progress::Progress;
use self::resume::{Fingerprint, Resume, fingerprint};
use self::sending::Sending;
use crate::Failure;

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Io { .. } | ImportError::Usage(_) | ImportError::File { .. } => Self::bad_input(error),
            ImportError::Dataset(error) => error.into(),
            ImportError::Format(error) => Self::bad_input(error),
            ImportError::Location(error) => Self::bad_input(error),
        }
    }
}

pub fn run(args: &Args) -> Result<(), Failure> {
    import(args, &inputs_of(args)?)
}

/// `celeris import-personalizer`: the same for logs of decisions only.
pub fn run_personalizer(args: &Args) -> Result<(), Failure> {
    let inputs = inputs_of(args)?;
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

fn inputs_of(args: &Args) -> Result<Vec<Input>, Failure> {
    let finding = Finding { id_prefix: args.id_prefix.as_deref(), program: args.rows.program() };
    Ok(find(&args.paths()?, finding)?)
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
    let Some(node) = node else {
        let checked = check_all(inputs, &rules, args, &mut bad_rows, &progress)?;
        progress.done();
        return report::dry_run(args, &checked, labels.is_some());
    };
    let mut sending = Sending::new(&node, &rules, &progress, Duration::from_secs(args.wait));
    sending.resume = args.resume.as_deref().map(|file| Resume::open(file, inputs, &node)).transpose()?;
    let outcome = send_checked(args, inputs, bad_rows, &mut sending, &progress);
    let saved = sending.resume.as_mut().map_or(Ok(()), Resume::save);
    let counts = sending.counts;
    progress.done();
    outcome.and(saved).map_err(|failure| report::with_counts(failure, &counts))?;
    report::last_line(&counts, started.elapsed(), args.rows.skip_bad.as_deref());
    report::next_steps(&node, counts.example_user.as_deref());
    Ok(())
}

/// Checks and sends all inputs, but for those that an earlier import has completed.
fn send_checked(
    args: &Args,
    inputs: &[Input],
    mut bad_rows: Option<BadRowsFile>,
    sending: &mut Sending<'_>,
    progress: &Progress,
) -> Result<(), Failure> {
    let rules = sending.rules;
    let inputs = unfinished(inputs, rules, sending, progress)?;
    let fingerprints: Vec<Option<Fingerprint>> = match &sending.resume {
        None => vec![None; inputs.len()],
        Some(_) => inputs.iter().map(|input| fingerprint(input, rules)).collect::<Result<_, _>>()?,
    };
    let checked = check_all(&inputs, rules, args, &mut bad_rows, progress)?;
    if let Some(file) = bad_rows {
        sending.set_bad_rows(file)?;
    }
    send_all(sending, &inputs, &checked, fingerprints)?;
    sending.check_model()
}

/// The inputs but for those that an earlier import has completed and that have not changed since.
fn unfinished(
    inputs: &[Input],
    rules: &Rules,
    sending: &mut Sending<'_>,
    progress: &Progress,
) -> Result<Vec<Input>, Failure> {
    let mut unfinished = Vec::with_capacity(inputs.len());
    for input in inputs {
        let reached = sending.resume.as_ref().and_then(|resume| resume.reached(input)).cloned();
        let Some(reached) = reached else {
            unfinished.push(input.clone());
            continue;
        };
        let (shown, lines) = (input.shown(), reached.lines);
        if !sending.has(&reached)? {
            progress.say(&format!(
                "{shown}: the node does not have the last of {lines} rows that it had acknowledged: all are sent again"
            ));
            if let Some(resume) = &mut sending.resume {
                resume.forget(input)?;
            }
            unfinished.push(input.clone());
        } else if reached.complete && reached.fingerprint.is_some() && reached.fingerprint == fingerprint(input, rules)?
        {
            progress.say(&format!("{shown}: complete, with {lines} rows acknowledged before"));
            sending.counts.before += lines;
        } else {
            progress.say(&format!("{shown}: {lines} rows were acknowledged before, and are not sent again"));
            unfinished.push(input.clone());
        }
    }
    Ok(unfinished)
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
    let describes = |checked: &Checked| checked.items.is_some();
    if !rules.attributes.is_empty() && !checked.is_empty() && !checked.iter().any(describes) {
        let names = rules.attributes.join(", ");
        return Err(Failure::bad_input(format!("--attributes {names}: no file has such columns")));
    }
    let is_of_users = |checked: &Checked| checked.content == Content::Users;
    if !rules.user_attributes.is_empty() && !checked.is_empty() && !checked.iter().any(is_of_users) {
        let names = rules.user_attributes.join(", ");
        let needed = "no file has such columns and one of users; name its column of users by --map user=COLUMN";
        return Err(Failure::bad_input(format!("--user-attributes {names}: {needed}")));
    }
    Ok(checked)
}

fn send_all(
    sending: &mut Sending<'_>,
    inputs: &[Input],
    checked: &[Checked],
    fingerprints: Vec<Option<Fingerprint>>,
) -> Result<(), Failure> {
    let mut checked = checked.iter();
    for (input, fingerprint) in inputs.iter().zip(fingerprints) {
        if let (Layout::MovieLens { .. }, Origin::File(file)) = (input.layout, &input.origin) {
            sending.titles(input, &read_beside(file)?)?;
        }
        if input.is_stream() {
            sending.observations(input, None, fingerprint)?;
            continue;
        }
        let Some(found) = checked.next() else { continue };
        if let Some(users) = &found.users {
            sending.users(input, users)?;
        }
        if let Some(items) = &found.items {
            sending.items(input, items, found.content)?;
        }
        match &found.observations {
            Some(observations) => sending.observations(input, Some(observations), fingerprint)?,
            None => sending.complete(input, fingerprint)?,
        }
    }
    Ok(())
}
