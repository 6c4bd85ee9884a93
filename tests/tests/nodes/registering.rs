//! Versions trained elsewhere are checked and registered from the configured import folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use celeris_tests::data_dir::versions_of;
use celeris_tests::fixtures::{config_file, write_dataset};
use celeris_tests::{Node, binary, eventually};
use serde_json::{Value, json};

fn node(dir: &Path) -> Node {
    let imports = dir.join("imports");
    fs::create_dir_all(&imports).unwrap();
    let config = config_file(dir, format!("[training]\nimport_dir = {imports:?}\n"));
    Node::configured(&dir.join("data"), &config)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let file = entry.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn a_version_trained_elsewhere_is_registered_and_can_be_activated() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    let node = node(dir.path());
    let client = node.client();
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 8})).expect(201);
    let _other = client.post("/v1/models", &json!({"name": "books", "dim": 8})).expect(201);
    let films = client.model("films");
    let dataset = dataset.path().to_str().unwrap();
    let imported = binary::run(["import", "--url", client.url(), "--model", "films", "--dataset", dataset]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let job = films.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    eventually("a trained version", || {
        (client.get(&format!("/v1/jobs/{job}")).expect(200)["state"] == "succeeded").then_some(())
    });
    // A batch job produces a version directory; here a copy of the node's own version stands in for
    // it.
    let versions = versions_of(&dir.path().join("data"), "films");
    let trained = versions.join("2");
    let imports = dir.path().join("imports");
    copy(&trained, &imports.join("nightly"));
    let predict = || films.post("predict", &json!({"user": "1", "items": ["1", "2", "3"]})).expect(200);
    let before = predict();

    let refused = |path: &str, words: &[&str]| {
        let reply = films.post("versions", &json!({"path": path}));
        assert_eq!(reply.status, 422, "{path}: {}", reply.text);
        for word in words {
            assert!(reply.text.contains(word), "{path}: no {word:?} in {}", reply.text);
        }
    };
    refused(trained.to_str().unwrap(), &["not inside"]);
    refused("../data/versions/films.1/2", &["not inside"]);
    refused("/etc", &["not inside"]);
    refused(".", &["not inside"]);
    refused("nowhere", &["nowhere", "No such file"]);
    symlink(&trained, imports.join("link")).unwrap();
    refused("link", &["not inside"]);
    let broken = |name: &str, harm: &dyn Fn(&Path)| {
        copy(&trained, &imports.join(name));
        harm(&imports.join(name));
    };
    broken("unfinished", &|folder| fs::remove_file(folder.join("_SUCCESS")).unwrap());
    refused("unfinished", &["_SUCCESS", "not a finished version"]);
    broken("damaged", &|folder| {
        let file = folder.join("item_features.parquet");
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(&file, bytes).unwrap();
    });
    refused("damaged", &["damaged/item_features.parquet", "SHA-256"]);
    broken("leading", &|folder| {
        fs::remove_file(folder.join("prior.parquet")).unwrap();
        symlink(trained.join("prior.parquet"), folder.join("prior.parquet")).unwrap();
    });
    refused("leading", &["prior.parquet", "plain file"]);
    let wrong = client.model("books").post("versions", &json!({"path": "nightly"}));
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    assert!(wrong.text.contains("model films") && wrong.text.contains("books"), "{}", wrong.text);

    let registered = films.post("versions", &json!({"path": "nightly"})).expect(201);
    assert_eq!((&registered["version"], &registered["active"]), (&json!(3), &json!(false)));
    assert_eq!(films.get("").expect(200)["active_version"], 2, "it serves only once it is activated");
    let events = films.get("events").expect(200);
    let newest: &Value = &events["events"][0];
    assert_eq!((&newest["kind"], &newest["after"]), (&json!("registered"), &json!(3)), "{events}");
    // The store has a copy of its own.
    fs::remove_dir_all(imports.join("nightly")).unwrap();
    assert_eq!(films.post("versions/3/activate", &json!({})).expect(200)["active_version"], 3);
    assert_eq!(predict()["scores"], before["scores"]);
    let names = fs::read_dir(&versions).unwrap();
    let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["1", "2", "3"], "refused copies are gone");
    node.stop();
    let node = self::node(dir.path());
    assert_eq!(node.model("films").get("").expect(200)["active_version"], 3);
}

#[test]
fn a_node_without_an_import_folder_registers_nothing_and_names_the_setting() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let _created = client.post("/v1/models", &json!({"name": "films"})).expect(201);
    let reply = client.model("films").post("versions", &json!({"path": "/tmp"}));
    assert_eq!(reply.status, 422, "{}", reply.text);
    assert!(reply.text.contains("import_dir") && reply.text.contains("[training]"), "{}", reply.text);
    assert_eq!(client.model("books").post("versions", &json!({"path": "x"})).status, 404);
    assert_eq!(client.model("films").post("versions", &json!({})).status, 422);
}
