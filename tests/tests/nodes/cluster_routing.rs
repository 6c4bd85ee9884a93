//! Any node of a cluster takes any request, and the owner of its user answers it.

use std::thread;
use std::time::{Duration, Instant};

use celeris_tests::{Divided, Reply};
use serde_json::{Value, json};

/// Each of six shards belongs to one of three nodes.
fn cluster() -> Divided {
    Divided::among(3, None)
}

fn observation(user: &str, id: Option<&str>) -> Value {
    json!({"user": user, "item": "item-1", "label": 4.0, "observation_id": id})
}

const OBSERVE: (&str, &str) = ("POST", "/v1/models/films/observe");

const PREDICT: &str = "/v1/models/films/predict";

/// The revision that a placement has in headers.
fn revision(cluster: &Divided) -> String {
    format!("{}.{}", cluster.revision().epoch, cluster.revision().number)
}

#[test]
fn every_request_lands_on_the_owner_whichever_node_takes_it() {
    let cluster = cluster();
    for taker in 0..3 {
        for shard in 0..6 {
            let user = cluster.users_of(shard).nth(taker).unwrap();
            let films = cluster.client(taker).model("films");
            films.observe(&observation(&user, None));
            let owner = cluster.owner_of(&user);
            assert_eq!(owner, shard % 3);
            for node in 0..3 {
                assert_eq!(cluster.events_at(node, &user), u64::from(node == owner), "{user} on {node} by {taker}");
            }
            let predicted = cluster.client(taker).post(PREDICT, &json!({"user": user, "item": "item-2"}));
            let hint = predicted.header("celeris-owner").unwrap().to_owned();
            assert!(hint.starts_with(cluster.client(owner).url()), "{hint}");
            assert!(hint.ends_with(&format!("; revision={}", revision(&cluster))), "{hint}");
            assert_eq!(predicted.expect(200)["user_epoch"], 1);
            assert_eq!(films.user(&user, 1)["user_epoch"], 1);
            let items = ["item-1", "item-2"];
            let top = films.post("topk", &json!({"user": user, "items": items, "k": 1})).expect(200);
            assert_eq!(top["user_epoch"], 1);
            let group = json!({"users": [user, "someone"], "k": 3});
            films.post("recommend", &group).expect(200);
            let why = films.get(&format!("users/{user}/why/item-2")).expect(200);
            assert_eq!(why["observations"], 1);
            assert_eq!(films.delete(&format!("users/{user}")).expect(200)["observations"], 1);
        }
    }
}

#[test]
fn what_writes_models_and_items_goes_to_the_coordinator() {
    let cluster = cluster();
    let films = cluster.client(2).model("films");
    let described = json!({"attributes": {"title": "A late film"}});
    films.put("items/late", &described).expect(200);
    let lines = json!({"item": "later", "attributes": {"title": "Another"}}).to_string();
    let path = "/v1/models/films/items";
    let edited = cluster.client(1).try_send("POST", path, "application/x-ndjson", &lines).unwrap();
    assert!(edited.text.contains("\"taken\":1"), "{}", edited.text);
    let known = |node: usize, item: &str| cluster.client(node).get(&format!("{path}/{item}")).status;
    assert_eq!([0, 1, 2].map(|node| known(node, "late")), [200, 404, 404], "each node has a catalog of its own here");
    assert_eq!([0, 1, 2].map(|node| known(node, "later")), [200, 404, 404]);
    cluster.client(1).post("/v1/models", &json!({"name": "books", "dim": 8})).expect(201);
    assert_eq!(cluster.client(2).get("/v1/models/books").status, 200, "the coordinator answers");
    assert_eq!(cluster.client(2).get("/v1/models/books/attributes").status, 404, "this node answers");
}

#[test]
fn a_model_is_described_without_a_coordinator_too() {
    let mut cluster = cluster();
    cluster.kill(0);
    assert_eq!(cluster.client(1).get("/v1/models/films").status, 200);
    let refused = cluster.client(1).post("/v1/models", &json!({"name": "books", "dim": 8}));
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[test]
fn a_forwarded_request_is_not_forwarded_again() {
    let cluster = cluster();
    let user = cluster.user_of(1);
    let hop = [("celeris-hop", "1"), ("celeris-placement", "0.1")];
    let refused = cluster.client(0).try_with(OBSERVE, &hop, &observation(&user, None)).unwrap();
    assert_eq!(refused.status, 421, "{}", refused.text);
    assert_eq!(refused.header("celeris-placement").unwrap(), revision(&cluster));
    let taken = cluster.client(1).try_with(OBSERVE, &hop, &observation(&user, None)).unwrap();
    assert_eq!(taken.status, 200, "{}", taken.text);
    assert_eq!([0, 1, 2].map(|node| cluster.events_at(node, &user)), [0, 1, 0]);
}

#[test]
fn nodes_that_disagree_about_the_owner_answer_503_and_loop_for_no_longer_than_a_moment() {
    let mut cluster = cluster();
    let user = cluster.user_of(1);
    // Node 0 sends the user to node 1, node 1 to node 2, and node 2 to node 1.
    cluster.decide(&[0, 2, 2, 0, 1, 2], 0);
    cluster.tell(1);
    cluster.decide(&[0, 1, 2, 0, 1, 2], 0);
    cluster.tell(2);
    let started = Instant::now();
    let refused = cluster.client(0).try_with(OBSERVE, &[], &observation(&user, None)).unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(started.elapsed() < Duration::from_secs(15), "it took {:?}", started.elapsed());
    assert_eq!([0, 1, 2].map(|node| cluster.events_at(node, &user)), [0, 0, 0]);
}

#[test]
fn a_request_waits_for_the_new_owner() {
    let mut cluster = cluster();
    let user = cluster.user_of(1);
    // Shard 1 moves from node 1 to node 2, which does not own it yet; node 0 knows nothing of it.
    cluster.decide(&[0, 2, 2, 0, 1, 2], 0);
    cluster.tell(1);
    cluster.tell_without_owning(2);
    let client = cluster.client(0).clone();
    let sent = observation(&user, None);
    let waiting = thread::spawn(move || client.try_with(OBSERVE, &[], &sent).unwrap());
    // The order in which the nodes learn of the placement does not matter.
    cluster.tell(2);
    cluster.tell(0);
    let taken: Reply = waiting.join().unwrap();
    assert_eq!(taken.status, 200, "{}", taken.text);
    assert_eq!([0, 1, 2].map(|node| cluster.events_at(node, &user)), [0, 0, 1]);
}

#[test]
fn a_user_without_an_owner_is_answered_503() {
    let mut cluster = cluster();
    let user = cluster.user_of(0);
    cluster.decide(&[0, 1, 2, 0, 1, 2], 0);
    cluster.tell_without_owning(0);
    let refused = cluster.client(0).try_with(OBSERVE, &[], &observation(&user, None)).unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[test]
fn a_client_may_prefer_to_be_sent_to_the_owner() {
    let cluster = cluster();
    let user = cluster.user_of(2);
    let prefer = [("prefer", "redirect")];
    let sent = cluster.client(0).try_with(OBSERVE, &prefer, &observation(&user, None)).unwrap();
    assert_eq!(sent.status, 307, "{}", sent.text);
    let url = format!("{}{}", cluster.client(2).url(), OBSERVE.1);
    assert_eq!(sent.header("location"), Some(url.as_str()));
    let here = cluster.client(2).try_with(OBSERVE, &prefer, &observation(&user, None)).unwrap();
    assert_eq!(here.status, 200, "{}", here.text);
    assert_eq!([0, 1, 2].map(|node| cluster.events_at(node, &user)), [0, 0, 1]);
}

#[test]
fn decisions_are_found_by_their_ids() {
    let cluster = cluster();
    for shard in 0..6 {
        let user = cluster.user_of(shard);
        let films = cluster.client((shard + 1) % 3).model("films");
        let decided = films.post("topk", &json!({"user": user, "items": ["item-1", "item-2"], "k": 2})).expect(200);
        let id = decided["decision_id"].as_str().unwrap().to_owned();
        let found = celeris_tests::eventually("the record of the decision", || {
            let reply = cluster.client((shard + 2) % 3).model("films").get(&format!("decisions/{id}"));
            (reply.status == 200).then(|| reply.json())
        });
        assert_eq!(found["user"], user.as_str());
        let listed = films.get(&format!("decisions?user={user}")).expect(200);
        assert_eq!(listed["decisions"][0]["decision_id"], id.as_str());
        let reward = json!({"user": user, "item": "item-1", "label": 5.0, "decision_id": id});
        assert_eq!(films.observe(&reward)["joined"], "slot");
    }
    // Of all nodes, in pages: the latest first.
    let films = cluster.client(1).model("films");
    let mut ids = Vec::new();
    let mut before = String::new();
    loop {
        let page = films.get(&format!("decisions?limit=2{before}")).expect(200);
        ids.extend(page["decisions"].as_array().unwrap().iter().map(|decision| decision["decision_id"].clone()));
        let Some(next) = page["next"].as_str() else { break };
        before = format!("&before={next}");
    }
    assert_eq!(ids.len(), 6);
    assert!(ids.is_sorted_by(|a, b| a.as_str() > b.as_str()), "{ids:?}");
}

#[test]
fn observations_are_corrected_and_deleted_by_their_ids_from_any_node() {
    let cluster = cluster();
    for (taker, shard) in (0..3).flat_map(|taker| (0..6).map(move |shard| (taker, shard))) {
        let user = cluster.users_of(shard).nth(taker).unwrap();
        let films = cluster.client(taker).model("films");
        let given = format!("given-{taker}-{shard}");
        films.observe(&observation(&user, Some(&given)));
        let made = films.observe(&observation(&user, None))["observation_id"].as_str().unwrap().to_owned();
        let correct = json!({"label": 2.0});
        // By the user, by what the id says, and by asking all nodes.
        for id in [format!("{given}?user={user}"), made.clone(), given.clone()] {
            let corrected = films.put(&format!("observations/{id}"), &correct).expect(200);
            assert_eq!(corrected["user"], user.as_str(), "{id}");
        }
        films.delete(&format!("observations/{given}")).expect(200);
        assert_eq!(films.put(&format!("observations/{given}"), &correct).status, 410);
        assert_eq!(films.user(&user, 9)["observations"], 1);
        assert_eq!(films.put("observations/nobodys", &correct).status, 404);
    }
}

#[test]
fn an_observation_is_not_said_to_be_unknown_while_a_node_is_silent() {
    let mut cluster = cluster();
    cluster.kill(2);
    let films = cluster.client(0).model("films");
    assert_eq!(films.put("observations/nobodys", &json!({"label": 1.0})).status, 503);
}

#[test]
fn a_correction_that_changes_nothing_is_answered_by_a_confirmed_owner() {
    let cluster = cluster();
    let user = cluster.user_of(1);
    let films = cluster.client(1).model("films");
    films.observe(&observation(&user, Some("given")));
    let correct = || films.put(&format!("observations/given?user={user}"), &json!({"label": 2.0})).expect(200);
    let confirmed = || cluster.ages.iter().map(|ages| *ages.confirmed.lock()).sum::<usize>();
    assert_eq!((&correct()["duplicate"], confirmed()), (&json!(false), 0), "its append says that");
    // A deposed owner has not seen a later correction.
    assert_eq!((&correct()["duplicate"], confirmed()), (&json!(true), 1));
}

#[test]
fn readings_are_answered_by_copies_that_are_young_enough() {
    let cluster = cluster();
    let user = cluster.user_of(1);
    cluster.client(1).model("films").observe(&observation(&user, None));
    let body = json!({"user": user, "item": "item-1"});
    let predict = |query: &str| cluster.client(0).post(&format!("{PREDICT}{query}"), &body).expect(200);
    assert_eq!(predict("?staleness=5s")["user_epoch"], 1, "the age of the copy is not known");
    *cluster.ages[0].age.lock() = Some(Duration::from_millis(4_500));
    let copied = predict("?staleness=5s");
    assert_eq!((&copied["user_epoch"], &copied["stale_ms"]), (&json!(0), &json!(4500)), "node 0 has none of it");
    assert_eq!(predict("?staleness=4s")["user_epoch"], 1);
    assert_eq!(predict("")["user_epoch"], 1);
    let wrong = cluster.client(0).post(&format!("{PREDICT}?staleness=soon"), &body);
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    assert!(wrong.text.contains("5s or 500ms"), "{}", wrong.text);
    let both = json!({"user": user, "item": "item-1", "consistency": "latest"});
    assert_eq!(cluster.client(0).post(&format!("{PREDICT}?staleness=5s"), &both).status, 422);
}

#[test]
fn an_owner_says_that_its_answer_may_be_old_and_confirms_for_the_latest() {
    let cluster = cluster();
    let user = cluster.user_of(1);
    let predict = |consistency: &str| {
        let body = json!({"user": user, "item": "item-1", "consistency": consistency});
        cluster.client(0).post(PREDICT, &body)
    };
    let ages = &cluster.ages[1];
    *ages.age.lock() = Some(Duration::from_secs(9));
    assert_eq!(predict("available").expect(200)["stale_ms"], Value::Null);
    *ages.age.lock() = Some(Duration::from_secs(11));
    assert_eq!(predict("available").expect(200)["stale_ms"], 11_000);
    assert_eq!(*ages.confirmed.lock(), 0);
    assert_eq!(predict("latest").expect(200)["stale_ms"], Value::Null);
    assert_eq!(*ages.confirmed.lock(), 1);
    *ages.age.lock() = Some(Duration::from_secs(61));
    assert_eq!(predict("available").status, 503);
    assert_eq!(predict("latest").status, 200);
}

#[test]
fn the_map_says_who_owns_which_users() {
    let cluster = cluster();
    let reply = cluster.client(1).get("/v1/cluster").expect(200);
    let map = &reply["map"];
    assert_eq!(
        (&reply["enabled"], &map["node"], &map["coordinator"]),
        (&json!(true), &json!("node-1"), &json!("node-0"))
    );
    assert_eq!(map["revision"]["number"], cluster.revision().number);
    assert_eq!(map["nodes"][2]["url"], cluster.client(2).url());
    let shards = map["shards"].as_array().unwrap();
    let ranges: Vec<_> = shards.iter().map(|shard| (shard["first"].clone(), shard["last"].clone())).collect();
    assert_eq!(ranges.first().unwrap().0, 0);
    assert_eq!(ranges.last().unwrap().1, 63);
    assert_eq!((&shards[1]["owner"], &shards[1]["owned"]), (&json!("node-1"), &json!(true)));
    assert_eq!((&shards[2]["owner"], &shards[2]["owned"]), (&json!("node-2"), &json!(false)));
}

#[test]
fn a_node_on_its_own_has_no_map_and_sends_no_hints() {
    let dir = tempfile::tempdir().unwrap();
    let node = celeris_tests::Node::serve(dir.path());
    assert_eq!(node.client().get("/v1/cluster").expect(200), json!({"enabled": false}));
    let films = celeris_tests::fixtures::create_model(&node.client(), "films", 7);
    let body = json!({"user": "u", "item": "item-1", "consistency": "latest"});
    let predicted = films.post("predict", &body);
    assert_eq!(predicted.header("celeris-owner"), None);
    assert_eq!(predicted.expect(200)["stale_ms"], Value::Null);
}
