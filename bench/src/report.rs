//! The report of a bench: rows of cases, printed as a table or as one JSON object.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write;

use jiff::Zoned;
use serde::{Deserialize, Serialize};

use celeris_cli::Failure;
use celeris_cli::estimate::machine::Machine;

/// One case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The name, which is stable between releases.
    pub case: String,
    /// The unit of `ours` and `baseline`.
    pub unit: Cow<'static, str>,
    /// The measured value; null if this build or machine cannot measure it.
    pub ours: Option<f64>,
    /// The value of the baseline in the same run; null if there is none.
    pub baseline: Option<f64>,
    /// `ours / baseline`.
    pub ratio: Option<f64>,
}

/// The report of one bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The name of the bench.
    pub bench: Cow<'static, str>,
    /// The date of the run: year, month and day.
    pub date: String,
    /// The machine of the run.
    pub machine: Machine,
    /// The cases, in the order they were measured.
    pub rows: Vec<Row>,
}

impl Report {
    /// An empty report of this machine.
    pub fn new(bench: &'static str) -> Self {
        Self { bench: bench.into(), date: Zoned::now().date().to_string(), machine: Machine::this(), rows: Vec::new() }
    }

    /// Adds a case with its baseline.
    pub fn compare(&mut self, case: impl Into<String>, unit: &'static str, ours: f64, baseline: f64) {
        self.push(case.into(), unit, Some(ours), Some(baseline));
    }

    /// Adds a case that has no baseline.
    pub fn single(&mut self, case: impl Into<String>, unit: &'static str, ours: Option<f64>) {
        self.push(case.into(), unit, ours, None);
    }

    /// Adds a case whose baseline may be missing on this machine.
    pub fn measured(&mut self, case: impl Into<String>, unit: &'static str, ours: f64, baseline: Option<f64>) {
        self.push(case.into(), unit, Some(ours), baseline);
    }

    fn push(&mut self, case: String, unit: &'static str, ours: Option<f64>, baseline: Option<f64>) {
        // JSON has no infinities, so the result of a division by zero is null.
        let finite = |value: f64| value.is_finite().then_some(value);
        let (ours, baseline) = (ours.and_then(finite), baseline.and_then(finite));
        let ratio = ours.zip(baseline).and_then(|(ours, baseline)| finite(ours / baseline));
        let row = Row { case, unit: unit.into(), ours, baseline, ratio };
        eprintln!("  {}", line(&row));
        self.rows.push(row);
    }

    /// The row of a case.
    pub fn row(&self, case: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.case == case)
    }

    /// Prints the table, or one JSON object.
    ///
    /// # Errors
    /// If standard output is closed.
    pub fn print(&self, json: bool) -> Result<(), Failure> {
        let text = if json { serde_json::to_string(self).map_err(Failure::other)? } else { self.table() };
        writeln!(std::io::stdout().lock(), "{}", text.trim_end()).map_err(Failure::other)
    }

    fn table(&self) -> String {
        let mut text = format!("bench {} on {}\n", self.bench, self.machine);
        let head = ["case", "unit", "ours", "baseline", "ratio"].map(str::to_owned);
        text.push_str(&columns(&head));
        for row in &self.rows {
            text.push_str(&columns(&cells(row)));
        }
        text
    }
}

fn cells(row: &Row) -> [String; 5] {
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), figures);
    [row.case.clone(), row.unit.to_string(), number(row.ours), number(row.baseline), number(row.ratio)]
}

fn columns([case, unit, ours, baseline, ratio]: &[String; 5]) -> String {
    format!("{case:<44} {unit:<10} {ours:>12} {baseline:>12} {ratio:>9}\n")
}

fn line(row: &Row) -> String {
    let [case, unit, ours, baseline, ratio] = cells(row);
    let mut text = format!("{case}: {ours} {unit}");
    if row.baseline.is_some() {
        // Writing to a string cannot fail.
        let _ = write!(text, ", baseline {baseline}, ratio {ratio}");
    }
    text
}

/// Formats a number with three significant digits, without an exponent if it is readable.
pub fn figures(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 || magnitude >= 100.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else if magnitude >= 1.0 {
        format!("{value:.2}")
    } else if magnitude >= 0.001 {
        let decimals = if magnitude >= 0.1 { 3 } else { 4 };
        format!("{value:.decimals$}")
    } else {
        format!("{value:.2e}")
    }
}
