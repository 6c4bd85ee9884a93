//! Computed parts of the features: columns that pipelines compute from the attributes of an item, the context of a
//! request, or both (Velox §3.1, computed features).
//!
//! The features of a version with parts are `x(i, c) = [factors of i | columns of the parts, in their order | 1]`. A part
//! that depends on the item alone is in the version's table like the factors, and searched with them. The columns of the
//! others are computed for each candidate of a request: what they need to know of an item is computed once, when the version
//! is read. The table has what they count as where the context is not known: their means for the item over contexts that
//! were common in the training. A search thus ranks by the score that is expected.
//!
//! Columns are standardised over the observations of the training: zero is the mean of all items, which a part has of an
//! item that it cannot be computed for. [`Parts::variance`] says what a missing part costs.

mod contexts;
mod file;
mod row;

use std::cell::RefCell;
use std::ops::Range;

use celeris_model::{Context, Learning, UserModel};
use celeris_pipelines::{Catalog, Depends, ItemValues, Objects, PipelineError, PipelineSpec, Plan, Record, Scratch};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::contexts::CommonContexts;
pub use self::contexts::{CONTEXTS_MAX, ContextShare};
pub use self::file::PartsFiles;
pub(crate) use self::file::read_parts;
pub use self::row::{ItemParts, MissingParts};
use crate::error::FeaturesError;

/// Maximum number of parts of a model.
pub const PARTS_MAX: usize = 16;

/// Maximum number of columns that depend on the context: they are computed for each candidate.
pub const CONTEXT_COLUMNS_MAX: usize = 16;

/// The largest magnitude of a standardised value; a value that is further from its mean is cut off.
pub const VALUE_ABS_MAX: f32 = 10.0;

/// A part as a version keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartSpec {
    /// Its name, unique in the model.
    pub part: String,
    /// The declaration, fitted.
    pub pipeline: PipelineSpec,
    /// For each column, the mean of the outputs over the observations of the training.
    pub means: Vec<f32>,
    /// For each column, their standard deviation, above zero.
    pub deviations: Vec<f32>,
    /// Contexts that were common in the training, for a part that depends on item and context.
    pub contexts: Vec<ContextShare>,
    /// For each column, its variance where the item is known and the context is not: the mean squared difference, over the
    /// observations of the training, from what the column then counts as.
    pub variances_without_context: Vec<f32>,
    /// What the training has to say of it.
    pub noted: PartNotes,
}

/// What a training notes of a part for those who declared it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PartNotes {
    /// The fields, as `context.hour`, that no observation had in a form that the pipeline can read.
    pub unread_fields: Vec<String>,
    /// Whether all columns were the same in all observations that have the part, or none has it.
    pub is_constant: bool,
}

/// A part that can be computed.
#[derive(Debug)]
struct Part {
    name: String,
    plan: Plan,
    /// Its columns among the features.
    columns: Range<usize>,
    means: Vec<f32>,
    deviations: Vec<f32>,
    contexts: CommonContexts,
    variances_without_context: Vec<f32>,
    noted: PartNotes,
}

impl Part {
    fn by_context(&self) -> bool {
        self.plan.depends_on().on_context()
    }

    /// Whether the part can be computed for an item with these attributes, as far as these go.
    fn has_item(&self, attributes: Option<&Map<String, Value>>) -> bool {
        attributes.map_or(!self.plan.depends_on().on_item(), |attributes| self.plan.has_item(attributes))
    }

    /// Standardises outputs, in place.
    fn standardise(&self, values: &mut [f32]) {
        for (value, (mean, deviation)) in values.iter_mut().zip(self.means.iter().zip(&self.deviations)) {
            let standard = (*value - mean) / deviation;
            *value = if standard.is_finite() { standard.clamp(-VALUE_ABS_MAX, VALUE_ABS_MAX) } else { 0.0 };
        }
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Runs `compute` with the buffers of this thread, which it does not use again within.
fn with_scratch<T>(compute: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(compute)
}

/// The parts of a version, ready to be computed.
#[derive(Debug)]
pub struct Parts {
    parts: Box<[Part]>,
    /// Length of the features.
    dim: usize,
    /// What the parts need to know of each item of the table, in the order of its rows.
    rows: Box<[ItemParts]>,
}

impl Parts {
    /// Compiles the parts of features of length `dim`, for a table without rows.
    ///
    /// # Errors
    /// [`FeaturesError::Part`] if a part cannot be compiled or its figures do not fit, [`FeaturesError::Parts`] if there are
    /// too many columns.
    pub fn compile(
        specs: &[PartSpec],
        dim: usize,
        (objects, stages): (&Objects, &Catalog),
    ) -> Result<Self, FeaturesError> {
        let mut parts = Vec::with_capacity(specs.len());
        for spec in specs {
            let plan = Plan::compile(&spec.pipeline, objects, stages).map_err(FeaturesError::of_part(&spec.part))?;
            parts.push(Part {
                name: spec.part.clone(),
                columns: 0..plan.dim(),
                means: spec.means.clone(),
                deviations: spec.deviations.clone(),
                contexts: CommonContexts::new(&spec.part, &plan, &spec.contexts)?,
                variances_without_context: spec.variances_without_context.clone(),
                noted: spec.noted.clone(),
                plan,
            });
        }
        let parts = Self { parts: placed(parts, dim)?, dim, rows: Box::default() };
        parts.check()?;
        Ok(parts)
    }

    fn check(&self) -> Result<(), FeaturesError> {
        for part in &self.parts {
            let variances = &part.variances_without_context;
            let finite = part.means.iter().all(|mean| mean.is_finite())
                && part.deviations.iter().all(|deviation| deviation.is_finite() && *deviation > 0.0)
                && variances.iter().all(|variance| variance.is_finite() && *variance >= 0.0);
            let dim = part.columns.len();
            if dim == 0 || [part.means.len(), part.deviations.len(), variances.len()] != [dim; 3] || !finite {
                let problem = format!(
                    "has {dim} columns, and needs a finite mean, a deviation above zero and a variance of at least zero for \
                     each"
                );
                return Err(FeaturesError::Parts { problem: format!("{}: {problem}", part.name) });
            }
        }
        let of_context = self.context_columns().count();
        if self.parts.len() > PARTS_MAX || of_context > CONTEXT_COLUMNS_MAX {
            let problem = format!(
                "at most {PARTS_MAX} parts and {CONTEXT_COLUMNS_MAX} columns that depend on the context, got {} and \
                 {of_context}",
                self.parts.len()
            );
            return Err(FeaturesError::Parts { problem });
        }
        Ok(())
    }

    /// With what the parts need to know of the items of a table.
    #[must_use]
    pub fn with_rows<'a>(mut self, attributes: impl IntoIterator<Item = Option<&'a Map<String, Value>>>) -> Self {
        self.rows = attributes.into_iter().map(|attributes| self.item(attributes)).collect();
        self
    }

    /// What the parts need to know of the item of a row, below the number of rows.
    #[must_use]
    pub fn of_row(&self, row: usize) -> &ItemParts {
        &self.rows[row]
    }

    /// The number of columns that are not computed: the factors and the constant.
    #[must_use]
    pub fn table_dim(&self) -> usize {
        self.dim - self.parts.iter().map(|part| part.columns.len()).sum::<usize>()
    }

    /// Length of the features.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Whether a part depends on the context.
    #[must_use]
    pub fn by_context(&self) -> bool {
        self.parts.iter().any(Part::by_context)
    }

    /// Name and columns of each part.
    pub fn columns(&self) -> impl Iterator<Item = (&str, Range<usize>)> {
        self.parts.iter().map(|part| (part.name.as_str(), part.columns.clone()))
    }

    /// Name of each part, and what its training has noted.
    pub fn notes(&self) -> impl Iterator<Item = (&str, &PartNotes)> {
        self.parts.iter().map(|part| (part.name.as_str(), &part.noted))
    }

    /// The columns that depend on the context.
    pub fn context_columns(&self) -> impl Iterator<Item = usize> + '_ {
        self.parts.iter().filter(|part| part.by_context()).flat_map(|part| part.columns.clone())
    }

    /// The names of parts.
    #[must_use]
    pub fn names(&self, of: MissingParts) -> Vec<String> {
        let missing = |(place, part): (usize, &Part)| of.has(place).then(|| part.name.clone());
        self.parts.iter().enumerate().filter_map(missing).collect()
    }

    /// Factors, of length [`Parts::table_dim`] with the constant at the end, as features, with what the columns of the parts
    /// are in an unknown context.
    #[must_use]
    pub fn materialised(&self, factors: &[f32], attributes: Option<&Map<String, Value>>) -> Box<[f32]> {
        let mut features = vec![0.0; self.dim];
        let latent = self.table_dim() - 1;
        features[..latent].copy_from_slice(&factors[..latent]);
        features[self.dim - 1] = factors[latent];
        self.materialise(attributes, &mut features);
        features.into()
    }

    /// Computes what the columns of the parts are in an unknown context, in features of length [`Parts::dim`] with zeros in
    /// these columns: values of an item with these attributes, or their means over the common contexts. Where the item has
    /// none of the attributes that a part reads, and where a part reads the context alone, they remain zero.
    pub fn materialise(&self, attributes: Option<&Map<String, Value>>, features: &mut [f32]) {
        let Some(item) = attributes else { return };
        let nothing = Context::default();
        for part in self.parts.iter().filter(|part| part.has_item(attributes)) {
            let columns = &mut features[part.columns.clone()];
            match part.plan.depends_on() {
                Depends::Context => {}
                Depends::ItemAndContext => with_scratch(|scratch| part.mean_over_contexts(item, scratch, columns)),
                Depends::Item | Depends::Nothing => {
                    let ran =
                        with_scratch(|scratch| part.plan.run(Record { item, context: &nothing }, scratch, columns));
                    debug_assert_eq!(ran, Ok(()), "the columns are as many as the outputs");
                    part.standardise(columns);
                }
            }
        }
    }

    /// What the parts need to know of an item with these attributes.
    #[must_use]
    pub fn item(&self, attributes: Option<&Map<String, Value>>) -> ItemParts {
        let mut missing = MissingParts::default();
        let mut values: Vec<Option<ItemValues>> = Vec::new();
        for (place, part) in self.parts.iter().enumerate() {
            let here = part.has_item(attributes);
            if !here {
                missing.add(place);
            }
            if part.plan.depends_on() == Depends::ItemAndContext {
                let attributes = attributes.filter(|_| here);
                values.push(attributes.map(|item| with_scratch(|scratch| part.plan.item_part(item, scratch))));
            }
        }
        ItemParts { missing, values: values.into() }
    }

    /// Computes the columns that depend on the context, for items whose features are the rows of `features`, each of length
    /// [`Parts::dim`] and materialised. Where a part is missing they are not changed. Returns what is missing for each.
    pub fn compute<'a, 'f>(
        &self,
        items: &[&'a ItemParts],
        context: Option<&Context>,
        features: impl Iterator<Item = &'f mut [f32]>,
    ) -> Vec<MissingParts> {
        let mut missing: Vec<MissingParts> = items.iter().map(|item| item.missing).collect();
        let mut rows: Vec<&mut [f32]> = features.collect();
        let mut pair = 0;
        for (place, part) in self.parts.iter().enumerate() {
            let of_pair = part.plan.depends_on() == Depends::ItemAndContext;
            let value = pair;
            pair += usize::from(of_pair);
            if !part.by_context() {
                continue;
            }
            let Some(context) = context.filter(|context| part.plan.has_context(context)) else {
                missing.iter_mut().for_each(|missing| missing.add(place));
                continue;
            };
            if of_pair {
                part.compute_pairs(items.iter().map(|item| item.values[value].as_ref()), context, &mut rows);
            } else {
                part.compute_once(context, &mut rows);
            }
        }
        missing
    }

    /// The additional variance of the score of `item` if the columns of these parts are unknown: a column of variance `v`
    /// that counts as its mean adds `v (w_j^2 + C_jj)`, with `C` the covariance of the user's weights. `v` is 1 for a part
    /// that the item lacks, since columns are standardised.
    #[must_use]
    pub fn variance(&self, user: &UserModel, learning: &Learning, (item, missing): (&ItemParts, MissingParts)) -> f64 {
        let (weights, gram_inverse) = (user.weights(), user.gram_inverse());
        let of_weight =
            |j: usize| weights[j].powi(2) + learning.noise_variance() * gram_inverse[j * self.dim + j].max(0.0);
        let of_part = |(place, part): (usize, &Part)| {
            let of_column = |(j, variance): (usize, &f32)| {
                if item.missing.has(place) { of_weight(j) } else { f64::from(*variance) * of_weight(j) }
            };
            part.columns.clone().zip(&part.variances_without_context).map(of_column).sum::<f64>()
        };
        self.parts.iter().enumerate().filter(|(place, _)| missing.has(*place)).map(of_part).sum()
    }

    /// Memory of what is kept for the rows, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(ItemParts::bytes).sum()
    }
}

impl Part {
    /// The means of the columns for an item over the common contexts.
    #[expect(clippy::cast_possible_truncation, reason = "features are held in f32; rounding to the nearest is meant")]
    fn mean_over_contexts(&self, item: &Map<String, Value>, scratch: &mut Scratch, columns: &mut [f32]) {
        let item = self.plan.item_part(item, scratch);
        let mut sums = vec![0.0; columns.len()];
        for (context, share) in self.contexts.iter() {
            let ran = self.plan.pairs(std::iter::once(&item), context, scratch, columns);
            debug_assert_eq!(ran, Ok(()), "the values are those of this plan");
            self.standardise(columns);
            sums.iter_mut().zip(&*columns).for_each(|(sum, value)| *sum += share * f64::from(*value));
        }
        columns.iter_mut().zip(sums).for_each(|(column, sum)| *column = sum as f32);
    }

    /// One output for all rows.
    fn compute_once(&self, context: &Context, rows: &mut [&mut [f32]]) {
        let Some((first, others)) = rows.split_first_mut() else { return };
        let columns = &mut first[self.columns.clone()];
        let record = Record { item: &Map::new(), context };
        let ran = with_scratch(|scratch| self.plan.run(record, scratch, columns));
        debug_assert_eq!(ran, Ok(()), "the columns are as many as the outputs");
        self.standardise(columns);
        for row in others {
            row[self.columns.clone()].copy_from_slice(columns);
        }
    }

    /// An output for each row whose item has what the part needs.
    fn compute_pairs<'v>(
        &self,
        items: impl Iterator<Item = Option<&'v ItemValues>>,
        context: &Context,
        rows: &mut [&mut [f32]],
    ) {
        let (values, mut rows): (Vec<&ItemValues>, Vec<&mut [f32]>) =
            items.zip(rows.iter_mut()).filter_map(|(values, row)| Some((values?, &mut **row))).unzip();
        let mut outputs = vec![0.0; values.len() * self.columns.len()];
        let ran = with_scratch(|scratch| {
            let context = self.plan.context_part(context, scratch);
            self.plan.pairs(values.into_iter(), &context, scratch, &mut outputs)
        });
        debug_assert_eq!(ran, Ok(()), "the values are those of this plan");
        for (row, outputs) in rows.iter_mut().zip(outputs.chunks_exact_mut(self.columns.len())) {
            self.standardise(outputs);
            row[self.columns.clone()].copy_from_slice(outputs);
        }
    }
}

/// Parts at their columns: after the factors, before the constant.
fn placed(mut parts: Vec<Part>, dim: usize) -> Result<Box<[Part]>, FeaturesError> {
    let computed: usize = parts.iter().map(|part| part.columns.len()).sum();
    let Some(mut next) = dim.checked_sub(computed + 1) else {
        let problem = format!("have {computed} columns, and there is room for {}: dim is {dim}", dim.saturating_sub(1));
        return Err(FeaturesError::Parts { problem });
    };
    for part in &mut parts {
        part.columns = next..next + part.columns.len();
        next = part.columns.end;
    }
    Ok(parts.into())
}

impl FeaturesError {
    fn of_part(part: &str) -> impl FnOnce(PipelineError) -> Self {
        let part = part.to_owned();
        move |source| Self::Part { part, source: Box::new(source) }
    }
}
