//! Models whose features have parts that pipelines compute.

use celeris_tests::{Client, ModelClient, Node, ProcessOptions, Reply, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::policy_evaluation::time_between;

const DEVICES: [&str; 2] = ["phone", "screen"];
const GENRES: [&str; 2] = ["news", "film"];

/// News are liked on phones, films on screens.
fn label(item: usize, device: usize) -> u8 {
    u8::from(item % GENRES.len() == device)
}

/// A linear model of the combinations of genre and device.
fn taste() -> Value {
    json!({"name": "taste", "output": "liking", "nodes": {
        "genre": {"op": "one_hot", "input": "item.genre", "categories": GENRES},
        "device": {"op": "one_hot", "input": "context.device", "categories": DEVICES},
        "both": {"op": "cross", "inputs": ["genre", "device"], "hash_bits": 8},
        "liking": {"op": "linear", "input": "both", "fit": "label"}}})
}

const ITEMS: usize = 20;

/// A model with a factor, the constant, and a part of the pipeline.
fn shop(client: &Client) -> ModelClient {
    client.post("/v1/pipelines", &taste()).expect(201);
    let parts = json!([{"part": "factors", "from": "table"}, {"part": "liking", "pipeline": "taste"}]);
    let model =
        json!({"name": "shop", "dim": 4, "loss": "logistic", "features": parts, "pool_share": 0, "policy": "greedy"});
    let created = client.post("/v1/models", &model).expect(201);
    assert_eq!(created["features"][0]["dim"], 3);
    assert_eq!(created["features"][1]["dim"], 1);
    let shop = client.model("shop");
    for item in 0..ITEMS {
        describe(&shop, &item.to_string(), GENRES[item % GENRES.len()]);
    }
    shop
}

fn describe(shop: &ModelClient, item: &str, genre: &str) {
    shop.put(&format!("items/{item}"), &json!({"attributes": {"genre": genre}})).expect(200);
}

/// Thirty users, each on both devices, and one observation of each without a context.
fn observe_all(shop: &ModelClient) {
    let mut lines = String::new();
    for user in 0..30 {
        let line = json!({"user": format!("u{user}"), "item": (user % ITEMS).to_string(), "label": user % 2});
        lines.push_str(&format!("{line}\n"));
        for round in 0..20 {
            let (item, device) = ((7 * user + 3 * round) % ITEMS, round % DEVICES.len());
            let context = json!({"device": DEVICES[device], "hour": round});
            let line = json!({"user": format!("u{user}"), "item": item.to_string(), "label": label(item, device), "context": context});
            lines.push_str(&format!("{line}\n"));
        }
    }
    assert!(shop.observe_lines(&lines).unwrap().all(|line| line.is_ok()));
}

/// Trains, and returns how the job ends.
fn train(client: &Client, shop: &ModelClient) -> String {
    let job = shop.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    let ended = eventually("the end of the training", || {
        let job = client.get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(job["state"].as_str(), Some("queued" | "running"))).then_some(job)
    });
    ended["state"].as_str().unwrap().to_owned()
}

/// The model of [`shop`], trained on what [`observe_all`] says.
fn trained_shop(client: &Client) -> ModelClient {
    let shop = shop(client);
    observe_all(&shop);
    assert_eq!(train(client, &shop), "succeeded");
    shop
}

fn ranked(shop: &ModelClient, request: &str, context: &Value) -> Value {
    let items: Vec<String> = (0..ITEMS).map(|item| item.to_string()).collect();
    let mut body = json!({"user": "u1", "k": 5, "context": context});
    if request == "topk" {
        body["items"] = json!(items);
    } else {
        body["exclude_seen"] = json!(false);
    }
    shop.post(request, &body).expect(200)
}

fn genres(ranking: &Value) -> Vec<&'static str> {
    let of = |slot: &Value| GENRES[slot["item"].as_str().unwrap().parse::<usize>().unwrap() % GENRES.len()];
    ranking["items"].as_array().unwrap().iter().map(of).collect()
}

fn score(shop: &ModelClient, item: &str, context: &Value) -> Value {
    shop.post("predict", &json!({"user": "u1", "item": item, "context": context})).expect(200)
}

#[test]
fn rankings_depend_on_the_context_through_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let shop = trained_shop(&client);
    for request in ["topk", "recommend"] {
        for (device, genre) in DEVICES.iter().zip(GENRES) {
            let ranking = ranked(&shop, request, &json!({"device": device}));
            assert_eq!(genres(&ranking), [genre; 5], "{request} {ranking}");
            assert!(ranking.get("missing").is_none(), "{ranking}");
            let id = ranking["decision_id"].as_str().unwrap();
            let replayed = shop.get(&format!("decisions/{id}?replay=true")).expect(200);
            assert_eq!(replayed["replay"]["same"], true, "{replayed}");
        }
    }
    let (with, without) = (score(&shop, "0", &json!({"device": "phone"})), score(&shop, "0", &json!({"hour": 3})));
    assert_eq!(without["missing"], json!(["liking"]));
    assert!(with.get("missing").is_none(), "{with}");
    let std_error = |reply: &Value| reply["scores"][0]["std_error"].as_f64().unwrap();
    assert!(std_error(&without) > std_error(&with), "{with} {without}");
    // An item that came after the training, and one of which nothing is known.
    describe(&shop, "late", "news");
    let of = |item: &str, device: &str| {
        score(&shop, item, &json!({"device": device}))["scores"][0]["score"].as_f64().unwrap()
    };
    assert!(of("late", "phone") > of("late", "screen") + 1.0);
    assert_eq!(of("nobody", "phone"), of("nobody", "screen"));
    assert_eq!(score(&shop, "nobody", &json!({"device": "phone"}))["missing"], json!(["liking"]));
    // The part is one of the reasons.
    let why =
        |device: &str| shop.get(&format!("users/u1/why/0?context=%7B%22device%22%3A%22{device}%22%7D")).expect(200);
    let contribution = |why: &Value| why["parts"][0]["contribution"].as_f64().unwrap();
    assert!(contribution(&why("phone")) > 0.0 && contribution(&why("screen")) < 0.0, "{}", why("phone"));
    shop.get("users/u1/why/0?context=7").expect(422);
    // The version keeps its part when the model no longer has it, and says that the next one will not.
    let version = || shop.get("versions").expect(200)["versions"][0].clone();
    let part = json!({"part": "liking", "unread_fields": [], "is_constant": false});
    assert_eq!((&version()["parts"], &version()["warning"]), (&json!([part]), &Value::Null));
    shop.patch("", &json!({"features": []})).expect(200);
    let warning = version()["warning"].as_str().unwrap().to_owned();
    assert!(warning.contains("the part liking") && warning.contains("the next training"), "{warning}");
}

#[test]
fn a_version_warns_of_a_part_that_read_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    client.post("/v1/pipelines", &taste()).expect(201);
    // Text is no number, and films have no price.
    let sum = json!({"name": "sum", "output": "all", "nodes": {
        "device": {"op": "field", "of": "context", "name": "device", "type": "number"},
        "price": {"op": "field", "of": "item", "name": "price", "type": "number"},
        "all": {"op": "concat", "inputs": ["device", "price"]}}});
    client.post("/v1/pipelines", &sum).expect(201);
    let parts = json!([{"part": "factors", "from": "table"}, {"part": "liking", "pipeline": "taste"},
        {"part": "sum", "pipeline": "sum"}]);
    let model = json!({"name": "shop", "dim": 6, "loss": "logistic", "features": parts, "gate": {"force": true}});
    client.post("/v1/models", &model).expect(201);
    let shop = client.model("shop");
    // Without attributes of the items: the genre is forgotten.
    observe_all(&shop);
    assert_eq!(train(&client, &shop), "succeeded");
    let version = shop.get("versions").expect(200)["versions"][0].clone();
    let liking = json!({"part": "liking", "unread_fields": ["item.genre"], "is_constant": true});
    let sum = json!({"part": "sum", "unread_fields": ["context.device", "item.price"], "is_constant": true});
    assert_eq!(version["parts"], json!([liking, sum]));
    let warning = version["warning"].as_str().unwrap();
    let expected =
        ["item.genre that the part liking can read", "context.device, item.price", "the part liking was the same"];
    assert!(expected.iter().all(|part| warning.contains(part)), "{warning}");
    // Explanations check the context, and say what is missing.
    let why = |context: &str| shop.get(&format!("users/u1/why/0?context={context}"));
    assert_eq!(why("%7B%22device%22%3A%22phone%22%7D").expect(200)["missing"], json!(["liking", "sum"]));
    assert!(why("%7B%22device%22%3A7%7D").expect(422)["detail"].as_str().unwrap().contains("device"));
    assert!(why("phone").expect(422)["detail"].as_str().unwrap().contains("an object of fields"));
}

/// The hashes of all users' states.
fn states(shop: &ModelClient) -> Vec<Value> {
    (0..30).map(|user| shop.user(&format!("u{user}"), 0)["state_hash"].clone()).collect()
}

fn delete_pipeline(client: &Client) -> Reply {
    client.try_send("DELETE", "/v1/pipelines/taste", "application/json", "").unwrap()
}

#[test]
fn states_are_those_of_the_records_whatever_becomes_of_pipelines_and_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let serve = || ProcessOptions::default().serve(dir.path());
    let node = serve();
    let client = node.client();
    let shop = trained_shop(&client);
    describe(&shop, "late", "news");
    for device in DEVICES {
        let label = u8::from(device == "phone");
        shop.observe(&json!({"user": "u1", "item": "late", "label": label, "context": {"device": device}}));
        shop.observe(&json!({"user": "u2", "item": "0", "label": label, "context": {"device": device}}));
    }
    let before = states(&shop);
    // What states were built from does not change any more.
    describe(&shop, "late", "film");
    assert!(delete_pipeline(&client).expect(409)["detail"].as_str().unwrap().contains("shop"));
    let other_columns = json!({"name": "taste", "output": "both", "nodes": {
        "both": {"op": "concat", "inputs": ["genre", "device"]},
        "genre": {"op": "one_hot", "input": "item.genre", "categories": GENRES},
        "device": {"op": "one_hot", "input": "context.device", "categories": DEVICES}}});
    assert!(client.post("/v1/pipelines", &other_columns).expect(409)["detail"].as_str().unwrap().contains("shop"));
    shop.patch("", &json!({"features": []})).expect(200);
    assert_eq!(delete_pipeline(&client).status, 204);
    node.kill_hard();
    let node = serve();
    let shop = node.model("shop");
    assert_eq!(states(&shop), before);
    assert_eq!(genres(&ranked(&shop, "topk", &json!({"device": "screen"}))), ["film"; 5]);
    // The next version has factors only, and the gate sees what it cannot know.
    assert_eq!(train(&node.client(), &shop), "rejected");
}

#[test]
fn a_node_killed_in_a_training_of_parts_has_the_states_of_one_version() {
    let dir = tempfile::tempdir().unwrap();
    let serve = || ProcessOptions::default().serve(dir.path());
    let node = serve();
    let client = node.client();
    let shop = trained_shop(&client);
    // The gate judges a candidate with its parts, so that one from the same records passes.
    assert_eq!(train(&client, &shop), "succeeded");
    node.kill_hard();
    for (step, activates) in [("training", false), ("warming", false), ("flip", true)] {
        let node = ProcessOptions::default().pause_at(step).serve(dir.path());
        let shop = node.model("shop");
        // Another label, so that the next version differs.
        shop.observe(&json!({"user": "u1", "item": "0", "label": 1, "context": {"device": "phone", "hour": 1}}));
        let before = states(&shop);
        shop.post("retrain", &json!({})).expect(202);
        node.await_stderr(&format!("reached {step}"));
        node.kill_hard();
        let node = serve();
        let shop = node.model("shop");
        let after = states(&shop);
        assert_eq!(after != before, activates, "{step}");
        for (device, genre) in DEVICES.iter().zip(GENRES) {
            assert_eq!(genres(&ranked(&shop, "recommend", &json!({"device": device}))), [genre; 5], "{step}");
        }
        node.kill_hard();
        let node = serve();
        assert_eq!(states(&node.model("shop")), after, "{step}: states are those of version and records");
        node.kill_hard();
    }
}

#[test]
fn estimates_of_policies_use_the_contexts_of_the_decisions() {
    const DECISIONS: usize = 600;
    /// The probability that a label is the opposite of what the user likes.
    const NOISE: f64 = 0.1;
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let shop = trained_shop(&client);
    let items: Vec<String> = (0..ITEMS).map(|item| item.to_string()).collect();
    let choose = |turn: usize, policy: &Value| {
        let context = json!({"device": DEVICES[turn % DEVICES.len()]});
        let user = format!("u{}", turn % 30);
        shop.post("topk", &json!({"user": user, "items": items, "k": 1, "context": context, "policy": policy}))
            .expect(200)
    };
    let chosen = |ranking: &Value| ranking["items"][0]["item"].as_str().unwrap().parse::<usize>().unwrap();
    let expected = |turn: usize, item: usize| if label(item, turn % DEVICES.len()) == 1 { 1.0 - NOISE } else { NOISE };
    let earned = |policy: &Value| {
        (0..DECISIONS).map(|turn| expected(turn, chosen(&choose(turn, policy)))).sum::<f64>() / DECISIONS as f64
    };
    let logging = json!({"name": "epsilon_greedy", "epsilon": 0.5});
    let decisions: Vec<Value> = (0..DECISIONS).map(|turn| choose(turn, &logging)).collect();
    // Decisions from here on are not evaluated.
    let until = time_between();
    let policies = [json!({"name": "greedy"}), json!({"name": "epsilon_greedy", "epsilon": 1.0})];
    let earned: Vec<f64> = policies.iter().map(earned).collect();
    assert!(earned[0] > 0.85 && earned[1] < 0.6, "{earned:?}");
    let mut random = ChaCha8Rng::seed_from_u64(22);
    for (turn, decision) in decisions.iter().enumerate() {
        let item = chosen(decision);
        let reward = u8::from(random.random_bool(expected(turn, item)));
        // The context is that of the decision.
        shop.observe(&json!({
            "user": format!("u{}", turn % 30), "item": item.to_string(), "label": reward,
            "decision_id": decision["decision_id"],
        }));
    }
    for (policy, earned) in policies.iter().zip(earned) {
        let report = shop.post("evaluate-policy", &json!({"policy": policy, "to": until})).expect(200);
        assert_eq!((&report["rounds"], &report["rewarded"]), (&json!(DECISIONS), &json!(DECISIONS)), "{report}");
        for estimator in ["ips", "snips", "dr", "sndr"] {
            let estimate = &report["estimators"][estimator];
            let number = |field: &str| estimate[field].as_f64().unwrap();
            // Five standard errors: the node draws the seeds.
            let close = 2.5 * (number("high") - number("low")) / 2.0;
            assert!((number("value") - earned).abs() < close, "{policy} {estimator}: {earned}, {estimate}");
        }
    }
}

#[test]
fn parts_that_do_not_fit_are_refused_by_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    client.post("/v1/pipelines", &taste()).expect(201);
    for (features, dim, loss, field) in [
        (json!([{"part": "a", "pipeline": "tastes"}]), 4, "squared", "features[0]"),
        (json!([{"part": "a", "pipeline": "taste"}, {"part": "a", "pipeline": "taste"}]), 4, "squared", "features[1]"),
        (json!([{"part": "a b", "pipeline": "taste"}]), 4, "squared", "features[0]"),
        (json!([{"part": "a", "pipeline": "taste", "from": "table"}]), 4, "squared", "features[0]"),
        (json!([{"part": "a"}]), 4, "squared", "features[0]"),
        (json!([{"part": "a", "pipeline": "taste", "dim": 3}]), 4, "squared", "features[0]"),
        (
            json!([{"part": "t", "from": "table", "dim": 4}, {"part": "a", "pipeline": "taste"}]),
            4,
            "squared",
            "features[0]",
        ),
        (json!([{"part": "a", "pipeline": "taste"}]), 1, "squared", "features[0]"),
        (json!([{"part": "a", "pipeline": "taste"}]), 4, "implicit", "features[0]"),
        (json!([{"part": "a", "pipelines": "taste"}]), 4, "squared", "pipelines"),
    ] {
        let model = json!({"name": "shop", "dim": dim, "loss": loss, "features": features});
        let refused = client.post("/v1/models", &model).expect(422);
        assert!(refused.to_string().contains(field), "{model}: {refused}");
    }
    let model = json!({"name": "shop", "dim": 4, "candidates": 0});
    assert!(client.post("/v1/models", &model).expect(422).to_string().contains("candidates"));
}
