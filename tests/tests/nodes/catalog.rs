//! Items are added, changed and deleted between recommendations: results match the current catalog,
//! also after a kill.

use std::collections::{BTreeMap, BTreeSet};

use celeris_tests::fixtures::{DATASET_ITEMS, DIM, any_label, features, write_dataset};
use celeris_tests::{Client, ModelClient, Node, NodeProcess, eventually};
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// Scores are sums of a few `f32` products; the order of the summation is unspecified.
const SCORE_TOLERANCE: f64 = 1e-4;

/// Sends lines to `items` and returns the responses.
#[track_caller]
fn edit(films: &ModelClient, lines: &[Value]) -> Vec<Value> {
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    edit_text(films, &body)
}

#[track_caller]
fn edit_text(films: &ModelClient, body: &str) -> Vec<Value> {
    let reply = films.node().try_send("POST", &films.path("items"), "application/x-ndjson", body).unwrap();
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"), "{}", reply.text);
    let mut lines: Vec<Value> = reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap()["summary"].clone();
    let rejected = lines.iter().filter(|line| line.get("error").is_some()).count();
    assert_eq!(summary, json!({"taken": lines.len() - rejected, "duplicates": 0, "rejected": rejected}));
    lines
}

/// The best `k` items that match `filter`, as ids and scores.
#[track_caller]
fn best(films: &ModelClient, k: usize, filter: &Value, exclude: &[String]) -> Vec<(String, f64)> {
    let request = json!({"user": "u", "k": k, "policy": "greedy", "exclude_seen": false, "filter": filter,
        "exclude": exclude});
    let answer = films.post("recommend", &request).expect(200);
    let slot = |slot: &Value| (slot["item"].as_str().unwrap().to_owned(), slot["score"].as_f64().unwrap());
    answer["items"].as_array().unwrap().iter().map(slot).collect()
}

#[track_caller]
fn ids(films: &ModelClient, filter: &Value) -> BTreeSet<String> {
    best(films, 1000, filter, &[]).into_iter().map(|(item, _)| item).collect()
}

fn texts(items: &[&str]) -> BTreeSet<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

fn node() -> (tempfile::TempDir, Node, ModelClient) {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::serve(dir.path());
    let films = create(&node.client());
    (dir, node, films)
}

fn create(client: &Client) -> ModelClient {
    client.post("/v1/models", &json!({"name": "films", "dim": DIM})).expect(201);
    client.model("films")
}

const GENRES: [&str; 4] = ["Drama", "Noir", "Comedy", "War"];

/// The expected catalog.
#[derive(Default)]
struct Oracle {
    /// Given features survive a change of attributes; a deletion removes them.
    items: BTreeMap<String, Item>,
    /// The weights of user `u`.
    weights: Vec<f64>,
}

#[derive(Default, Clone)]
struct Item {
    features: Option<Vec<f32>>,
    attributes: Value,
}

impl Oracle {
    /// Draws a change, applies it, and returns it as a request line.
    fn change(&mut self, random: &mut ChaCha8Rng) -> Value {
        let item = format!("i{}", random.random_range(0..60));
        if random.random_ratio(1, 4) && self.items.remove(&item).is_some() {
            return json!({"item": item, "delete": true});
        }
        let entry = self.items.entry(item.clone()).or_default();
        let mut line = json!({"item": item});
        if random.random_ratio(2, 3) || entry.features.is_none() {
            let given = features(random);
            line["features"] = json!(given);
            entry.features = Some(given);
        }
        if random.random_ratio(2, 3) || entry.attributes.is_null() || line.get("features").is_none() {
            let tags: Vec<&str> = GENRES.sample(random, 2).copied().collect();
            entry.attributes = json!({"genres": tags, "year": random.random_range(1990..2000)});
            line["attributes"] = entry.attributes.clone();
        }
        line
    }

    /// Scores of the items for which `holds` is true, best first.
    fn best(&self, k: usize, holds: impl Fn(&str, &Value) -> bool) -> Vec<f64> {
        let wanted = self.items.iter().filter(|(id, item)| holds(id, &item.attributes));
        let mut scores: Vec<f64> = wanted.map(|(_, item)| self.score(item)).collect();
        scores.sort_by(|a, b| b.total_cmp(a));
        scores.truncate(k);
        scores
    }

    fn score(&self, item: &Item) -> f64 {
        item.features.iter().flatten().zip(&self.weights).map(|(x, w)| f64::from(*x) * w).sum()
    }

    #[track_caller]
    fn assert_agrees(&self, films: &ModelClient, random: &mut ChaCha8Rng) {
        let (genre, year) = (*GENRES.choose(random).unwrap(), random.random_range(1990..2000));
        let k = random.random_range(1..30);
        let excluded: Vec<String> = (0..5).map(|_| format!("i{}", random.random_range(0..60))).collect();
        let has = |attributes: &Value| attributes["genres"].as_array().unwrap().contains(&json!(genre));
        let later = |attributes: &Value| attributes["year"].as_i64().unwrap() >= year;
        let of_genre = json!({"eq": {"field": "genres", "value": genre}});
        let since = json!({"range": {"field": "year", "gte": year}});
        let check = |filter: Value, holds: &dyn Fn(&Value) -> bool| {
            let found = best(films, k, &filter, &excluded);
            for (item, score) in &found {
                let there = self.items.get(item).unwrap_or_else(|| panic!("{item} is not there (any more)"));
                assert!(holds(&there.attributes) && !excluded.contains(item), "{item} for {filter}");
                assert!((self.score(there) - score).abs() < SCORE_TOLERANCE, "{item}: {score} {}", self.score(there));
            }
            let expected = self.best(k, |id, attributes| holds(attributes) && !excluded.contains(&id.to_owned()));
            let scores: Vec<f64> = found.iter().map(|(_, score)| *score).collect();
            assert_eq!(scores.len(), expected.len(), "{filter}: k results come back whenever k exist");
            assert!(
                scores.iter().zip(&expected).all(|(a, b)| (a - b).abs() < SCORE_TOLERANCE),
                "{scores:?} {expected:?}"
            );
        };
        check(json!({"all": []}), &|_| true);
        check(of_genre.clone(), &has);
        check(json!({"all": [since, {"not": of_genre}]}), &|attributes| later(attributes) && !has(attributes));
        check(json!({"any": [of_genre, since]}), &|attributes| later(attributes) || has(attributes));
    }
}

#[test]
fn recommendations_equal_an_exhaustive_search_while_items_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = NodeProcess::serve(dir.path());
    let mut films = create(&node.client());
    let mut random = ChaCha8Rng::seed_from_u64(61);
    let mut oracle = Oracle::default();
    // The user has learnt only from items that are deleted again, so that no later item has frozen
    // features.
    for item in 0..DIM {
        let item = format!("past-{item}");
        films.put(&format!("items/{item}"), &json!({"features": features(&mut random)})).expect(200);
        films.observe(&json!({"user": "u", "item": item, "label": any_label(&mut random)}));
        assert_eq!(films.delete(&format!("items/{item}")).status, 204);
    }
    oracle.weights = serde_json::from_value(films.user("u", 0)["weights"].clone()).unwrap();
    for round in 0..30 {
        let lines: Vec<Value> = (0..random.random_range(1..40)).map(|_| oracle.change(&mut random)).collect();
        for (line, answer) in lines.iter().zip(edit(&films, &lines)) {
            let expected = if line["delete"] == true { json!({"deleted": true}) } else { json!({"effective": "now"}) };
            let mut answer = answer;
            assert_eq!(answer.as_object_mut().unwrap().remove("item"), Some(line["item"].clone()));
            assert_eq!(answer, expected, "{line}");
        }
        oracle.assert_agrees(&films, &mut random);
        if round % 10 == 9 {
            node.kill_hard();
            node = NodeProcess::serve(dir.path());
            films = node.model("films");
            oracle.assert_agrees(&films, &mut random);
        }
    }
}

#[test]
fn a_deleted_item_is_not_recommended_by_any_version_until_it_is_put_again() {
    let dataset = tempfile::tempdir().unwrap();
    write_dataset(dataset.path());
    let dir = tempfile::tempdir().unwrap();
    let node = NodeProcess::demo(dir.path(), Some(dataset.path()));
    let name = node.client().get("/v1/models").expect(200)["models"][0]["name"].as_str().unwrap().to_owned();
    let films = node.model(&name);
    let everything = json!({"all": []});
    let all = ids(&films, &everything);
    assert_eq!(all.len(), DATASET_ITEMS);
    // An item added after the training is found, and can be deleted like any other.
    films.put("items/late", &json!({"attributes": {"genres": ["Late"]}})).expect(200);
    assert!(ids(&films, &everything).contains("late"));
    for item in ["items/1", "items/2", "items/late"] {
        assert_eq!(films.delete(item).status, 204);
        assert_eq!(films.delete(item).status, 404, "it is already deleted");
        assert_eq!(films.get(item).status, 404);
    }
    let left: BTreeSet<String> = all.iter().filter(|item| *item != "1" && *item != "2").cloned().collect();
    assert_eq!(ids(&films, &everything), left);
    node.kill_hard();

    let node = Node::serve(dir.path());
    let films = node.model(&name);
    assert_eq!(ids(&films, &everything), left, "deletions survive a kill");
    // Observations of deleted items are still trained on, so the next version has these items in
    // its table. Nothing new was observed, so it need not be better than the active one.
    films.patch("", &json!({"gate": {"force": true}})).expect(200);
    let job = films.post("retrain", &json!({})).expect(202)["job"].as_str().unwrap().to_owned();
    let done = eventually("the end of the retraining", || {
        let state = node.client().get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(state["state"].as_str(), Some("queued" | "running"))).then_some(state)
    });
    assert_eq!(done["state"], "succeeded", "{done}");
    assert_eq!(ids(&films, &everything), left, "a new version brings nothing back");
    films.put("items/2", &json!({"attributes": {"genres": ["Back"]}})).expect(200);
    let with_2 = left.iter().cloned().chain(["2".to_owned()]).collect();
    assert_eq!(ids(&films, &everything), with_2);
    assert_eq!(ids(&films, &json!({"eq": {"field": "genres", "value": "Back"}})), texts(&["2"]));
    films.post("rollback", &json!({})).expect(200);
    assert_eq!(ids(&films, &everything), with_2, "the previous version has it too");
    node.stop();
    let node = Node::serve(dir.path());
    assert_eq!(ids(&node.model(&name), &everything), with_2);
}

#[test]
fn an_invalid_line_is_reported_with_its_number_and_field_and_the_others_are_applied() {
    let (_dir, _node, films) = node();
    let body = [
        r#"{"item": "a", "attributes": {"genres": ["Drama"]}}"#,
        r#"{"item": "b", "attributes": {"available_from": "soon"}}"#,
        "",
        r#"{"item": "c", "features": [1.0]}"#,
        r#"{"item": "d", "delete": true}"#,
        r#"{"item": "a", "delete": true, "attributes": {}}"#,
        r#"{"item": "e"}"#,
        r#"{"item": "f", "atributes": {}}"#,
        "no JSON",
        r#"{"item": "a", "delete": true}"#,
        r#"{"item": "g", "attributes": {}}"#,
    ]
    .join("\n");
    let answers = edit_text(&films, &body);
    let refused = |at: usize, line: u64, status: u16, says: &str| {
        let answer = &answers[at];
        assert_eq!((&answer["line"], &answer["error"]["status"]), (&json!(line), &json!(status)), "{answer}");
        assert!(answer["error"]["detail"].as_str().unwrap().contains(says), "{answer} names {says}");
    };
    assert_eq!(answers.len(), 10, "blank lines are not answered: {answers:?}");
    assert_eq!(answers[0], json!({"item": "a", "effective": "now"}));
    refused(1, 2, 422, "attributes.available_from");
    refused(2, 4, 422, "features of item c");
    refused(3, 5, 404, "no item d");
    refused(4, 6, 422, "delete");
    refused(5, 7, 422, "missing field `features` or `attributes`");
    refused(6, 8, 422, "atributes");
    refused(7, 9, 400, "");
    assert_eq!(answers[8], json!({"item": "a", "deleted": true}), "changes of one batch follow one another");
    assert_eq!(answers[9], json!({"item": "g", "effective": "now"}));
    assert_eq!(ids(&films, &json!({"all": []})), texts(&["g"]));
}

#[test]
fn unavailable_items_are_not_recommended() {
    let (_dir, _node, films) = node();
    let (past, future) = ("2001-01-01T00:00:00Z", 4_000_000_000_000_i64);
    let line = |item: &str, attributes: Value| json!({"item": item, "attributes": attributes});
    edit(
        &films,
        &[
            line("always", json!({})),
            line("opened", json!({"available_from": past})),
            line("not yet", json!({"available_from": future})),
            line("over", json!({"available_until": past})),
            line("during", json!({"available_from": past, "available_until": future})),
        ],
    );
    assert_eq!(ids(&films, &Value::Null), texts(&["always", "opened", "during"]));
    // The listing of the catalog includes unavailable items.
    assert_eq!(films.get("items?q=E").expect(200)["total"], 3, "opened, not yet, over");
    films.put("items/not%20yet", &json!({"attributes": {}})).expect(200);
    assert!(ids(&films, &Value::Null).contains("not yet"), "attributes take effect at once");
}

#[test]
fn the_catalog_is_searched_by_text_and_filter_page_by_page() {
    let (_dir, _node, films) = node();
    let lines: Vec<Value> = (0..25)
        .map(|n| json!({"item": format!("film-{n}"), "attributes": {"title": format!("The {n}th ČERVEN"), "odd": n % 2 == 1}}))
        .collect();
    edit(&films, &lines);
    assert_eq!(films.delete("items/film-3").status, 204);
    let mut found = Vec::new();
    let mut after = String::new();
    loop {
        // {"eq": {"field": "odd", "value": true}}
        let filter = "%7B%22eq%22%3A%7B%22field%22%3A%22odd%22%2C%22value%22%3Atrue%7D%7D";
        let page = films.get(&format!("items?q=%C4%8Derven&filter={filter}&limit=5{after}")).expect(200);
        assert_eq!(page["total"], 11);
        let items = page["items"].as_array().unwrap();
        found.extend(items.iter().map(|item| item["item"].as_str().unwrap().to_owned()));
        assert!(items.iter().all(|item| item["attributes"]["odd"] == true && item["trained"] == false), "{page}");
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    let odd = |n: &i32| n % 2 == 1 && *n != 3;
    assert_eq!(found, (0..25).filter(odd).map(|n| format!("film-{n}")).collect::<Vec<_>>());
    assert_eq!(films.get("items?q=FILM-7").expect(200)["items"][0]["item"], "film-7");
    assert_eq!(films.get("items").expect(200)["items"].as_array().unwrap().len(), 24);
    let refused = films.get("items?filter=%7B%22al%22%3A%5B%5D%7D").expect(422);
    assert!(refused["detail"].as_str().unwrap().starts_with("filter: unknown filter `al`"), "{refused}");
}

#[test]
fn attributes_are_bounded_and_the_excess_one_is_named() {
    let (_dir, _node, films) = node();
    let fields = |from: usize, to: usize| -> Value {
        (from..to).map(|n| (format!("field-{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into()
    };
    let put = |item: &str, attributes: Value| films.put(&format!("items/{item}"), &json!({"attributes": attributes}));
    put("a", fields(0, 200)).expect(200);
    put("b", fields(100, 256)).expect(200);
    let refused = put("c", json!({"field-1": 1, "one more": 1})).expect(422);
    assert!(refused["detail"].as_str().unwrap().contains("attributes.one more"), "{refused}");
    // Fields that no item has any more no longer count.
    assert_eq!(films.delete("items/b").status, 204);
    put("c", json!({"field-1": 1, "one more": 1})).expect(200);
    let tags: Vec<String> = (0..257).map(|n| n.to_string()).collect();
    let refused = put("d", json!({"field-1": tags})).expect(422);
    assert!(refused["detail"].as_str().unwrap().contains("attributes.field-1"), "{refused}");
    assert_eq!(films.get("items/d").status, 404, "a refused item is not there");
}
