//! Errors of brokers, sources and dead letters.

/// Why messages cannot be read now. None of these is the fault of a message.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IngestError {
    /// A setting that cannot work.
    #[error("{setting}: {reason}")]
    Setting { setting: &'static str, reason: String },
    /// No server of the broker answers.
    #[error("cannot connect to {servers}: {reason}")]
    Connect { servers: String, reason: String },
    /// The broker has no such stream or topic.
    #[error("{source_name} does not exist at the broker; create it, or correct the configuration")]
    Missing { source_name: String },
    /// Another stream has the name now.
    #[error("{source_name} was deleted and created again; its messages are read from where `start` says")]
    Replaced { source_name: String },
    /// The source ends before the position.
    #[error(
        "{source_name} ends at message {end}, but message {position} was taken: the broker has lost messages, or the topic was \
         created again; give the ingest another name to read it anew"
    )]
    Rewound { source_name: String, position: u64, end: u64 },
    /// Reading failed.
    #[error("cannot read {source_name}: {reason}")]
    Read { source_name: String, reason: String },
    /// A dead letter could not be written.
    #[error("cannot write a dead letter to {place}: {reason}")]
    DeadLetter { place: String, reason: String },
    /// The file of dead letters has reached its bound.
    #[error("{place} has {bytes_max} bytes of dead letters, as many as it may; look at them, and move the file away")]
    DeadLettersFull { place: String, bytes_max: u64 },
}
