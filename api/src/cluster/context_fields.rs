//! Fields of contexts, which the coordinator defines for the other nodes.

use std::io;

use celeris_model::{ClusterView, StreamField, StreamName};
use celeris_predictor::DefineElsewhere;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::Downloader;

/// Where a node defines fields for another one.
pub const PATH: &str = "/v1/cluster/context-fields";

/// The fields that a node wants to have defined.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub stream: StreamName,
    /// Those that the stream has already are left as they are.
    pub fields: Vec<StreamField>,
}

/// Has the coordinator define fields.
#[must_use]
pub fn define_at_coordinator(views: watch::Receiver<ClusterView>, downloader: Downloader) -> DefineElsewhere {
    Box::new(move |stream, fields| {
        let definition = Definition { stream: stream.clone(), fields: fields.to_vec() };
        let url = coordinator(&views.borrow());
        match url.and_then(|url| downloader.post(&url, PATH, &definition)) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%stream, %error, "the coordinator has not defined the fields of a context");
                false
            }
        }
    })
}

fn coordinator(ClusterView { node, placement, .. }: &ClusterView) -> io::Result<String> {
    let other = placement.coordinator.as_ref().filter(|coordinator| *coordinator != node);
    let url = other.and_then(|coordinator| placement.url(coordinator));
    url.map(str::to_owned).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "there is no coordinator now"))
}
