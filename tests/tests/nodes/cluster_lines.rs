//! Streams of observations over the nodes of a cluster: lines land on the owners of their users, and
//! the replies come in the order of the lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use celeris_tests::fixtures::config_file;
use celeris_tests::{DEADLINE, Divided};
use serde_json::{Value, json};

const PATH: &str = "/v1/models/films/observations";

fn line(user: &str, id: usize) -> Value {
    json!({"user": user, "item": format!("item-{}", id % 20), "label": 3.0, "observation_id": format!("o-{id}")})
}

fn body(lines: impl IntoIterator<Item = Value>) -> String {
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

fn replies(text: &str) -> (Vec<Value>, Value) {
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap()["summary"].clone();
    (lines, summary)
}

#[test]
fn ten_thousand_lines_over_three_nodes_are_answered_in_order() {
    let cluster = Divided::among(3, None);
    let user = |id: usize| format!("user-{}", id * 7 % 97);
    let broken = |id: usize| id % 1000 == 500;
    let lines = (0..10_000).map(|id| if broken(id) { json!({"user": user(id)}) } else { line(&user(id), id) });
    let reply = cluster.client(1).try_send("POST", PATH, "application/x-ndjson", &body(lines)).unwrap();
    let (answers, summary) = replies(&reply.text);
    assert_eq!(summary, json!({"taken": 9990, "duplicates": 0, "rejected": 10}));
    assert_eq!(answers.len(), 10_000);
    let mut epochs = std::collections::HashMap::new();
    for (id, answer) in answers.iter().enumerate() {
        if broken(id) {
            assert_eq!((&answer["line"], &answer["error"]["status"]), (&json!(id + 1), &json!(422)), "{answer}");
            continue;
        }
        assert_eq!(answer["observation_id"], format!("o-{id}"));
        let epoch: &mut u64 = epochs.entry(user(id)).or_default();
        *epoch += 1;
        assert_eq!(answer["user_epoch"], *epoch, "the lines of a user are learnt in their order");
    }
    for (user, epoch) in epochs {
        let owner = cluster.owner_of(&user);
        for node in 0..3 {
            assert_eq!(cluster.events_at(node, &user), if node == owner { epoch } else { 0 }, "{user} on {node}");
        }
    }
}

#[test]
fn an_array_is_dealt_too_and_a_repeated_stream_counts_nothing_twice() {
    let cluster = Divided::among(3, None);
    let lines: Vec<Value> = (0..200).map(|id| line(&format!("user-{}", id % 10), id)).collect();
    let array = Value::from(lines.clone());
    let reply = cluster.client(0).post(PATH, &array).expect(200);
    assert_eq!(reply["summary"], json!({"taken": 200, "duplicates": 0, "rejected": 0}));
    assert_eq!(reply["results"][7]["observation_id"], "o-7");
    let again = cluster.client(2).try_send("POST", PATH, "application/x-ndjson", &body(lines)).unwrap();
    assert_eq!(replies(&again.text).1, json!({"taken": 0, "duplicates": 200, "rejected": 0}));
}

#[test]
fn problems_of_other_nodes_have_the_numbers_of_the_lines_and_the_status() {
    let cluster = Divided::among(3, None);
    let far = cluster.user_of(1);
    let bad = json!({"user": far, "item": "item-1", "label": 1e9});
    let reply = cluster.client(0).try_send("POST", PATH, "application/x-ndjson", &body([bad.clone(), bad])).unwrap();
    assert_eq!(reply.status, 422, "{}", reply.text);
    let (answers, summary) = replies(&reply.text);
    assert_eq!((&answers[0]["line"], &answers[1]["line"]), (&json!(1), &json!(2)));
    assert_eq!(summary["rejected"], 2);
}

/// A stream that is written and read by hand.
struct Open {
    reader: BufReader<TcpStream>,
}

impl Open {
    fn to(address: &str) -> Self {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let head = format!(
            "POST {PATH} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/x-ndjson\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).unwrap();
        Self { reader: BufReader::new(socket) }
    }

    fn send(&mut self, lines: &str) {
        let chunk = format!("{:x}\r\n{lines}\r\n", lines.len());
        self.reader.get_mut().write_all(chunk.as_bytes()).unwrap();
    }

    fn end(&mut self) {
        self.reader.get_mut().write_all(b"0\r\n\r\n").unwrap();
    }

    /// The next reply; chunk sizes and the head are passed over.
    fn reply(&mut self) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.reader.read_line(&mut line).unwrap(), 0, "the stream ended early");
            if line.starts_with('{') {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }
}

#[test]
fn lines_follow_their_users_to_new_owners() {
    let mut cluster = Divided::among(3, None);
    let user = cluster.user_of(1);
    let mut stream = Open::to(cluster.client(0).address());
    let mut sent = 0;
    let mut send = |stream: &mut Open| {
        stream.send(&body([line(&user, sent)]));
        sent += 1;
        let reply = stream.reply();
        assert_eq!(reply["observation_id"], format!("o-{}", sent - 1), "{reply}");
    };
    send(&mut stream);
    // To this node, to one that knows first, and to one that knows last.
    cluster.place(&[0, 0, 2, 0, 1, 2], 0);
    send(&mut stream);
    cluster.decide(&[0, 2, 2, 0, 1, 2], 0);
    cluster.tell(2);
    cluster.tell(0);
    send(&mut stream);
    cluster.decide(&[0, 1, 2, 0, 1, 2], 0);
    cluster.tell(0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| send(&mut stream));
        cluster.tell(1);
        cluster.tell(2);
        waiting.join().unwrap();
    });
    assert_eq!([0, 1, 2].map(|node| cluster.events_at(node, &user)), [1, 2, 1]);
    stream.end();
    assert_eq!(stream.reply()["summary"], json!({"taken": 4, "duplicates": 0, "rejected": 0}));
}

#[test]
fn a_line_that_its_node_refuses_is_dealt_again() {
    let mut cluster = Divided::among(3, None);
    let user = cluster.user_of(1);
    let mut stream = Open::to(cluster.client(0).address());
    stream.send(&body([line(&user, 0)]));
    assert_eq!(stream.reply()["user_epoch"], 1);
    // Node 1 has given the shard up, and node 0 does not know yet.
    cluster.decide(&[0, 2, 2, 0, 1, 2], 0);
    cluster.tell(1);
    cluster.tell(2);
    stream.send(&body((1..40).map(|id| line(&user, id))));
    cluster.tell(0);
    for epoch in 1..40 {
        let reply = stream.reply();
        assert_eq!(reply["user_epoch"], epoch, "in the order of the lines: {reply}");
    }
    assert_eq!([0, 1, 2].map(|node| cluster.events_at(node, &user)), [0, 1, 39]);
}

#[test]
fn a_forwarded_stream_refuses_the_lines_of_other_nodes() {
    let cluster = Divided::among(3, None);
    let address = cluster.client(0).address();
    let text = body([line(&cluster.user_of(1), 1), line(&cluster.user_of(0), 2)]);
    let mut socket = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/x-ndjson\r\nceleris-hop: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    socket.write_all((head + &text).as_bytes()).unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("urn:celeris:problem:not-owner"), "{reply}");
    assert!(reply.contains("\"taken\":1,\"duplicates\":0,\"rejected\":1"), "{reply}");
}

#[test]
fn a_node_that_dies_costs_its_own_lines_only() {
    let mut cluster = Divided::among(3, None);
    let (far, near) = (cluster.user_of(1), cluster.user_of(0));
    let mut stream = Open::to(cluster.client(0).address());
    stream.send(&body([line(&far, 0), line(&near, 1)]));
    assert_eq!([stream.reply(), stream.reply()].map(|reply| reply["user_epoch"].clone()), [json!(1), json!(1)]);
    cluster.kill(1);
    stream.send(&body([line(&far, 2), line(&near, 3)]));
    let (lost, kept) = (stream.reply(), stream.reply());
    assert_eq!((&lost["line"], &lost["error"]["status"]), (&json!(3), &json!(503)), "{lost}");
    assert_eq!(kept["user_epoch"], 2, "{kept}");
    // The users have another owner.
    cluster.place(&[0, 2, 2, 0, 2, 2], 0);
    stream.send(&body([line(&far, 4), line(&near, 5)]));
    assert_eq!([stream.reply(), stream.reply()].map(|reply| reply["user_epoch"].clone()), [json!(1), json!(3)]);
    stream.end();
    assert_eq!(stream.reply()["summary"], json!({"taken": 5, "duplicates": 0, "rejected": 1}));
}

#[test]
fn lines_of_a_stuck_node_are_given_up_once_another_owns_them() {
    let mut cluster = Divided::among(3, None);
    let (far, near) = (cluster.user_of(1), cluster.user_of(0));
    // It accepts connections, as a stopped process does, and answers nothing.
    let stuck = TcpListener::bind("127.0.0.1:0").unwrap();
    cluster.move_to(1, format!("http://{}", stuck.local_addr().unwrap()));
    cluster.place(&[0, 1, 2, 0, 1, 2], 0);
    let mut stream = Open::to(cluster.client(0).address());
    let without_id = json!({"user": far, "item": "item-1", "label": 3.0});
    stream.send(&body([line(&near, 1)]));
    assert_eq!(stream.reply()["user_epoch"], 1);
    stream.send(&body([line(&far, 2), without_id]));
    // The lines have arrived, and wait.
    let _connection = stuck.accept().unwrap();
    let started = Instant::now();
    cluster.place(&[0, 2, 2, 0, 2, 2], 0);
    let [with_id, without_id] = [stream.reply(), stream.reply()].map(|lost| lost["error"].clone());
    for lost in [&with_id, &without_id] {
        assert_eq!(lost["type"], "urn:celeris:problem:unknown-fate", "{lost}");
    }
    assert!(with_id["detail"].as_str().unwrap().contains("safe because it has"), "{with_id}");
    assert!(without_id["detail"].as_str().unwrap().contains("give observations an observation_id"), "{without_id}");
    assert!(started.elapsed() < Duration::from_secs(20), "not after the timeout of requests");
    stream.send(&body([line(&far, 2)]));
    assert_eq!(stream.reply()["user_epoch"], 1, "the new owner takes it");
}

#[test]
fn a_client_that_reads_nothing_is_not_read_from_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), "[limits]\nobservations_in_flight = 128\n");
    let cluster = Divided::among(2, Some(&config));
    let far = cluster.user_of(1);
    let mut stream = Open::to(cluster.client(0).address());
    stream.reader.get_mut().set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    // A megabyte at a time, until the node takes no more.
    let chunk = body((0..8_000).map(|id| json!({"user": far, "item": format!("item-{}", id % 20), "label": 3.0})));
    let started = Instant::now();
    let mut written = 0;
    let stuck = loop {
        let head = format!("{:x}\r\n", chunk.len());
        let whole = head + &chunk + "\r\n";
        match stream.reader.get_mut().write_all(whole.as_bytes()) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(started.elapsed() < DEADLINE, "{written} chunks were read");
    };
    assert!(matches!(stuck.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{stuck}");
    // Other requests are answered.
    assert_eq!(cluster.client(0).model("films").observe(&line(&far, 1_000_000))["duplicate"], false);
}
