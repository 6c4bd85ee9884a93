//! The node, as an import uses it.

use std::io::{BufRead, BufReader};

use celeris_model::{Loss, ModelName};
use serde_json::Value;
use ureq::Agent;
use ureq::http::{Response, StatusCode};

use crate::Failure;

/// A node and the model that receives the rows.
pub struct Node {
    agent: Agent,
    url: String,
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
    pub fn connect(url: &str, model: ModelName) -> Result<Self, Failure> {
        let url = url.trim_end_matches('/');
        let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let agent: Agent = Agent::config_builder().http_status_as_error(false).build().into();
        let mut node = Self { agent, url, model, loss: None };
        let mut response = node.agent.get(node.model_url()).call().map_err(|error| node.unreachable(&error))?;
        let body: Value = response.body_mut().read_json().unwrap_or_default();
        if response.status() == StatusCode::NOT_FOUND {
            let (url, model) = (&node.url, &node.model);
            return Err(Failure::bad_input(format!(
                "{url} has no model {model}; create it first: curl {url}/v1/models -H 'content-type: application/json' -d \
                 '{{\"name\": \"{model}\", \"loss\": \"squared\"}}' (squared for ratings, implicit for counts and purchases, \
                 logistic for clicks of 0 and 1)"
            )));
        }
        if !response.status().is_success() {
            return Err(refusal(&node.url, response.status(), &body));
        }
        node.loss = serde_json::from_value(body["loss"].clone()).ok();
        Ok(node)
    }

    /// The URL of the model.
    pub fn model_url(&self) -> String {
        format!("{}/v1/models/{}", self.url, self.model)
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
        let request = self.agent.post(format!("{}/{resource}", self.model_url()));
        let request = request.header("content-type", "application/x-ndjson");
        let mut response: Response<ureq::Body> = request.send(lines).map_err(|error| self.unreachable(&error))?;
        // Answers to lines say what is wrong with each, also if all were refused.
        let of_lines = response.headers().get("content-type").is_some_and(|kind| kind == "application/x-ndjson");
        if !response.status().is_success() && !of_lines {
            let body: Value = response.body_mut().read_json().unwrap_or_default();
            return Err(refusal(&self.url, response.status(), &body));
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
                self.url
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

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let url = &self.url;
        match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => {
                Failure::bad_input(format!("--url {url} is not a URL ({error}); write it like http://127.0.0.1:7117"))
            }
            _ => Failure::other(format!(
                "no node answers at {url} ({error}); start one by `celeris serve --data-dir data`, or name another by --url"
            )),
        }
    }
}

fn refusal(url: &str, status: StatusCode, body: &Value) -> Failure {
    let message = format!("{url} answered {status}: {}", body["detail"].as_str().unwrap_or("no detail"));
    if status.is_client_error() { Failure::bad_input(message) } else { Failure::other(message) }
}
