//! Flipped bits in files of servers and nodes that are stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use celeris_tests::{Cluster, binary, data_dir, eventually};
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;

use crate::run::{Run, scenarios, within};

scenarios! {
    Default: bits_flip_in_a_log_of_a_nats_server,
    Default: bits_flip_in_a_sorted_file_of_a_node,
    Forgetful: bits_flip_in_a_sorted_file_of_a_node_whose_tail_is_trimmed,
    Default: bits_flip_in_the_write_ahead_log_of_a_killed_node,
}

/// A NATS server with a damaged block was seen to hang at its start.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

fn flip(rng: &mut ChaCha8Rng, file: &Path) {
    let length = data_dir::length(file);
    let (byte, bit) = (rng.random_range(length / 8..length * 7 / 8), rng.random_range(0..8));
    eprintln!("bit {bit} of byte {byte} of {}, which has {length}", file.display());
    data_dir::flip(file, byte, bit);
}

/// The files of a folder with this extension that are not empty, larger ones last.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_wanted = |path: &PathBuf| path.extension().is_some_and(|of| of == extension) && data_dir::length(path) > 0;
    let mut files: Vec<PathBuf> = entries.filter(is_wanted).collect();
    files.sort_by_key(|file| data_dir::length(file));
    files
}

fn bits_flip_in_a_log_of_a_nats_server(run: &mut Run) {
    let (server, stream) = (run.any_server(), run.any_stream());
    // This node reads what is damaged.
    let behind = run.any_owner();
    run.kill_node(behind);
    run.await_operations(100);
    if run.rng.random() {
        run.cluster.nats.kill(server);
    } else {
        // It then starts without a look at its blocks.
        run.cluster.nats.terminate(server);
    }
    let folder = run.cluster.nats.store(server).join("jetstream/$G/streams").join(&stream).join("msgs");
    let file = files(&folder, "blk").pop().expect("the log has a block");
    flip(&mut run.rng, &file);
    flip(&mut run.rng, &file);
    run.cluster.nats.start_server(server);
    if within(STARTS_WITHIN, || run.cluster.nats.is_ready(server)) {
        read_damaged(run, server, &stream, behind);
    } else {
        eprintln!("the damaged server does not start");
        run.start_node(behind);
    }
    // As the documents ask for.
    run.cluster.nats.kill(server);
    fs::remove_dir_all(run.cluster.nats.store(server)).unwrap();
    run.cluster.nats.start_server(server);
    run.cluster.nats.await_ready();
    for node in 0..run.cluster.len() {
        run.terminate_node(node);
        run.start_node(node);
        run.cluster.await_owners();
    }
}

/// Has the damaged server lead a log, and a node read it.
fn read_damaged(run: &mut Run, server: usize, stream: &str, behind: usize) {
    run.cluster.nats.await_ready();
    eventually("the damaged server leads the log", || {
        // Refused while there is no leader.
        let _ = run.cluster.nats.step_to(stream, server);
        (run.cluster.nats.leader(stream) == Some(server)).then_some(())
    });
    let copy = run.cluster.nats.streams(server).into_iter().find(|copy| copy.name == stream).unwrap();
    eprintln!("{copy:?}");
    if run.rng.random() {
        // It reads the log from its beginning.
        fs::remove_dir_all(run.cluster.data_dir(behind)).unwrap();
    }
    run.start_node(behind);
    Run::go_on(2.0);
    let copy = run.cluster.nats.streams(server).into_iter().find(|copy| copy.name == stream).unwrap_or(copy);
    eprintln!("{copy:?}");
    if copy.deleted > 0 {
        assert_reported(run, stream);
    }
}

/// Some node reports that messages are missing.
fn assert_reported(run: &Run, stream: &str) {
    let log = stream.rsplit('-').next().unwrap();
    eventually("the damage is reported", || {
        let reports = |node: usize| {
            let status = binary::run(["cluster", "status", "--url", run.cluster.client(node).url()]).stdout;
            status.lines().any(|line| line.starts_with(log) && line.contains("lacks"))
        };
        (0..run.cluster.len()).any(reports).then_some(())
    });
}

/// Starts a node whose files are damaged. It refuses to, or ends once it finds the damage, and then gets an empty
/// folder; or what is damaged is nothing that it needs.
fn start_damaged(run: &mut Run, node: usize) {
    run.expects_errors = true;
    let started = run.cluster.try_start_node(node);
    run.reach_all();
    let verified = started.and_then(|()| run.cluster.await_verified(node));
    if let Err(exit) = verified {
        run.reach_all();
        assert!(exit.code.is_some_and(|code| code != 0), "{exit:?}");
        eprintln!("node {} ends: {}", Cluster::name(node), exit.stderr.lines().last().unwrap_or_default());
        fs::remove_dir_all(run.cluster.data_dir(node)).unwrap();
        run.await_operations(50);
        run.start_node(node);
    }
}

fn flip_in_sorted_file(run: &mut Run) {
    let node = run.any_owner();
    run.terminate_node(node);
    let file = files(&run.cluster.data_dir(node).join("db"), "sst").choose(&mut run.rng).cloned();
    flip(&mut run.rng, &file.expect("a stopped node has sorted files"));
    run.await_operations(50);
    start_damaged(run, node);
}

fn bits_flip_in_a_sorted_file_of_a_node(run: &mut Run) {
    flip_in_sorted_file(run);
}

fn bits_flip_in_a_sorted_file_of_a_node_whose_tail_is_trimmed(run: &mut Run) {
    Run::go_on(6.0);
    flip_in_sorted_file(run);
}

fn bits_flip_in_the_write_ahead_log_of_a_killed_node(run: &mut Run) {
    let node = run.any_owner();
    run.kill_node(node);
    let file = data_dir::largest_wal(&run.cluster.data_dir(node));
    flip(&mut run.rng, &file);
    run.await_operations(50);
    start_damaged(run, node);
}
