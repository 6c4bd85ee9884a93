//! Clients that write to and read from every shard of a cluster while parts of it are lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use celeris_model::{ItemId, UserId};
use hyper::body::Bytes;
use serde_json::json;

use super::nats::poll;
use super::reading;
use crate::load::{self, Sender, ask, connect};
use crate::process::MODEL;
use celeris_cli::Failure;

/// Between two writes to a shard, and between two reads.
const PERIOD: Duration = Duration::from_millis(10);

/// Between a failed request and its repetition.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// After a loss, each shard must take this number of writes, and this time must pass, before it counts as
/// survived.
const WRITES: usize = 20;
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// How long the writes of a shard may be out.
const TIMEOUT: Duration = Duration::from_secs(90);

/// An answered request.
#[derive(Clone, Copy)]
struct Answered {
    first_sent: Instant,
    at: Instant,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// The acknowledged writes of each shard.
    writes: Vec<Mutex<Vec<Answered>>>,
    reads: Mutex<Vec<Answered>>,
    failed_reads: AtomicU64,
}

/// The clients. They run on a thread of their own until they are ended.
pub struct Watch {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<(), Failure>>,
}

/// What clients have seen of a loss.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// The longest time between two acknowledged writes of a shard.
    pub writes_out: Duration,
    /// The longest latency of a read.
    pub slowest_read: Duration,
    pub failed_reads: u64,
}

impl Seen {
    /// The worst of both.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self {
            writes_out: self.writes_out.max(other.writes_out),
            slowest_read: self.slowest_read.max(other.slowest_read),
            failed_reads: self.failed_reads.max(other.failed_reads),
        }
    }
}

impl Watch {
    /// Starts a writing and a reading client for each shard, at the nodes of `via`. `users` are two of
    /// each shard, and `name` makes the ids of their observations differ from those of other watches.
    pub fn start(via: &[SocketAddr], users: &[[UserId; 2]], item: &ItemId, name: &str) -> Self {
        let shared = Arc::new(Shared { writes: users.iter().map(|_| Mutex::default()).collect(), ..Shared::default() });
        let (of_thread, via, users) = (Arc::clone(&shared), via.to_vec(), users.to_vec());
        let (item, name) = (item.clone(), name.to_owned());
        let thread = thread::spawn(move || {
            load::client()?.block_on(async {
                let line = |next| Line { via: via.clone(), next, sender: None };
                let of_users = |(shard, users): (usize, &[UserId; 2])| {
                    // A read of a user whose write is on its way waits for it.
                    let [written, asked] =
                        users.clone().map(|user| Target { shard, user, item: item.clone(), name: name.clone() });
                    let reading = read(&of_thread, asked, line(shard + 1));
                    futures_util::future::join(write(&of_thread, written, line(shard)), reading)
                };
                futures_util::future::join_all(users.iter().enumerate().map(of_users)).await;
                Ok(())
            })
        });
        Self { shared, thread }
    }

    /// Waits until each shard takes writes.
    ///
    /// # Errors
    /// If one does not in time.
    pub fn await_writes(&self, since: Instant) -> Result<(), Failure> {
        poll("writes to every shard", TIMEOUT, || {
            let is_served = |writes: &Mutex<Vec<Answered>>| {
                locked(writes).iter().rev().take_while(|write| write.first_sent > since).count() >= WRITES
            };
            self.shared.writes.iter().all(is_served).then_some(())
        })
    }

    /// Waits until the loss at `lost` is survived, and ends the clients.
    ///
    /// # Errors
    /// If a shard takes no writes.
    pub fn end(self, lost: Instant) -> Result<Seen, Failure> {
        let survived = self.await_writes(lost.max(Instant::now()));
        thread::sleep(SETTLED_AFTER.saturating_sub(lost.elapsed()));
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| Failure::other("a client of the bench panicked"))??;
        survived?;
        let pause = |writes: &Mutex<Vec<Answered>>| {
            let writes = locked(writes);
            let pauses = writes.windows(2).filter(|pair| pair[1].at > lost).map(|pair| pair[1].at - pair[0].at);
            pauses.max().unwrap_or_default()
        };
        let reads = locked(&self.shared.reads);
        let slow = reads.iter().filter(|read| read.at > lost).map(|read| read.at - read.first_sent);
        Ok(Seen {
            writes_out: self.shared.writes.iter().map(pause).max().unwrap_or_default(),
            slowest_read: slow.max().unwrap_or_default(),
            failed_reads: self.shared.failed_reads.load(Ordering::Relaxed),
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no client panics while it holds the lock")
}

#[derive(Clone)]
struct Target {
    shard: usize,
    user: UserId,
    item: ItemId,
    name: String,
}

/// A connection to one of some nodes, opened again at the next if it breaks.
struct Line {
    via: Vec<SocketAddr>,
    next: usize,
    sender: Option<Sender>,
}

impl Line {
    async fn ask(&mut self, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => {
                self.next += 1;
                connect(self.via[self.next % self.via.len()]).await?
            }
        };
        let answered = ask(&mut sender, path, body).await;
        self.sender = Some(sender);
        answered
    }
}

async fn write(shared: &Shared, target: Target, mut line: Line) {
    let Target { shard, user, item, name } = target;
    let path = format!("/v1/models/{MODEL}/observe");
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for number in 0_u64.. {
        ticks.tick().await;
        let id = format!("{name}-{shard}-{number}");
        let body = json!({ "user": user, "item": item, "label": 4, "observation_id": id }).to_string();
        let (body, first_sent) = (Bytes::from(body), Instant::now());
        while line.ask(&path, body.clone()).await.is_err() {
            if shared.stop.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
        locked(&shared.writes[shard]).push(Answered { first_sent, at: Instant::now() });
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

async fn read(shared: &Shared, Target { user, item, .. }: Target, mut line: Line) {
    let path = reading::path();
    let body = Bytes::from(json!({ "user": user, "item": item }).to_string());
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !shared.stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let first_sent = Instant::now();
        match line.ask(&path, body.clone()).await {
            Ok(_) => locked(&shared.reads).push(Answered { first_sent, at: Instant::now() }),
            Err(_) => drop(shared.failed_reads.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
