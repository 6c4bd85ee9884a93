//! What each kind of node collects from the rows.

use std::collections::HashSet;
use std::hash::Hash as _;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::Xxh3;

use super::clusters::Clusters;
use super::components::Directions;
use super::linear::LinearRows;
use super::moments::{Frequencies, MomentsOf};
use super::vocabulary::{Pieces, Vocabulary};
use super::{FitOptions, Row};
use crate::attributes::AttributeLearner;
use crate::error::PipelineError;
use crate::graph::Checked;
use crate::objects::Content;
use crate::spec::{FitScale, Operator};
use crate::values::View;

/// Collects the values of a node's input.
pub(super) enum Collector {
    Attributes(DistinctItems),
    Vocabulary(Vocabulary),
    Frequencies(Frequencies),
    Moments(MomentsOf),
    Clusters(Clusters),
    Directions(Directions),
    Linear(Box<LinearRows>),
}

/// The items of the rows, each once, however many rows it has: whether the strings of a field repeat decides what they are.
#[derive(Default)]
pub(super) struct DistinctItems {
    seen: HashSet<u64>,
    learner: AttributeLearner,
}

impl DistinctItems {
    fn add(&mut self, attributes: &Map<String, Value>) {
        let mut hasher = Xxh3::new();
        attributes.hash(&mut hasher);
        if self.seen.insert(hasher.digest()) {
            self.learner.add(attributes);
        }
    }
}

impl Collector {
    /// `columns` are those of the input, if it is a vector.
    pub fn new(node: &Checked, columns: usize, options: FitOptions) -> Result<Self, PipelineError> {
        let name = node.name.clone();
        Ok(match &node.operator {
            Operator::Attributes(_) => Self::Attributes(DistinctItems::default()),
            Operator::WordNgrams(grams) => {
                let pieces = Pieces::Words(grams.n.map(usize::from));
                Self::Vocabulary(Vocabulary::new(name, pieces, grams.fit.unwrap_or_default()))
            }
            Operator::CharNgrams(grams) => {
                let pieces = Pieces::Chars(grams.n.map(usize::from), grams.window);
                Self::Vocabulary(Vocabulary::new(name, pieces, grams.fit.unwrap_or_default()))
            }
            Operator::OneHot(known) | Operator::MultiHot(known) => {
                Self::Vocabulary(Vocabulary::new(name, Pieces::Whole, known.fit.unwrap_or_default()))
            }
            Operator::TfIdf(_) => Self::Frequencies(Frequencies::new(columns)),
            Operator::Scale(scale) => Self::Moments(MomentsOf::new(scale.fit.unwrap_or_default(), columns)),
            Operator::Impute(_) => Self::Moments(MomentsOf::new(FitScale::Standard, columns)),
            Operator::Kmeans(kmeans) => Self::Clusters(Clusters::new(name, kmeans.clusters as usize, options.seed)),
            Operator::Pca(pca) => Self::Directions(Directions::new(name, pca.dim as usize)),
            Operator::Linear(linear) => Self::Linear(Box::new(LinearRows::new(name, linear, columns, options)?)),
            _ => return Err(PipelineError::Fit { node: name, problem: "it has nothing to learn".to_owned() }),
        })
    }

    pub fn add(&mut self, row: &Row, value: View) -> Result<(), PipelineError> {
        match self {
            Self::Attributes(items) => items.add(row.item),
            Self::Vocabulary(vocabulary) => vocabulary.add(value),
            Self::Frequencies(frequencies) => frequencies.add(value),
            Self::Moments(moments) => moments.add(value),
            Self::Clusters(clusters) => clusters.add(value),
            Self::Directions(directions) => return directions.add(value),
            Self::Linear(rows) => return rows.add(row, value),
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Content, PipelineError> {
        Ok(match self {
            Self::Attributes(items) => Content::Attributes(items.learner.finish().into()),
            Self::Vocabulary(vocabulary) => Content::Dictionary(vocabulary.finish()?.into()),
            Self::Frequencies(frequencies) => Content::Idf(frequencies.finish()?.into()),
            Self::Moments(moments) => Content::Moments(moments.finish()?.into()),
            Self::Clusters(clusters) => Content::Centroids(clusters.finish()?.into()),
            Self::Directions(directions) => Content::Components(directions.finish()?.into()),
            Self::Linear(rows) => Content::Weights(rows.finish()?.into()),
        })
    }
}
