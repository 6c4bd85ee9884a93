//! The bounded queue between the threads that end spans and the one that sends them.
//!
//! The thread that ends a span never waits: a span that finds the queue full is dropped, and counted. Spans that the collector does
//! not take in time are dropped too, so a dead collector costs memory for one queue and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use parking_lot::Mutex;

/// Maximum number of spans in one request to the collector.
const BATCH: usize = 512;

/// How often the sending thread looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The queue, as the SDK calls it.
#[derive(Debug)]
pub struct Queue<E> {
    waiting: SyncSender<SpanData>,
    stopping: Arc<AtomicBool>,
    /// Until the thread has started.
    unstarted: Mutex<Option<(Receiver<SpanData>, E)>>,
    interval: Duration,
    /// Completes when the thread has ended.
    ended: Mutex<Option<Receiver<()>>>,
}

impl<E: SpanExporter + 'static> Queue<E> {
    /// A queue of at most `spans`, of which each waits for others for at most `interval`.
    pub fn new(exporter: E, spans: usize, interval: Duration) -> Self {
        let (waiting, receiver) = mpsc::sync_channel(spans);
        Self {
            waiting,
            stopping: Arc::default(),
            unstarted: Mutex::new(Some((receiver, exporter))),
            interval,
            ended: Mutex::default(),
        }
    }

    /// Starts the thread that sends.
    ///
    /// # Errors
    /// If it cannot be started.
    fn start(&self, resource: &Resource) -> std::io::Result<()> {
        let Some((waiting, mut exporter)) = self.unstarted.lock().take() else { return Ok(()) };
        exporter.set_resource(resource);
        let (done, ended) = mpsc::channel();
        let sending =
            Sending { exporter, stopping: Arc::clone(&self.stopping), interval: self.interval, is_failing: false };
        thread::Builder::new().name("celeris-traces".to_owned()).spawn(move || {
            sending.run(&waiting);
            // Nobody waits if the stop has taken too long.
            let _ = done.send(());
        })?;
        *self.ended.lock() = Some(ended);
        Ok(())
    }
}

impl<E: SpanExporter + 'static> SpanProcessor for Queue<E> {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        match self.waiting.try_send(span) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => dropped("queue_full", 1),
            Err(TrySendError::Disconnected(_)) => dropped("stopped", 1),
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    /// Sends what waits, within this time. The thread is left behind if the collector takes longer.
    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.stopping.store(true, Ordering::Release);
        let Some(ended) = self.ended.lock().take() else { return Ok(()) };
        ended.recv_timeout(timeout).map_err(|_| OTelSdkError::Timeout(timeout))
    }

    fn set_resource(&mut self, resource: &Resource) {
        if let Err(error) = self.start(resource) {
            tracing::warn!(%error, "no thread can be started that sends traces; they are dropped");
        }
    }
}

/// What the thread works with.
struct Sending<E> {
    exporter: E,
    stopping: Arc<AtomicBool>,
    interval: Duration,
    /// Whether the last batch was not taken.
    is_failing: bool,
}

impl<E: SpanExporter> Sending<E> {
    fn run(mut self, waiting: &Receiver<SpanData>) {
        loop {
            let batch = self.next_batch(waiting);
            if batch.is_empty() {
                return;
            }
            self.send(batch);
        }
    }

    /// The next spans; none if it is to stop and nothing waits.
    fn next_batch(&self, waiting: &Receiver<SpanData>) -> Vec<SpanData> {
        let mut batch = Vec::new();
        let mut due = None;
        while batch.len() < BATCH {
            let is_stopping = self.stopping.load(Ordering::Acquire);
            let left = due.map_or(LOOK_EVERY, |due: Instant| due.saturating_duration_since(Instant::now()));
            let patience = if is_stopping { Duration::ZERO } else { left.min(LOOK_EVERY) };
            match waiting.recv_timeout(patience) {
                Ok(span) => {
                    due.get_or_insert_with(|| Instant::now() + self.interval);
                    batch.push(span);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if is_stopping || (!batch.is_empty() && left.is_zero()) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        batch
    }

    fn send(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len() as u64;
        // The client blocks this thread.
        let sent = futures_executor::block_on(self.exporter.export(batch));
        // Said once for each time that the collector goes or comes.
        match sent {
            Ok(()) => {
                metrics::counter!("celeris_trace_spans_sent_total").increment(spans);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector takes traces again");
                }
            }
            Err(error) => {
                dropped("not_taken", spans);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, "the collector takes no traces, which are dropped until it does");
                }
            }
        }
    }
}

fn dropped(reason: &'static str, spans: u64) {
    metrics::counter!("celeris_trace_spans_dropped_total", "reason" => reason).increment(spans);
}
