//! The node, as an import uses it.

use std::io::{BufRead, BufReader};

use celeris_model::{Loss, ModelName};
use serde_json::Value;

use super::report;
use crate::Failure;
use crate::node_client::{NodeArgs, NodeClient};

/// A node and the model that receives the rows.
pub struct Node {
    pub client: NodeClient,
    pub model: ModelName,
    /// The loss of the model; none if it is not known here.
    pub loss: Option<Loss>,
}

/// The answer to one line.
pub enum Answer {
    Taken,
    /// It was taken by an earlier import.
    Duplicate,
    Refused(String),
}

impl Node {
    /// Finds the model on the node.
    ///
    /// # Errors
    /// With what to do: no node answers, there is no such model, or it takes no observations.
    pub fn connect(args: &NodeArgs, model: ModelName) -> Result<Self, Failure> {
        let client = NodeClient::new(args);
        let Some(found) = client.find(&format!("/v1/models/{model}"))? else {
            let (url, create) = (client.url(), report::create(client.url(), model.as_str(), Loss::Squared));
            return Err(Failure::bad_input(format!(
                "{url} has no model {model}; create it first: {create} (squared for ratings, implicit for counts, purchases and \
                 plays, logistic for clicks of 0 and 1)"
            )));
        };
        Ok(Self { client, model, loss: serde_json::from_value(found["loss"].clone()).ok() })
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
        mut on_answer: impl FnMut(usize, Answer) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let path = format!("/v1/models/{}/{resource}", self.model);
        let response = self.client.post_as(&path, "application/x-ndjson", lines)?;
        // Answers to lines say what is wrong with each, also if all were refused.
        let of_lines = response.headers().get("content-type").is_some_and(|kind| kind == "application/x-ndjson");
        if !of_lines {
            self.client.accepted(response)?;
            return Err(Failure::other(format!("{} did not answer by lines", self.client.url())));
        }
        let mut answered = 0;
        for answer in BufReader::new(response.into_body().into_reader()).lines() {
            let answer: Value = serde_json::from_str(&answer.map_err(Failure::other)?).map_err(Failure::other)?;
            // A summary follows the answers.
            if answered < count {
                on_answer(answered, self.answer(&answer))?;
                answered += 1;
            }
        }
        if answered < count {
            return Err(Failure::other(format!(
                "{} answered {answered} of {count} lines and ended; run the same command again: what was taken is not taken \
                 twice",
                self.client.url()
            )));
        }
        Ok(())
    }

    fn answer(&self, answer: &Value) -> Answer {
        match &answer["error"] {
            Value::Null if answer["duplicate"] == true => Answer::Duplicate,
            Value::Null => Answer::Taken,
            error => {
                let detail = error["detail"].as_str().unwrap_or("refused without a reason");
                let remedy = match error["status"].as_u64() {
                    Some(409) => {
                        "; this row was imported before with other values: import with the same options as then, or delete \
                         the old observations first"
                    }
                    Some(410) => "; its user was erased, or the observation deleted: leave the row out",
                    _ => "",
                };
                Answer::Refused(format!("{detail}{remedy}"))
            }
        }
    }
}
