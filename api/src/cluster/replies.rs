//! Replies of another node to the lines of a stream.

use axum::body::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::error::Problem;

/// The reply to one line.
#[derive(Debug)]
pub struct LineReply {
    /// Without the line feed.
    pub text: Bytes,
    pub outcome: Outcome,
}

/// What became of a line.
#[derive(Debug)]
pub enum Outcome {
    Taken,
    Duplicate,
    Rejected(Box<Problem>),
}

/// The parts of a reply that are looked at.
#[derive(Deserialize)]
struct Looked {
    #[serde(default)]
    duplicate: bool,
    error: Option<Box<Problem>>,
    summary: Option<IgnoredAny>,
}

impl LineReply {
    /// Reads a reply; `None` for the summary at the end.
    ///
    /// # Errors
    /// If it is no reply to a line.
    pub(super) fn read(text: Bytes) -> Result<Option<Self>, serde_json::Error> {
        let Looked { duplicate, error, summary } = serde_json::from_slice(&text)?;
        if summary.is_some() {
            return Ok(None);
        }
        let outcome = match error {
            Some(problem) => Outcome::Rejected(problem),
            None if duplicate => Outcome::Duplicate,
            None => Outcome::Taken,
        };
        Ok(Some(Self { text, outcome }))
    }
}

/// Divides what arrives of a body into lines of at most [`LINE_BYTES_MAX`].
#[derive(Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
}

/// Maximum bytes of a reply to one line.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A line is longer than replies are.
#[derive(Debug)]
pub(super) struct TooLong;

impl Lines {
    /// The lines that end in this chunk.
    pub(super) fn of(&mut self, chunk: &Bytes) -> Result<Vec<Bytes>, TooLong> {
        let mut lines = Vec::new();
        let mut from = 0;
        for end in chunk.iter().enumerate().filter_map(|(at, byte)| (*byte == b'\n').then_some(at)) {
            if self.rest.is_empty() {
                lines.push(chunk.slice(from..end));
            } else {
                self.rest.extend_from_slice(&chunk[from..end]);
                lines.push(std::mem::take(&mut self.rest).into());
            }
            from = end + 1;
        }
        self.rest.extend_from_slice(&chunk[from..]);
        if self.rest.len() > LINE_BYTES_MAX { Err(TooLong) } else { Ok(lines) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let text = b"{\"user_epoch\":1,\"duplicate\":false}\n{\"duplicate\":true}\n{\"summary\":{}}\n";
        for size in [1, 2, 7, 35, text.len()] {
            let mut lines = Lines::default();
            let parts = text.chunks(size).flat_map(|part| lines.of(&Bytes::copy_from_slice(part)).unwrap());
            let read: Vec<_> = parts.map(|line| LineReply::read(line).unwrap()).collect();
            let [Some(first), Some(second), None] = &read[..] else { panic!("{read:?}") };
            assert!(matches!((&first.outcome, &second.outcome), (Outcome::Taken, Outcome::Duplicate)));
        }
        assert!(Lines::default().of(&vec![b'x'; LINE_BYTES_MAX + 1].into()).is_err());
    }

    #[test]
    fn a_problem_is_a_rejection() {
        let text = r#"{"line":3,"error":{"type":"urn:celeris:problem:invalid-field","title":"A field is not valid",
            "status":422,"detail":"label: missing","errors":[{"pointer":"/label","detail":"missing"}]}}"#;
        let reply = LineReply::read(Bytes::from(text.replace('\n', ""))).unwrap().unwrap();
        let Outcome::Rejected(problem) = reply.outcome else { panic!("{reply:?}") };
        assert_eq!((problem.status, problem.errors.len()), (422, 1));
        assert!(LineReply::read(Bytes::from_static(b"[]")).is_err());
    }
}
