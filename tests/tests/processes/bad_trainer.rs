//! A failing trainer fails its job and nothing else: the job reports the reason, and serving
//! continues.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use celeris_tests::fixtures::config_file;
use celeris_tests::trainer::{self, Trainers, item_features, write_parquet, write_success};
use celeris_tests::{Client, NodeProcess, ProcessOptions, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const ITEMS: usize = 24;
const DIM: usize = 4;
const RANK: usize = DIM - 1;
const FEATURES: &str = "item_features.parquet";

/// A node that is configured with these trainers.
fn node<'a>(dir: &Path, trainers: impl IntoIterator<Item = (&'a str, &'a Vec<String>)>) -> NodeProcess {
    let config = config_file(dir, trainer::section(trainers));
    ProcessOptions::default().config(config).serve(&dir.join("data"))
}

fn items() -> Vec<String> {
    (0..ITEMS).map(|item| format!("item-{item}")).collect()
}

fn factors() -> Vec<Vec<f32>> {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    (0..ITEMS).map(|_| (0..RANK).map(|_| random.random_range(-1.0..1.0)).collect()).collect()
}

fn write_sound(folder: &Path) {
    write_features(folder, &factors());
}

fn write_features(folder: &Path, features: &[Vec<f32>]) {
    write_parquet(&folder.join(FEATURES), &item_features(&items(), features));
    write_success(folder, &[(FEATURES, ITEMS)]);
}

/// A model on the stream `films` with this trainer.
fn create(client: &Client, name: &str, trainer: &Value) -> String {
    let model = json!({"name": name, "stream": "films", "dim": DIM, "trainer": trainer});
    let created = client.post("/v1/models", &model).expect(201);
    assert_eq!(created["trainer"]["engine"], trainer["engine"]);
    name.to_owned()
}

fn fill(client: &Client) {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let body: String = (0..600)
        .map(|_| {
            let (user, item) = (random.random_range(0..30), random.random_range(0..ITEMS));
            let label = f32::from(random.random_range(2_u8..=10)) / 2.0;
            format!("{}\n", json!({"user": user, "item": format!("item-{item}"), "label": label}))
        })
        .collect();
    assert_eq!(client.model("films").observe_lines(&body).unwrap().map(Result::unwrap).count(), 600);
}

fn retrain(client: &Client, model: &str) -> String {
    client.model(model).post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned()
}

fn ended(client: &Client, job: &str) -> Value {
    eventually("the end of the training", || {
        let state = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    })
}

struct Case {
    name: &'static str,
    command: Vec<String>,
    limits: Value,
    words: &'static [&'static str],
}

fn case(name: &'static str, command: Vec<String>, words: &'static [&'static str]) -> Case {
    Case { name, command, limits: json!({}), words }
}

/// Trainers with invalid outputs.
fn wrong_outputs(trainers: &Trainers) -> Vec<Case> {
    let with = |row: usize, place: usize, value: f32| {
        move |folder: &Path| {
            let mut features = factors();
            features[row][place] = value;
            write_features(folder, &features);
        }
    };
    vec![
        case("nan", trainers.copying("nan", with(3, 1, f32::NAN)), &[FEATURES, "row 3", "features", "NaN"]),
        case("infinite", trainers.copying("infinite", with(0, 0, f32::INFINITY)), &[FEATURES, "row 0", "inf"]),
        case("huge", trainers.copying("huge", with(9, 2, 1e30)), &[FEATURES, "row 9", "diverged"]),
        case("ruling", trainers.copying("ruling", with(4, 2, 9e5)), &[FEATURES, "item-4", "norm"]),
        case(
            "zeros",
            trainers.copying("zeros", |folder| write_features(folder, &vec![vec![0.0; RANK]; ITEMS])),
            &[FEATURES, "all features are 0"],
        ),
        case(
            "long",
            trainers.copying("long", |folder| write_features(folder, &vec![vec![1.0; RANK + 2]; ITEMS])),
            &[FEATURES, "expected 3 numbers, got 5"],
        ),
        case(
            "schema",
            trainers.copying("schema", |folder| {
                let sound = item_features(&items(), &factors());
                let renamed = [("item", 0), ("offset", 1), ("vector", 2)];
                let columns = renamed.map(|(name, column)| (name, sound.column(column).clone()));
                write_parquet(&folder.join(FEATURES), &trainer::table(columns.to_vec()));
                write_success(folder, &[(FEATURES, ITEMS)]);
            }),
            &[FEATURES, "column features", "missing"],
        ),
        case(
            "types",
            trainers.copying("types", |folder| {
                let sound = item_features(&items(), &factors());
                let column = |column: usize| sound.column(column).clone();
                let wrong = trainer::table(vec![("item", column(0)), ("offset", column(0)), ("features", column(2))]);
                write_parquet(&folder.join(FEATURES), &wrong);
                write_success(folder, &[(FEATURES, ITEMS)]);
            }),
            &[FEATURES, "column offset", "Utf8"],
        ),
        case(
            "truncated",
            trainers.copying("truncated", |folder| {
                write_parquet(&folder.join(FEATURES), &item_features(&items(), &factors()));
                let whole = fs::read(folder.join(FEATURES)).unwrap();
                fs::write(folder.join(FEATURES), &whole[..whole.len() / 2]).unwrap();
                write_success(folder, &[(FEATURES, ITEMS)]);
            }),
            &[FEATURES, "Parquet"],
        ),
        case(
            "changed",
            trainers.copying("changed", |folder| {
                write_sound(folder);
                write_parquet(&folder.join(FEATURES), &item_features(&items(), &vec![vec![1.0; RANK]; ITEMS]));
            }),
            &[FEATURES, "SHA-256"],
        ),
        case(
            "rows",
            trainers.copying("rows", |folder| {
                write_sound(folder);
                write_success(folder, &[(FEATURES, ITEMS + 1)]);
            }),
            &[FEATURES, "24 rows", "25"],
        ),
        case(
            "twice",
            trainers.copying("twice", |folder| {
                let mut items = items();
                items[7] = items[6].clone();
                write_parquet(&folder.join(FEATURES), &item_features(&items, &factors()));
                write_success(folder, &[(FEATURES, ITEMS)]);
            }),
            &[FEATURES, "item-6", "twice"],
        ),
        case(
            "unknown",
            trainers.copying("unknown", |folder| {
                let items: Vec<String> = (0..ITEMS).map(|item| item.to_string()).collect();
                write_parquet(&folder.join(FEATURES), &item_features(&items, &factors()));
                write_success(folder, &[(FEATURES, ITEMS)]);
            }),
            &[FEATURES, "0 of the 24 observed items"],
        ),
        case(
            "unfinished",
            trainers.copying("unfinished", |folder| {
                write_sound(folder);
                fs::remove_file(folder.join("_SUCCESS")).unwrap();
            }),
            &["_SUCCESS", "is missing"],
        ),
        case(
            "nonsense",
            trainers.copying("nonsense", |folder| {
                write_sound(folder);
                fs::write(folder.join("_SUCCESS"), "done").unwrap();
            }),
            &["_SUCCESS", "expected"],
        ),
    ]
}

/// Misbehaving programs.
fn wrong_programs(trainers: &Trainers) -> Vec<Case> {
    let limited = |case: Case, limits: Value| Case { limits, ..case };
    vec![
        case(
            "exits",
            trainers.script("exits", "echo 'no such column: taste' >&2\nexit 3"),
            &["exit code 3", "no such column: taste"],
        ),
        case("kills", trainers.script("kills", "kill -SEGV $$"), &["signal 11"]),
        case("absent", trainer::with_job(&["no-such-program"]), &["cannot run no-such-program"]),
        case("silent", trainers.script("silent", "exit 0"), &["_SUCCESS", "is missing"]),
        limited(
            case("hangs", trainers.script("hangs", "sleep 86411"), &["1 seconds", "trainer.limits.heartbeat_seconds"]),
            json!({"heartbeat_seconds": 1}),
        ),
        limited(
            case(
                "chatters",
                trainers.script("chatters", "while true; do echo still here; sleep 0.2; done"),
                &["8 seconds", "trainer.limits.seconds", "still here"],
            ),
            json!({"seconds": 8, "heartbeat_seconds": 4}),
        ),
        // `tail` buffers a line that does not end: one process, which grows faster than the limits
        // are polled.
        limited(
            case("fills", trainers.script("fills", "tail /dev/zero"), &["trainer.limits.memory"]),
            json!({"memory": 256_u64 << 20}),
        ),
        // Many small processes.
        limited(
            case(
                "swarms",
                trainers.script(
                    "swarms",
                    "for n in 1 2 3 4 5 6; do { head -c 60000000 /dev/zero; sleep 86412; } | tail & done; wait",
                ),
                &["MiB of memory, more than the 256 MiB", "trainer.limits.memory"],
            ),
            json!({"memory": 256_u64 << 20}),
        ),
        // Processes in their own sessions are stopped too.
        case(
            "leaves",
            trainers.script("leaves", "setsid sh -c 'setsid sleep 86413 & sleep 86413' & sleep 0.3\nexit 1"),
            &["exit code 1"],
        ),
    ]
}

/// Programs that fork without bound, fill the disk, or kill their supervisor.
fn greedy_programs(trainers: &Trainers) -> Vec<Case> {
    let limited = |case: Case, limits: Value| Case { limits, ..case };
    let wait_for = |file: &str| format!("while [ ! -s {file} ]; do sleep 0.05; done\n");
    vec![
        // Each process starts two more; the depth bounds their number if nothing stops them.
        limited(
            case(
                "multiplies",
                trainers.script(
                    "multiplies",
                    "fork() { if [ \"$1\" -gt 0 ]; then fork $(($1 - 1)) & fork $(($1 - 1)) & fi; sleep 86414; }\nfork 9",
                ),
                &["processes and threads, more than the 64 it may", "trainer.limits.processes"],
            ),
            json!({"processes": 64}),
        ),
        // The same, but each process is in its own session and parents do not wait.
        limited(
            case(
                "scatters",
                trainers.script(
                    "scatters",
                    "if [ \"$1\" = --job ]; then set -- 9; fi\n\
                     if [ \"$1\" -gt 0 ]; then n=$(($1 - 1)); setsid sh \"$0\" $n & setsid sh \"$0\" $n & fi\n\
                     if [ \"$1\" = 9 ]; then sleep 86414; else sleep 86414 & fi",
                ),
                &["more than the 64 it may"],
            ),
            json!({"processes": 64}),
        ),
        // Many small files.
        limited(
            case(
                "hoards",
                trainers.script(
                    "hoards",
                    "mkdir -p raw/deep; for n in 1 2 3 4 5 6 7 8; do head -c 4000000 /dev/zero > raw/deep/$n; done\nsleep 86415",
                ),
                &["MiB into the folder of its job, more than the 16 MiB it may", "trainer.limits.disk"],
            ),
            json!({"disk": 16 << 20}),
        ),
        // One file, which grows faster than the limits are polled; a limit of the kernel stops it.
        limited(
            case("swells", trainers.script("swells", "exec cat /dev/zero > raw/swollen"), &["trainer.limits.disk"]),
            json!({"disk": 16 << 20}),
        ),
        // Temporary files count too.
        limited(
            case(
                "litters",
                trainers.script(
                    "litters",
                    "for n in 1 2 3 4 5 6; do head -c 4000000 /dev/zero > $(mktemp); done\nsleep 86415",
                ),
                &["into the folder of its job", "trainer.limits.disk"],
            ),
            json!({"disk": 16 << 20}),
        ),
        // A trainer ends with its supervisor; the node then stops the trainer's child processes in
        // all sessions.
        case(
            "orphans",
            trainers.script(
                "orphans",
                &format!(
                    "setsid sh -c 'echo $$ > left; setsid sleep 86416 & sleep 86416' &\n{}kill -9 $PPID\nsleep 86416",
                    wait_for("left")
                ),
            ),
            &["stopped from outside"],
        ),
        // The same, with a forged report of success.
        case(
            "forges",
            trainers.script(
                "forges",
                &format!(
                    "setsid sh -c 'echo $$ > left; exec sleep 86417' &\n{}\
                     echo '{{\"exited\":{{\"code\":0,\"memory_peak\":0}}}}' > ending.json\nkill -9 $PPID\nsleep 86417",
                    wait_for("left")
                ),
            ),
            &["stopped from outside"],
        ),
    ]
}

#[test]
fn a_failing_trainer_fails_its_job_with_the_reason_and_serving_continues() {
    let dir = tempfile::tempdir().unwrap();
    let trainers = Trainers::new(dir.path().join("trainers"));
    let sound = trainers.copying("sound", write_sound);
    let cases: Vec<Case> = [wrong_outputs(&trainers), wrong_programs(&trainers), greedy_programs(&trainers)]
        .into_iter()
        .flatten()
        .collect();
    let named = cases.iter().map(|case| (case.name, &case.command));
    let node = node(dir.path(), named.chain([("sound", &sound)]));
    let client = node.client();
    create(&client, "films", &json!({"engine": "sound"}));
    fill(&client);
    // A correct external trainer succeeds, so the following failures are due to the outputs.
    let done = ended(&client, &retrain(&client, "films"));
    assert_eq!((&done["state"], &done["engine"], &done["version"]), (&json!("succeeded"), &json!("sound"), &json!(2)));
    assert!(done["metrics"]["validation_rmse"].is_f64(), "{done}");

    let (finished, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            // The trained model, then each model whose training fails, in turn.
            let mut names = std::iter::once("films").chain(cases.iter().map(|case| case.name)).cycle();
            while !finished.load(Ordering::Acquire) {
                let name = names.next().unwrap();
                let body = json!({"user": "1", "items": ["item-1", "item-2"]});
                let reply = client.model(name).post("predict", &body);
                // A model is missing only before it is created.
                if name == "films" || reply.status != 404 {
                    let answer = reply.expect(200);
                    assert_eq!(answer["version"], if name == "films" { 2 } else { 1 }, "{name}: {answer}");
                    assert!(answer["scores"][0]["score"].is_number(), "{name}: {answer}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        // The other thread must stop after a panic too.
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for case in &cases {
                let trainer = json!({"engine": case.name, "limits": case.limits});
                let name = create(&client, case.name, &trainer);
                let before = answered.load(Ordering::Relaxed);
                let job = ended(&client, &retrain(&client, &name));
                assert_eq!(job["state"], "failed", "{name}: {job}");
                let error = job["error"].as_str().unwrap();
                eprintln!("{name}: {error}");
                for word in case.words {
                    assert!(error.contains(word), "{name}: no {word:?} in: {error}");
                }
                assert_eq!(client.model(&name).get("").expect(200)["active_version"], 1);
                assert_eq!(client.model(&name).get("").expect(200)["versions"], 1);
                eventually("predictions during the failure", || {
                    (answered.load(Ordering::Relaxed) > before).then_some(())
                });
                let events = client.model(&name).get("events").expect(200);
                assert_eq!(events["events"][0]["kind"], "training_failed", "{events}");
            }
        }));
        finished.store(true, Ordering::Release);
        if let Err(panic) = verdict {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(!trainer::runs(dir.path(), "sleep 8641"), "a process of a trainer still runs");
    let jobs = dir.path().join("data/jobs");
    let left: Vec<_> = fs::read_dir(jobs).unwrap().collect();
    assert!(left.is_empty(), "failed jobs left files: {left:?}");
    assert_eq!(node.terminate().code, Some(0));
}

#[test]
fn no_trainer_outlives_a_killed_node() {
    let dir = tempfile::tempdir().unwrap();
    let trainers = Trainers::new(dir.path().join("trainers"));
    let endless = trainers.script("endless", "setsid sh -c 'sleep 86421; true' &\nsleep 86421\ntrue");
    let node = node(dir.path(), [("endless", &endless)]);
    let client = node.client();
    create(&client, "films", &json!({"engine": "endless"}));
    fill(&client);
    let job = retrain(&client, "films");
    eventually("the trainer to run", || trainer::runs(dir.path(), "sleep 86421").then_some(()));
    node.kill_hard();
    eventually("the trainer to be gone", || (!trainer::runs(dir.path(), "sleep 86421")).then_some(()));

    let node = self::node(dir.path(), [("endless", &endless)]);
    let state = node.client().get(&format!("/v1/jobs/{job}")).expect(200);
    assert_eq!(state["state"], "failed", "{state}");
    assert_eq!(node.model("films").get("").expect(200)["active_version"], 1);
}

/// A client can only name a configured trainer; no part of a command line comes from a request.
#[test]
fn no_client_input_reaches_a_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let trainers = Trainers::new(dir.path().join("trainers"));
    let recorded = dir.path().join("recorded");
    let script = format!("tr '\\0' '\\n' < /proc/$$/cmdline > {}\nexit 3", recorded.display());
    let recorder = trainers.script("recorder", &script);
    let node = node(dir.path(), [("recorder", &recorder)]);
    let client = node.client();
    let refused = |trainer: Value, words: &[&str]| {
        let reply = client.post("/v1/models", &json!({"name": "films", "trainer": trainer}));
        assert_eq!(reply.status, 422, "{}", reply.text);
        for word in words {
            assert!(reply.text.contains(word), "no {word:?} in {}", reply.text);
        }
    };
    let touched = dir.path().join("touched");
    let shell = json!(["sh", "-c", format!("touch {}", touched.display())]);
    refused(json!({"engine": "recorder", "command": shell}), &["command"]);
    refused(json!({"engine": "command", "command": shell}), &["command"]);
    refused(json!({"engine": "sh"}), &["sh", "als, popularity, recorder", "[training.trainers]"]);
    refused(json!({"engine": "spark", "spark": {"submit": "sh"}}), &["spark"]);
    refused(json!({"engine": "recorder --conf x"}), &["letters"]);
    refused(json!({"engine": "../recorder"}), &["letters"]);
    refused(json!({"engine": ["recorder"]}), &["engine"]);
    refused(json!({"limits": {"seconds": 0}}), &["trainer.limits.seconds"]);
    refused(json!({"limits": {"processes": 1 << 30}}), &["trainer.limits.processes", "[training.limits]"]);
    refused(json!({"limits": {"time": 5}}), &["time"]);
    client.post("/v1/models", &json!({"name": "films", "dim": DIM})).expect(201);
    let films = client.model("films");
    for engine in ["spark", "sh", "recorder;sh"] {
        let reply = films.post("retrain", &json!({"engine": engine}));
        assert_eq!(reply.status, 422, "{}", reply.text);
    }
    let patched = films.patch("", &json!({"trainer": {"engine": "recorder", "command": shell}}));
    assert_eq!(patched.status, 422, "{}", patched.text);

    // Settings from the client are in the job file; the command line is exactly the configured one.
    let numbers = json!({"engine": "recorder", "iterations": 987_651, "limits": {"memory": 987_654_321}});
    films.patch("", &json!({"trainer": numbers})).expect(422);
    let numbers = json!({"engine": "recorder", "iterations": 987, "limits": {"memory": 987_654_321}});
    films.patch("", &json!({"trainer": numbers})).expect(200);
    fill(&client);
    let why = "$(touch x) --job /etc/passwd";
    let job = films.post("retrain", &json!({"why": why})).expect(202)["job"].as_str().unwrap().to_owned();
    let done = ended(&client, &job);
    assert!(done["error"].as_str().unwrap().contains("exit code 3"), "{done}");
    let line = fs::read_to_string(&recorded).unwrap();
    let job_file = dir.path().join("data/jobs").join(&job).join("job.json");
    let words: Vec<String> = recorder.iter().map(|word| word.replace("{job}", job_file.to_str().unwrap())).collect();
    assert_eq!(line.lines().collect::<Vec<_>>(), words);
    assert!(!touched.exists());
}

/// A trigger whose trainer is no longer configured starts one job that fails with this reason, and
/// then observes its cool-down.
#[test]
fn a_trigger_whose_trainer_is_gone_fails_once() {
    let dir = tempfile::tempdir().unwrap();
    let trainers = Trainers::new(dir.path().join("trainers"));
    let sound = trainers.copying("sound", write_sound);
    let node = node(dir.path(), [("sound", &sound)]);
    let client = node.client();
    create(&client, "films", &json!({"engine": "sound"}));
    create(&client, "others", &json!({"engine": "als"}));
    fill(&client);
    node.kill_hard();

    let node = self::node(dir.path(), []);
    let client = node.client();
    let events = |model: &str, kind: &str| -> Vec<Value> {
        let events = client.model(model).get("events?limit=1000").expect(200);
        events["events"].as_array().unwrap().iter().filter(|event| event["kind"] == kind).cloned().collect()
    };
    let triggers = json!({"volume": {"observations": 1}, "cool_down": 3600});
    client.model("films").patch("", &json!({"triggers": triggers})).expect(200);
    let failed = eventually("the job to fail", || events("films", "training_failed").first().cloned());
    assert!(failed["why"].as_str().unwrap().contains("[training.trainers]"), "{failed}");
    // Triggers of all models are checked in one pass: once another has fired twice, this one has
    // been checked.
    let triggers = json!({"volume": {"observations": 1}, "cool_down": 0});
    client.model("others").patch("", &json!({"triggers": triggers, "gate": {"force": true}})).expect(200);
    for trained in 1..=2 {
        eventually("another model to be trained", || (events("others", "activated").len() >= trained).then_some(()));
        client.model("others").observe(&json!({"user": "late", "item": "item-1", "label": 4}));
    }
    assert_eq!((events("films", "triggered").len(), events("films", "training_failed").len()), (1, 1));
    assert_eq!(node.terminate().code, Some(0));
}
