//! A degrading model is detected, retrained and switched automatically, and the events contain the
//! reason.

use std::ops::RangeInclusive;

use celeris_datasets::{SyntheticSettings, Truth};
use celeris_model::{ItemId, UserId};
use celeris_tests::{ModelClient, Node, NodeProcess, eventually};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const USERS: usize = 60;

/// Titles that are rated before and after the drift; no trained version knows the new ones.
const OLD_TITLES: RangeInclusive<usize> = 1..=12;
const NEW_TITLES: RangeInclusive<usize> = 13..=24;

/// Observations between two checks of the model.
const BATCH: usize = 250;

/// Standard deviation of a label around its expected value, in stars.
const NOISE: f64 = 0.5;

/// Simulated users with known tastes, who rate a given range of titles.
struct Public {
    truth: Truth,
    random: ChaCha8Rng,
}

impl Public {
    fn new() -> Self {
        let settings = SyntheticSettings {
            users: USERS,
            items: *NEW_TITLES.end(),
            ratings: 0,
            true_dim: 4,
            ..SyntheticSettings::default()
        };
        Self { truth: settings.generate().unwrap().truth, random: ChaCha8Rng::seed_from_u64(11) }
    }

    /// A random user's rating of a random title, in half stars.
    fn rating(&mut self, titles: &RangeInclusive<usize>) -> Value {
        let user = self.random.random_range(1..=USERS).to_string();
        let item = self.random.random_range(titles.clone()).to_string();
        let expected = self.truth.expected(&UserId::new(&*user).unwrap(), &ItemId::new(&*item).unwrap()).unwrap();
        // The sum of twelve uniform numbers is approximately normal with a standard deviation of 1.
        let noise: f64 = (0..12).map(|_| self.random.random_range(-0.5..0.5)).sum();
        let label = ((expected + NOISE * noise) * 2.0).round().clamp(1.0, 10.0) / 2.0;
        json!({"user": user, "item": item, "label": label})
    }

    /// Sends `count` ratings, and waits until the monitors have processed them.
    fn rate(&mut self, model: &ModelClient, count: usize, titles: &RangeInclusive<usize>) {
        let lines: String = (0..count).map(|_| format!("{}\n", self.rating(titles))).collect();
        for line in model.observe_lines(&lines).unwrap() {
            assert!(line.as_ref().is_ok_and(|line| line["user_epoch"].is_u64()), "{line:?}");
        }
        let all = model.get("").expect(200)["observations"].as_u64().unwrap();
        eventually("the monitors have seen every observation", || (seen(model) == all).then_some(()));
    }
}

fn quality(model: &ModelClient) -> Value {
    model.get("quality").expect(200)
}

/// Number of observations in the quality curve of the model.
fn seen(model: &ModelClient) -> u64 {
    quality(model)["curve"].as_array().unwrap().iter().map(|point| point["count"].as_u64().unwrap()).sum()
}

/// The loss of the active version over at most `over` of the latest observations, and their number.
fn loss(quality: &Value, over: u64) -> (f64, u64) {
    let windows = quality["windows"].as_array().unwrap();
    let window = windows.iter().find(|window| window["observations"] == over);
    window.map_or((f64::NAN, 0), |window| (window["value"].as_f64().unwrap(), window["count"].as_u64().unwrap()))
}

/// Events of a kind, oldest first.
fn events(model: &ModelClient, kind: &str) -> Vec<Value> {
    let page = model.get("events?limit=1000").expect(200);
    assert_eq!((&page["next"], &page["dropped"]), (&Value::Null, &json!(0)));
    let mut events = page["events"].as_array().unwrap().clone();
    events.reverse();
    events.retain(|event| event["kind"] == kind);
    events
}

fn job_of(event: &Value) -> String {
    event["details"]["job"].as_str().unwrap().to_owned()
}

/// The job once it has ended.
fn ended(model: &ModelClient, job: &str) -> Value {
    eventually("the end of a job", || {
        let job = model.node().get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(job["state"].as_str(), Some("queued" | "running"))).then_some(job)
    })
}

fn retrain(model: &ModelClient) {
    let job = model.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    assert_eq!(ended(model, &job)["state"], "succeeded");
}

#[test]
fn drift_is_detected_and_the_model_is_retrained_automatically() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let triggers = json!({"drift": {}, "threshold": {}, "volume": {"observations": 5000}, "cool_down": 1});
    let created =
        node.client().post("/v1/models", &json!({"name": "films", "dim": 5, "triggers": triggers})).expect(201);
    assert_eq!(created["triggers"]["drift"]["threshold"], 100.0, "{created}");
    let films = node.model("films");
    let mut public = Public::new();

    public.rate(&films, 4000, &OLD_TITLES);
    retrain(&films);
    public.rate(&films, 4000, &OLD_TITLES);
    let before = quality(&films);
    let (loss_before, of) = loss(&before, 10_000);
    assert_eq!((&before["metric"], of), (&json!("rmse"), 4000), "{before}");
    assert_eq!(before["version"], 2);
    assert!(before["baseline"]["value"].as_f64().unwrap() < 1.05 * loss_before, "{before}");
    assert!(before["drift"]["rise"].is_null() && events(&films, "triggered").is_empty(), "nothing has moved: {before}");

    // From here on, users rate only titles that the version does not know.
    let mut peak = 0.0_f64;
    let mut since = 0;
    while quality(&films)["drift"]["rise"].is_null() {
        public.rate(&films, BATCH, &NEW_TITLES);
        since += BATCH;
        peak = peak.max(loss(&quality(&films), 100).0);
        assert!(since <= 2000, "no drift was found: {}", quality(&films));
    }
    assert!(peak > 1.2 * loss_before, "the loss rose from {loss_before} to {peak}");
    let fired = eventually("a trigger fires", || events(&films, "triggered").into_iter().next());
    assert_eq!((&fired["by"], &fired["details"]["trigger"]), (&json!("trigger"), &json!("drift")), "{fired}");
    let why = fired["why"].as_str().unwrap();
    assert!(why.starts_with("drift: rmse rose from") && why.contains("under version 2"), "{why}");
    let started = eventually("the job that was triggered", || events(&films, "training_started").into_iter().nth(1));
    let job = ended(&films, &job_of(&started));
    assert_eq!((&job["state"], job["why"].as_str()), (&json!("succeeded"), Some(why)), "the job says why: {job}");
    let switched = events(&films, "activated").pop().unwrap();
    assert_eq!((&switched["before"], &switched["after"], &switched["by"]), (&json!(2), &json!(3), &json!("job")));

    // The alarm came early: version 3 was trained on few ratings of the new titles. A later
    // training has more of them.
    public.rate(&films, 5000, &NEW_TITLES);
    let (loss_between, _) = loss(&quality(&films), 10_000);
    let fired = eventually("the next trigger fires", || events(&films, "triggered").into_iter().nth(1));
    assert_eq!((&fired["by"], &fired["details"]["trigger"]), (&json!("trigger"), &json!("volume")), "{fired}");
    let started = eventually("its job", || events(&films, "training_started").into_iter().nth(2));
    assert_eq!(ended(&films, &job_of(&started))["state"], "succeeded");
    public.rate(&films, 4000, &NEW_TITLES);
    let after = quality(&films);
    let (loss_after, of) = loss(&after, 10_000);
    eprintln!(
        "rmse {loss_before:.3} before, {peak:.3} at its worst, {loss_between:.3} under version 3, {loss_after:.3} after; \
         noticed within {since} observations"
    );
    assert_eq!((&after["version"], of), (&json!(4), 4000), "{after}");
    assert!(loss_after <= 1.05 * loss_before, "{loss_before} before, {loss_after} after");
    assert_eq!(events(&films, "rolled_back"), Vec::<Value>::new());
}

#[test]
fn quality_metrics_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::serve(dir.path());
    let new =
        json!({"name": "films", "dim": 5, "pool_share": 1, "triggers": {"threshold": {"window": 300, "margin": 9}}});
    let _created = node.client().post("/v1/models", &new).expect(201);
    let films = node.model("films");
    let mut public = Public::new();
    public.rate(&films, 1500, &OLD_TITLES);
    retrain(&films);
    public.rate(&films, 900, &OLD_TITLES);
    // Uniformly sampled rankings form the validation pool. A decision is stored shortly after the
    // response.
    let before = eventually("the monitors have seen the pool", || {
        let ranked = films.post("topk", &json!({"user": "7", "items": ["1", "2", "3"], "k": 3})).expect(200);
        assert_eq!(ranked["pool"], true, "{ranked}");
        films.observe(&json!({"user": "7", "item": "2", "label": 4, "decision_id": ranked["decision_id"]}));
        public.rate(&films, 1, &OLD_TITLES);
        let quality = films.get("quality?user=7").expect(200);
        (quality["pool_observations"].as_u64() > Some(0)).then_some(quality)
    });
    let audit = films.get("events").expect(200);
    let metrics = node.client().get("/metrics").text;
    assert!(metrics.contains(r#"celeris_model_drift_threshold{model="films"} 100"#), "{metrics}");
    node.kill_hard();

    let node = NodeProcess::serve(dir.path());
    let films = node.model("films");
    let after = films.get("quality?user=7").expect(200);
    for count in ["version", "observations", "pool_observations", "baseline_observations"] {
        assert_eq!(after[count], before[count], "{count}");
    }
    assert_eq!(films.get("").expect(200)["observations"], 1500 + after["observations"].as_u64().unwrap());
    assert_eq!(after["baseline"]["count"], 300);
    assert_eq!(films.get("events").expect(200), audit);
    // The log has no order across partitions within one millisecond, so sums may be taken in a
    // different order.
    let close = |what: &str, before: &Value, after: &Value, share: f64| {
        let (before, after) = (before.as_f64().unwrap(), after.as_f64().unwrap());
        assert!((before - after).abs() <= share * before, "{what}: {before} before, {after} after");
    };
    close("all of the version", &before["windows"][1]["value"], &after["windows"][1]["value"], 1e-6);
    close("the user", &before["user"]["value"], &after["user"]["value"], 1e-6);
    close("the pool", &before["pool"]["value"], &after["pool"]["value"], 1e-6);
    close("the median user", &before["users"]["median"], &after["users"]["median"], 1e-6);
    close("the day", &before["day"]["value"], &after["day"]["value"], 1e-6);
    // If the kill came before the baseline was written, it is computed again over other
    // observations of the 900, which arrived within milliseconds: an RMSE of 300 losses has a
    // standard error of 4 %.
    close("the baseline", &before["baseline"]["value"], &after["baseline"]["value"], 0.2);

    // A model created again starts empty, although the log holds predictions of the deleted model
    // of the same name.
    assert_eq!(films.delete("").status, 204);
    let _created = node.client().post("/v1/models", &json!({"name": "films", "dim": 5})).expect(201);
    node.kill_hard();
    let node = NodeProcess::serve(dir.path());
    let quality = quality(&node.model("films"));
    assert_eq!((&quality["observations"], &quality["curve"]), (&json!(0), &json!([])), "{quality}");
    assert_eq!(node.model("films").get("events").expect(200)["events"].as_array().unwrap().len(), 1);
}

#[test]
fn the_volume_trigger_starts_a_job_and_the_cool_down_delays_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let _created = node.client().post("/v1/models", &json!({"name": "films", "dim": 5})).expect(201);
    let films = node.model("films");
    let mut public = Public::new();
    public.rate(&films, 1000, &OLD_TITLES);
    assert!(events(&films, "triggered").is_empty(), "all triggers are off by default");

    let change = json!({"triggers": {"volume": {"observations": 500}, "cool_down": 3600}});
    let changed = films.patch("", &change).expect(200);
    assert_eq!(
        (&changed["triggers"]["volume"]["observations"], &changed["triggers"]["drift"]),
        (&json!(500), &Value::Null)
    );
    let configured = events(&films, "configured").remove(0);
    assert_eq!(configured["details"]["triggers"]["to"]["cool_down"], 3600.0, "{configured}");
    let first = eventually("the first job", || events(&films, "training_started").pop());
    assert_eq!(first["why"], "volume: 1000 new observations and no version was trained yet (after 500)");
    assert_eq!(ended(&films, &job_of(&first))["state"], "succeeded");

    public.rate(&films, 600, &OLD_TITLES);
    // Without the cool-down, another trigger would start a training immediately.
    let _changed = films.patch("", &json!({"triggers": {"schedule": {"every": 1}}})).expect(200);
    public.rate(&films, 10, &OLD_TITLES);
    assert_eq!(events(&films, "training_started").len(), 1, "the cool-down is an hour");
    let _changed = films.patch("", &json!({"triggers": {"schedule": null, "cool_down": 0}})).expect(200);
    let second = eventually("the second job", || events(&films, "training_started").into_iter().nth(1));
    assert_eq!(second["why"], "volume: 610 new observations since version 2 was trained (after 500)");
    assert_eq!(ended(&films, &job_of(&second))["state"], "succeeded");

    let _changed = films.patch("", &json!({"triggers": {"volume": null, "schedule": {"every": 1}}})).expect(200);
    public.rate(&films, 10, &OLD_TITLES);
    let third = eventually("the third job", || events(&films, "training_started").into_iter().nth(2));
    let why = third["why"].as_str().unwrap();
    assert!(why.starts_with("schedule: ") && why.ends_with("(every 1), with 10 new observations"), "{why}");
    assert_eq!(ended(&films, &job_of(&third))["state"], "succeeded");
}

#[test]
fn settings_out_of_range_are_refused_and_events_are_paginated() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let client = node.client();
    let _created = client.post("/v1/models", &json!({"name": "films", "dim": 5})).expect(201);
    let films = node.model("films");
    let refused = [
        (json!({"triggers": {"threshold": {"margin": -1}}}), "triggers.threshold.margin: must be from 0.001 to 10"),
        (json!({"triggers": {"threshold": {"window": 10}}}), "triggers.threshold.window: must be from 50 to 10000"),
        (json!({"triggers": {"drift": {"threshold": 0}}}), "triggers.drift.threshold: must be from 1 to"),
        (json!({"triggers": {"schedule": {"every": 0}}}), "triggers.schedule.every: must be from 1 second"),
        (json!({"triggers": {"volume": {}}}), "observations"),
        (json!({"triggers": {"cool_down": -1}}), "triggers.cool_down: must be from 0"),
        (json!({"triggers": {"weekly": {}}}), "weekly"),
        (json!({"dim": 7}), "dim"),
    ];
    for (change, names) in &refused {
        let reply = films.patch("", change);
        assert_eq!(reply.status, 422, "{change}: {}", reply.text);
        assert!(reply.json()["detail"].as_str().unwrap().contains(names), "{change}: {}", reply.text);
    }
    let at_creation = client.post("/v1/models", &json!({"name": "books", "triggers": {"cool_down": -1}}));
    assert_eq!(at_creation.status, 422, "{}", at_creation.text);
    assert_eq!(events(&films, "configured").len(), 0, "a refused change has no effect");
    assert_eq!(client.model("nobody").patch("", &json!({})).status, 404);

    for observations in 1..=4 {
        let _changed = films.patch("", &json!({"triggers": {"volume": {"observations": observations}}})).expect(200);
    }
    let numbers = |page: &Value| -> Vec<u64> {
        page["events"].as_array().unwrap().iter().map(|event| event["number"].as_u64().unwrap()).collect()
    };
    let first = films.get("events?limit=2").expect(200);
    assert_eq!((numbers(&first), &first["next"]), (vec![5, 4], &json!(4)));
    let second = films.get("events?limit=2&before=4").expect(200);
    assert_eq!((numbers(&second), &second["next"]), (vec![3, 2], &json!(2)));
    let last = films.get("events?limit=2&before=2").expect(200);
    assert_eq!((numbers(&last), &last["next"]), (vec![1], &Value::Null));
    assert_eq!(last["events"][0]["kind"], "created");
    for query in ["limit=0", "limit=1001", "limit=x", "since=1"] {
        assert_eq!(films.get(&format!("events?{query}")).status, 422, "{query}");
    }
    assert_eq!(client.get("/v1/models/nobody/events").status, 404);
    assert_eq!(client.get("/v1/models/nobody/quality").status, 404);
}

#[test]
fn an_erased_user_is_removed_from_the_worst_served_users() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let _created = node.client().post("/v1/models", &json!({"name": "films", "dim": 5})).expect(201);
    let films = node.model("films");
    for label in [5.0, -5.0, 5.0, -5.0, 5.0, -5.0] {
        films.observe(&json!({"user": "fickle", "item": "1", "label": label}));
        films.observe(&json!({"user": "steady", "item": "1", "label": 3}));
    }
    let worst = eventually("both users are known", || {
        let quality = films.get("quality?user=steady").expect(200);
        (quality["user"]["count"] == 6 && quality["users"]["compared"] == 2).then(|| quality["users"]["worst"].clone())
    });
    assert_eq!((&worst[0]["user"], &worst[1]["user"]), (&json!("fickle"), &json!("steady")));
    assert!(worst[0]["value"].as_f64() > worst[1]["value"].as_f64());
    assert_eq!(films.delete("users/fickle").status, 200);
    let users = quality(&films)["users"].clone();
    assert_eq!((&users["tracked"], &users["worst"][0]["user"]), (&json!(1), &json!("steady")), "{users}");
}
