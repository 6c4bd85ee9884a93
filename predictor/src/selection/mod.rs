//! Selections: models that answer by other models of their stream, their *arms* (Clipper §5).
//!
//! A selection's state is a view of the stream's log, like a user's state: sums of the arms'
//! losses, computed from records (`updates`). A selection with one state for all users, or one for
//! each segment, reads new log records when a request needs its state (`stream_view`); one with a
//! state for each user reads that user's history (`user_view`). Observations do not update
//! selections, so they are not slowed down; and since only durable records can be read, every reply
//! reflects only durable records. A state of the former kind is stored now and then, with the log
//! positions that it reflects, and a start reads on from there (`stored`).
//!
//! This module has the state of one selection; `selections` chooses arms by it, and
//! `ranking/by_selection.rs` combines their answers.

mod report;
mod stored;
mod stream_view;
mod updates;
mod user_view;

use std::sync::atomic::{AtomicU64, Ordering};

use celeris_bandits::selection::{Combined, HalfLifeRecords, Labels, Layout, LossScale, State, StrategySpec};
use celeris_model::ids::PARTITIONS;
use celeris_model::{Estimate, Loss, ModelId, ModelName, SelectionFacts, StreamName, VersionId};
use celeris_storage::Watermark;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::PredictorError;
use crate::version::RankingDefaults;

pub(crate) use report::report;
pub use report::{ArmReport, CurvePoint, SelectionReport};
pub(crate) use user_view::UserViews;

use stream_view::StreamView;

/// The set of users that share a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Each user has a state.
    User,
    /// All users share one state.
    Global,
    /// Each of these segments has a state; every request names one.
    Segment(Vec<ModelName>),
}

/// The arm or arms that answered for a selection.
#[derive(Debug, Clone, PartialEq)]
pub enum SelectedBy {
    Arm {
        arm: ModelName,
        propensity: f32,
    },
    /// All arms together.
    All {
        /// In the order of the configuration.
        arms: Vec<WeightedArm>,
        /// For each item, the share of the arms that agree with its score.
        confidence: Vec<f32>,
    },
}

/// An arm's weight in a combined answer.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedArm {
    pub arm: ModelName,
    /// Its weight; the weights of all arms add up to 1.
    pub weight: f64,
    pub version: VersionId,
}

/// Configuration of a selection.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectionRule {
    pub name: ModelName,
    /// The id under which its decisions are stored.
    pub id: ModelId,
    /// The stream of its arms.
    pub stream: StreamName,
    /// The models that answer, at least two.
    pub arms: Vec<ModelName>,
    /// The ids of the arms, in the same order.
    pub arm_ids: Vec<ModelId>,
    pub strategy: StrategySpec,
    pub scope: Scope,
    /// How losses are computed.
    pub scale: LossScale,
    /// Half-life of losses, in records; `None` if they do not fade.
    pub half_life: Option<HalfLifeRecords>,
    /// Ranking defaults if all arms answer together.
    pub defaults: RankingDefaults,
    /// Log positions after which records count.
    pub begins: Watermark,
}

/// A serving selection.
pub(crate) struct Selection {
    pub(crate) rule: SelectionRule,
    /// Identifies it in cache keys; unique in this process.
    serial: u64,
    /// The state shared by all users; `None` if each user has one.
    pub(crate) shared: Option<StreamView>,
}

/// The last serial that was assigned.
static SERIAL: AtomicU64 = AtomicU64::new(0);

impl Selection {
    pub(crate) fn new(rule: SelectionRule) -> Self {
        let shared = (rule.scope != Scope::User).then(|| StreamView::new(&rule));
        Self { rule, serial: SERIAL.fetch_add(1, Ordering::Relaxed) + 1, shared }
    }

    /// The facts for a decision's record.
    pub(crate) fn facts(
        &self,
        arm: Option<&ModelName>,
        propensity: f32,
        segment: Option<&ModelName>,
    ) -> SelectionFacts {
        SelectionFacts {
            model: self.rule.name.clone(),
            model_id: self.rule.id,
            arm: arm.cloned(),
            propensity,
            segment: segment.cloned(),
        }
    }

    /// The error for operations that need a model.
    pub(crate) fn is_no_model(&self) -> PredictorError {
        PredictorError::IsSelection { model: self.rule.name.clone(), arms: listed(&self.rule.arms) }
    }
}

impl SelectionRule {
    fn layout(&self) -> Layout {
        let (groups, lanes) = match &self.scope {
            Scope::User => (1, 1),
            Scope::Global => (1, usize::from(PARTITIONS)),
            Scope::Segment(segments) => (segments.len(), usize::from(PARTITIONS)),
        };
        Layout { arms: self.arms.len(), groups, lanes, half_life: self.half_life }
    }

    /// Combines the estimates of the arms.
    pub(crate) fn combine(&self, weights: &[f64], estimates: &[Estimate], loss: Loss) -> Combined {
        let strategy = self.strategy.strategy();
        strategy.combine(weights, estimates, Labels { loss, range: self.scale.range })
    }

    /// The group of sums for a request or record of this segment.
    ///
    /// # Errors
    /// `Segment` if the selection needs one and it is missing or unknown, or needs none and one is
    /// given.
    pub(crate) fn group(&self, segment: Option<&ModelName>) -> Result<usize, PredictorError> {
        let wrong = |problem: String| PredictorError::Segment { model: self.name.clone(), problem };
        match (&self.scope, segment) {
            (Scope::Segment(segments), Some(segment)) => segments
                .iter()
                .position(|known| known == segment)
                .ok_or_else(|| wrong(format!("is one of {}, not {segment}", listed(segments)))),
            (Scope::Segment(segments), None) => {
                Err(wrong(format!("is missing: name one of {}, by which this selection selects", listed(segments))))
            }
            (Scope::User | Scope::Global, Some(_)) => Err(wrong(NO_SEGMENT.to_owned())),
            (Scope::User | Scope::Global, None) => Ok(0),
        }
    }
}

/// Fails if a segment is given for a model.
pub(crate) fn without_segment(model: &ModelName, segment: Option<&ModelName>) -> Result<(), PredictorError> {
    if segment.is_none() {
        return Ok(());
    }
    Err(PredictorError::Segment { model: model.clone(), problem: NO_SEGMENT.to_owned() })
}

const NO_SEGMENT: &str = "cannot be given: the model does not select by it";

/// The names as a comma-separated list.
fn listed(names: &[ModelName]) -> String {
    names.iter().map(ModelName::as_str).collect::<Vec<_>>().join(", ")
}

/// Hash of a group's state; equal states have equal hashes.
fn hash(state: &State, group: usize) -> u64 {
    xxh3_64(&state.canonical_bytes(group))
}
