//! Targets of the protocol, and its report as text.

use std::fmt;

use serde::Serialize;

use super::{ContextReport, Regret, VowpalWabbit};
use crate::probabilities::Quality;

/// The largest share of the regret without parts that may be left with them.
const REGRET_RATIO_MAX: f64 = 0.5;

/// A figure that should not exceed another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Target {
    pub figure: String,
    pub value: f64,
    /// `None` if what it is compared with is not there.
    pub at_most: Option<f64>,
    /// `None` if it could not be compared.
    pub met: Option<bool>,
}

impl Target {
    fn new(figure: String, value: f64, at_most: Option<f64>) -> Self {
        Self { figure, value, at_most, met: at_most.map(|most| value <= most) }
    }
}

impl ContextReport {
    pub(super) fn compared(&self) -> Vec<Target> {
        let peer = self.vowpal_wabbit.as_ref().map(|peer| peer.log_loss);
        let loss =
            Target::new("log loss with parts, beside Vowpal Wabbit's".to_owned(), self.with_parts.log_loss, peer);
        let of_regret = |regret: &Regret| {
            let figure = format!("regret of {} with parts, as a share of that without", name(regret));
            Target::new(figure, regret.ratio, Some(REGRET_RATIO_MAX))
        };
        std::iter::once(loss).chain(self.regret.iter().map(of_regret)).collect()
    }
}

fn name(regret: &Regret) -> String {
    // A policy is an object with its name.
    let spec = serde_json::to_value(&regret.policy).unwrap_or_default();
    spec["name"].as_str().unwrap_or_default().to_owned()
}

impl fmt::Display for ContextReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dim, seed, users, items, rows: [first, second], .. } = self;
        writeln!(out, "context on generated clicks, dim {dim}, seed {seed}")?;
        writeln!(out, "  {users} users, {items} items, {first} rows to train on, {second} to predict")?;
        writeln!(out, "                        log loss  AUC      calibration error")?;
        let line = |out: &mut fmt::Formatter, name: &str, of: &Quality| {
            let Quality { log_loss, auc, calibration_error } = of;
            writeln!(out, "  {name:<20}  {log_loss:.4}    {:.4}   {calibration_error:.4}", auc.unwrap_or(f64::NAN))
        };
        line(out, "base rate", &self.base_rate)?;
        line(out, "without parts", &self.without_parts)?;
        line(out, "with parts", &self.with_parts)?;
        match &self.vowpal_wabbit {
            Some(VowpalWabbit { log_loss, options, tried }) => {
                writeln!(out, "  Vowpal Wabbit         {log_loss:.4}    with {options}, the best of {tried}")?;
            }
            None => writeln!(out, "  Vowpal Wabbit         not there")?,
        }
        line(out, "the truth", &self.truth)?;
        writeln!(out, "  regret over {second} choices among {} items:", self.candidates)?;
        writeln!(out, "                        without   with     ratio")?;
        for regret in &self.regret {
            let Regret { without_parts, with_parts, ratio, .. } = regret;
            writeln!(out, "  {:<20}  {without_parts:<8.0}  {with_parts:<7.0}  {ratio:.3}", name(regret))?;
        }
        write!(out, "  targets:")?;
        for Target { figure, value, at_most, met } in &self.targets {
            let most = at_most.map_or_else(|| "unknown".to_owned(), |most| format!("{most:.4}"));
            let met = match met {
                Some(true) => "met",
                Some(false) => "missed",
                None => "not compared",
            };
            write!(out, "\n    {figure}: {value:.4}, at most {most}: {met}")?;
        }
        Ok(())
    }
}
