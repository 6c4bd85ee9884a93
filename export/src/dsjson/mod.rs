//! Export of the decisions of a stopped node in dsjson, with which Vowpal Wabbit trains and evaluates.
//!
//! ```text
//! OUT/
//!   model=NAME/cb-000001.dsjson    decisions of one slot
//!   model=NAME/ccb-000001.dsjson   decisions of several slots
//!   _SUCCESS                       JSON, written last: the number of each, and of those left out
//! ```
//!
//! `line.rs` writes a decision, `rewards.rs` finds its rewards in the log, `files.rs` holds the open files. Memory
//! is bounded: rewards and attributes that are kept for later decisions are dropped beyond a maximum.

mod files;
mod line;
mod rewards;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::SystemTime;

use celeris_model::{Decision, DecisionId, ModelId, ModelName, StreamName, Timestamp};
use celeris_storage::Storage;
use serde::Serialize;

use self::files::Files;
use self::line::{Attributes, Logged};
use self::rewards::Rewards;
use crate::error::ExportError;
use crate::store::{Contents, DONE_FILE, Tell, prepare};

/// Version of the layout.
const FORMAT: u32 = 1;

/// Decisions between two reports of the progress.
const PROGRESS_DECISIONS: u64 = 1024;

/// What to export.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// Only this model or selection.
    pub model: Option<ModelName>,
    /// The reward of a shown slot that has none; by default the label of the model's default reward. Without either,
    /// decisions with such a slot are left out.
    pub missing_reward: Option<f32>,
}

/// Summary of an export, written to `_SUCCESS`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExportedDsjson {
    pub format: u32,
    pub exported: Timestamp,
    /// By model or selection.
    pub decisions: BTreeMap<ModelName, Counts>,
    /// Errors of registry documents that could not be read; the data they describe is not exported.
    pub unreadable: Vec<String>,
}

/// Decisions of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Of one slot.
    pub cb: u64,
    /// Of several slots.
    pub ccb: u64,
    pub left_out: LeftOut,
}

/// Decisions that are not exported, by the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LeftOut {
    /// Only a digest of the candidates was recorded.
    pub candidates_not_kept: u64,
    /// The propensity of a slot is unknown, not computed yet, or 0.
    pub propensity_unknown: u64,
    /// The request chose the seed, so nothing was drawn.
    pub seed_given: u64,
    /// A slot has no reward, and there is no value for missing rewards.
    pub reward_missing: u64,
}

impl LeftOut {
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.candidates_not_kept + self.propensity_unknown + self.seed_given + self.reward_missing
    }
}

/// Writes the decisions of a store into the folder `out`, which is created if missing and must be empty.
///
/// # Errors
/// `FolderNotEmpty`; `UnknownModel` if the selection names one that is not in the store; `Io` or `Storage`.
pub fn export_dsjson(
    storage: &Storage,
    contents: &Contents,
    selection: &Selection,
    (out, tell): (&Path, Tell),
) -> Result<ExportedDsjson, ExportError> {
    let chosen = |name: &ModelName| selection.model.as_ref().is_none_or(|model| model == name);
    let deciding: Vec<&(ModelName, ModelId)> = contents.deciding.iter().filter(|(name, _)| chosen(name)).collect();
    if let Some(model) = selection.model.as_ref().filter(|_| deciding.is_empty()) {
        let known = contents.deciding.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(", ");
        return Err(ExportError::UnknownModel { model: model.clone(), known });
    }
    prepare(out)?;
    let mut exported = ExportedDsjson {
        format: FORMAT,
        exported: SystemTime::now().into(),
        decisions: BTreeMap::new(),
        unreadable: contents.unreadable.clone(),
    };
    for (name, id) in deciding {
        let Some(stream) = contents.streams.get(name) else { continue };
        let missing_reward = selection.missing_reward.or_else(|| contents.default_rewards.get(name).copied());
        let model = DecidingModel { storage, name, id: *id, stream, missing_reward };
        exported.decisions.insert(name.clone(), model.export(out, tell)?);
    }
    let done = out.join(DONE_FILE);
    let text = serde_json::to_vec_pretty(&exported).expect("names and numbers are valid JSON");
    fs::write(&done, text).and_then(|()| fs::File::open(out)?.sync_all()).map_err(ExportError::io(&done))?;
    Ok(exported)
}

/// A model or selection whose decisions are exported.
struct DecidingModel<'a> {
    storage: &'a Storage,
    name: &'a ModelName,
    id: ModelId,
    stream: &'a StreamName,
    missing_reward: Option<f32>,
}

impl DecidingModel<'_> {
    fn export(&self, out: &Path, tell: Tell) -> Result<Counts, ExportError> {
        let mut writer = Writer {
            files: Files::new(out, self.name)?,
            rewards: Rewards::new(self.storage, self.stream),
            attributes: Attributes::new(self.storage, self.stream),
            counts: Counts::default(),
            line: Vec::new(),
        };
        let mut progress = Progress { phase: format!("decisions of {}", self.name), first: None, seen: 0, tell };
        let outcome = self.storage.decisions().scan(self.id, |decision| {
            progress.at(&decision.id);
            match writer.push(self, &decision) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            }
        })?;
        match outcome {
            ControlFlow::Continue(()) => writer.files.finish()?,
            ControlFlow::Break(error) => return Err(error),
        }
        tell(&progress.phase, 1.0);
        Ok(writer.counts)
    }
}

struct Writer<'a> {
    files: Files,
    rewards: Rewards<'a>,
    attributes: Attributes<'a>,
    counts: Counts,
    line: Vec<u8>,
}

impl Writer<'_> {
    /// Writes a decision, or counts why it is left out.
    fn push(&mut self, model: &DecidingModel, decision: &Decision) -> Result<(), ExportError> {
        let left_out = &mut self.counts.left_out;
        let Some(candidates) = decision.candidates.items() else {
            left_out.candidates_not_kept += 1;
            return Ok(());
        };
        let propensities: Option<Vec<f64>> = decision
            .shown
            .iter()
            .map(|slot| slot.propensity.map(f64::from).filter(|propensity| *propensity > 0.0))
            .collect();
        let Some(propensities) = propensities.filter(|slots| !slots.is_empty()) else {
            left_out.propensity_unknown += 1;
            return Ok(());
        };
        if decision.seed_given {
            left_out.seed_given += 1;
            return Ok(());
        }
        let mut rewards = self.rewards.of(decision)?;
        for reward in rewards.iter_mut().filter(|reward| reward.is_none()) {
            *reward = model.missing_reward.map(rewards::Reward::missing);
        }
        let rewards: Option<Vec<rewards::Reward>> = rewards.into_iter().collect();
        let Some(rewards) = rewards else {
            left_out.reward_missing += 1;
            return Ok(());
        };
        let places = decision.shown.iter().map(|slot| candidates.iter().position(|item| *item == slot.item));
        let Some(shown) = places.collect::<Option<Vec<usize>>>() else {
            // What is shown is always a candidate; a record that says otherwise has no propensities of its candidates.
            left_out.candidates_not_kept += 1;
            return Ok(());
        };
        let logged = Logged { decision, candidates, shown: &shown, propensities: &propensities, rewards: &rewards };
        self.line.clear();
        logged.write(&mut self.attributes, &mut self.line)?;
        if shown.len() == 1 {
            self.counts.cb += 1;
            self.files.one_slot(&self.line)
        } else {
            self.counts.ccb += 1;
            self.files.several_slots(&self.line)
        }
    }
}

/// The progress of a scan in the order of time.
struct Progress<'a> {
    phase: String,
    /// The time of the first decision, and now.
    first: Option<(i64, i64)>,
    seen: u64,
    tell: Tell<'a>,
}

impl Progress<'_> {
    fn at(&mut self, id: &DecisionId) {
        self.seen += 1;
        if !self.seen.is_multiple_of(PROGRESS_DECISIONS) && self.first.is_some() {
            return;
        }
        let Some(made) = id.made_at() else { return };
        let (first, now) = *self.first.get_or_insert((made.0, Timestamp::from(SystemTime::now()).0));
        let share = (made.0 - first) as f64 / (now - first).max(1) as f64;
        #[expect(clippy::cast_possible_truncation, reason = "a share")]
        (self.tell)(&self.phase, share.clamp(0.0, 1.0) as f32);
    }
}
