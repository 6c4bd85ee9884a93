//! The node, as an import uses it.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use celeris_model::{LabelRange, Loss, ModelName};
use serde::Deserialize;
use serde_json::Value;

use super::report;
use crate::Failure;
use crate::node_client::{NodeArgs, NodeClient, RETRY_AFTER, Unanswered, is_of_lines};

/// How long a dry run waits for a node, which it does not need.
const ANSWER_WAIT: Duration = Duration::from_secs(3);

/// A node and the model that receives the rows.
pub struct Node {
    pub client: NodeClient,
    pub model: ModelName,
    pub labels: Labels,
    /// The id of the model, which no other model has.
    pub id: Option<u64>,
}

/// Which labels a model takes.
#[derive(Clone, Copy)]
pub struct Labels {
    /// The loss of the model; none if it is not known here.
    pub loss: Option<Loss>,
    /// The only labels that it takes; none if it clips others.
    pub range: Option<LabelRange>,
}

impl Labels {
    fn of(model: &Value) -> Self {
        let refuses = model["labels_outside"] == "refuse";
        let range = LabelRange::deserialize(&model["label_range"]).ok().filter(|_| refuses);
        Self { loss: Loss::deserialize(&model["loss"]).ok(), range }
    }
}

/// The labels of a model, if a node answers within a few seconds and has it.
pub fn labels_if_known(args: &NodeArgs, model: &ModelName) -> Option<Labels> {
    let found = NodeClient::new(args).find_within(&format!("/v1/models/{model}"), ANSWER_WAIT)?;
    Some(Labels::of(&found))
}

/// Whether the model that receives the rows is still the same.
pub enum Still {
    Same,
    Deleted,
    CreatedAgain,
}

/// The answer to one line.
pub enum Answer {
    Taken {
        /// Whether the node changed its label.
        clipped: bool,
    },
    /// It was taken by an earlier import.
    Duplicate,
    Refused {
        reason: String,
        /// Whether the node knows an observation of this id.
        is_known: bool,
    },
    /// The node could not take it now.
    Unavailable(String),
}

/// The answer to the attributes of one user.
pub enum UserAnswer {
    Taken,
    /// With the reason.
    Refused(String),
}

impl Node {
    /// Finds the model on the node. `suitable_loss` is asked for the advice if there is none.
    ///
    /// # Errors
    /// With what to do: no node answers, there is no such model, or it takes no observations.
    pub fn connect(args: &NodeArgs, model: ModelName, suitable_loss: impl FnOnce() -> Loss) -> Result<Self, Failure> {
        let client = NodeClient::new(args);
        let Some(found) = client.find(&format!("/v1/models/{model}"))? else {
            let (url, create) = (client.url(), report::create(client.url(), model.as_str(), suitable_loss()));
            return Err(Failure::bad_input(format!(
                "{url} has no model {model}; create it first: {create} (squared for ratings, implicit for counts, purchases and \
                 plays, logistic for clicks of 0 and 1)"
            )));
        };
        Ok(Self { client, model, labels: Labels::of(&found), id: found["id"].as_u64() })
    }

    /// Whether the model of this name is the one that was found first.
    ///
    /// # Errors
    /// If no node answers, or it refuses.
    pub fn still(&self) -> Result<Still, Unanswered> {
        Ok(match self.client.find_once(&format!("/v1/models/{}", self.model))? {
            None => Still::Deleted,
            Some(found) if found["id"].as_u64() == self.id => Still::Same,
            Some(_) => Still::CreatedAgain,
        })
    }

    /// Sets the attributes of a user, whose id is escaped.
    ///
    /// # Errors
    /// If the node does not answer, or refuses more than these attributes.
    pub fn put_user(&self, user: &str, body: &[u8]) -> Result<UserAnswer, Unanswered> {
        let path = format!("/v1/models/{}/users/{user}", self.model);
        let mut response = self.client.put_once(&path, body)?;
        if matches!(response.status().as_u16(), 400 | 413 | 422) {
            let problem: Value = response.body_mut().read_json().unwrap_or_default();
            let detail = problem["detail"].as_str().unwrap_or("refused without a reason");
            return Ok(UserAnswer::Refused(detail.to_owned()));
        }
        self.client.accepted(response).map_err(Unanswered::Refused)?;
        Ok(UserAnswer::Taken)
    }

    /// Sends lines to a resource of the model, and calls `on_answer` with the index of each line
    /// and the answer to it.
    ///
    /// # Errors
    /// If not all lines are answered.
    pub fn post_lines(
        &self,
        resource: &str,
        lines: &[u8],
        count: usize,
        mut on_answer: impl FnMut(usize, Answer),
    ) -> Result<(), Unanswered> {
        let path = format!("/v1/models/{}/{resource}", self.model);
        let response = self.client.post_once(&path, "application/x-ndjson", lines)?;
        // Answers to lines say what is wrong with each, also if all were refused.
        if !is_of_lines(&response) {
            self.client.accepted(response).map_err(Unanswered::Refused)?;
            let problem = format!("{} did not answer by lines", self.client.url());
            return Err(Unanswered::Refused(Failure::other(problem)));
        }
        let cut = |why: String| Unanswered::Away { why, after: RETRY_AFTER };
        let mut answered = 0;
        for answer in BufReader::new(response.into_body().into_reader()).lines() {
            let answer = answer.map_err(|error| cut(error.to_string()))?;
            let answer: Value = serde_json::from_str(&answer).map_err(|error| cut(error.to_string()))?;
            // A summary follows the answers.
            if answered < count {
                on_answer(answered, answer_of(&answer));
                answered += 1;
            }
        }
        if answered < count {
            return Err(cut(format!("it answered {answered} of {count} lines and ended")));
        }
        Ok(())
    }
}

fn answer_of(answer: &Value) -> Answer {
    match &answer["error"] {
        Value::Null if answer["duplicate"] == true => Answer::Duplicate,
        Value::Null => Answer::Taken { clipped: answer["clipped"].is_number() },
        error => {
            let detail = error["detail"].as_str().unwrap_or("refused without a reason");
            if error["status"] == 503 {
                return Answer::Unavailable(detail.to_owned());
            }
            let remedy = match error["status"].as_u64() {
                Some(409) => {
                    "; this row was imported before with other values: import with the same options as then, or delete \
                     the old observations first"
                }
                Some(410) => "; its user was erased, or the observation deleted: leave the row out",
                _ => "",
            };
            let is_known = matches!(error["status"].as_u64(), Some(409 | 410));
            Answer::Refused { reason: format!("{detail}{remedy}"), is_known }
        }
    }
}
