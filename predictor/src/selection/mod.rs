//! Selections: models that answer by other models of their stream, their *arms* (Clipper §5).
//!
//! What a selection has learnt is a view of the stream's log, like a user's state: sums of losses made of what records
//! say of the arms (`lessons`). A selection with one state for all users, or one for each segment, reads on in the log when
//! it is asked (`stream_view`); one with a state for each user reads that user's history (`user_view`). Nothing is learnt
//! on the way of an observation, so that one pays nothing for selections; and whatever a reply reflects is durable, since only
//! that can be read.
//!
//! `choose` says who answers a request, `serve` lets them answer, and `report` tells what a selection knows.

pub(crate) mod choose;
mod lessons;
mod report;
mod serve;
mod stream_view;
mod user_view;

use std::sync::atomic::{AtomicU64, Ordering};

use celeris_bandits::selection::{Combined, HalfLifeRecords, Labels, Layout, LossScale, State, StrategySpec};
use celeris_model::ids::PARTITIONS;
use celeris_model::{Estimate, Loss, ModelId, ModelName, StreamName};
use celeris_storage::Watermark;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::PredictorError;
use crate::node::Predictor;
use crate::version::RankingDefaults;

pub use choose::{SelectedBy, WeightedArm};
pub use report::{ArmReport, CurvePoint, SelectionReport};
pub(crate) use user_view::UserViews;

use stream_view::StreamView;

/// Whose losses a state is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every user has a state of their own.
    User,
    /// There is one for everybody.
    Global,
    /// There is one for each of these segments, of which every request names one.
    Segment(Vec<ModelName>),
}

/// A selection as it is configured.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectionRule {
    /// Its name.
    pub name: ModelName,
    /// Its identity, under which its decisions are kept.
    pub id: ModelId,
    /// The stream of its arms.
    pub stream: StreamName,
    /// The models that answer, at least two.
    pub arms: Vec<ModelName>,
    /// The identities of the arms, in their order, and as many.
    pub arm_ids: Vec<ModelId>,
    /// How it selects among them.
    pub strategy: StrategySpec,
    /// Whose losses a state is made of.
    pub scope: Scope,
    /// What a loss is.
    pub scale: LossScale,
    /// How losses fade.
    pub half_life: Option<HalfLifeRecords>,
    /// How it ranks where all arms answer together and a request names no policy.
    pub defaults: RankingDefaults,
    /// Where its part of the log begins.
    pub begins: Watermark,
}

/// A selection that serves.
pub(crate) struct Selection {
    pub(crate) rule: SelectionRule,
    /// Names it in cache keys: no other of this process has it.
    serial: u64,
    /// `None` where every user has a state.
    stream: Option<StreamView>,
}

/// The serial handed out last.
static SERIAL: AtomicU64 = AtomicU64::new(0);

impl Selection {
    pub(crate) fn new(rule: SelectionRule) -> Self {
        let stream = (rule.scope != Scope::User).then(|| StreamView::new(&rule));
        Self { rule, serial: SERIAL.fetch_add(1, Ordering::Relaxed) + 1, stream }
    }
}

impl Selection {
    /// Answers what only models have.
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

    /// One estimate of those of the arms.
    fn combine(&self, weights: &[f64], estimates: &[Estimate], loss: Loss) -> Combined {
        let strategy = self.strategy.strategy();
        strategy.combine(weights, estimates, Labels { loss, range: self.scale.range })
    }

    /// The group of sums that a request or a record of this segment is part of.
    ///
    /// # Errors
    /// `Segment` where the selection asks for one and it is missing or unknown, or asks for none and it is there.
    fn group(&self, segment: Option<&ModelName>) -> Result<usize, PredictorError> {
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

/// Refuses a segment for what does not select by it.
pub(crate) fn without_segment(model: &ModelName, segment: Option<&ModelName>) -> Result<(), PredictorError> {
    if segment.is_none() {
        return Ok(());
    }
    Err(PredictorError::Segment { model: model.clone(), problem: NO_SEGMENT.to_owned() })
}

const NO_SEGMENT: &str = "cannot be given: the model does not select by it";

/// Names in words.
fn listed(names: &[ModelName]) -> String {
    names.iter().map(ModelName::as_str).collect::<Vec<_>>().join(", ")
}

/// Tells whether two states are equal to the bit in a group.
fn hash(state: &State, group: usize) -> u64 {
    xxh3_64(&state.canonical_bytes(group))
}

impl Predictor {
    /// Lets a selection serve, in place of another of its name. The caller guarantees that its arms serve, learn from its
    /// stream, and are models.
    pub fn select_among(&self, rule: SelectionRule) {
        let selection = Selection::new(rule);
        self.change_selections(|selections| drop(selections.insert(selection.rule.name.clone(), selection.into())));
    }

    /// Stops serving a selection; whether there was one.
    pub fn select_no_more(&self, name: &ModelName) -> bool {
        let mut removed = false;
        self.change_selections(|selections| removed = selections.remove(name).is_some());
        removed
    }

    /// The model through which `name` reaches its stream: itself, or of a selection its first arm.
    pub(crate) fn of_stream(&self, name: &ModelName) -> ModelName {
        self.selection(name).map_or_else(|| name.clone(), |selection| selection.rule.arms[0].clone())
    }

    /// The selections among models of a stream.
    pub(crate) fn selections_of(&self, stream: &StreamName) -> Vec<ModelId> {
        let selections = self.selections.load();
        selections
            .values()
            .map(|selection| &selection.rule)
            .filter(|rule| rule.stream == *stream)
            .map(|rule| rule.id)
            .collect()
    }

    /// Reads on in the log what selections have not read yet, so that no request has to. Blocks on the disk.
    ///
    /// # Errors
    /// `Storage`.
    pub fn follow_log(&self) -> Result<(), PredictorError> {
        for selection in self.selections.load().values() {
            if let Some(view) = &selection.stream {
                view.catch_up(&selection.rule, &self.storage)?;
            }
        }
        Ok(())
    }
}
