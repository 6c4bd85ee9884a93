//! What the user reads: the mapping, a dry run, the last line, and errors.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use celeris_import::check::{Checked, CheckedDescriptions, CheckedObservations};
use celeris_import::display::{self, name};
use celeris_import::mapping::listed;
use celeris_import::source::unreadable;
use celeris_import::{BadRow, Role};
use celeris_model::{Loss, ModelName};

use super::args::Args;
use super::batch::Counts;
use super::node::Node;
use crate::Failure;
use crate::node_client::NodeClient;

/// One line on how a file is read.
pub fn mapping_line(checked: &Checked) -> String {
    let mut line = format!("{} ({}):", checked.input.shown(), checked.kind);
    if let Some(observations) = &checked.observations {
        let _ = write!(line, " {}", observations.mapping);
        if !observations.context.is_empty() {
            let _ = write!(line, ", context of {}", listed(&observations.context));
        }
    }
    if let Some(items) = &checked.items {
        let _ = write!(line, " items by {}", name(&items.id_column));
    }
    if let Some(users) = &checked.users {
        let _ = write!(line, " users by {}", name(&users.id_column));
    }
    if let Some(columns) = unreadable(&checked.unreadable) {
        let _ = write!(line, "; columns that cannot be read: {columns}");
    }
    line
}

/// A note if the labels of a file suit another loss than that of the model.
pub fn unsuitable(checked: &Checked, loss: Option<Loss>) -> Option<String> {
    let found = checked.observations.as_ref()?;
    let (loss, suitable) = (loss?, found.suitable_loss());
    let name = |loss: Loss| serde_json::json!(loss);
    (loss != suitable).then(|| {
        format!(
            "note: the labels of {} suit a model with \"loss\": {}, and this one has {}",
            checked.input.shown(),
            name(suitable),
            name(loss)
        )
    })
}

/// The failure for a row that cannot be taken; `bad` rows of the file are like it.
pub fn first_bad(row: &BadRow, bad: u64) -> Failure {
    let others = if bad > 1 { format!("\n{bad} rows of this file are bad") } else { String::new() };
    Failure::bad_input(format!("{row}{others}\ncorrect them, or go on without bad rows by --skip-bad FILE"))
}

/// A failure with what was done before it.
pub fn with_counts(failure: Failure, counts: &Counts) -> Failure {
    let done = match counts {
        Counts { before: 0, taken: 0, duplicates: 0, described: 0, users: 0, .. } => "nothing was taken".to_owned(),
        counts => format!(
            "before that, {}; the same command goes on once this is mended, and takes nothing twice",
            summary(counts)
        ),
    };
    match failure {
        Failure::BadInput(message) => Failure::BadInput(format!("{message}\n{done}")),
        Failure::Other(message) => Failure::Other(format!("{message}\n{done}")),
    }
}

fn summary(counts: &Counts) -> String {
    let Counts { before, taken, duplicates, skipped, refused, described, left_out, users, undescribed, .. } = counts;
    let mut parts = Vec::new();
    if *before > 0 {
        parts.push(format!("{before} observations were acknowledged before"));
    }
    if *described > 0 {
        parts.push(format!("{described} items described"));
    }
    if *users > 0 {
        parts.push(format!("{users} users described"));
    }
    if *described + *users == 0 || taken + duplicates + refused > 0 {
        parts.push(format!("{taken} observations taken, {duplicates} were there already"));
    }
    parts.push(format!("{skipped} skipped, {refused} refused"));
    if *left_out > 0 {
        parts.push(format!("{left_out} of kinds of feedback without a label left out"));
    }
    if *undescribed > 0 {
        parts.push(format!("{undescribed} users left out of whom nothing is said"));
    }
    parts.join(", ")
}

/// The last line of an import.
pub fn last_line(counts: &Counts, took: Duration, bad_rows: Option<&Path>) {
    let mut line = format!("{} in {:.1} s", summary(counts), took.as_secs_f64());
    if let Some(file) = bad_rows {
        let _ = write!(line, "; {}", set_aside(counts.skipped + counts.refused, file));
    }
    if counts.clipped > 0 {
        let _ = write!(line, "; {} labels outside of the model's label_range were clipped to it", counts.clipped);
    }
    if counts.contradictions > 0 {
        let _ = write!(
            line,
            "; {} rows describe their item or user differently from its first row, which counts",
            counts.contradictions
        );
    }
    if counts.untimed > 0 {
        let _ = write!(line, "; {} observations have no time, and got the time of arrival", counts.untimed);
    }
    eprintln!("{line}");
}

/// Where the bad rows are.
fn set_aside(bad: u64, file: &Path) -> String {
    match bad {
        0 => format!("no row was bad, so {} was not written", file.display()),
        _ => format!("the bad rows are in {}", file.display()),
    }
}

/// What to do after an import.
pub fn next_steps(node: &Node, user: Option<&str>) {
    let Some(user) = user else { return };
    let (url, elsewhere) = (node.client.url(), node.client.option());
    let body = serde_json::json!({"user": user, "k": 10});
    eprintln!("train:\n  celeris retrain {}{elsewhere} --wait", node.model);
    eprintln!("then recommend:\n  {}", post(&format!("{url}/v1/models/{}/recommend", node.model), &body));
}

/// What to do after a dry run: the commands that create a model for the file and import it.
fn after_dry_run(args: &Args, found: &Checked) -> Option<String> {
    let loss = found.observations.as_ref()?.suitable_loss();
    let name = match args.model() {
        Ok(model) => model.to_string(),
        Err(_) => found.input.stem().filter(|stem| ModelName::new(stem).is_ok()).unwrap_or_else(|| "mine".to_owned()),
    };
    let client = NodeClient::new(&args.node);
    let create = create(client.url(), &name, loss);
    let mut words: Vec<String> = std::env::args().filter(|word| word != "--dry-run").map(quoted_for_shell).collect();
    if args.model().is_err() {
        words.extend(["--model".to_owned(), name]);
    }
    words[0] = "celeris".to_owned();
    Some(format!("create a model, unless there is one:\n  {create}\nthen import:\n  {}\n", words.join(" ")))
}

/// The command that creates a model.
pub fn create(url: &str, model: &str, loss: Loss) -> String {
    post(&format!("{url}/v1/models"), &serde_json::json!({"name": model, "loss": loss}))
}

fn post(url: &str, body: &serde_json::Value) -> String {
    format!("curl {url} -H 'content-type: application/json' -d {}", quoted_for_shell(body.to_string()))
}

/// A word of a shell command.
fn quoted_for_shell(word: String) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// Shows what an import of these files would do; with whether the model was known.
pub fn dry_run(args: &Args, checked: &[Checked], is_model_known: bool) -> Result<(), Failure> {
    let mut text = String::new();
    for file in checked {
        let _ = writeln!(text, "{}: {}", file.input.shown(), file.kind);
        if let Some(observations) = &file.observations {
            of_observations(&mut text, file, observations);
        }
        if let Some(items) = &file.items {
            of_described(&mut text, file, (items, "items"));
        }
        if let Some(users) = &file.users {
            of_described(&mut text, file, (users, "users"));
        }
        if let Some(columns) = unreadable(&file.unreadable) {
            let _ = writeln!(text, "  columns that cannot be read: {columns}");
        }
        if let Some(bad) = &file.first_bad {
            let _ = writeln!(text, "  {} bad rows, the first: {bad}", file.bad);
        }
    }
    let bad: u64 = checked.iter().map(|file| file.bad).sum();
    let is_taken = bad == 0 || args.rows.skip_bad.is_some();
    if let Some(out) = &args.rows.skip_bad {
        let _ = writeln!(text, "{}", set_aside(bad, out));
    }
    if let Ok(model) = args.model() {
        let (url, is_known) = (&args.node.url, if is_model_known { "were" } else { "could not be" });
        let _ = writeln!(text, "labels {is_known} checked with the loss and label_range of model {model} at {url}");
    }
    text.push_str("nothing was sent: this was a dry run\n");
    text.extend(checked.iter().find_map(|file| after_dry_run(args, file)).filter(|_| is_taken));
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::other)?;
    if !is_taken {
        return Err(Failure::bad_input(format!(
            "{bad} rows are bad; correct them, or go on without them by --skip-bad FILE"
        )));
    }
    Ok(())
}

fn of_observations(text: &mut String, file: &Checked, found: &CheckedObservations) {
    for role in Role::ALL {
        let Some(mapped) = found.mapping.get(role) else { continue };
        let why = match (mapped.guessed, role) {
            (true, Role::Label) if found.mapping.label_is_count() && found.suitable_loss() == Loss::Implicit => {
                " (guessed; counts suit a model with \"loss\": \"implicit\")"
            }
            (true, _) => " (guessed)",
            (false, _) => "",
        };
        let _ = writeln!(text, "  {:<8} {}{why}", role.name(), name(&mapped.name));
    }
    if found.mapping.get(Role::Label).is_none() && found.labels.is_some_and(|(low, high)| low < high) {
        let _ = writeln!(text, "  label    by the kind of feedback");
    } else if found.mapping.get(Role::Label).is_none() {
        let _ = writeln!(text, "  label    the same for all: it happened (suits \"loss\": \"implicit\")");
    }
    for (column, kind) in found.context.iter().zip(&found.context_kinds) {
        let _ = writeln!(text, "  context  {}: {}", name(column), kind.words());
    }
    let unused = (0..found.columns.len()).filter(|index| !found.mapping.uses(*index));
    let unused = unused.map(|index| found.columns[index].as_str());
    let unused: Vec<&str> =
        unused.filter(|column| !found.context.iter().any(|of_context| of_context == column)).collect();
    if !unused.is_empty() {
        let _ = writeln!(text, "  unused   {}", listed(&unused));
    }
    let _ = writeln!(text, "  first rows as they would be taken:");
    for (place, taken) in &found.first {
        let mut shown = serde_json::to_value(taken).unwrap_or_default();
        // Ids of the content are made in the second reading.
        if taken.observation_id.is_empty()
            && let Some(fields) = shown.as_object_mut()
        {
            fields.remove("observation_id");
        }
        let _ = writeln!(text, "    {} {}: {shown}", place.unit.word(), place.number);
    }
    let left_out = match found.left_out {
        0 => String::new(),
        left_out => format!(", {left_out} are left out by --label-of"),
    };
    let _ = writeln!(text, "  {} rows can be taken, {} are bad{left_out}", found.good, file.bad);
    if let Some((low, high)) = found.labels {
        let _ = writeln!(text, "  labels from {low} to {high}");
    }
    if let (Some((first, last)), Some(kind)) = (found.times, found.time_kind) {
        let _ = writeln!(text, "  times from {} to {} ({})", display::time(first), display::time(last), kind.words());
    }
    if found.untimed > 0 {
        let _ = writeln!(text, "  {} rows have no time, and would get the time of arrival", found.untimed);
    }
}

fn of_described(text: &mut String, file: &Checked, (found, what): (&CheckedDescriptions, &str)) {
    let _ = writeln!(text, "  {what} by {}", name(&found.id_column));
    for row in &found.first {
        let _ = writeln!(text, "    {}: {}", row.id, serde_json::Value::from(row.attributes.clone()));
    }
    let _ = writeln!(text, "  {} rows describe {what}, {} are bad", found.good, file.bad);
}
