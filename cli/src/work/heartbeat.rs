//! Reports to the node that a trial is at work, and hears whether it is still the worker's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::json;

use super::{Assigned, sent_once};
use crate::node_client::{NodeClient, Unanswered};

/// Messages in the time of a lease: some may be lost.
const IN_A_LEASE: u32 = 4;

/// The longest time between two messages, in which a trial runs on although its study was stopped.
const EVERY_MAX: Duration = Duration::from_secs(15);

/// Sends messages from a thread until it is dropped.
pub struct Heartbeat {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Stops the trial.
    stop: Arc<AtomicBool>,
    /// The trial is not this worker's any more.
    is_lost: AtomicBool,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Heartbeat {
    pub fn start(client: &Arc<NodeClient>, assigned: &Assigned) -> Self {
        let shared = Arc::<Shared>::default();
        let (of_thread, client, assigned) = (Arc::clone(&shared), Arc::clone(client), assigned.clone());
        let thread = thread::spawn(move || of_thread.beat(&client, &assigned));
        Self { shared, thread: Some(thread) }
    }

    /// Stops the trial when it is lost.
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.stop)
    }

    /// Whether the node takes no messages of the trial any more.
    pub fn is_lost(&self) -> bool {
        self.shared.is_lost.load(Ordering::Acquire)
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        *self.shared.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.over.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has lost no more than a message.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn beat(&self, client: &NodeClient, assigned: &Assigned) {
        let every = (assigned.lease / IN_A_LEASE).min(EVERY_MAX);
        let body = json!({ "attempt": assigned.attempt });
        while !self.waits_until_over(every) {
            match sent_once(client, &assigned.path("report"), &body) {
                Ok(_lease) => {}
                Err(Unanswered::Away { why, .. }) => tracing::warn!(why, "the node does not answer"),
                Err(Unanswered::Refused(_)) => {
                    self.is_lost.store(true, Ordering::Release);
                    self.stop.store(true, Ordering::Release);
                    return;
                }
            }
        }
    }

    /// Waits for a time; returns whether the trial is over by then.
    fn waits_until_over(&self, time: Duration) -> bool {
        let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.over.wait_timeout_while(is_over, time, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
