//! `celeris export` writes the contents of a store for other programs.

use std::path::Path;
use std::process::Command;

use celeris_skip::{self as skip, Need};
use celeris_tests::fixtures::{any_item, any_label, create_model};
use celeris_tests::trainer::python;
use celeris_tests::{Node, binary};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

fn export(data: &Path, out: &Path) -> binary::Finished {
    binary::run(["export", "--data-dir", data.to_str().unwrap(), "--out", out.to_str().unwrap()])
}

#[test]
fn pandas_reads_every_observation_decision_and_version() {
    let dir = tempfile::tempdir().unwrap();
    let (data, out) = (dir.path().join("data"), dir.path().join("out"));
    let node = Node::serve(&data);
    let films = create_model(&node.client(), "films", 1);
    let mut random = ChaCha8Rng::seed_from_u64(31);
    let (mut labels, mut shown) = (0.0, 0);
    for _ in 0..200 {
        let user = format!("user-{}", random.random_range(0..9));
        if random.random_range(0..2) == 0 {
            let candidates: Vec<String> = (0..5).map(|_| any_item(&mut random)).collect();
            let body = json!({"user": user, "items": candidates, "k": 2, "seed": u64::MAX});
            let decision = films.post("topk", &body).expect(200);
            assert_eq!(decision["logged"], true);
            shown += decision["items"].as_array().unwrap().len();
        }
        let label = any_label(&mut random);
        labels += f64::from(label);
        films.observe(&json!({"user": user, "item": any_item(&mut random), "label": label}));
    }
    films.observe(&json!({"user": "gone", "item": "item-1", "label": 5}));
    films.delete("users/gone").expect(200);

    let used = export(&data, &out);
    assert_eq!(used.code, Some(2), "{used:?}");
    assert!(used.stderr.contains("in use"), "{used:?}");
    assert!(!out.exists(), "a refused export writes nothing");
    node.stop();

    let done = export(&data, &out);
    assert_eq!(done.code, Some(0), "{done:?}");
    let summary: Value = serde_json::from_slice(&std::fs::read(out.join("_SUCCESS")).unwrap()).unwrap();
    assert_eq!((&summary["observations"], &summary["versions"]), (&json!({"films": 200}), &json!({"films": 1})));
    let decisions = summary["decisions"]["films"].as_u64().unwrap();
    assert!(decisions > 50, "{summary}");

    let again = export(&data, &out);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("not empty"), "{again:?}");
    let nothing = export(&dir.path().join("nothing"), &dir.path().join("other"));
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("no data directory"), "{nothing:?}");
    assert!(!dir.path().join("nothing").exists());

    let python = python(&["pandas", "pyarrow"]);
    let Some(python) = skip::unless(Need::Peers, python, "no Python with pandas and pyarrow") else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/read_export.py");
    let read = Command::new(python).arg(script).arg(&out).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let found: Value = serde_json::from_slice(&read.stdout).unwrap();
    let expected = json!({
        "observations": 200, "streams": ["films"], "labels": labels,
        "decisions": decisions, "models": ["films"], "shown": shown, "seeds": [u64::MAX.to_string()],
        "versions": [1], "active": [1], "items": 0,
    });
    assert_eq!(found, expected);
}
