//! `celeris models`: the models of a running node.

use std::io::{ErrorKind, Write};

use serde_json::Value;

use crate::Failure;
use crate::node_client::{NodeArgs, NodeClient};

/// Lists the models of a running node.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// Prints the reply of the API.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let models = NodeClient::new(&args.node).get("/v1/models")?;
    print(&if args.json { format!("{models}\n") } else { table(&models) })
}

/// The models as a table, one line each; a hint if there are none.
pub fn table(reply: &Value) -> String {
    let models = reply["models"].as_array().map_or(&[][..], Vec::as_slice);
    if models.is_empty() {
        return "no models; create one by POST /v1/models, as `celeris import FILE --dry-run` shows\n".to_owned();
    }
    let header = ["MODEL", "LOSS", "VERSION", "ITEMS", "OBSERVATIONS", "RECENT LOSS", "POLICY"].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(header).chain(models.iter().map(row)).collect();
    aligned(&rows)
}

/// Rows as lines, each column as wide as its widest cell.
pub fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(model: &Value) -> [String; 7] {
    let text = |name: &str| model[name].as_str().unwrap_or("-").to_owned();
    let number = |name: &str| model[name].as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string());
    if let Some(reason) = model["unavailable"].as_str() {
        let unavailable = format!("unavailable: {reason}");
        return [text("name"), unavailable, String::new(), String::new(), String::new(), String::new(), String::new()];
    }
    if model["kind"] == "selection" {
        let arms = model["arms"].as_array().map_or(0, Vec::len);
        let about = format!("selection among {arms}");
        return [text("name"), about, String::new(), String::new(), String::new(), String::new(), String::new()];
    }
    let recent = &model["recent_loss"];
    let recent = match (recent["metric"].as_str(), recent["value"].as_f64()) {
        (Some(metric), Some(value)) => format!("{metric} {value:.4}"),
        _ => "-".to_owned(),
    };
    [
        text("name"),
        text("loss"),
        number("active_version"),
        number("items"),
        number("observations"),
        recent,
        model["policy"]["name"].as_str().unwrap_or("-").to_owned(),
    ]
}

/// Writes a result to standard output. A reader that has read enough, such as `head`, is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::other(error)),
        _ => Ok(()),
    }
}
