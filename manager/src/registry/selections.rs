//! Selections in the registry: creation, listing, deletion. The selection algorithms are in the
//! predictor.

use std::collections::BTreeSet;
use std::time::SystemTime;

use celeris_bandits::selection::strategy::Learns;
use celeris_bandits::selection::{HalfLifeRecords, LossScale, Objective, StrategySpec};
use celeris_bandits::{BanditError, PolicySpec, PoolShare, Wants};
use celeris_model::{LabelRange, Loss, ModelId, ModelName, StreamName, Timestamp};
use celeris_predictor::{RankingDefaults, Scope, SelectionRule};
use celeris_storage::{RegistryBatch, Watermark};
use serde::{Deserialize, Serialize};

use super::keys::{deleted_key, selection_key, selections_key};
use super::{ModelRecord, Registry, begin_default_rewards};
use crate::error::ManagerError;
use crate::settings::DefaultReward;

/// Minimum and maximum number of arms.
pub const ARMS: std::ops::RangeInclusive<usize> = 2..=8;

/// Maximum number of segments.
pub const SEGMENTS_MAX: usize = 16;

/// Default half-life of losses in records: for states of a stream, and for states of one user.
const HALF_LIFE_OF_STREAM: u64 = 10_000;
const HALF_LIFE_OF_USER: u64 = 100;

/// Scope of a selection state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeKind {
    /// One state per user.
    User,
    /// One state for all users.
    #[default]
    Global,
    /// One state per segment.
    Segment,
}

/// A request to create a selection. Missing settings get defaults that depend on the others.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSelection {
    pub name: ModelName,
    /// The models to select from.
    pub arms: Vec<ModelName>,
    /// Selection strategy.
    pub strategy: Option<StrategySpec>,
    /// Scope of the selection states.
    pub scope: Option<ScopeKind>,
    /// The segments, if the scope is `segment`.
    pub segments: Vec<ModelName>,
    /// The criterion by which arms are compared.
    pub objective: Option<Objective>,
    /// Range of the labels.
    pub label_range: Option<LabelRange>,
    /// Half-life of losses; `Some(None)` disables decay.
    pub half_life_records: Option<Option<HalfLifeRecords>>,
    /// Policy of rankings that combine all arms.
    pub policy: Option<PolicySpec>,
    /// Share of these rankings that are drawn uniformly for the validation pool.
    pub pool_share: Option<PoolShare>,
    /// Reward of shown slots that received none in time.
    pub default_reward: Option<DefaultReward>,
}

/// Registry record of a selection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectionRecord {
    /// Its id, which keys its decisions.
    pub id: ModelId,
    pub name: ModelName,
    /// The stream of its arms.
    pub stream: StreamName,
    /// The models to select from.
    pub arms: Vec<ModelName>,
    /// Their ids.
    pub arm_ids: Vec<ModelId>,
    /// Selection strategy.
    pub strategy: StrategySpec,
    /// Scope of the selection states.
    pub scope: ScopeKind,
    /// The segments, if the scope is `segment`.
    pub segments: Vec<ModelName>,
    /// The criterion by which arms are compared.
    pub objective: Objective,
    /// Range of the labels.
    pub label_range: LabelRange,
    /// Half-life of losses; `None` if they do not decay.
    pub half_life_records: Option<HalfLifeRecords>,
    /// Policy of rankings that combine all arms.
    pub policy: PolicySpec,
    /// Share of these rankings that are drawn uniformly for the validation pool.
    pub pool_share: PoolShare,
    /// Reward of shown slots that received none in time; if absent, such slots have no reward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_reward: Option<DefaultReward>,
    pub created: Timestamp,
    /// Start of its part of the log. A selection that learns from its own decisions starts at its
    /// creation, since earlier decisions belong to a deleted selection of the same name; one that
    /// combines arms also learns from the earlier predictions of its arms.
    pub begins: Watermark,
}

impl SelectionRecord {
    /// Checks the invariants of a stored record that serving relies on.
    ///
    /// # Errors
    /// Description of the violation.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !ARMS.contains(&self.arms.len()) || !distinct(&self.arms) {
            return Err(format!("it has {} arms, or one of them twice", self.arms.len()));
        }
        if self.arm_ids.len() != self.arms.len() {
            return Err(format!("it has {} arms and {} identities of arms", self.arms.len(), self.arm_ids.len()));
        }
        if (self.scope == ScopeKind::Segment) == self.segments.is_empty() {
            return Err("its segments do not match its scope".to_owned());
        }
        self.strategy.check(self.arms.len()).map_err(|error| error.to_string())
    }

    pub(crate) fn rule(&self) -> SelectionRule {
        SelectionRule {
            name: self.name.clone(),
            id: self.id,
            stream: self.stream.clone(),
            arms: self.arms.clone(),
            arm_ids: self.arm_ids.clone(),
            strategy: self.strategy.clone(),
            scope: match self.scope {
                ScopeKind::User => Scope::User,
                ScopeKind::Global => Scope::Global,
                ScopeKind::Segment => Scope::Segment(self.segments.clone()),
            },
            scale: LossScale { objective: self.objective, range: self.label_range },
            half_life: self.half_life_records,
            defaults: RankingDefaults { policy: self.policy.clone(), pool_share: self.pool_share },
            begins: self.begins.clone(),
        }
    }
}

fn wrong(field: &'static str, problem: impl Into<String>) -> ManagerError {
    ManagerError::SelectionSetting { field, problem: problem.into() }
}

fn distinct(names: &[ModelName]) -> bool {
    names.iter().collect::<BTreeSet<_>>().len() == names.len()
}

impl NewSelection {
    /// Checks the settings that do not depend on the arms.
    fn check(&self) -> Result<(), ManagerError> {
        if !ARMS.contains(&self.arms.len()) || !distinct(&self.arms) {
            let (min, max) = (ARMS.start(), ARMS.end());
            return Err(wrong("arms", format!("must be {min} to {max} different models, got {}", self.arms.len())));
        }
        match (self.scope.unwrap_or_default(), self.segments.len()) {
            (ScopeKind::Segment, 0) => return Err(wrong("segments", "is missing: name those that requests will name")),
            (ScopeKind::Segment, count) if count > SEGMENTS_MAX || !distinct(&self.segments) => {
                return Err(wrong("segments", format!("must be at most {SEGMENTS_MAX} different names, got {count}")));
            }
            (ScopeKind::User | ScopeKind::Global, 1..) => {
                return Err(wrong("segments", "cannot be given without `scope: \"segment\"`"));
            }
            _ => {}
        }
        let strategy = self.strategy.clone().unwrap_or_default();
        strategy.check(self.arms.len()).map_err(|error| ManagerError::Bandit { error })?;
        if strategy.combines() {
            if self.objective == Some(Objective::Reward) {
                return Err(wrong("objective", "must be `error`: if arms are combined, a reward has no single arm"));
            }
            if let Some(policy) = self.policy.as_ref().filter(|policy| policy.policy().wants() > Wants::Uncertainty) {
                let error = BanditError::NoPosterior { policy: policy.name() };
                return Err(wrong("policy", error.to_string()));
            }
        } else if self.policy.is_some() || self.pool_share.is_some() {
            return Err(wrong("policy", "and pool_share are the arms' own where one of them answers; leave them out"));
        }
        if matches!(strategy, StrategySpec::Ab(_)) && matches!(self.half_life_records, Some(Some(_))) {
            return Err(wrong("half_life_records", "cannot be given: an A/B split counts all outcomes alike"));
        }
        Ok(())
    }

    fn half_life(&self, strategy: &StrategySpec) -> Result<Option<HalfLifeRecords>, ManagerError> {
        if let Some(given) = self.half_life_records {
            return Ok(given);
        }
        let usual = match (strategy, self.scope.unwrap_or_default()) {
            (StrategySpec::Ab(_), _) => return Ok(None),
            (_, ScopeKind::User) => HALF_LIFE_OF_USER,
            (_, ScopeKind::Global | ScopeKind::Segment) => HALF_LIFE_OF_STREAM,
        };
        HalfLifeRecords::new(usual).map(Some).map_err(|error| ManagerError::Bandit { error })
    }
}

impl Registry {
    /// Creates a selection, which serves immediately.
    ///
    /// # Errors
    /// `ModelExists`, `TooManyModels`, `SelectionSetting`, `Bandit` for a parameter of the
    /// strategy, or `Storage`.
    pub fn create_selection(&self, new: NewSelection) -> Result<SelectionRecord, ManagerError> {
        new.check()?;
        let _changing = self.lock_changes()?;
        self.check_vacant(&new.name)?;
        let (models, selections) = (self.models()?, self.selections()?);
        let arms = arms(&new, &models, &selections)?;
        let stream = arms[0].config.stream.clone();
        if let Some(reward) = &new.default_reward {
            reward.check(arms[0].config.loss)?;
        }
        let label_range = match new.label_range {
            Some(given) => given,
            None => self.label_range(&arms)?,
        };
        let strategy = new.strategy.clone().unwrap_or_default();
        let combines = strategy.strategy().learns() == Learns::FromEvery;
        let mut batch = RegistryBatch::new();
        let record = SelectionRecord {
            id: self.new_id(&mut batch)?,
            arm_ids: arms.iter().map(|arm| arm.id).collect(),
            half_life_records: new.half_life(&strategy)?,
            begins: if combines { Watermark::start() } else { self.storage.log().watermark(&stream) },
            objective: new.objective.unwrap_or(if combines { Objective::Error } else { Objective::Reward }),
            name: new.name,
            stream,
            arms: new.arms,
            strategy,
            scope: new.scope.unwrap_or_default(),
            segments: new.segments,
            label_range,
            policy: new.policy.unwrap_or_default(),
            pool_share: new.pool_share.unwrap_or_default(),
            default_reward: new.default_reward,
            created: SystemTime::now().into(),
        };
        batch.put(selection_key(&record.name)?, &record)?;
        if record.default_reward.is_some() {
            begin_default_rewards(record.id, &mut batch)?;
        }
        self.storage.registry().commit(&batch)?;
        self.predictor.models().put_selection(record.rule());
        tracing::info!(selection = %record.name, strategy = record.strategy.name(), "selection serves");
        Ok(record)
    }

    /// The label range of the arms: that of their loss, or that of their training data.
    fn label_range(&self, arms: &[&ModelRecord]) -> Result<LabelRange, ManagerError> {
        if arms[0].config.loss != Loss::Squared {
            return Ok(LabelRange::UNIT);
        }
        let mut range: Option<(f32, f32)> = None;
        for arm in arms {
            if let Some((low, high)) = self.version(&arm.config.name, arm.active)?.label_range {
                let (least, greatest) = range.unwrap_or((low, high));
                range = Some((least.min(low), greatest.max(high)));
            }
        }
        let known = range.and_then(|(low, high)| LabelRange::new(low, high).ok());
        let needed = "is needed, since no arm was trained yet: the smallest and the largest label, like [1, 5]";
        known.ok_or_else(|| wrong("label_range", needed))
    }

    /// All selections in service, by name; see [`Registry::unavailable`] for the others.
    ///
    /// # Errors
    /// `Storage`.
    pub fn selections(&self) -> Result<Vec<SelectionRecord>, ManagerError> {
        let out = self.predictor.models().out_of_service();
        let records = self.storage.registry().list::<SelectionRecord>(&selections_key()?)?;
        // Selections that cannot be read were taken out of service at the start.
        let readable = records.into_iter().filter_map(|(_, record)| record.ok());
        Ok(readable.filter(|record| !out.contains_key(&record.name)).collect())
    }

    /// Returns a selection; `None` if there is none of that name.
    ///
    /// # Errors
    /// `Predictor` if the name is out of service, or `Storage`.
    pub fn selection(&self, name: &ModelName) -> Result<Option<SelectionRecord>, ManagerError> {
        self.predictor.models().check_in_service(name)?;
        Ok(self.storage.registry().get(&selection_key(name)?)?)
    }

    /// Deletes a selection and its decisions. Returns whether it existed. Its arms are unchanged.
    ///
    /// # Errors
    /// `Storage`.
    pub fn delete_selection(&self, name: &ModelName) -> Result<bool, ManagerError> {
        let _changing = self.lock_changes()?;
        if !self.is_in_registry(&selection_key(name)?)? {
            return Ok(false);
        }
        let id = self.identity_of_selection(name)?;
        let mut batch = RegistryBatch::new();
        if let Some(id) = id {
            batch.put(deleted_key(id)?, name)?;
        }
        batch.delete(selection_key(name)?);
        self.storage.registry().commit(&batch)?;
        self.predictor.models().remove_selection(name);
        self.predictor.activation().remove(name);
        if let Some(id) = id {
            self.finish_deletion((name, id))?;
        }
        Ok(true)
    }

    /// The id of a model or selection, which keys its decisions.
    ///
    /// # Errors
    /// `UnknownModel` or `Storage`.
    pub fn decides_as(&self, name: &ModelName) -> Result<ModelId, ManagerError> {
        match self.selection(name)? {
            Some(selection) => Ok(selection.id),
            None => Ok(self.model(name)?.id),
        }
    }

    /// Fails if the model is an arm of a selection.
    pub(super) fn check_no_arm(&self, model: &ModelName) -> Result<(), ManagerError> {
        // Selections out of service count too: they serve again once their arms are repaired.
        let selections = self.storage.registry().list::<SelectionRecord>(&selections_key()?)?;
        let of =
            selections.into_iter().filter_map(|(_, record)| record.ok()).find(|record| record.arms.contains(model));
        match of {
            Some(selection) => Err(ManagerError::IsArm { model: model.clone(), selection: selection.name }),
            None => Ok(()),
        }
    }
}

/// Looks up the arms, which must be models of one stream and one loss.
fn arms<'a>(
    new: &NewSelection,
    models: &'a [ModelRecord],
    selections: &[SelectionRecord],
) -> Result<Vec<&'a ModelRecord>, ManagerError> {
    let find = |arm: &ModelName| {
        if selections.iter().any(|selection| selection.name == *arm) {
            return Err(wrong(
                "arms",
                format!("cannot hold {arm}: it is a selection itself, and only models can be arms"),
            ));
        }
        let found = models.iter().find(|record| record.config.name == *arm);
        found.ok_or_else(|| wrong("arms", format!("names {arm}, but no model has that name; create it first")))
    };
    let arms: Vec<&ModelRecord> = new.arms.iter().map(find).collect::<Result<_, _>>()?;
    let first = &arms[0].config;
    for arm in &arms[1..] {
        let ModelRecord { config, .. } = arm;
        if config.stream != first.stream {
            let problem = format!(
                "must learn from one stream: {} learns from {}, {} from {}",
                first.name, first.stream, config.name, config.stream
            );
            return Err(wrong("arms", problem));
        }
        if config.loss != first.loss {
            let problem =
                format!("must have one loss, so that scores mean the same: {} and {}", first.name, config.name);
            return Err(wrong("arms", format!("{problem} differ")));
        }
    }
    Ok(arms)
}
