//! The document of a study.

use celeris_model::{ModelId, ModelName, StreamName, Timestamp};
use celeris_storage::Watermark;
use celeris_study::{Params, Study, Trial};
use serde::{Deserialize, Serialize};

use crate::job_id::JobId;
use crate::metric::Metric;
use crate::promotion::Holdout;
use crate::registry::{Actor, Event, EventKind};
use crate::settings::{Engine, Then};
use crate::study_id::StudyId;

/// The use of a study's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applied {
    /// The trial whose settings the model got.
    pub trial: u32,
    /// The training that was started with them.
    pub job: JobId,
    pub at: Timestamp,
}

/// A study, as stored in the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyRecord {
    pub study: StudyId,
    pub model: ModelName,
    pub model_id: ModelId,
    pub stream: StreamName,
    /// The trainer of all trials.
    pub engine: Engine,
    /// Reason of the start.
    pub why: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<Then>,
    /// Metric of the losses.
    pub metric: Metric,
    /// The settings that the model had at the start, of those that are searched.
    pub present: Params,
    /// The records that trials leave out, and on which they are judged, lie after this.
    pub(super) holdout_from: Watermark,
    /// End of the part of the log that trials read.
    pub(super) watermark: Watermark,
    /// Number of users erased since it began whose events its running trials do not read.
    #[serde(default)]
    pub(super) erased_users: u64,
    /// The search.
    pub search: Study,
    /// Why it has no result, or why its settings could not be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
    pub created: Timestamp,
    /// When it has ended, with its last trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished: Option<Timestamp>,
    /// Whether nothing is left to do: it has ended, and what follows was started.
    pub(super) closed: bool,
}

impl StudyRecord {
    /// The records that trials leave out.
    pub(super) fn holdout(&self) -> Holdout {
        Holdout { from: self.holdout_from.clone(), to: self.watermark.clone() }
    }

    /// Number of records in the part of the log that its trials read.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.watermark.records()
    }

    /// The trial with the lowest loss, if that is lower than with the present settings.
    #[must_use]
    pub fn improvement(&self) -> Option<&Trial> {
        self.search.best().filter(|best| best.number != 0)
    }

    /// The audit event of the use of its settings.
    pub(crate) fn tuned_event(&self) -> Event {
        let by = if self.then.is_some() { Actor::Job } else { Actor::Operator };
        let params = self.improvement().map(|best| &best.params);
        Event::now((&self.model, self.model_id), EventKind::Tuned, by, self.summary())
            .with("study", self.study.as_str())
            .with("settings", serde_json::to_value(params).unwrap_or_default())
    }

    /// What it has found, in words.
    fn summary(&self) -> String {
        let loss = |trial: &Trial| trial.outcome.map(|outcome| outcome.value);
        let metric = self.metric.name();
        match (self.improvement().and_then(loss), self.search.baseline().and_then(loss)) {
            (Some(best), Some(baseline)) => format!("{metric} {best:.4} instead of {baseline:.4}"),
            (None, Some(baseline)) => format!("no lower {metric} than {baseline:.4}, that of the present settings"),
            _ => self.error.clone().unwrap_or_else(|| "it was stopped before it had a loss".to_owned()),
        }
    }

    /// The audit event of its end.
    pub(super) fn ended_event(&self) -> Event {
        let by = if self.search.ended() == Some(celeris_study::Ended::Stopped) { Actor::Operator } else { Actor::Job };
        let mut event = Event::now((&self.model, self.model_id), EventKind::StudyEnded, by, self.summary())
            .with("study", self.study.as_str())
            .with("trials", self.search.trials().len());
        if let Some(best) = self.improvement() {
            event = event.with("best", serde_json::to_value(&best.params).unwrap_or_default());
        }
        event
    }
}
