//! SIGTERM: requests under way are answered, the node exits with code 0, and everything
//! acknowledged is stored.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;

use celeris_tests::fixtures::{any_item, any_label, create_model};
use celeris_tests::{NodeProcess, eventually};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const CLIENTS: usize = 8;

/// Acknowledgements after which the node is asked to stop.
const STOP_AFTER: usize = 200;

#[test]
fn everything_acknowledged_is_stored_after_a_stop_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 31);
    let (sender, acknowledged) = mpsc::channel::<(usize, u64)>();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (films, sender) = (films.clone(), sender.clone());
            thread::spawn(move || {
                let mut random = ChaCha8Rng::seed_from_u64(client as u64);
                loop {
                    let user = format!("user-{client}");
                    let observation =
                        json!({"user": user, "item": any_item(&mut random), "label": any_label(&mut random)});
                    // A refused connection ends the loop; every response is an acknowledgement.
                    let Ok(reply) = films.try_observe(&observation) else { return };
                    sender.send((client, reply.expect(200)["user_epoch"].as_u64().unwrap())).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let mut epochs: BTreeMap<usize, u64> = BTreeMap::new();
    for (count, (client, epoch)) in acknowledged.into_iter().enumerate() {
        epochs.insert(client, epoch);
        if count == STOP_AFTER {
            node.ask_to_stop();
        }
    }
    for client in clients {
        client.join().unwrap();
    }
    let exit = node.wait();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);

    let node = NodeProcess::serve(dir.path());
    for (client, epoch) in epochs {
        let there = node.model("films").user(&format!("user-{client}"), 0)["user_epoch"].as_u64().unwrap();
        // One request per client may have been processed without its response arriving.
        assert!((epoch..=epoch + 1).contains(&there), "user-{client}: acknowledged {epoch}, found {there}");
    }
}

/// The node has processed the first half of the request when it is asked to stop, and receives the
/// second half only afterwards.
#[test]
fn a_request_under_way_is_answered_in_full() {
    const LINES: usize = 20;
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", 32);
    let mut random = ChaCha8Rng::seed_from_u64(33);
    let lines: Vec<String> = (0..LINES)
        .map(|_| format!("{}\n", json!({"user": "u", "item": any_item(&mut random), "label": any_label(&mut random)})))
        .collect();
    let (first, second) = (lines[..LINES / 2].concat(), lines[LINES / 2..].concat());
    let length = first.len() + second.len();
    let mut socket = TcpStream::connect(films.node().address()).unwrap();
    write!(
        socket,
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: {length}\r\n\r\n{first}",
        films.path("observations")
    )
    .unwrap();
    eventually("the first half", || (films.user("u", 0)["user_epoch"] == LINES / 2).then_some(()));

    node.ask_to_stop();
    eventually("a closed listener", || TcpStream::connect(films.node().address()).is_err().then_some(()));
    socket.write_all(second.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(socket).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let replies: Vec<Value> =
        answer.as_bytes().lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()).collect();
    let epochs: Vec<u64> = replies.iter().filter_map(|reply| reply["user_epoch"].as_u64()).collect();
    assert_eq!(epochs, (1..=LINES as u64).collect::<Vec<_>>(), "{answer}");
    let exit = node.wait();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert_eq!(NodeProcess::serve(dir.path()).model("films").user("u", 0)["user_epoch"], LINES);
}

#[test]
fn an_idle_node_stops_immediately_despite_open_connections() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let client = node.client();
    assert_eq!(client.get("/healthz").status, 200);
    // An idle connection is not a request under way, and must not delay the exit until the drain
    // timeout.
    let _silent = TcpStream::connect(client.address()).unwrap();
    let exit = node.terminate();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert!(!exit.stderr.contains("drain timeout"), "{}", exit.stderr);
}
