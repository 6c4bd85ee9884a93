//! Messages that cannot become observations, kept for people to look into.
//!
//! A dead letter is durable before the position of its message is. So it may be written twice after a crash: its place at the
//! broker tells the two apart from two messages.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use celeris_model::{SourceId, Timestamp};
use serde::Serialize;

use crate::broker::Broker;
use crate::error::IngestError;
use crate::mapping::Poison;

/// A message that cannot become an observation.
#[derive(Debug, Serialize)]
pub struct DeadLetter<'m> {
    pub source: &'m SourceId,
    pub offset: u64,
    /// When the message was published, in Unix milliseconds.
    pub published: i64,
    pub reason: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<&'m str>,
    /// The message, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<&'m str>,
    /// The message, if it is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
}

impl<'m> DeadLetter<'m> {
    #[must_use]
    pub fn new(
        (source, offset): (&'m SourceId, u64),
        payload: Option<&'m [u8]>,
        published: Timestamp,
        Poison { field, reason }: &'m Poison,
    ) -> Self {
        let text = payload.map(std::str::from_utf8);
        let payload_base64 =
            payload.filter(|_| text.is_some_and(|text| text.is_err())).map(|bytes| STANDARD.encode(bytes));
        let (published, field) = (published.0, field.as_deref());
        Self { source, offset, published, reason, field, payload: text.and_then(Result::ok), payload_base64 }
    }
}

/// Where dead letters go.
#[derive(Debug)]
pub enum DeadLetters {
    /// A file of JSON lines.
    File { path: PathBuf, bytes_max: u64 },
    /// A subject of NATS, or a topic of Kafka, of the broker that the messages come from.
    Broker { to: String },
}

impl DeadLetters {
    /// Writes letters and waits until they are durable.
    ///
    /// # Errors
    /// `DeadLetter` or `DeadLettersFull`; some of the letters may have been written.
    pub async fn write(&self, broker: &Broker, letters: &[DeadLetter<'_>]) -> Result<(), IngestError> {
        let failed = |reason: String| IngestError::DeadLetter { place: self.place(), reason };
        match self {
            Self::File { path, bytes_max } => {
                let mut lines = Vec::new();
                for letter in letters {
                    serde_json::to_writer(&mut lines, letter).map_err(|error| failed(error.to_string()))?;
                    lines.push(b'\n');
                }
                let (path, bytes_max) = (path.clone(), *bytes_max);
                let written = tokio::task::spawn_blocking(move || append(&path, bytes_max, &lines)).await;
                match written.map_err(|error| failed(error.to_string()))? {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(IngestError::DeadLettersFull { place: self.place(), bytes_max }),
                    Err(error) => Err(failed(error.to_string())),
                }
            }
            Self::Broker { to } => {
                for letter in letters {
                    let payload = serde_json::to_vec(letter).map_err(|error| failed(error.to_string()))?;
                    broker.publish(to, &format!("{}/{}", letter.source, letter.offset), payload).await?;
                }
                Ok(())
            }
        }
    }

    /// The file, the subject or the topic.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::Broker { to } => to.clone(),
        }
    }
}

/// Appends lines and syncs; `false` if the file would be larger than it may.
fn append(path: &Path, bytes_max: u64, lines: &[u8]) -> std::io::Result<bool> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    let size = file.metadata()?.len();
    if size.saturating_add(lines.len() as u64) > bytes_max {
        return Ok(false);
    }
    file.write_all(lines)?;
    file.sync_all()?;
    if size == 0
        && let Some(folder) = path.parent()
    {
        File::open(folder)?.sync_all()?;
    }
    Ok(true)
}
