//! Decisions in dsjson: exported for Vowpal Wabbit, valued as it values them, and imported from its own logs and
//! Personalizer's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use celeris_skip::{self as skip, Need};
use celeris_tests::binary::{self, Finished};
use celeris_tests::fixtures::create_model;
use celeris_tests::trainer::python;
use celeris_tests::{ModelClient, NodeProcess};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// The precision asked of the comparison with Vowpal Wabbit, which sums in `f32`.
const AS_VOWPAL_WABBIT: f64 = 1e-6;

/// Both sum the same doubles.
const AS_REFERENCE: f64 = 1e-12;

const USERS: usize = 200;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dsjson").join(name)
}

/// Runs a script that prints a JSON object.
#[track_caller]
fn run(python: &str, name: &str, arguments: &[&str]) -> Value {
    let done = Command::new(python).arg(script(name)).args(arguments).output().unwrap();
    assert!(done.status.success(), "{name} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn evaluate(log: &Path, policy: &str) -> Finished {
    let arguments = ["evaluate", "--protocol", "ope", "--json", "--policy", policy, "--dataset"];
    binary::run(arguments.map(Into::into).into_iter().chain([log.as_os_str().to_owned()]))
}

#[track_caller]
fn evaluated(log: &Path, policy: &str) -> Value {
    let done = evaluate(log, policy);
    assert_eq!(done.code, Some(0), "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

fn export(data_dir: &Path, out: &Path, more: &[&str]) -> Finished {
    let (data_dir, out) = (data_dir.to_str().unwrap(), out.to_str().unwrap());
    binary::run(["export", "--data-dir", data_dir, "--out", out, "--format", "dsjson"].iter().chain(more))
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn close(ours: &Value, theirs: &Value, tolerance: f64) {
    let (a, b) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
    assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{a} is not {b}");
}

/// Ranks for every user in a context and rewards what was shown; returns the number of decisions.
fn rank(model: &ModelClient, k: usize, seed: u64) -> usize {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for user in 0..USERS {
        let device = if user % 3 == 0 { "phone" } else { "tv" };
        let items: Vec<String> = (0..5).map(|item| format!("item-{}", (user + 3 * item) % 24)).collect();
        let context = json!({"device": device, "hour": user % 24, "tags": ["a b", "ü|:"], "_hidden": true});
        let request = json!({"user": format!("user-{user}"), "items": items, "k": k, "context": context,
            "policy": {"name": "epsilon_greedy", "epsilon": 0.4}});
        let ranking = model.post("topk", &request).expect(200);
        assert_eq!(ranking["logged"], true, "{ranking}");
        for slot in ranking["items"].as_array().unwrap() {
            let item = slot["item"].as_str().unwrap();
            let number: usize = item.strip_prefix("item-").unwrap().parse().unwrap();
            let liked = f64::from(u8::from(number % 2 == usize::from(device == "tv")));
            let label = liked + random.random_range(-0.25..0.25);
            model.observe(&json!({"user": format!("user-{user}"), "item": item, "label": label,
                "decision_id": ranking["decision_id"]}));
        }
    }
    USERS
}

/// A node whose decisions of one slot and of two are exported, and the value of the uniform policy by the node itself.
struct Exported {
    folder: tempfile::TempDir,
    by_node: Value,
}

impl Exported {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("data");
        let node = NodeProcess::serve(&data_dir);
        let films = create_model(&node.client(), "films", 1);
        let lists = create_model(&node.client(), "lists", 2);
        for item in 0..24 {
            let attributes =
                json!({"genres": ["drama", "a \"b\""], "year": 1990 + item, "_private": "x", "old": item < 9});
            films.put(&format!("items/item-{item}"), &json!({"attributes": attributes})).expect(200);
        }
        rank(&films, 1, 5);
        rank(&lists, 2, 6);
        let uniform = json!({"policy": {"name": "epsilon_greedy", "epsilon": 1.0}, "max_decisions": 10_000});
        let by_node = films.post("evaluate-policy", &uniform).expect(200);
        assert_eq!(by_node["rounds"], USERS, "{by_node}");
        // One without a reward, and one that was not drawn.
        let items = json!(["item-1", "item-2"]);
        films.post("topk", &json!({"user": "user-1", "items": items, "k": 1})).expect(200);
        films.post("topk", &json!({"user": "user-1", "items": items, "k": 1, "seed": 7})).expect(200);
        assert_eq!(node.terminate().code, Some(0));
        let exported = Self { folder, by_node };
        let done = export(&data_dir, &exported.path("out"), &[]);
        assert_eq!(done.code, Some(0), "{done:?}");
        for said in
            ["200 decisions of one slot, 200 of several", "1 whose request chose the seed", "1 without a reward"]
        {
            assert!(done.stderr.contains(said), "{}", done.stderr);
        }
        exported
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn films(&self) -> PathBuf {
        self.path("out/model=films/cb-000001.dsjson")
    }

    fn lists(&self) -> PathBuf {
        self.path("out/model=lists/ccb-000001.dsjson")
    }
}

#[test]
fn exported_decisions_have_the_value_that_the_node_gives_them() {
    let exported = Exported::new();
    let films = lines(&exported.films());
    assert_eq!(films.len(), USERS);
    for line in &films {
        let (index, order) = (line["_labelIndex"].as_u64().unwrap(), line["a"].as_array().unwrap());
        assert_eq!((line["_label_Action"].as_u64(), order[0].as_u64()), (Some(index + 1), Some(index + 1)), "{line}");
        let mut actions: Vec<u64> = order.iter().map(|action| action.as_u64().unwrap()).collect();
        actions.sort_unstable();
        assert_eq!(actions, [1, 2, 3, 4, 5], "{line}");
        assert_eq!(line["p"][0], line["_label_probability"], "{line}");
        assert_eq!(line["o"][0]["v"].as_f64(), line["_label_cost"].as_f64().map(|cost| -cost), "{line}");
        let action = &line["c"]["_multi"][0];
        assert_eq!(action["_tag"], action["i"]["id"], "{line}");
        assert_eq!(action["j"][0]["genres=drama"], 1, "{line}");
        assert_eq!((&action["j"][0]["_private"], &line["c"]["FromUrl"][0]["_hidden"]), (&Value::Null, &Value::Null));
        assert!(line["c"]["User"]["id"].as_str().unwrap().starts_with("user-"), "{line}");
    }
    let report = evaluated(&exported.films(), "uniform");
    assert_eq!(report["rounds"], USERS);
    close(&report["estimators"]["ips"]["value"], &exported.by_node["estimators"]["ips"]["value"], AS_REFERENCE);
    close(&report["estimators"]["snips"]["value"], &exported.by_node["estimators"]["snips"]["value"], AS_REFERENCE);
    close(&report["logged"]["value"], &exported.by_node["logged"]["value"], AS_REFERENCE);
    // Following what the log did earns what the log earned.
    let logged = evaluated(&exported.films(), "logged");
    close(&logged["plain"]["ips"], &report["logged"]["value"], AS_REFERENCE);
    // A policy that learns from the first half is judged on the second.
    let greedy = evaluated(&exported.films(), r#"{"name": "epsilon_greedy", "epsilon": 0.2}"#);
    assert_eq!((&greedy["rounds"], &greedy["learnt_from"]), (&json!(100), &json!(100)), "{greedy}");
    assert!(greedy["plain"]["dr"].is_f64(), "{greedy}");

    let Some(python) = skip::unless(Need::Commands, python(&["json"]), "no python3") else { return };
    for (log, policy) in [(exported.films(), "uniform"), (exported.films(), "first"), (exported.lists(), "uniform")] {
        let reference = run(&python, "reference.py", &[log.to_str().unwrap(), policy]);
        let report = evaluated(&log, policy);
        assert_eq!(report["rounds"], reference["decisions"]);
        close(&report["plain"]["ips"], &reference["ips"], AS_REFERENCE);
        close(&report["plain"]["snips"], &reference["snips"], AS_REFERENCE);
        close(&report["logged"]["value"], &reference["logged"], AS_REFERENCE);
    }
}

/// Has Vowpal Wabbit train on a log, and compares the value that it gives its policy with ours.
#[track_caller]
fn compare(python: &str, log: &Path, options: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = vec![log.to_str().unwrap(), folder.path().to_str().unwrap()];
    arguments.extend(options);
    let theirs = run(python, "vowpal_wabbit.py", &arguments);
    let predictions = folder.path().join("predictions");
    let report = evaluated(log, predictions.to_str().unwrap());
    eprintln!("{}: Vowpal Wabbit {theirs}, celeris {}", log.display(), report["plain"]);
    assert_eq!(report["rounds"].as_f64(), theirs["decisions"].as_f64(), "{report}");
    close(&report["plain"]["ips"], &theirs["ips"], AS_VOWPAL_WABBIT);
    let reference = run(python, "reference.py", &[log.to_str().unwrap(), predictions.to_str().unwrap()]);
    close(&report["plain"]["ips"], &reference["ips"], AS_REFERENCE);
}

#[test]
fn vowpal_wabbit_gives_its_policy_the_same_value_on_an_exported_log() {
    let missing = "no Python with vowpalwabbit";
    let Some(python) = skip::unless(Need::Peers, python(&["vowpalwabbit"]), missing) else { return };
    let exported = Exported::new();
    for learner in ["ips", "mtr", "dr"] {
        compare(&python, &exported.films(), &["--cb_type", learner, "--epsilon", "0.1", "-q", "Fi", "-q", "Fj"]);
    }
    compare(&python, &exported.films(), &["--softmax", "--lambda", "3", "-q", "Ui"]);
}

/// The logs in the tests of Vowpal Wabbit's repository.
fn logs_of_vowpal_wabbit() -> Option<PathBuf> {
    let named = std::env::var_os("CELERIS_VW_DATA").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/vowpal-wabbit/test/train-sets");
    let folder = named.unwrap_or(beside);
    let missing = "no test data of Vowpal Wabbit at $CELERIS_VW_DATA or ../shared/data/vowpal-wabbit";
    skip::unless(Need::VowpalWabbit, folder.is_dir().then_some(folder), missing)
}

#[test]
fn logs_of_vowpal_wabbit_have_the_value_that_it_gives_them() {
    let Some(logs) = logs_of_vowpal_wabbit() else { return };
    let missing = "no Python with vowpalwabbit";
    let Some(python) = skip::unless(Need::Peers, python(&["vowpalwabbit"]), missing) else { return };
    for name in ["dsjson_cb.json", "decisionservice.json", "igl.dsjson", "cb_features_w_zero_vals.dsjson"] {
        let log = logs.join(name);
        compare(&python, &log, &["--cb_type", "ips", "--epsilon", "0.2"]);
        let reference = run(&python, "reference.py", &[log.to_str().unwrap(), "uniform"]);
        close(&evaluated(&log, "uniform")["plain"]["ips"], &reference["ips"], AS_REFERENCE);
    }
    // Decisions of two slots.
    let log = logs.join("ccb_automl.dsjson");
    let reference = run(&python, "reference.py", &[log.to_str().unwrap(), "uniform"]);
    let report = evaluated(&log, "uniform");
    close(&report["plain"]["ips"], &reference["ips"], AS_REFERENCE);
    assert_eq!(report["slots"], 18, "{report}");
    // One decision to be skipped, and rewards whose decisions are elsewhere.
    let rewards = evaluate(&logs.join("b1848_dsjson_parser_regression.txt"), "uniform");
    assert_eq!(rewards.code, Some(2), "{rewards:?}");
    assert!(rewards.stderr.contains("no decisions with a label"), "{rewards:?}");
}

/// A log of uniform choices among three actions, the second of which is rewarded.
fn uniform_log(folder: &Path, decisions: usize) -> PathBuf {
    let line = |index: usize| {
        json!({"_label_cost": if index % 3 == 1 { -1.0 } else { 0.0 }, "_label_probability": 1.0 / 3.0, "_labelIndex": index % 3,
            "EventId": format!("e-{index}"), "c": {"_multi": [{"_tag": "a"}, {"_tag": "b"}, {"_tag": "c"}]}})
        .to_string()
    };
    let text: Vec<String> = (0..decisions).map(line).collect();
    let log = folder.join("log.dsjson");
    fs::write(&log, text.join("\n")).unwrap();
    log
}

#[test]
fn predictions_that_do_not_go_with_the_log_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = uniform_log(folder.path(), 60);
    let predictions = folder.path().join("predictions");
    let told = |line: &str, count: usize| {
        fs::write(&predictions, format!("{line}\n\n").repeat(count)).unwrap();
        evaluate(&log, predictions.to_str().unwrap())
    };
    let always = told("1:1,0:0,2:0", 60);
    assert_eq!(always.code, Some(0), "{always:?}");
    let report: Value = serde_json::from_str(&always.stdout).unwrap();
    close(&report["plain"]["ips"], &json!(1.0), AS_REFERENCE);
    for (line, count, problem) in [
        ("1:1", 59, "has no prediction for it"),
        ("1:1", 61, "a prediction is left over after the 60 decisions"),
        ("1:0.5,0:0.1", 60, "the probabilities sum to 0.6"),
        ("3:1", 60, "an action from 0 to 2"),
        ("1:NaN", 60, "got \"1:NaN\""),
        ("1:-1,0:2", 60, "got \"1:-1\""),
        ("1:0.5,1:0.5", 60, "action 1 comes twice"),
        ("b", 60, "expected ACTION:PROBABILITY"),
    ] {
        let refused = told(line, count);
        assert_eq!(refused.code, Some(2), "{line}: {refused:?}");
        assert!(refused.stderr.contains(problem), "{line}: {}", refused.stderr);
    }
    for policy in ["nobody", r#"{"name": "nobody"}"#, "/nowhere"] {
        assert_eq!(evaluate(&log, policy).code, Some(2), "{policy}");
    }
}

#[test]
fn decisions_that_were_sampled_count_by_the_inverse_of_their_share() {
    let folder = tempfile::tempdir().unwrap();
    let log = uniform_log(folder.path(), 60);
    let sampled: Vec<String> = lines(&log)
        .into_iter()
        .map(|mut line| {
            // A third of the decisions without a reward were kept.
            line["pdrop"] = if line["_label_cost"] == 0.0 { json!(2.0 / 3.0) } else { Value::Null };
            line.to_string()
        })
        .collect();
    fs::write(&log, sampled.join("\n")).unwrap();
    let report = evaluated(&log, "uniform");
    // 20 rewards, and 40 decisions that stand for 120.
    close(&report["plain"]["ips"], &json!(20.0 / 140.0), AS_REFERENCE);
    close(&report["logged"]["value"], &json!(20.0 / 140.0), AS_REFERENCE);
}

#[test]
fn an_export_refuses_what_it_cannot_do() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let node = NodeProcess::serve(&data_dir);
    let _films = create_model(&node.client(), "films", 1);
    let running = export(&data_dir, &folder.path().join("out"), &[]);
    assert_eq!(running.code, Some(2), "{running:?}");
    assert_eq!(node.terminate().code, Some(0));
    let unknown = export(&data_dir, &folder.path().join("out"), &["--model", "lists"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("has no model lists; it has films"), "{unknown:?}");
    assert!(!folder.path().join("out").exists());
    for reward in ["NaN", "1e9", "many"] {
        let refused = export(&data_dir, &folder.path().join("out"), &["--missing-reward", reward]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
    let done = export(&data_dir, &folder.path().join("out"), &["--model", "films", "--missing-reward", "-0.5"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let again = export(&data_dir, &folder.path().join("out"), &[]);
    assert_eq!(again.code, Some(2), "{again:?}");
    let (data_dir, out) = (data_dir.to_str().unwrap(), folder.path().join("other"));
    let parquet = binary::run(["export", "--data-dir", data_dir, "--out", out.to_str().unwrap(), "--model", "films"]);
    assert_eq!(parquet.code, Some(2), "{parquet:?}");
}
