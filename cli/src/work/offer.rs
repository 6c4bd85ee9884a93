//! Which trial is the next.

use std::fmt;
use std::thread;
use std::time::Duration;

use celeris_model::ModelName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Assigned, sent_once};
use crate::Failure;
use crate::node_client::{NodeClient, Unanswered};

/// What the node has for this worker.
pub enum Offer {
    Trial(Assigned),
    /// Nothing now, and perhaps later: the studies, and which data their trials need.
    Later(Vec<(String, u64)>),
    /// No study has trials for it.
    None,
}

/// The studies that are asked for trials.
pub struct Offers {
    /// One of them; those of `model`, or all, if absent.
    pub study: Option<String>,
    pub model: Option<ModelName>,
}

impl fmt::Display for Offers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.study, &self.model) {
            (Some(study), _) => write!(formatter, "study {study}"),
            (None, Some(model)) => write!(formatter, "studies of model {model}"),
            (None, None) => formatter.write_str("studies"),
        }
    }
}

/// The reply to a worker that asks.
#[derive(Deserialize)]
struct Asked {
    #[serde(rename = "do")]
    action: String,
    #[serde(flatten)]
    trial: Value,
}

/// The trial in a reply.
#[derive(Deserialize)]
struct AskedTrial {
    trial: u32,
    attempt: u32,
    params: celeris_study::Params,
    lease_seconds: u32,
    data: u64,
}

/// A reply without a trial.
#[derive(Deserialize)]
struct AskedToWait {
    data: u64,
}

impl Offers {
    /// Asks the studies in turn until one has a trial.
    ///
    /// # Errors
    /// If the node does not answer or refuses.
    pub fn ask(&self, client: &NodeClient, worker: &str) -> Result<Offer, Failure> {
        self.ask_once(client, worker).map_err(|unanswered| match unanswered {
            Unanswered::Refused(failure) => failure,
            Unanswered::Away { why, .. } => Failure::other(format!("no node answers at {}: {why}", client.url())),
        })
    }

    /// The same, of a node that may be away for a time.
    ///
    /// # Errors
    /// If it refuses.
    pub fn ask_patiently(&self, client: &NodeClient, worker: &str) -> Result<Offer, Failure> {
        loop {
            match self.ask_once(client, worker) {
                Ok(offer) => return Ok(offer),
                Err(Unanswered::Refused(failure)) => return Err(failure),
                Err(Unanswered::Away { why, after }) => {
                    tracing::warn!(node = client.url(), why, "the node does not answer; trying again");
                    thread::sleep(after.max(Duration::from_secs(1)));
                }
            }
        }
    }

    fn ask_once(&self, client: &NodeClient, worker: &str) -> Result<Offer, Unanswered> {
        let mut waiting = Vec::new();
        for study in self.studies(client)? {
            let reply = sent_once(client, &format!("/v1/studies/{study}/ask"), &json!({ "worker": worker }))?;
            let unknown = |error: serde_json::Error| {
                let text = format!("the answer of {} is not that of a node of this version: {error}", client.url());
                Unanswered::Refused(Failure::other(text))
            };
            let Asked { action, trial } = serde_json::from_value(reply).map_err(unknown)?;
            match action.as_str() {
                "try" => {
                    let AskedTrial { trial, attempt, params, lease_seconds, data } =
                        serde_json::from_value(trial).map_err(unknown)?;
                    let lease = Duration::from_secs(lease_seconds.into());
                    return Ok(Offer::Trial(Assigned { study, trial, attempt, params, data, lease }));
                }
                "wait" => {
                    let AskedToWait { data } = serde_json::from_value(trial).map_err(unknown)?;
                    waiting.push((study, data));
                }
                _ => {}
            }
        }
        Ok(if waiting.is_empty() { Offer::None } else { Offer::Later(waiting) })
    }

    /// The ids of the running studies.
    fn studies(&self, client: &NodeClient) -> Result<Vec<String>, Unanswered> {
        if let Some(study) = &self.study {
            return Ok(vec![study.clone()]);
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let models = match &self.model {
            Some(model) => vec![model.to_string()],
            None => {
                let models = client.find_once("/v1/models")?.unwrap_or_default();
                models["models"].as_array().into_iter().flatten().filter_map(|model| text(&model["name"])).collect()
            }
        };
        let mut running = Vec::new();
        for model in models {
            // One that was deleted meanwhile, or selects among others, has none.
            let Some(studies) = client.find_once(&format!("/v1/models/{model}/studies"))? else { continue };
            let studies = studies["studies"].as_array().into_iter().flatten();
            running
                .extend(studies.filter(|study| study["state"] == "running").filter_map(|study| text(&study["study"])));
        }
        Ok(running)
    }
}
