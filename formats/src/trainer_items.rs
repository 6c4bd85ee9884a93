//! The trainer's state of items in a version directory, for the warm start of the next training.
//!
//! | column | type | absent |
//! |---|---|---|
//! | `item` | utf8 | |
//! | `bias`, `bias_variance` | float | under implicit feedback |
//! | `factors` | list of float | without latent factors |
//! | `factor_variances` | list of float | without latent factors, and under implicit feedback |
//! | `choices` | list of float | if no choice vectors were fitted |

use arrow_array::RecordBatch;
use celeris_model::ItemId;

use crate::columns::{number_column, record_batch, text_column, vector_column};

/// The name of the file.
pub const FILE: &str = "trainer_items.parquet";

pub const ITEM: &str = "item";
pub const BIAS: &str = "bias";
pub const BIAS_VARIANCE: &str = "bias_variance";
pub const FACTORS: &str = "factors";
pub const FACTOR_VARIANCES: &str = "factor_variances";
pub const CHOICES: &str = "choices";

/// State of some items; columns that are `None` are absent.
#[derive(Debug, Clone, Copy)]
pub struct TrainerItems<'a> {
    pub items: &'a [ItemId],
    /// Number of factors of an item.
    pub latent: usize,
    /// Length `items`.
    pub biases: Option<&'a [f32]>,
    /// Length `items`.
    pub bias_variances: Option<&'a [f32]>,
    /// Row-major `items x latent`.
    pub factors: Option<&'a [f32]>,
    /// Row-major `items x latent`.
    pub factor_variances: Option<&'a [f32]>,
    /// Length of a choice vector.
    pub dim: usize,
    /// Row-major `items x dim`.
    pub choices: Option<&'a [f32]>,
}

impl TrainerItems<'_> {
    /// The table. Lists are left out if there are no latent factors.
    #[must_use]
    pub fn table(&self) -> RecordBatch {
        let numbers = [(BIAS, self.biases), (BIAS_VARIANCE, self.bias_variances)];
        let lists = [(FACTORS, self.factors), (FACTOR_VARIANCES, self.factor_variances)];
        let mut columns = vec![(ITEM, text_column(self.items.iter().map(ItemId::as_str)))];
        columns.extend(numbers.into_iter().filter_map(|(name, values)| Some((name, number_column(values?)))));
        if self.latent > 0 {
            let list = |(name, values): (_, Option<&[f32]>)| Some((name, vector_column(values?, self.latent)));
            columns.extend(lists.into_iter().filter_map(list));
        }
        columns.extend(self.choices.map(|choices| (CHOICES, vector_column(choices, self.dim))));
        record_batch(columns)
    }
}
