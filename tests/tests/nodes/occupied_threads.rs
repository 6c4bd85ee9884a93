//! Requests that wait for others, or take long, leave threads to the rest.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, available_parallelism};

use celeris_tests::Node;
use celeris_tests::fixtures::create_model;
use fail::FailGuard;
use serde_json::{Value, json};

/// Requests of other users while threads are held.
const OTHERS: usize = 50;

/// More requests than the node has threads for computation.
fn crowd() -> usize {
    4 * available_parallelism().map_or(1, NonZeroUsize::get) + 8
}

/// Threads held at a fault point, until this is dropped.
struct Held {
    _release: Sender<()>,
    _point: FailGuard,
    reached: Receiver<()>,
}

impl Held {
    /// Holds the next `threads` threads that reach the point `step` of the store in `folder`.
    fn at(step: &str, folder: &Path, threads: usize) -> Self {
        let (release, released) = channel::<()>();
        let (reaches, reached) = channel();
        let released = Mutex::new(released);
        let count = Arc::new(AtomicUsize::new(0));
        let point = FailGuard::with_callback(format!("{step} {}", folder.display()), move || {
            if count.fetch_add(1, Ordering::Relaxed) < threads {
                // Fails once the test is over.
                let _ = reaches.send(());
                let _ = released.lock().map(|released| released.recv());
            }
        });
        Self { _release: release, _point: point.unwrap(), reached }
    }
}

fn ranked(user: &str) -> Value {
    json!({"user": user, "items": ["item-1", "item-2"], "k": 1, "policy": "greedy"})
}

#[test]
fn requests_that_wait_for_the_load_of_a_user_occupy_no_threads() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 91);
    films.observe(&json!({"user": "u", "item": "item-1", "label": 4}));
    node.stop();
    let node = Node::serve(dir.path());
    let films = node.model("films");
    let held = Held::at("history", &dir.path().join("db"), 1);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..crowd()).map(|_| scope.spawn(|| films.post("topk", &ranked("u")))).collect();
        held.reached.recv().unwrap();
        for _ in 0..OTHERS {
            films.post("topk", &ranked("other")).expect(200);
        }
        assert!(waiting.iter().all(|request| !request.is_finished()), "all wait for the same load");
        drop(held);
        for request in waiting {
            assert_eq!(request.join().unwrap().expect(200)["user_epoch"], 1);
        }
    });
}

#[test]
fn erasures_leave_threads_to_serving_requests() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create_model(&node.client(), "films", 92);
    for user in 0..crowd() {
        films.observe(&json!({"user": format!("u-{user}"), "item": "item-1", "label": 4}));
    }
    let held = Held::at("erase", &dir.path().join("decisions"), usize::MAX);
    thread::scope(|scope| {
        let films = &films;
        let erasing: Vec<_> =
            (0..crowd()).map(|user| scope.spawn(move || films.delete(&format!("users/u-{user}")))).collect();
        held.reached.recv().unwrap();
        for _ in 0..OTHERS {
            films.observe(&json!({"user": "other", "item": "item-1", "label": 4}));
        }
        drop(held);
        for erased in erasing {
            erased.join().unwrap().expect(200);
        }
    });
}
