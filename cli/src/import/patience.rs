//! Waiting for a node that does not answer, such as one that is being restarted.

use std::thread;
use std::time::{Duration, Instant};

use super::progress::Progress;
use crate::Failure;

/// The time between two requests, at least, whatever the node says.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// How long a request has not been answered.
pub struct Patience<'a> {
    url: String,
    wait: Duration,
    progress: &'a Progress,
    since: Option<Instant>,
}

impl<'a> Patience<'a> {
    pub fn new(url: &str, wait: Duration, progress: &'a Progress) -> Self {
        Self { url: url.to_owned(), wait, progress, since: None }
    }

    /// The node answered a part of the request.
    pub fn answered(&mut self) {
        self.since = None;
    }

    /// Waits before the request is sent again.
    ///
    /// # Errors
    /// If the node has not answered for too long.
    pub fn pause(&mut self, why: &str, pause: Duration) -> Result<(), Failure> {
        let (url, wait) = (&self.url, self.wait.as_secs());
        let since = *self.since.get_or_insert_with(|| {
            self.progress.say(&format!("{url} does not answer now ({why}); waiting up to {wait} s for it"));
            Instant::now()
        });
        let waited = since.elapsed();
        if waited >= self.wait {
            return Err(Failure::other(format!(
                "{url} has not answered for {} s ({why}); run the same command again once it does: what was taken is not taken \
                 twice",
                waited.as_secs()
            )));
        }
        thread::sleep(pause.min(self.wait.saturating_sub(waited)).max(PAUSE_MIN));
        Ok(())
    }
}
