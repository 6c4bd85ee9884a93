//! Messages between a study and those who make its trials.

use serde::{Deserialize, Serialize};

use crate::collaborative::Start;
use crate::error::StudyError;
use crate::space::Params;
use crate::trial::WORKER_BYTES_MAX;

/// Who makes a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worker<'a> {
    /// The node that leads the study. Results that trials may continue from are there.
    Local,
    /// A worker on another machine, by the name that it gives itself. It has a trial for as long as it is heard
    /// of, and begins all of them from nothing.
    Remote(&'a str),
}

impl Worker<'_> {
    /// The name of the node's own workers in the record of a trial.
    pub const LOCAL: &'static str = "node";

    pub(crate) fn name(self) -> String {
        match self {
            Self::Local => Self::LOCAL.to_owned(),
            Self::Remote(name) => name.to_owned(),
        }
    }

    pub(crate) fn check(self) -> Result<(), StudyError> {
        match self {
            Self::Remote(name) if name.is_empty() || name.len() > WORKER_BYTES_MAX => {
                Err(StudyError::field("worker", format!("must have from 1 to {WORKER_BYTES_MAX} bytes")))
            }
            Self::Remote(_) | Self::Local => Ok(()),
        }
    }
}

/// A trial as its worker gets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    pub trial: u32,
    /// Names the worker's right to the trial in its later messages.
    pub attempt: u32,
    pub params: Params,
    pub start: Start,
}

/// The reply to a worker that asks for a trial.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    Trial(Assignment),
    /// There is none now; ask again later.
    Wait,
    /// There will be none.
    Ended,
}
