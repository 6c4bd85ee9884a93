//! Backups of running nodes, and nodes that are restored from them: as they were, and as they were before.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use celeris_tests::binary::{self, Finished};
use celeris_tests::fixtures::{any_item, any_label, create_model, write_dataset};
use celeris_tests::{ModelClient, NodeProcess, data_dir, eventually};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const SEED: u64 = 5;

/// Clients that observe at a time, each for users of its own.
const CLIENTS: usize = 4;
const USERS_A_CLIENT: usize = 5;

fn backup(node: &NodeProcess, to: &Path) -> Finished {
    backup_by(node.client().url(), to)
}

fn backup_by(url: &str, to: &Path) -> Finished {
    binary::run(["backup", "--url", url, "--to", &to.display().to_string()])
}

fn restore(from: &Path, to: &Path, more: &[&str]) -> Finished {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    binary::run(["restore", "--from", &from, "--data-dir", &to].into_iter().chain(more.iter().copied()))
}

fn of_backups(command: &str, from: &Path, more: &[&str]) -> Finished {
    let from = from.display().to_string();
    binary::run(["backup", command, "--from", &from].into_iter().chain(more.iter().copied()))
}

#[track_caller]
fn done(finished: Finished) -> String {
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
    finished.stdout
}

/// The backups of a place, the first one first.
fn listed(place: &Path) -> Vec<Value> {
    let list: Value = serde_json::from_str(&done(of_backups("list", place, &["--json"]))).unwrap();
    list["backups"].as_array().unwrap().clone()
}

fn files_in(folder: &Path) -> BTreeMap<String, PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path))
        .collect()
}

fn observation(random: &mut ChaCha8Rng, user: &str, id: &str) -> Value {
    json!({"user": user, "item": any_item(random), "label": any_label(random), "observation_id": id})
}

/// All that a user's answers follow from.
fn state(model: &ModelClient, user: &str) -> Value {
    let view = model.user(user, 100);
    let fields = ["state_hash", "weights", "user_epoch", "observations", "history"];
    json!(fields.map(|field| view[field].clone()))
}

/// Fills a store with this many observations, of which the history is not looked at.
fn fill(model: &ModelClient, count: usize) {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let line = |number: usize| {
        format!("{}\n", observation(&mut random, &format!("filler-{}", number % 500), &format!("filler-{number}")))
    };
    let lines: String = (0..count).map(line).collect();
    assert!(model.observe_lines(&lines).unwrap().all(|line| line.is_ok()));
}

#[test]
fn a_node_that_is_lost_is_restored_to_the_bit_at_the_position_of_its_backup() {
    let (dir, place, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = NodeProcess::serve(dir.path());
    create_model(&node.client(), "films", SEED);
    // More than a snapshot covers, for one user.
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let long: Vec<Value> =
        (0..4_200).map(|number| observation(&mut random, "long", &format!("long-{number}"))).collect();
    let lines: String = long.iter().map(|line| format!("{line}\n")).collect();
    assert!(node.model("films").observe_lines(&lines).unwrap().all(|line| line.is_ok()));
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (by_user, before, report) = thread::scope(|scope| {
        let observe = |client: usize| {
            let films = node.model("films");
            let (stop, acknowledged) = (&stop, &acknowledged);
            move || {
                let mut random = ChaCha8Rng::seed_from_u64(100 + client as u64);
                let mut sent: Vec<Vec<Value>> = vec![Vec::new(); USERS_A_CLIENT];
                while !stop.load(Ordering::Relaxed) {
                    for (user, sent) in sent.iter_mut().enumerate() {
                        let user = format!("user-{client}-{user}");
                        let body = observation(&mut random, &user, &format!("{user}-{}", sent.len()));
                        films.observe(&body);
                        sent.push(body);
                        acknowledged.fetch_add(1, Ordering::SeqCst);
                    }
                }
                sent
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(observe(client))).collect();
        eventually("there is load", || (acknowledged.load(Ordering::SeqCst) > 300).then_some(()));
        let before = acknowledged.load(Ordering::SeqCst);
        let report = backup(&node, place.path());
        let after = acknowledged.load(Ordering::SeqCst);
        eventually("the load goes on", || (acknowledged.load(Ordering::SeqCst) > after + 100).then_some(()));
        stop.store(true, Ordering::Relaxed);
        let sent: Vec<Vec<Vec<Value>>> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        (sent, before, report)
    });
    let report = done(report);
    let total = acknowledged.load(Ordering::SeqCst);
    let noted = node.client().get("/v1/backups").expect(200);
    assert!(
        noted["running"] == json!([]) && noted["backups"][0]["to"] == place.path().display().to_string(),
        "{noted}"
    );
    let metrics = node.client().get("/metrics").text;
    for name in ["celeris_backup_age_seconds", "celeris_backup_bytes", "celeris_backups_total 1"] {
        assert!(metrics.contains(name), "{name}");
    }
    assert!(!dir.path().join("backup-outgoing").exists() || files_in(&dir.path().join("backup-outgoing")).is_empty());
    node.kill_hard();
    fs::remove_dir_all(dir.path()).unwrap();

    done(of_backups("verify", place.path(), &[]));
    let restored = done(restore(place.path(), to.path(), &[]));
    let in_backup = listed(place.path())[0]["records"].as_u64().unwrap() as usize;
    assert!(
        report.contains(&format!("with {in_backup} records"))
            && restored.contains(&format!("with {in_backup} records"))
    );
    assert!((before + long.len()..total + long.len()).contains(&in_backup), "{before} {in_backup} {total}");

    // A node that learns the same observations, up to that position, from nothing.
    let reference_dir = tempfile::tempdir().unwrap();
    let reference = NodeProcess::serve(reference_dir.path());
    let expected = create_model(&reference.client(), "films", SEED);
    let node = NodeProcess::serve(to.path());
    let films = node.model("films");
    assert!(expected.observe_lines(&lines).unwrap().all(|line| line.is_ok()));
    let mut records = long.len();
    let mut compare = |user: &str, sent: &[Value]| {
        let epoch = films.user(user, 0)["user_epoch"].as_u64().unwrap() as usize;
        records += epoch;
        for body in &sent[..epoch] {
            expected.observe(body);
        }
        let (mut restored, mut learnt) = (films.user(user, 100), expected.user(user, 100));
        for history in [&mut restored, &mut learnt] {
            for event in history["history"].as_array_mut().unwrap() {
                // These depend on when the other users' observations came.
                event["timestamp"] = json!(0);
                event["sequence"] = json!(0);
            }
        }
        for field in ["state_hash", "weights", "user_epoch", "observations", "history"] {
            assert_eq!(restored[field], learnt[field], "{field} of {user} after {epoch} observations");
        }
        for item in 0..5 {
            let question = json!({"user": user, "item": format!("item-{item}")});
            let [of_restored, of_learnt] =
                [&films, &expected].map(|model| model.post("predict", &question).expect(200));
            assert_eq!(of_restored["score"], of_learnt["score"], "{user} {item}");
        }
    };
    for (client, users) in by_user.iter().enumerate() {
        for (user, sent) in users.iter().enumerate() {
            compare(&format!("user-{client}-{user}"), sent);
        }
    }
    assert_eq!(records, in_backup, "every record of the position is there, and no other");
    assert_eq!(films.user("long", 0)["state_hash"], expected.user("long", 0)["state_hash"]);
    // It goes on: what was lost is sent again, and what is there counts once.
    for sent in by_user.iter().flatten().flatten() {
        films.observe(sent);
    }
    let epochs: u64 = (0..CLIENTS * USERS_A_CLIENT)
        .map(|user| format!("user-{}-{}", user / USERS_A_CLIENT, user % USERS_A_CLIENT))
        .map(|user| films.user(&user, 0)["user_epoch"].as_u64().unwrap())
        .sum();
    assert_eq!(epochs as usize, total);
}

#[test]
fn a_second_backup_sends_only_what_is_new() {
    let (dir, place, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", SEED);
    fill(&films, 30_000);
    done(backup(&node, place.path()));
    let first = files_in(&place.path().join("files"));
    let written = |files: &BTreeMap<String, PathBuf>| -> BTreeMap<String, SystemTime> {
        files.iter().map(|(name, path)| (name.clone(), fs::metadata(path).unwrap().modified().unwrap())).collect()
    };
    let times = written(&first);
    done(backup(&node, place.path()));
    let noted = node.client().get("/v1/backups").expect(200);
    let [second_sent, second_bytes, first_sent] =
        [&noted["backups"][0]["sent_bytes"], &noted["backups"][0]["bytes"], &noted["backups"][1]["sent_bytes"]]
            .map(|value| value.as_u64().unwrap());
    assert!(first_sent > 500_000 && second_bytes > 500_000 && second_sent < 100_000, "{noted}");
    films.observe(&json!({"user": "new", "item": "item-1", "label": 5}));
    let before = state(&films, "new");
    done(backup(&node, place.path()));
    let third = node.client().get("/v1/backups").expect(200)["backups"][0]["sent_bytes"].as_u64().unwrap();
    assert!(third < 200_000, "{third}");
    let now = written(&files_in(&place.path().join("files")));
    assert!(times.iter().all(|(name, time)| now[name] == *time), "no file was written again");
    // Every one of them is whole, also those that consist of files of the others.
    let backups = listed(place.path());
    assert_eq!(backups.len(), 3);
    for one in &backups {
        done(of_backups("verify", place.path(), &["--backup", one["id"].as_str().unwrap()]));
    }
    let pruned = done(of_backups("prune", place.path(), &["--keep", "1"]));
    assert!(pruned.contains("removed 2 backups"), "{pruned}");
    assert_eq!(listed(place.path()), backups[2..]);
    done(restore(place.path(), to.path(), &[]));
    assert_eq!(state(&NodeProcess::serve(to.path()).model("films"), "new"), before);
}

#[test]
fn versions_and_pruned_backups_come_back() {
    let (dir, place, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = tempfile::tempdir().unwrap();
    write_dataset(data.path());
    let node = NodeProcess::demo(dir.path(), Some(data.path()));
    let model = node.client().get("/v1/models").expect(200)["models"][0]["name"].as_str().unwrap().to_owned();
    let films = node.model(&model);
    let (before, version) = (state(&films, "1"), films.get("").expect(200)["active_version"].clone());
    let question = json!({"user": "1", "item": "3"});
    let predicted = films.post("predict", &question).expect(200)["score"].clone();
    done(backup(&node, place.path()));
    node.kill_hard();
    done(restore(place.path(), to.path(), &[]));
    let node = NodeProcess::serve(to.path());
    let films = node.model(&model);
    assert_eq!(films.get("").expect(200)["active_version"], version);
    assert_eq!(state(&films, "1"), before);
    assert_eq!(films.post("predict", &question).expect(200)["score"], predicted);
}

/// Forwards each connection to `to`, and cuts it off after this many bytes of the answer.
fn cutting_proxy(to: String, bytes: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut node) = (client.unwrap(), TcpStream::connect(&to).unwrap());
            let (mut from_client, mut to_node) = (client.try_clone().unwrap(), node.try_clone().unwrap());
            // They end with their connections.
            thread::spawn(move || drop(io::copy(&mut from_client, &mut to_node)));
            thread::spawn(move || {
                let _ = io::copy(&mut (&mut node).take(bytes), &mut client);
                let _ = (client.shutdown(Shutdown::Both), node.shutdown(Shutdown::Both));
            });
        }
    });
    url
}

#[test]
fn an_interrupted_backup_is_none_and_the_next_one_uses_what_it_sent() {
    let (dir, place, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = NodeProcess::serve(dir.path());
    fill(&create_model(&node.client(), "films", SEED), 30_000);
    let cut = backup_by(&cutting_proxy(node.client().address().to_owned(), 150_000), place.path());
    assert_eq!(cut.code, Some(1), "{}{}", cut.stdout, cut.stderr);
    assert!(cut.stderr.contains("there is no backup"), "{}", cut.stderr);
    assert!(listed(place.path()).is_empty());
    let refused = restore(place.path(), to.path(), &[]);
    assert!(refused.code == Some(2) && refused.stderr.contains("has no backups"), "{}", refused.stderr);
    eventually("the node holds no copy any more", || {
        (node.client().get("/v1/backups").expect(200)["running"] == json!([])).then_some(())
    });
    let left = files_in(&place.path().join("files"));
    let times: Vec<_> = left.values().map(|path| fs::metadata(path).unwrap().modified().unwrap()).collect();

    // Killed in the middle, as far as it comes.
    let arguments = ["backup", "--url", node.client().url(), "--to"].map(str::to_owned);
    let mut killed = binary::command();
    killed.args(arguments).arg(place.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut killed = killed.spawn().unwrap();
    eventually("it has begun", || (files_in(&place.path().join("files")).len() > left.len()).then_some(()));
    killed.kill().unwrap();
    killed.wait().unwrap();

    done(backup(&node, place.path()));
    for (path, time) in left.values().zip(times) {
        assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), time, "{} is not sent again", path.display());
    }
    done(of_backups("verify", place.path(), &[]));
    done(restore(place.path(), to.path(), &[]));
}

#[test]
fn damage_is_found_and_named_and_nothing_half_is_restored() {
    let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = NodeProcess::serve(dir.path());
    fill(&create_model(&node.client(), "films", SEED), 5_000);
    done(backup(&node, place.path()));
    let files = files_in(&place.path().join("files"));
    let largest = files.values().max_by_key(|path| data_dir::length(path)).unwrap();
    let name = largest.file_name().unwrap().to_str().unwrap();
    let whole = fs::read(largest).unwrap();
    let assert_found = |what: &str| {
        let to = tempfile::tempdir().unwrap();
        for found in [of_backups("verify", place.path(), &[]), restore(place.path(), to.path(), &[])] {
            assert_eq!(found.code, Some(2), "{what}: {}{}", found.stdout, found.stderr);
            assert!(found.stderr.contains(name), "{what}: {}", found.stderr);
        }
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0, "{what}: nothing is left");
    };
    data_dir::flip(largest, whole.len() as u64 / 2, 3);
    assert_found("a bit is another one");
    data_dir::cut(largest, 10);
    assert_found("it is cut off");
    fs::remove_file(largest).unwrap();
    assert_found("it is missing");
    // The next backup sends it again.
    done(backup(&node, place.path()));
    assert_eq!(fs::read(largest).unwrap(), whole);
    done(of_backups("verify", place.path(), &[]));

    let manifest = files_in(&place.path().join("backups")).into_values().next_back().unwrap();
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"db/", "\"../")).unwrap();
    let to = tempfile::tempdir().unwrap();
    for refused in [
        restore(place.path(), to.path(), &[]),
        of_backups("list", place.path(), &[]),
        of_backups("prune", place.path(), &["--keep", "1"]),
    ] {
        assert!(refused.code == Some(2) && refused.stderr.contains("is damaged"), "{}", refused.stderr);
    }
}

#[test]
fn commands_refuse_what_they_cannot_do() {
    let (dir, place, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = NodeProcess::serve(dir.path());
    create_model(&node.client(), "films", SEED).observe(&json!({"user": "u", "item": "item-1", "label": 1}));
    let refused = backup(&node, dir.path());
    assert!(refused.code == Some(2) && refused.stderr.contains("is a data directory"), "{}", refused.stderr);
    done(backup(&node, place.path()));
    let full = restore(place.path(), dir.path(), &[]);
    assert!(full.code == Some(2) && full.stderr.contains("is not empty"), "{}", full.stderr);
    for (more, problem) in [
        (["--backup", "../x"], "is no id of a backup"),
        (["--backup", "none"], "has no backup none"),
        (["--until", "yesterday"], "expected a time"),
        (["--until", "2999-01-01T00:00:00Z"], "no backup reaches to that point"),
    ] {
        let refused = restore(place.path(), to.path(), &more);
        assert!(refused.code == Some(2) && refused.stderr.contains(problem), "{more:?}: {}", refused.stderr);
    }
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
    assert_eq!(of_backups("prune", place.path(), &["--keep", "0"]).code, Some(2));
    assert_eq!(binary::run(["backup", "--to", "ftp://host/x"]).code, Some(2));
    let client = node.client();
    client.get("/v1/backups/none/files/0").expect(404);
    let copy = client.post("/v1/backups", &json!({})).expect(201);
    let path = format!("/v1/backups/{}", copy["id"].as_str().unwrap());
    client.get(&format!("{path}/files/999999")).expect(404);
    client.get(&format!("{path}/files/-1")).expect(404);
    client.post(&path, &json!({"to": "", "bytes": 1, "sent_bytes": 1})).expect(422);
    client.post(&path, &json!({"to": "x", "bytes": 1, "sent_bytes": 1, "more": 1})).expect(422);
    let _second = client.post("/v1/backups", &json!({})).expect(201);
    client.post("/v1/backups", &json!({})).expect(503);
    assert_eq!(client.try_send("DELETE", &path, "", "").unwrap().status, 204);
    assert_eq!(client.try_send("DELETE", &path, "", "").unwrap().status, 404);
    client.post("/v1/backups", &json!({})).expect(201);
    node.kill_hard();
    assert!(dir.path().join("backup-outgoing").exists());
    let node = NodeProcess::serve(dir.path());
    assert!(!dir.path().join("backup-outgoing").exists(), "what a killed node held is removed");
    assert_eq!(node.client().get("/v1/backups").expect(200)["backups"].as_array().unwrap().len(), 1, "it remembers");
}

#[test]
fn backups_and_removals_at_once_do_not_disturb_each_other() {
    let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", SEED);
    fill(&films, 2_000);
    for round in 0..3 {
        films.observe(&json!({"user": "u", "item": "item-1", "label": round}));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| done(backup(&node, place.path())));
            }
            scope.spawn(|| {
                let pruned = of_backups("prune", place.path(), &["--keep", "2"]);
                assert!(pruned.code == Some(0) || pruned.stderr.contains("is being made"), "{}", pruned.stderr);
            });
        });
        for one in listed(place.path()) {
            done(of_backups("verify", place.path(), &["--backup", one["id"].as_str().unwrap()]));
        }
    }
    assert!(listed(place.path()).len() >= 3);
    done(of_backups("prune", place.path(), &["--keep", "1"]));
    assert_eq!(listed(place.path()).len(), 1);
    done(of_backups("verify", place.path(), &[]));
}

/// A time after all that was answered so far, and before all that is sent from now on.
fn now() -> String {
    let millis = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let time = millis() + 1;
    eventually("two milliseconds pass", || (millis() > time).then_some(()));
    let argument = format!("@{}.{:03}", time / 1000, time % 1000);
    let date = Command::new("date").args(["-u", "-d", &argument, "+%Y-%m-%dT%H:%M:%S.%3NZ"]).output().unwrap();
    String::from_utf8(date.stdout).unwrap().trim().to_owned()
}

/// A node that has learnt, and what its users were like at a point before much else has happened.
struct Eventful {
    place: tempfile::TempDir,
    before: BTreeMap<String, Value>,
    time: String,
    position: Value,
    early_backup: bool,
}

const OLD_USERS: [&str; 6] = ["plain", "corrected", "twice", "retracted", "erased", "quiet"];

impl Eventful {
    fn new(early_backup: bool) -> Self {
        let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let node = NodeProcess::serve(dir.path());
        let films = create_model(&node.client(), "films", SEED);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for user in OLD_USERS {
            for number in 0..30 {
                films.observe(&observation(&mut random, user, &format!("{user}-{number}")));
            }
        }
        // A correction of before stays.
        films.put("observations/twice-3", &json!({"label": 1.5})).expect(200);
        let position = if early_backup {
            done(backup(&node, place.path()));
            listed(place.path())[0]["position"].clone()
        } else {
            Value::Null
        };
        let before = OLD_USERS.map(|user| (user.to_owned(), state(&films, user))).into();
        let time = now();
        for user in OLD_USERS.iter().filter(|user| **user != "quiet") {
            for number in 30..40 {
                films.observe(&observation(&mut random, user, &format!("{user}-{number}")));
            }
        }
        films.observe(&json!({"user": "newcomer", "item": "item-1", "label": 3, "observation_id": "newcomer-1"}));
        films.put("observations/corrected-5", &json!({"label": 0.5})).expect(200);
        films.put("observations/corrected-5", &json!({"label": 4.5})).expect(200);
        films.put("observations/twice-3", &json!({"label": 5})).expect(200);
        films.put("observations/plain-35", &json!({"label": 5})).expect(200);
        assert_eq!(films.delete("observations/retracted-7").status, 200);
        assert_eq!(films.delete("observations/retracted-33").status, 200);
        assert_eq!(films.delete("users/erased").status, 200);
        assert_eq!(films.delete("users/newcomer").status, 200);
        films.observe(&observation(&mut random, "erased", "erased-again"));
        done(backup(&node, place.path()));
        node.kill_hard();
        Self { place, before, time, position, early_backup }
    }

    /// Checks a node restored to the point.
    fn check(&self, dir: &Path) {
        let node = NodeProcess::serve(dir);
        let films = node.model("films");
        for user in ["plain", "corrected", "twice", "quiet"] {
            assert_eq!(state(&films, user), self.before[user], "{user}, with an early backup: {}", self.early_backup);
        }
        // A node that has learnt the same without what was retracted.
        let reference_dir = tempfile::tempdir().unwrap();
        let reference = NodeProcess::serve(reference_dir.path());
        let expected = create_model(&reference.client(), "films", SEED);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        for user in OLD_USERS {
            for number in 0..30 {
                expected.observe(&observation(&mut random, user, &format!("{user}-{number}")));
            }
        }
        assert_eq!(expected.delete("observations/retracted-7").status, 200);
        assert_eq!(films.user("retracted", 0)["state_hash"], expected.user("retracted", 0)["state_hash"]);
        assert_eq!(films.user("erased", 100)["history"], json!([]), "an erasure stays");
        assert_eq!(films.user("erased", 0)["observations"], 0);
        assert_eq!(films.user("newcomer", 0)["user_epoch"].as_u64().map(|epoch| epoch > 1), Some(true), "epochs go on");
        // The store goes on: ids of removed records can be used again, those of before are known.
        let again = json!({"user": "plain", "item": "item-2", "label": 2, "observation_id": "plain-30"});
        assert_eq!(films.observe(&again)["duplicate"], false);
        let known = json!({"user": "plain", "item": "item-2", "label": 2, "observation_id": "plain-29"});
        assert_eq!(films.try_observe(&known).unwrap().status, 409, "its id is taken");
        assert_eq!(films.delete("users/plain").status, 200);
        assert_eq!(films.delete("observations/corrected-5").status, 200);
        // And so does a backup of it, in another place.
        let other = tempfile::tempdir().unwrap();
        done(backup(&node, other.path()));
        done(of_backups("verify", other.path(), &[]));
        assert_eq!(node.terminate().code, Some(0));
        let node = NodeProcess::serve(dir);
        assert_eq!(state(&node.model("films"), "quiet"), self.before["quiet"]);
    }
}

#[test]
fn a_node_is_restored_to_a_time_between_two_backups() {
    let eventful = Eventful::new(true);
    let to = tempfile::tempdir().unwrap();
    let restored = done(restore(eventful.place.path(), to.path(), &["--until", &eventful.time]));
    assert!(restored.contains("2 corrections taken back, 2 erasures kept"), "{restored}");
    eventful.check(to.path());
}

#[test]
fn a_node_is_restored_to_a_time_before_the_first_backup() {
    let eventful = Eventful::new(false);
    let to = tempfile::tempdir().unwrap();
    done(restore(eventful.place.path(), to.path(), &["--until", &eventful.time]));
    eventful.check(to.path());
}

#[test]
fn a_node_is_restored_to_a_position() {
    let eventful = Eventful::new(true);
    let (to, file) = (tempfile::tempdir().unwrap(), eventful.place.path().join("point.json"));
    fs::write(&file, eventful.position.to_string()).unwrap();
    // The later backup, cut to the position of the earlier one.
    let last = listed(eventful.place.path()).pop().unwrap()["id"].as_str().unwrap().to_owned();
    let point = file.display().to_string();
    done(restore(eventful.place.path(), to.path(), &["--until", &point, "--backup", &last]));
    eventful.check(to.path());
}

#[test]
fn a_node_is_backed_up_to_an_object_store() {
    let program = std::env::var_os("CELERIS_MOTO_SERVER").map(PathBuf::from);
    let installed = std::env::home_dir().map(|home| home.join(".cache/celeris/peers/moto/bin/moto_server"));
    let program = [program, installed].into_iter().flatten().find(|path| path.is_file());
    let Some(program) = celeris_skip::unless(celeris_skip::Need::ObjectStore, program, "there is no moto_server")
    else {
        return;
    };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Command::new(program);
    server.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = server.spawn().unwrap();
    eventually("the object store answers", || TcpStream::connect(("127.0.0.1", port)).ok());
    let endpoint = format!("http://127.0.0.1:{port}");
    ureq::put(format!("{endpoint}/backups")).send_empty().unwrap();

    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = NodeProcess::serve(dir.path());
    let films = create_model(&node.client(), "films", SEED);
    fill(&films, 3_000);
    let before = state(&films, "filler-1");
    let run = |arguments: &[&str]| {
        let mut command = binary::command();
        command.args(arguments).env("AWS_ENDPOINT", &endpoint).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    };
    let place = "s3://backups/of the node";
    run(&["backup", "--url", node.client().url(), "--to", place]);
    run(&["backup", "--url", node.client().url(), "--to", place]);
    node.kill_hard();
    assert_eq!(run(&["backup", "list", "--from", place]).lines().count(), 3);
    run(&["backup", "prune", "--from", place, "--keep", "1"]);
    run(&["backup", "verify", "--from", place]);
    run(&["restore", "--from", place, "--data-dir", &to.path().display().to_string()]);
    assert_eq!(state(&NodeProcess::serve(to.path()).model("films"), "filler-1"), before);
    server.kill().unwrap();
    server.wait().unwrap();
}
