//! Output of a program: lines are passed to the caller, the rest is kept in part, and all of it
//! counts as a heartbeat.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes kept from the beginning and the end of the output, since the cause of a failure is usually
/// the first or the last error.
const HEAD_BYTES: usize = 4 << 10;
const TAIL_BYTES: usize = 8 << 10;

/// Longer lines are not passed to the caller.
const LINE_BYTES_MAX: usize = 4 << 10;

const CHUNK_BYTES: usize = 8 << 10;

/// Time of the last output of a program.
#[derive(Debug, Clone)]
pub(crate) struct Pulse(Arc<Mutex<Instant>>);

impl Pulse {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(crate) fn beat(&self) {
        *self.0.lock() = Instant::now();
    }

    pub(crate) fn silence(&self) -> Duration {
        self.0.lock().elapsed()
    }
}

/// Beginning and end of the output.
#[derive(Debug, Default)]
pub(crate) struct OutputExcerpt {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: bool,
}

impl OutputExcerpt {
    fn push(&mut self, bytes: &[u8]) {
        let room = HEAD_BYTES - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend(head);
        self.tail.extend(rest);
        if self.tail.len() > TAIL_BYTES {
            self.dropped = true;
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }

    pub(crate) fn text(&self) -> String {
        let (front, back) = self.tail.as_slices();
        let tail = [front, back].concat();
        let between = if self.dropped { "\n…\n" } else { "" };
        let text = [String::from_utf8_lossy(&self.head), between.into(), String::from_utf8_lossy(&tail)].concat();
        text.trim().to_owned()
    }
}

/// Reads a stream of the program to its end, in bounded memory. Lines that `takes` does not accept
/// are kept in the excerpt.
pub(crate) async fn read_output(
    mut stream: impl AsyncRead + Unpin,
    pulse: Pulse,
    excerpt: Arc<Mutex<OutputExcerpt>>,
    takes: impl Fn(&[u8]) -> bool,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut line: Vec<u8> = Vec::new();
    // A read error ends the output; how the process ended is reported separately.
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        pulse.beat();
        for part in chunk[..count].split_inclusive(|byte| *byte == b'\n') {
            if line.len() + part.len() <= LINE_BYTES_MAX {
                line.extend(part);
            }
            if part.ends_with(b"\n") {
                if !takes(&line) {
                    excerpt.lock().push(&line);
                }
                line.clear();
            }
        }
    }
    excerpt.lock().push(&line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_that_the_caller_takes_are_not_kept() {
        let long = "x".repeat(LINE_BYTES_MAX);
        let printed = format!("progress 1\nwarning\n{long}\nprogress 2\nerror");
        let excerpt = Arc::new(Mutex::new(OutputExcerpt::default()));
        let taken = Mutex::new(0);
        let takes = |line: &[u8]| {
            let takes = line.starts_with(b"progress");
            *taken.lock() += usize::from(takes);
            takes
        };
        read_output(printed.as_bytes(), Pulse::new(), excerpt.clone(), takes).await;
        assert_eq!(*taken.lock(), 2);
        assert_eq!(excerpt.lock().text(), "warning\nerror");
    }

    #[test]
    fn the_beginning_and_the_end_of_the_output_are_kept() {
        let mut excerpt = OutputExcerpt::default();
        excerpt.push(b"first\n");
        for _ in 0..10_000 {
            excerpt.push(b"and so on\n");
        }
        excerpt.push(b"last\n");
        let text = excerpt.text();
        assert!(text.starts_with("first") && text.ends_with("last"), "{text}");
        assert!(text.len() <= HEAD_BYTES + TAIL_BYTES + 16, "{}", text.len());
    }
}
