//! How a model learns from feedback.

use serde::{Deserialize, Serialize};

/// The loss that user weights minimise, and with it what a label means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The squared difference of score and label: ratings, amounts, any graded reward.
    #[default]
    Squared,
    /// The log loss of `sigmoid(score)` against a label of 0 or 1: clicks. Scores are log-odds.
    Logistic,
    /// Feedback that only says "this, and how often" (Hu, Koren & Volinsky 2008): a label `r >= 0` with weight `a`
    /// is a preference of 1 held with the confidence `c = 1 + a r`, against a preference of 0 held with the confidence
    /// 1 for every item.
    Implicit,
}
