use std::io;

/// Why a place could not be read or written. Each message names the place.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    #[error("{place}: {problem}")]
    Invalid { place: String, problem: String },
    #[error("{place}: there is no such file")]
    NotFound { place: String },
    #[error("{place}: it has more than {bytes_max} bytes")]
    TooLong { place: String, bytes_max: u64 },
    #[error("{place}: it has more than {max} files")]
    TooMany { place: String, max: usize },
    #[error("{place}: cannot {action} it: {source}")]
    Io { action: &'static str, place: String, source: io::Error },
    #[error("{place}: cannot {action} it: {}", causes(source))]
    Store { action: &'static str, place: String, source: object_store::Error },
}

impl LocationError {
    pub(crate) fn invalid(place: &str, problem: &(impl ToString + ?Sized)) -> Self {
        Self::Invalid { place: place.to_owned(), problem: problem.to_string() }
    }

    pub(crate) fn io(action: &'static str, place: &str, source: io::Error) -> Self {
        let inner = source.get_ref().and_then(|inner| inner.downcast_ref::<Self>());
        // A reader's own error comes back from `Read`; it names the place already.
        if inner.is_some() {
            let inner = source.into_inner().and_then(|inner| inner.downcast::<Self>().ok());
            return inner.map_or_else(|| Self::lost(action, place), |inner| *inner);
        }
        if source.kind() == io::ErrorKind::NotFound && action != "write" {
            return Self::NotFound { place: place.to_owned() };
        }
        Self::Io { action, place: place.to_owned(), source }
    }

    pub(crate) fn store(action: &'static str, place: &str, source: object_store::Error) -> Self {
        match source {
            object_store::Error::NotFound { .. } if action != "write" => Self::NotFound { place: place.to_owned() },
            source => Self::Store { action, place: place.to_owned(), source },
        }
    }

    /// The thread that was to answer has ended.
    pub(crate) fn lost(action: &'static str, place: &str) -> Self {
        let source = io::Error::other("the request to the store was given up");
        Self::Io { action, place: place.to_owned(), source }
    }

    fn kind(&self) -> io::ErrorKind {
        use object_store::Error as Of;
        match self {
            Self::Invalid { .. } => io::ErrorKind::InvalidInput,
            Self::NotFound { .. } => io::ErrorKind::NotFound,
            Self::TooLong { .. } => io::ErrorKind::FileTooLarge,
            Self::TooMany { .. } => io::ErrorKind::Other,
            Self::Io { source, .. } => source.kind(),
            Self::Store { source: Of::PermissionDenied { .. } | Of::Unauthenticated { .. }, .. } => {
                io::ErrorKind::PermissionDenied
            }
            Self::Store { source: Of::NotSupported { .. } | Of::NotImplemented { .. }, .. } => {
                io::ErrorKind::Unsupported
            }
            Self::Store { .. } => io::ErrorKind::Other,
        }
    }
}

impl From<LocationError> for io::Error {
    fn from(error: LocationError) -> Self {
        Self::new(error.kind(), error)
    }
}

/// An error with those below it that it does not quote.
fn causes(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let of_cause = cause.to_string();
        if !text.contains(&of_cause) {
            text.push_str(": ");
            text.push_str(&of_cause);
        }
        next = cause.source();
    }
    text
}
