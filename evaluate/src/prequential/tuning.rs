//! Settings chosen by the rows so far.

use celeris_model::{HalfLife, Learning, Loss};
use celeris_retrain::Trained;

use super::stream::{Rows, Segment, serve};
use crate::accuracy::{Squares, clamped_square};
use crate::progress::Part;
use crate::{EvaluateSettings, Numbered};

/// One row in this many, of the latest, decides.
const HELD_OUT_ONE_IN: usize = 10;

/// Candidate half-lives of what users have taught, in seconds: none, and a year.
const HALF_LIVES: [Option<f64>; 2] = [None, Some(365.0 * 86_400.0)];

/// Smallest `dim` of the candidates: an offset, a factor and the constant.
const DIM_MIN: usize = 3;

/// A version, and how users' states learn under it.
pub(super) struct Served {
    pub(super) version: Trained,
    pub(super) half_life: Option<HalfLife>,
    /// Number of rows of the training from nothing that the version goes back to.
    pub(super) cold: usize,
}

impl Served {
    pub(super) fn learning(&self) -> Learning {
        Learning::new(self.version.prior.clone(), Loss::Squared, self.half_life)
    }

    pub(super) fn described(&self) -> String {
        let half_life = self
            .half_life
            .map_or("no half-life".to_owned(), |one| format!("a half-life of {:.0} days", one.seconds() / 86_400.0));
        format!("dim {}, {half_life}", self.version.dim)
    }
}

/// A version trained on the first `known` rows, with the settings that predict the latest tenth of
/// them best, each of these rows before it is learnt.
///
/// # Errors
/// If the trainer fails.
pub(super) fn tuned(
    numbered: &Numbered,
    (rows, known): (Rows, usize),
    settings: &EvaluateSettings,
) -> anyhow::Result<Served> {
    let held_out = Segment { from: known - known.div_ceil(HELD_OUT_ONE_IN), to: known };
    let mut best = (f64::INFINITY, settings.dim, None);
    // With one row there is nothing to compare.
    let dims = if held_out.from > 0 { dims(settings.dim) } else { Vec::new() };
    for dim in dims {
        let version = numbered.train(
            &rows.ratings[..held_out.from],
            &EvaluateSettings { dim, ..*settings },
            Part::unreported(),
        )?;
        for seconds in HALF_LIVES {
            let half_life = seconds.map(HalfLife::from_seconds).transpose()?;
            let learning = Learning::new(version.prior.clone(), Loss::Squared, half_life);
            let range = version.label_range;
            let mut squares = Squares::default();
            let scored = serve(&version, &learning, (rows, held_out), Part::unreported())?;
            for (row, one) in rows.ratings[held_out.from..].iter().zip(scored) {
                squares.add(row.user, clamped_square(range, row.label, one.score));
            }
            let found = squares.rmse().rmse;
            if found < best.0 {
                best = (found, dim, half_life);
            }
        }
    }
    let (_, dim, half_life) = best;
    let version = numbered.train(&rows.ratings[..known], &EvaluateSettings { dim, ..*settings }, Part::unreported())?;
    Ok(Served { version, half_life, cold: known })
}

/// The candidates around the given one: half and double.
fn dims(dim: usize) -> Vec<usize> {
    let mut dims: Vec<usize> = [dim / 2, dim, 2 * dim]
        .into_iter()
        .map(|one| one.clamp(DIM_MIN.min(dim), celeris_retrain::settings::DIM_MAX))
        .collect();
    dims.dedup();
    dims
}
