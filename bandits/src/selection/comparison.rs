//! Comparison of arms: the difference of their mean losses, with an interval.

use crate::selection::state::ArmSums;

/// The difference of two arms' mean losses with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// The mean loss of the one minus that of the other.
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Minimum number of lanes with outcomes of an arm for an interval.
pub const LANES_MIN: usize = 10;

/// The mean of one arm's losses with the variance of that mean.
struct Mean {
    value: f64,
    variance: f64,
    lanes: usize,
}

/// The mean loss of `arm` minus that of `other`, from the sums of every lane; `None` if one of them
/// has outcomes in fewer than [`LANES_MIN`] lanes.
///
/// Users are assigned to lanes by hash, and each user is served by one arm. So the means are ratios
/// of sums over lanes, and their variance is estimated from the variation between lanes, by the
/// delta method (Deng, Knoblich and Lu, "Applying the delta method in metric analytics", KDD 2018,
/// §3), which accounts for several outcomes of one user. The interval is of Student's t with the
/// degrees of freedom of Welch and Satterthwaite.
#[must_use]
pub fn difference(lanes: &[Vec<ArmSums>], arm: usize, other: usize) -> Option<Difference> {
    let (one, two) = (mean(lanes, arm)?, mean(lanes, other)?);
    let variance = one.variance + two.variance;
    let value = one.value - two.value;
    if variance == 0.0 {
        return Some(Difference { value, low: value, high: value });
    }
    let part = |mean: &Mean| mean.variance.powi(2) / (mean.lanes - 1) as f64;
    let freedom = variance.powi(2) / (part(&one) + part(&two));
    let reach = student_t_975(freedom) * variance.sqrt();
    Some(Difference { value, low: value - reach, high: value + reach })
}

fn mean(lanes: &[Vec<ArmSums>], arm: usize) -> Option<Mean> {
    let lanes: Vec<(f64, f64)> = lanes
        .iter()
        .map(|sums| (sums[arm].outcomes as f64, sums[arm].loss.value()))
        .filter(|(outcomes, _)| *outcomes > 0.0)
        .collect();
    if lanes.len() < LANES_MIN {
        return None;
    }
    let n = lanes.len() as f64;
    let (outcomes, loss) = lanes.iter().fold((0.0, 0.0), |(outcomes, loss), lane| (outcomes + lane.0, loss + lane.1));
    let value = loss / outcomes;
    let squares: f64 = lanes.iter().map(|(outcomes, loss)| (loss - value * outcomes).powi(2)).sum();
    let variance = squares * n / ((n - 1.0) * outcomes.powi(2));
    Some(Mean { value, variance, lanes: lanes.len() })
}

/// The 0.975 quantile of Student's t, by the expansion of Cornish and Fisher around the normal
/// quantile: accurate to 0.001 from nine degrees of freedom (Abramowitz and Stegun 26.7.5).
fn student_t_975(freedom: f64) -> f64 {
    let z: f64 = 1.959_963_984_540_054;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_published_tables() {
        // From tables of Student's t, two-sided 5 %.
        for (freedom, quantile) in [(9.0, 2.262), (20.0, 2.086), (63.0, 1.998), (1e9, 1.960)] {
            assert!((student_t_975(freedom) - quantile).abs() < 0.001, "{freedom}");
        }
    }
}
