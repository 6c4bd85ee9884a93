//! The baseline Vowpal Wabbit, in the environment made by `cargo xtask peers`: logistic regression with interactions.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use celeris_datasets::synthetic::DEVICES;
use celeris_datasets::synthetic::clicks::{ClickRow, Clicks, GENRES, MAKERS};
use serde::{Deserialize, Serialize};

use crate::peers::{Python, run};

const SCRIPT: &str = include_str!("vw_context.py");

/// Its log loss on the second half of the stream, with the best of the tried options.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VowpalWabbit {
    pub log_loss: f64,
    /// The options that were best on the second half itself, in its favour.
    pub options: String,
    pub tried: usize,
}

/// Learns the first rows, then predicts and learns each of the others.
///
/// # Errors
/// If it fails, with the last lines of its output.
pub(super) fn progressive_loss(
    python: &Python,
    (clicks, first, second): (&Clicks, &[ClickRow], &[ClickRow]),
    folder: &Path,
) -> anyhow::Result<VowpalWabbit> {
    let [script, before, after] = ["vw_context.py", "first.txt", "second.txt"].map(|name| folder.join(name));
    std::fs::write(&script, SCRIPT)?;
    std::fs::write(&before, lines(clicks, first))?;
    std::fs::write(&after, lines(clicks, second))?;
    let mut command = Command::new(python.program("python"));
    command.arg(&script).arg("--first").arg(&before).arg("--second").arg(&after);
    serde_json::from_slice(&run(&mut command)?).context("vw_context.py printed something else than its result")
}

/// The rows in its text format: namespaces of the user, the item, the item's attributes, and the context.
fn lines(clicks: &Clicks, rows: &[ClickRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let (user, item) = (&clicks.users[row.user], &clicks.items[row.item]);
        let label = if row.clicked { "1" } else { "-1" };
        let (genre, maker, price) = (GENRES[item.genre], MAKERS[item.maker], item.price.log2());
        let (device, hours, hour) =
            (DEVICES[row.circumstances.device], row.circumstances.day_part(), row.circumstances.hour);
        writeln!(
            text,
            "{label} |u {user} |i {id} |a genre={genre} maker={maker} price:{price:.4} |c device={device} hours={hours} hour={hour}",
            id = item.id
        )
        .expect("text in memory can be written");
    }
    text
}
