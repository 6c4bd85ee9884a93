//! A user who is erased while the owner dies.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use celeris_tests::{Client, eventually};
use rand::RngExt as _;
use rand::distr::Alphanumeric;
use serde_json::{Value, json};

use crate::load::MODEL;
use crate::run::{Run, scenarios, within};

scenarios! {
    Forgetful: a_user_erased_while_the_owner_dies_is_in_no_file_of_a_node,
    Forgetful by hand: a_user_erased_after_the_death_of_the_owner_is_in_no_file_of_a_node_or_server,
}

/// Compression may cut a text where four bytes of it occurred before, but not all of its pieces.
const PIECE: usize = 10;

/// The servers compact the files of their own logs each two to three minutes; a file that has got another batch meanwhile keeps
/// what was compacted until the next time.
const SERVERS_FORGET_WITHIN: Duration = Duration::from_secs(3 * 180 + 15);

/// The ids of a user, an observation and a free text, which are nowhere else.
struct Traces {
    user: String,
    texts: Vec<String>,
}

impl Traces {
    fn new(run: &mut Run) -> Self {
        let mut text = || (&mut run.rng).sample_iter(Alphanumeric).take(60).map(char::from).collect::<String>();
        let user = text();
        Self { texts: vec![user.clone(), text(), text()], user }
    }

    /// The texts of which a file has a piece.
    fn in_file(&self, file: &Path) -> Vec<usize> {
        // Files may be removed meanwhile.
        let bytes = fs::read(file).unwrap_or_default();
        let has = |piece: &[u8]| memchr::memmem::find(&bytes, piece).is_some();
        let is_there = |text: &String| text.as_bytes().chunks_exact(PIECE).any(has);
        (0..self.texts.len()).filter(|text| is_there(&self.texts[*text])).collect()
    }

    /// The files below a folder that have any of the texts.
    fn below(&self, folder: &Path) -> Vec<(PathBuf, Vec<usize>)> {
        let found = files(folder).into_iter().map(|file| (self.in_file(&file), file));
        found.filter(|(texts, _)| !texts.is_empty()).map(|(texts, file)| (file, texts)).collect()
    }

    /// Whether some file below a folder has each of the texts.
    fn are_below(&self, folder: &Path) -> bool {
        let found = self.below(folder);
        (0..self.texts.len()).all(|text| found.iter().any(|(_, texts)| texts.contains(&text)))
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The user observes until each node and each server has the texts in a file, and is recommended something.
fn leave_traces(run: &Run, traces: &Traces) {
    let mut number = 0;
    let nodes = (0..run.cluster.len()).map(|node| run.cluster.data_dir(node));
    let places: Vec<PathBuf> =
        nodes.chain((0..run.cluster.nats.len()).map(|server| run.cluster.nats.store(server))).collect();
    let model = run.cluster.model(0, MODEL);
    let mut seen = vec![false; places.len()];
    eventually("the user is in the files of all nodes and servers", || {
        number += 1;
        let body = json!({"user": traces.user, "item": "item-1", "label": 2, "feedback": traces.texts[2],
            "observation_id": format!("{}-{number}", traces.texts[1])});
        model.try_observe(&body).ok().filter(|reply| reply.status == 200)?;
        let ranked = model.post("topk", &json!({"user": traces.user, "items": ["item-1", "item-2"], "k": 1}));
        assert!(ranked.status == 200 || ranked.status >= 502, "{}: {}", ranked.status, ranked.text);
        // A log may be trimmed in between.
        seen.iter_mut().zip(&places).for_each(|(seen, place)| *seen |= traces.are_below(place));
        seen.iter().all(|seen| *seen).then_some(())
    });
}

fn owner_of(run: &Run, user: &str) -> usize {
    eventually("the owner of the user", || {
        let reply = run.cluster.model(0, MODEL).post("predict", &json!({"user": user, "items": ["item-1"]}));
        let owner = reply.header("celeris-owner")?.split(';').next()?.to_owned();
        (0..run.cluster.len()).find(|node| run.cluster.runs(*node) && run.cluster.client(*node).url() == owner)
    })
}

/// Asks a node to erase the user until it has.
fn erase(node: &Client, user: &str) -> Value {
    eventually("the erasure of the user", || {
        let path = format!("/v1/models/{MODEL}/users/{user}");
        let reply = node.try_send("DELETE", &path, "", "").ok()?;
        assert!(reply.status == 200 || reply.status >= 502, "{}: {}", reply.status, reply.text);
        (reply.status == 200).then(|| reply.json())
    })
}

/// No node has a trace of the user once it has stopped.
fn assert_no_traces_in_nodes(run: &mut Run, traces: &Traces) {
    for node in 0..run.cluster.len() {
        run.terminate_node(node);
        let found = traces.below(&run.cluster.data_dir(node));
        assert!(found.is_empty(), "node {node} has the erased user: {found:?}");
        run.start_node(node);
        run.cluster.await_owners();
    }
}

/// No server has a trace of the user, some time after the logs were trimmed.
fn assert_no_traces_in_servers(run: &Run, traces: &Traces) {
    let started = Instant::now();
    let mut found: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    let is_gone = || {
        let stores = (0..run.cluster.nats.len()).flat_map(|server| traces.below(&run.cluster.nats.store(server)));
        let now: BTreeMap<PathBuf, Vec<usize>> = stores.collect();
        for file in found.keys().filter(|file| !now.contains_key(*file)) {
            eprintln!("{:.0} s: gone from {}", started.elapsed().as_secs_f64(), file.display());
        }
        found = now;
        // To read all files takes a while.
        Run::go_on(1.0);
        found.is_empty()
    };
    assert!(within(SERVERS_FORGET_WITHIN, is_gone), "servers have the erased user: {found:?}");
}

fn a_user_erased_while_the_owner_dies_is_in_no_file_of_a_node(run: &mut Run) {
    let traces = Traces::new(run);
    leave_traces(run, &traces);
    let owner = owner_of(run, &traces.user);
    let other = run.cluster.client((owner + 1) % run.cluster.len());
    let user = traces.user.clone();
    let erasing = thread::spawn(move || erase(&other, &user));
    let seconds = run.rng.random_range(0.0..0.1);
    Run::go_on(seconds);
    run.kill_node(owner);
    let receipt = erasing.join().unwrap();
    eprintln!("{receipt}");
    run.cluster.await_owners();
    Run::go_on(1.0);
    run.start_node(owner);
    run.cluster.await_owners();
    assert_no_traces_in_nodes(run, &traces);
}

fn a_user_erased_after_the_death_of_the_owner_is_in_no_file_of_a_node_or_server(run: &mut Run) {
    let traces = Traces::new(run);
    leave_traces(run, &traces);
    let owner = owner_of(run, &traces.user);
    run.kill_node(owner);
    let receipt = erase(&run.cluster.client((owner + 1) % run.cluster.len()), &traces.user);
    assert!(receipt["observations"].as_u64().unwrap() > 0, "{receipt}");
    run.start_node(owner);
    run.cluster.await_owners();
    assert_no_traces_in_nodes(run, &traces);
    assert_no_traces_in_servers(run, &traces);
}
