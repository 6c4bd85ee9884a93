//! API keys: who may do what.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::thread;

use celeris_tests::fixtures::config_file;
use celeris_tests::{Client, Node, eventually};
use serde_json::{Value, json};

const ROLES: [&str; 4] = ["predict", "observe", "operate", "admin"];

/// Makes a key and returns what a client sends.
fn made(client: &Client, body: &Value) -> String {
    client.post("/v1/keys", body).expect(201)["key"].as_str().unwrap().to_owned()
}

fn key_of(client: &Client, role: &str) -> String {
    made(client, &json!({"name": role, "roles": [role]}))
}

/// A node with a key of each role, and the clients of these keys.
fn closed(node: &Node) -> [Client; 4] {
    let open = node.client();
    let admin = open.with_key(&key_of(&open, "admin"));
    ROLES.map(|role| if role == "admin" { admin.clone() } else { open.with_key(&key_of(&admin, role)) })
}

/// Method, path and role of each operation; the names in the paths are those of nothing.
fn operations(client: &Client) -> Vec<(String, String, Option<String>)> {
    let described = client.get("/openapi.json").expect(200);
    let mut operations = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let named = path.split('/').map(|step| if step.starts_with('{') { "1" } else { step });
        let named = named.collect::<Vec<_>>().join("/");
        for (method, operation) in methods.as_object().unwrap() {
            let role = operation["x-celeris-role"].as_str().map(str::to_owned);
            operations.push((method.to_uppercase(), named.clone(), role));
        }
    }
    operations
}

#[test]
fn every_operation_is_refused_without_its_role() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let clients = closed(&node);
    let [.., admin] = &clients;
    let revoked = made(admin, &json!({"name": "gone", "roles": ["operate"]}));
    let id = revoked.split('_').nth(1).unwrap().to_owned();
    admin.try_json("DELETE", &format!("/v1/keys/{id}"), &Value::Null).unwrap().expect(200);
    let keys = admin.get("/v1/keys").expect(200);
    let soon = keys["keys"][0]["created"].as_i64().unwrap() + 2000;
    let expired = made(admin, &json!({"name": "soon", "roles": ["operate"], "expires": soon}));
    eventually("the end of the key", || {
        (node.client().with_key(&expired).get("/v1/models").status == 401).then_some(())
    });
    let wrong = format!("{}0", &revoked[..revoked.len() - 1]);
    let invalid = ["", "x", &wrong, &revoked, &expired, "celeris_000000000000_0"];
    let includes = |own: &str, needed: &str| match own {
        "admin" => true,
        "operate" => ["operate", "predict"].contains(&needed),
        own => own == needed,
    };
    let operations = operations(&node.client());
    assert!(operations.len() > 50);
    for (method, path, role) in &operations {
        let status = |client: &Client| client.try_json(method, path, &json!({})).unwrap().status;
        let Some(role) = role else {
            assert_eq!((status(&node.client()), path.ends_with('z')), (200, true), "{method} {path}");
            continue;
        };
        for key in invalid {
            let client = if key.is_empty() { node.client() } else { node.client().with_key(key) };
            assert_eq!(status(&client), 401, "{method} {path} with {key:?}");
        }
        for (client, own) in clients.iter().zip(ROLES) {
            let status = status(client);
            let is_refused = [401, 403].contains(&status);
            assert_eq!(is_refused, !includes(own, role), "{method} {path} with {own}: {status}");
        }
    }
    // Requests between nodes, and everything that is not described.
    for path in ["/v1/cluster/copy", "/v1/cluster/objects/1", "/v1/cluster/versions/1/1/f", "/v1/cluster/decisions/1/1"]
    {
        assert_eq!(node.client().get(path).status, 401, "{path}");
        assert_eq!(clients[2].get(path).status, 403, "{path}");
    }
    let undescribed = node.client().try_json("POST", "/v1/models/x/predict/y", &Value::Null).unwrap();
    assert_eq!(undescribed.status, 404);
    // The page holds no data.
    for path in ["/", "/page/app.js", "/openapi.json"] {
        assert_eq!(node.client().get(path).status, 200, "{path}");
    }
}

#[test]
fn a_key_is_for_its_models_and_streams() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let [.., admin] = closed(&node);
    for (name, stream) in [("one", "a"), ("two", "a"), ("three", "b")] {
        admin.post("/v1/models", &json!({"name": name, "stream": stream, "dim": 4})).expect(201);
    }
    let all = ["predict", "observe", "operate"];
    let of_model = admin.with_key(&made(&admin, &json!({"name": "m", "roles": all, "models": ["one"]})));
    let of_stream = admin.with_key(&made(&admin, &json!({"name": "s", "roles": all, "streams": ["a"]})));
    let names = |client: &Client| -> Vec<String> {
        let models = client.get("/v1/models").expect(200);
        models["models"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (names(&of_model), names(&of_stream)),
        (vec!["one".to_owned()], vec!["one".to_owned(), "two".to_owned()])
    );
    let observed = |client: &Client, model: &str| {
        client.post(&format!("/v1/models/{model}/observe"), &json!({"user": "u", "item": "i", "label": 1})).status
    };
    let may = |client: &Client| ["one", "two", "three", "four", "on%65"].map(|model| observed(client, model));
    assert_eq!((may(&of_model), may(&of_stream)), ([200, 403, 403, 403, 200], [200, 200, 403, 403, 200]));
    // What is of the node as a whole.
    for (method, path) in
        [("POST", "/v1/models"), ("GET", "/v1/pipelines"), ("GET", "/metrics"), ("GET", "/v1/cluster")]
    {
        let refused = of_model.try_json(method, path, &json!({"name": "five", "dim": 4})).unwrap();
        assert_eq!(refused.status, 403, "{method} {path}");
    }
    let job = admin.post("/v1/models/three/retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    assert_eq!(of_stream.get(&format!("/v1/jobs/{job}")).status, 404);
    assert_eq!(of_stream.get("/v1/jobs").expect(200)["jobs"], json!([]));
    assert_eq!(admin.get(&format!("/v1/jobs/{job}")).status, 200);
    // A change says who made it.
    let event = of_model.try_json("PATCH", "/v1/models/one", &json!({"keep_versions": 4})).unwrap().expect(200);
    assert_eq!(event["keep_versions"], 4);
    let events = of_model.get("/v1/models/one/events").expect(200);
    let principal = events["events"][0]["principal"].as_str().unwrap();
    assert!(principal.starts_with("key ") && principal.ends_with(" (m)"), "{events}");
}

#[test]
fn keys_stay_in_force_after_a_restart_and_the_last_admin_stays() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let open = node.client();
    let refused = open.post("/v1/keys", &json!({"name": "web", "roles": ["predict"]}));
    assert!(refused.status == 409 && refused.text.contains("--role admin"), "{}", refused.text);
    let admin = key_of(&open, "admin");
    for (body, field) in [
        (json!({"name": "", "roles": ["predict"]}), "/name"),
        (json!({"name": "a", "roles": []}), "/roles"),
        (json!({"name": "a", "roles": ["admin"], "models": ["m"]}), "/roles"),
        (json!({"name": "a", "roles": ["predict"], "expires": 1}), "/expires"),
        (json!({"name": "a", "roles": ["predict"], "requests_per_second": 0}), "/requests_per_second"),
        (json!({"name": "a", "roles": ["chief"]}), "/roles/0"),
    ] {
        let refused = open.with_key(&admin).post("/v1/keys", &body).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], field, "{refused}");
    }
    let id = admin.split('_').nth(1).unwrap();
    let revoke = |client: &Client| client.try_json("DELETE", &format!("/v1/keys/{id}"), &Value::Null).unwrap();
    revoke(&open.with_key(&admin)).expect(409);
    let other = key_of(&open.with_key(&admin), "admin");
    drop(node);
    let node = Node::serve(dir.path());
    let client = node.client();
    assert_eq!(client.get("/v1/models").status, 401);
    let revoked = revoke(&client.with_key(&other)).expect(200);
    assert!(revoked["revoked_by"].as_str().unwrap().ends_with("(admin)"), "{revoked}");
    assert_eq!(client.with_key(&admin).get("/v1/models").status, 401);
    drop(node);
    let node = Node::serve(dir.path());
    assert_eq!(node.client().with_key(&admin).get("/v1/models").status, 401);
    let listed = node.client().with_key(&other).get("/v1/keys").expect(200);
    assert_eq!(listed["keys"].as_array().unwrap().len(), 2);
    let text = listed.to_string();
    assert!(!text.contains(admin.rsplit('_').next().unwrap()) && !text.contains("hash"), "{text}");
}

#[test]
fn a_key_has_its_rates() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let [.., admin] = closed(&node);
    admin.post("/v1/models", &json!({"name": "m", "dim": 4})).expect(201);
    let body = json!({"name": "slow", "roles": ["predict"], "requests_per_second": 0.01});
    let slow = admin.with_key(&made(&admin, &body));
    slow.get("/v1/models").expect(200);
    let refused = slow.get("/v1/models");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(refused.status == 429 && (90..=100).contains(&wait), "{refused:?}");
    admin.get("/v1/models").expect(200);
    let body = json!({"name": "drops", "roles": ["observe"], "observations_per_second": 50});
    let drops = admin.with_key(&made(&admin, &body)).model("m");
    let observe = |user: usize| drops.post("observe", &json!({"user": format!("u{user}"), "item": "i", "label": 1}));
    let statuses: Vec<u16> = (0..200).map(|user| observe(user).status).collect();
    assert!(statuses.contains(&429) && statuses[..40].iter().all(|status| *status == 200), "{statuses:?}");
    // A stream is read at the rate of its key, and loses nothing.
    let lines: String =
        (0..100).map(|user| format!("{{\"user\": \"v{user}\", \"item\": \"i\", \"label\": 1}}\n")).collect();
    let begun = std::time::Instant::now();
    assert_eq!(drops.observe_lines(&lines).unwrap().filter(Result::is_ok).count(), 100);
    let again = drops.post("observe", &json!({"user": "w", "item": "i", "label": 1}));
    assert!(again.status == 429 || begun.elapsed().as_secs() >= 1, "the stream has used up the rate: {again:?}");
}

#[test]
fn the_key_of_the_configuration_makes_others() {
    let dir = tempfile::tempdir().unwrap();
    let secret = "0123456789abcdef0123456789abcdef";
    let file = dir.path().join("admin.key");
    fs::write(&file, format!("{secret}\n")).unwrap();
    let config = config_file(dir.path(), format!("[auth]\nadmin_key_file = {file:?}\n"));
    let node = Node::configured(&dir.path().join("data"), &config);
    let client = node.client();
    assert_eq!(client.get("/v1/models").status, 401);
    assert_eq!(client.with_key("0123456789abcdef0123456789abcdeF").get("/v1/models").status, 401);
    let admin = client.with_key(secret);
    let web = key_of(&admin, "predict");
    let listed = admin.get("/v1/keys").expect(200);
    assert_eq!(listed["keys"][0]["created_by"], "auth.admin_key_file");
    client.with_key(&web).get("/v1/models").expect(200);
    let id = web.split('_').nth(1).unwrap();
    admin.try_json("DELETE", &format!("/v1/keys/{id}"), &Value::Null).unwrap().expect(200);
    assert_eq!(client.with_key(&web).get("/v1/models").status, 401);
    admin.get("/v1/models").expect(200);
}

/// A connection on which the head of a request was sent, and not its body.
fn begun(client: &Client, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(client.address()).unwrap();
    stream.write_all(format!("{head}host: localhost\r\n\r\n").as_bytes()).unwrap();
    stream
}

/// The status of the reply to a request whose body follows now.
fn ended(mut stream: TcpStream, body: &str) -> u16 {
    stream.write_all(body.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_right_that_is_lost_while_a_body_arrives_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let open = node.client();
    let body = r#"{"name":"evil","roles":["admin"]}"#;
    let head = |key: &str| {
        let key = if key.is_empty() { String::new() } else { format!("authorization: Bearer {key}\r\n") };
        format!("POST /v1/keys HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{key}", body.len())
    };
    // On a node that was open.
    let unknown = begun(&open, &head(""));
    let admin = open.with_key(&key_of(&open, "admin"));
    assert_eq!(ended(unknown, body), 401);
    // By a key that was revoked.
    let other = key_of(&admin, "admin");
    let known = begun(&open, &head(&other));
    let id = other.split('_').nth(1).unwrap();
    admin.try_json("DELETE", &format!("/v1/keys/{id}"), &Value::Null).unwrap().expect(200);
    assert_eq!(ended(known, body), 401);
    assert_eq!(admin.get("/v1/keys").expect(200)["keys"].as_array().unwrap().len(), 2);
}

#[test]
fn a_stream_ends_with_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let [.., admin] = closed(&node);
    admin.post("/v1/models", &json!({"name": "m", "dim": 4})).expect(201);
    let key = key_of(&admin, "observe");
    let head = "POST /v1/models/m/observations HTTP/1.1\r\ncontent-type: application/x-ndjson\r\n\
                transfer-encoding: chunked\r\n";
    let mut stream = begun(&admin, &format!("{head}authorization: Bearer {key}\r\n"));
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let mut send = |user: &str| {
        let line = format!("{{\"user\":\"{user}\",\"item\":\"i\",\"label\":1}}\n");
        stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).unwrap();
    };
    let mut until = |what: &str| {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            assert!(replies.read_line(&mut line).unwrap() > 0, "the stream ended before {what}");
        }
        line
    };
    send("before");
    until("\"duplicate\":false");
    let id = key.split('_').nth(1).unwrap();
    admin.try_json("DELETE", &format!("/v1/keys/{id}"), &Value::Null).unwrap().expect(200);
    send("after");
    assert!(until("\"error\"").contains("unauthenticated"));
    until("\"summary\"");
    assert_eq!(admin.model("m").get("users/after").expect(200)["observations"], 0);
}

#[test]
fn one_key_does_not_take_all_streams() {
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), "[limits]\nstreams = 3\nstreams_per_key = 2\n");
    let node = Node::configured(&dir.path().join("data"), &config);
    let [_, _, _, admin] = closed(&node);
    admin.post("/v1/models", &json!({"name": "m", "dim": 4})).expect(201);
    let (greedy, modest) = (key_of(&admin, "observe"), key_of(&admin, "observe"));
    let head = "POST /v1/models/m/observations HTTP/1.1\r\ncontent-type: application/x-ndjson\r\n\
                transfer-encoding: chunked\r\n";
    // A stream, and the status that it is answered with after a line.
    let opened = |key: &str| {
        let mut stream = begun(&admin, &format!("{head}authorization: Bearer {key}\r\n"));
        let line = "{\"user\":\"u\",\"item\":\"i\",\"label\":1}\n";
        // A stream that was refused may be closed already.
        let _ = stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes());
        let mut status = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut status).unwrap();
        (stream, status.split(' ').nth(1).unwrap().parse::<u16>().unwrap())
    };
    let (first, second) = (opened(&greedy), opened(&greedy));
    assert_eq!((first.1, second.1), (200, 200));
    assert_eq!(opened(&greedy).1, 429);
    let array = json!([{"user": "u", "item": "i", "label": 1}]);
    let refused = admin.with_key(&greedy).post("/v1/models/m/observations", &array);
    assert!(refused.status == 429 && refused.text.contains("limits.streams_per_key"), "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    // Changes of items are streams too.
    assert_eq!(admin.with_key(&greedy).post("/v1/models/m/items", &json!([{"item": "i"}])).status, 429);
    let other = opened(&modest);
    assert_eq!(other.1, 200);
    // Then the node has no more, for nobody.
    assert_eq!(opened(&modest).1, 503);
    drop(first);
    eventually("a stream that has ended is free again", || (opened(&greedy).1 == 200).then_some(()));
}

#[test]
fn one_of_many_becomes_the_first_admin() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let create = || {
        let client = node.client();
        thread::spawn(move || client.post("/v1/keys", &json!({"name": "first", "roles": ["admin"]})).status)
    };
    let creating: Vec<_> = (0..8).map(|_| create()).collect();
    let statuses: Vec<u16> = creating.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [201, 401].contains(status)), "{statuses:?}");
}

#[test]
fn the_last_admin_neither_expires_nor_has_a_rate() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let open = node.client();
    let later = 4_000_000_000_000_i64;
    for body in [
        json!({"name": "a", "roles": ["admin"], "expires": later}),
        json!({"name": "a", "roles": ["admin"], "requests_per_second": 1}),
    ] {
        open.post("/v1/keys", &body).expect(409);
    }
    let first = key_of(&open, "admin");
    let admin = open.with_key(&first);
    made(&admin, &json!({"name": "b", "roles": ["admin"], "expires": later}));
    let id = first.split('_').nth(1).unwrap();
    admin.try_json("DELETE", &format!("/v1/keys/{id}"), &Value::Null).unwrap().expect(409);
}

#[test]
fn a_stream_that_would_wait_for_long_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let [.., admin] = closed(&node);
    admin.post("/v1/models", &json!({"name": "m", "dim": 4})).expect(201);
    let body = json!({"name": "slow", "roles": ["observe"], "observations_per_second": 0.01});
    let slow = admin.with_key(&made(&admin, &body)).model("m");
    let line = |user: usize| {
        format!("{{\"user\": \"u{user}\", \"item\": \"i\", \"label\": 1, \"observation_id\": \"{user}\"}}\n")
    };
    let mut answers = slow.observe_lines(&(0..2000).map(line).collect::<String>()).unwrap();
    assert!(
        answers.any(|answer| answer.unwrap().to_string().contains("rate-limited")),
        "the rest of the lines is refused"
    );
    // Corrections count as well.
    assert_eq!(slow.put("observations/1?user=u1", &json!({"label": 0})).status, 429);
}
