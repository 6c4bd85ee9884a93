//! How current the answers of a cluster are.

use std::time::Duration;

use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

/// How current the answer of a cluster must be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// The node that owns the user answers at once, also while the log cannot be reached; see
    /// `stale_ms`.
    #[default]
    Available,
    /// That node answers once the log has confirmed that it still owns the user: the answer reflects
    /// every event that was acknowledged before the request. Without a cluster, every answer does.
    Latest,
}

/// How old the answer of a cluster may be.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Reading {
    /// In a cluster, any node may answer from its copy if that is at most this old, for example
    /// `5s`; not together with `consistency: "latest"` in the body.
    pub staleness: Option<String>,
}

impl Reading {
    /// The age that is allowed.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn allowed(&self) -> Result<Option<Duration>, String> {
        let parse = |text: &String| {
            let wrong = |_| format!("{text:?} is no duration; give a number and a unit, such as 5s or 500ms");
            humantime_serde::re::humantime::parse_duration(text).map_err(wrong)
        };
        self.staleness.as_ref().map(parse).transpose()
    }
}
