//! Computed parts of the features: columns that pipelines compute from the attributes of an item, the context of a
//! request, or both (Velox §3.1, computed features).
//!
//! The features of a version with parts are `x(i, c) = [factors of i | columns of the parts, in their order | 1]`. A part
//! that depends on the item alone is in the version's table like the factors, and searched with them. The columns of the
//! others are zero in the table and computed for each candidate of a request: what they need to know of an item is
//! computed once, when the version is read.
//!
//! Columns are standardised over the observations of the training, and zero is a mean: of all items for a part of the item or
//! the context alone, of the item over contexts that were common in the training for a part of both. Such a part says how the
//! context changes an item, and factors and offset say what it is worth on average. A part that is missing has zeros, a
//! search without it ranks by the score that is expected, and [`Parts::variance`] says what is unknown then. Of an item
//! outside the table no factors were learnt: [`Parts::item_effect`] is what the parts say of it on average.

mod contexts;
mod file;
mod row;

use std::cell::RefCell;
use std::ops::Range;

use celeris_model::{Context, Learning, UserModel};
use celeris_pipelines::{Catalog, Depends, ItemValues, Objects, PipelineError, PipelineSpec, Plan, Record, Scratch};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::contexts::moments_of;
pub use self::contexts::{CONTEXTS_MAX, CommonContexts, ContextShare};
pub(crate) use self::file::read_parts;
pub use self::file::{ItemMoments, PartsFiles};
use self::row::ItemOutputs;
pub use self::row::{ItemParts, MissingParts};
use crate::error::FeaturesError;

/// Maximum number of parts of a model.
pub const PARTS_MAX: usize = 16;

/// Maximum number of columns that depend on the context: they are computed for each candidate.
pub const CONTEXT_COLUMNS_MAX: usize = 16;

/// The largest magnitude of a standardised value; a value that is further from its mean is cut off.
pub const VALUE_ABS_MAX: f32 = 10.0;

/// The largest magnitude of the mean of an output.
const OUTPUT_ABS_MAX: f32 = 1e30;

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
    /// For each column, their standard deviation from the means, or from those of their items, above zero.
    pub deviations: Vec<f32>,
    /// Contexts that were common in the training, for a part that depends on item and context. Without any, its columns are
    /// standardised by the means of all items.
    pub contexts: Vec<ContextShare>,
    /// For each column of such a part, how much an item's score rises on average with the item's mean, in units of its
    /// deviation ([`Parts::item_effect`]).
    pub item_effects: Vec<f32>,
    /// What the training has to say of it.
    pub noted: PartNotes,
}

/// What a training notes of a part for those who declared it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PartNotes {
    /// The fields, as `context.hour`, that no observation had in a form that the pipeline can read.
    pub unread_fields: Vec<String>,
    /// Whether all columns were the same in all observations that have the part, of an item if the part depends on the context
    /// too, or none has it.
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
    item_effects: Vec<f32>,
    noted: PartNotes,
}

impl Part {
    fn by_context(&self) -> bool {
        self.plan.depends_on().on_context()
    }

    /// Whether it depends on the item and on the context.
    fn is_of_both(&self) -> bool {
        self.plan.depends_on() == Depends::ItemAndContext
    }

    /// Whether the part can be computed for an item with these attributes, as far as these go.
    fn has_item(&self, attributes: Option<&Map<String, Value>>) -> bool {
        attributes.map_or(!self.plan.depends_on().on_item(), |attributes| self.plan.has_item(attributes))
    }

    /// Standardises outputs by these means, in place.
    fn standardise(&self, values: &mut [f32], means: &[f32]) {
        for (value, (mean, deviation)) in values.iter_mut().zip(means.iter().zip(&self.deviations)) {
            let standard = (*value - mean) / deviation;
            *value = if standard.is_finite() { standard.clamp(-VALUE_ABS_MAX, VALUE_ABS_MAX) } else { 0.0 };
        }
    }

    /// The means of the columns for an item, before they are standardised.
    fn means_of<'a>(&'a self, item: &'a ItemOutputs) -> &'a [f32] {
        if self.contexts.is_empty() { &self.means } else { &item.moments[..self.columns.len()] }
    }

    /// The variance of `w . x` for an item in an unknown context, if `weights` gives `E[w_j w_k]`.
    fn variance_of(&self, item: Option<&ItemOutputs>, weights: impl Fn(usize, usize) -> f64) -> f64 {
        let Some(item) = item.filter(|_| !self.contexts.is_empty()) else {
            return self.columns.clone().map(|j| weights(j, j)).sum();
        };
        let mut covariances = item.moments[self.columns.len()..].iter();
        let mut sum = 0.0;
        for j in 0..self.columns.len() {
            for (k, covariance) in covariances.by_ref().take(j + 1).enumerate().filter(|(_, of)| **of != 0.0) {
                let scale = f64::from(self.deviations[j]) * f64::from(self.deviations[k]);
                let times = if j == k { 1.0 } else { 2.0 };
                let (j, k) = (self.columns.start + j, self.columns.start + k);
                sum += times * f64::from(*covariance) / scale * weights(j, k);
            }
        }
        sum.max(0.0)
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
                item_effects: spec.item_effects.clone(),
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
            let finite = part.means.iter().all(|mean| mean.is_finite() && mean.abs() <= OUTPUT_ABS_MAX)
                && part.deviations.iter().all(|deviation| deviation.is_finite() && *deviation > 0.0)
                && part.item_effects.iter().all(|effect| effect.is_finite() && effect.abs() <= OUTPUT_ABS_MAX);
            let dim = part.columns.len();
            let effects = if part.is_of_both() { dim } else { 0 };
            let are_as_many =
                part.means.len() == dim && part.deviations.len() == dim && part.item_effects.len() == effects;
            if dim == 0 || !are_as_many || !finite {
                let problem = format!(
                    "has {dim} columns, and needs for each a mean of at most {OUTPUT_ABS_MAX:e}, a deviation above zero, and \
                     an item effect if it depends on item and context"
                );
                return Err(FeaturesError::Parts { problem: format!("{}: {problem}", part.name) });
            }
            if !part.is_of_both() && !part.contexts.is_empty() {
                let problem = format!("{}: contexts: the part does not depend on item and context", part.name);
                return Err(FeaturesError::Parts { problem });
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

    /// With what the parts need to know of the items of a table: their attributes, and their moments, of length
    /// [`Parts::moments_width`] for each.
    #[must_use]
    pub fn with_rows<'a>(
        mut self,
        attributes: impl IntoIterator<Item = Option<&'a Map<String, Value>>>,
        moments: &[f32],
    ) -> Self {
        let width = self.moments_width();
        let row = |(row, attributes): (usize, Option<&Map<String, Value>>)| {
            self.item_with(attributes, |begin, count, _, _| moments[row * width + begin..][..count].into())
        };
        self.rows = attributes.into_iter().enumerate().map(row).collect();
        self
    }

    /// The number of means and covariances of an item, of all parts that depend on item and context.
    #[must_use]
    pub fn moments_width(&self) -> usize {
        self.parts.iter().filter(|part| part.is_of_both()).map(|part| moments_of(part.columns.len())).sum()
    }

    /// The means and covariances of an item; zero for parts that it lacks.
    #[must_use]
    pub fn moments(&self, item: &ItemParts) -> Vec<f32> {
        let mut moments = Vec::with_capacity(self.moments_width());
        for (part, of_item) in self.parts.iter().filter(|part| part.is_of_both()).zip(&item.values) {
            match of_item {
                Some(outputs) => moments.extend_from_slice(&outputs.moments),
                None => moments.resize(moments.len() + moments_of(part.columns.len()), 0.0),
            }
        }
        moments
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

    /// Factors, of length [`Parts::table_dim`] with the constant at the end, as features: the columns of the parts that
    /// depend on the item alone are computed from its attributes, those of the others are zero.
    #[must_use]
    pub fn materialised(&self, factors: &[f32], attributes: Option<&Map<String, Value>>) -> Box<[f32]> {
        let mut features = vec![0.0; self.dim];
        let latent = self.table_dim() - 1;
        features[..latent].copy_from_slice(&factors[..latent]);
        features[self.dim - 1] = factors[latent];
        self.materialise(attributes, &mut features);
        features.into()
    }

    /// Computes the columns of the parts that depend on the item alone, in features of length [`Parts::dim`].
    pub fn materialise(&self, attributes: Option<&Map<String, Value>>, features: &mut [f32]) {
        let nothing = Context::default();
        for part in self.parts.iter().filter(|part| !part.by_context() && part.has_item(attributes)) {
            let Some(item) = attributes else { continue };
            let columns = &mut features[part.columns.clone()];
            let ran = with_scratch(|scratch| part.plan.run(Record { item, context: &nothing }, scratch, columns));
            debug_assert_eq!(ran, Ok(()), "the columns are as many as the outputs");
            part.standardise(columns, &part.means);
        }
    }

    /// What the parts need to know of an item with these attributes.
    #[must_use]
    pub fn item(&self, attributes: Option<&Map<String, Value>>) -> ItemParts {
        self.item_with(attributes, |_, _, part, values| {
            with_scratch(|scratch| part.contexts.moments(&part.plan, values, scratch))
        })
    }

    /// As [`Parts::item`], with moments from `moments`: by their first place among all of an item, their number, and what
    /// they are of.
    fn item_with(
        &self,
        attributes: Option<&Map<String, Value>>,
        moments: impl Fn(usize, usize, &Part, &ItemValues) -> Box<[f32]>,
    ) -> ItemParts {
        let mut missing = MissingParts::default();
        let mut values = Vec::new();
        let mut begin = 0;
        for (place, part) in self.parts.iter().enumerate() {
            let here = part.has_item(attributes);
            if !here {
                missing.add(place);
            }
            if part.is_of_both() {
                let count = moments_of(part.columns.len());
                values.push(attributes.filter(|_| here).map(|item| {
                    let values = with_scratch(|scratch| part.plan.item_part(item, scratch));
                    ItemOutputs { moments: moments(begin, count, part, &values), values }
                }));
                begin += count;
            }
        }
        ItemParts { missing, values: values.into() }
    }

    /// How much the parts raise the mean score of an item by what they are for it on average: for an item whose factors have
    /// learnt nothing of that. 0 without parts that depend on item and context.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "offsets are held in f32; rounding to the nearest is meant")]
    pub fn item_effect(&self, item: &ItemParts) -> f32 {
        let of_part = |(part, of_item): (&Part, &Option<ItemOutputs>)| {
            let Some(outputs) = of_item.as_ref().filter(|_| !part.contexts.is_empty()) else { return 0.0 };
            let mut means = outputs.moments[..part.columns.len()].to_vec();
            part.standardise(&mut means, &part.means);
            let effects = means.iter().zip(&part.item_effects);
            effects.map(|(mean, effect)| f64::from(*mean) * f64::from(*effect)).sum::<f64>()
        };
        self.parts.iter().filter(|part| part.is_of_both()).zip(&item.values).map(of_part).sum::<f64>() as f32
    }

    /// The means of the columns of parts that depend on item and context for an item, standardised by those of all items;
    /// zero for parts that it lacks.
    #[must_use]
    pub fn item_means(&self, item: &ItemParts) -> Vec<f32> {
        let mut all = Vec::new();
        for (part, of_item) in self.parts.iter().filter(|part| part.is_of_both()).zip(&item.values) {
            let known = of_item.as_ref().filter(|_| !part.contexts.is_empty());
            let mut means = known.map_or_else(|| part.means.clone(), |of| of.moments[..part.columns.len()].to_vec());
            part.standardise(&mut means, &part.means);
            all.extend(means);
        }
        all
    }

    /// Computes the columns that depend on the context, for items whose features are the rows of `features`, each of length
    /// [`Parts::dim`] and with zeros in these columns. Returns what is missing for each.
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

    /// The additional variance of the score of an item if the columns of these parts are unknown, where the user's weights
    /// have the means and the covariance of `weights`: `tr(S (w w' + C))`, with `S` the covariance of the columns. It is that
    /// over the common contexts where the context is unknown, and the identity where the item lacks the part.
    #[must_use]
    pub fn variance(&self, weights: &WeightMoments, (item, missing): (&ItemParts, MissingParts)) -> f64 {
        let squares = |j: usize, k: usize| weights.product(j, k);
        let mut pairs = item.values.iter();
        let of_part = |(place, part): (usize, &Part)| {
            let of_item = if part.is_of_both() { pairs.next().and_then(Option::as_ref) } else { None };
            if missing.has(place) { part.variance_of(of_item, squares) } else { 0.0 }
        };
        self.parts.iter().enumerate().map(of_part).sum()
    }

    /// Memory of what is kept for the rows, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(ItemParts::bytes).sum()
    }
}

impl Part {
    /// One output for all rows.
    fn compute_once(&self, context: &Context, rows: &mut [&mut [f32]]) {
        let Some((first, others)) = rows.split_first_mut() else { return };
        let columns = &mut first[self.columns.clone()];
        let record = Record { item: &Map::new(), context };
        let ran = with_scratch(|scratch| self.plan.run(record, scratch, columns));
        debug_assert_eq!(ran, Ok(()), "the columns are as many as the outputs");
        self.standardise(columns, &self.means);
        for row in others {
            row[self.columns.clone()].copy_from_slice(columns);
        }
    }

    /// An output for each row whose item has what the part needs.
    fn compute_pairs<'v>(
        &self,
        items: impl Iterator<Item = Option<&'v ItemOutputs>>,
        context: &Context,
        rows: &mut [&mut [f32]],
    ) {
        let (items, mut rows): (Vec<&ItemOutputs>, Vec<&mut [f32]>) =
            items.zip(rows.iter_mut()).filter_map(|(item, row)| Some((item?, &mut **row))).unzip();
        let mut outputs = vec![0.0; items.len() * self.columns.len()];
        let ran = with_scratch(|scratch| {
            let context = self.plan.context_part(context, scratch);
            self.plan.pairs(items.iter().map(|item| &item.values), &context, scratch, &mut outputs)
        });
        debug_assert_eq!(ran, Ok(()), "the values are those of this plan");
        let outputs = outputs.chunks_exact_mut(self.columns.len());
        for ((row, item), outputs) in rows.iter_mut().zip(items).zip(outputs) {
            self.standardise(outputs, self.means_of(item));
            row[self.columns.clone()].copy_from_slice(outputs);
        }
    }
}

/// The means and the covariance of a user's weights.
#[derive(Debug)]
pub struct WeightMoments {
    means: Vec<f64>,
    /// `noise_variance * gram_inverse`, row-major.
    covariance: Vec<f64>,
}

impl WeightMoments {
    #[must_use]
    pub fn of(user: &UserModel, learning: &Learning) -> Self {
        let noise = learning.noise_variance();
        Self { means: user.weights().to_vec(), covariance: user.gram_inverse().iter().map(|of| noise * of).collect() }
    }

    /// `E[w_j w_k]`.
    fn product(&self, j: usize, k: usize) -> f64 {
        let covariance = self.covariance[j * self.means.len() + k];
        self.means[j] * self.means[k] + if j == k { covariance.max(0.0) } else { covariance }
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
