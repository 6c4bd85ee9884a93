//! The demo learns the taste of a new user from three ratings: on the synthetic data set, and on
//! MovieLens if it is present beside the repository.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::Instant;

use celeris_datasets::{Dataset, SyntheticSettings};
use celeris_skip::{self as skip, Need};
use celeris_tests::{ModelClient, NodeProcess};
use serde_json::{Value, json};

const LIKED: &str = "Horror";

/// The genre for children is called `Children` in newer MovieLens sets, and `Children's` elsewhere.
const DISLIKED: &str = "Children";

const RATED: usize = 3;

/// Items per page of the listing, and per prediction request.
const PAGE: usize = 1000;

struct Film {
    id: String,
    title: String,
    genres: Vec<String>,
}

impl Film {
    fn is(&self, genre: &str) -> bool {
        self.genres.iter().any(|own| own.starts_with(genre))
    }
}

/// All items of the model with their genres, page by page.
fn films(model: &ModelClient) -> Vec<Film> {
    let mut films = Vec::new();
    let mut after = String::new();
    loop {
        let page = model.get(&format!("items?limit={PAGE}{after}")).expect(200);
        films.extend(page["items"].as_array().unwrap().iter().map(|item| Film {
            id: item["item"].as_str().unwrap().to_owned(),
            title: item["attributes"]["title"].as_str().unwrap().to_owned(),
            genres: serde_json::from_value(item["attributes"]["genres"].clone()).unwrap(),
        }));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return films,
        }
    }
}

fn scores(model: &ModelClient, user: &str, films: &[Film], min_epoch: &Value) -> HashMap<String, f64> {
    let mut scores = HashMap::new();
    for page in films.chunks(PAGE) {
        let items: Vec<&str> = page.iter().map(|film| film.id.as_str()).collect();
        let answer = model.post("predict", &json!({"user": user, "items": items, "min_epoch": min_epoch})).expect(200);
        for score in answer["scores"].as_array().unwrap() {
            assert_eq!(score["known"], true, "{score}");
            scores.insert(score["item"].as_str().unwrap().to_owned(), score["score"].as_f64().unwrap());
        }
    }
    scores
}

/// The horror films with the most ratings that are not for children as well.
fn well_known<'a>(dataset: &Dataset, films: &'a [Film]) -> Vec<&'a Film> {
    let mut ratings: BTreeMap<&str, usize> = BTreeMap::new();
    for rating in &dataset.ratings {
        *ratings.entry(rating.item.as_str()).or_default() += 1;
    }
    let mut liked: Vec<&Film> = films.iter().filter(|film| film.is(LIKED) && !film.is(DISLIKED)).collect();
    liked.sort_by_key(|film| std::cmp::Reverse(ratings.get(film.id.as_str()).copied().unwrap_or(0)));
    liked.truncate(RATED);
    assert_eq!(liked.len(), RATED);
    liked
}

fn assert_the_demo_learns(dataset: &Dataset, path: Option<&Path>) {
    let dir = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let node = NodeProcess::demo(dir.path(), path);
    eprintln!("demo on {}: ready {:.1} s after its start", dataset.name, started.elapsed().as_secs_f64());
    let client = node.client();
    let models = client.get("/v1/models").expect(200)["models"].as_array().unwrap().clone();
    assert_eq!(models.len(), 1, "{models:?}");
    assert_eq!(models[0]["observations"], dataset.ratings.len());
    let model = client.model(models[0]["name"].as_str().unwrap());
    let films = films(&model);
    assert_eq!(films.len(), dataset.items.len());

    let user = "newcomer";
    let before = scores(&model, user, &films, &Value::Null);
    let rated = well_known(dataset, &films);
    let mut epoch = Value::Null;
    for film in &rated {
        epoch = model.observe(&json!({"user": user, "item": film.id, "label": 5}))["user_epoch"].clone();
    }
    let after = scores(&model, user, &films, &epoch);

    let rated_ids: HashSet<&str> = rated.iter().map(|film| film.id.as_str()).collect();
    let rise = |genre: &str| {
        let unrated = films.iter().filter(|film| film.is(genre) && !rated_ids.contains(film.id.as_str()));
        let rises: Vec<f64> = unrated.map(|film| after[&film.id] - before[&film.id]).collect();
        assert!(!rises.is_empty(), "no films of {genre}");
        rises.iter().sum::<f64>() / rises.len() as f64
    };
    let (liked, disliked) = (rise(LIKED), rise(DISLIKED));
    let titles: Vec<&str> = rated.iter().map(|film| film.title.as_str()).collect();
    eprintln!("after five stars for {titles:?}: {LIKED} {liked:+.3}, {DISLIKED} {disliked:+.3} on average");
    assert!(liked > 0.0, "three ratings of five stars raise films of their kind, by {liked}");
    assert!(liked > disliked, "{LIKED} rose by {liked}, {DISLIKED} by {disliked}");

    let items: Vec<&str> = films.iter().map(|film| film.id.as_str()).collect();
    let ranked = model.post("topk", &json!({"user": user, "items": items, "k": 10, "policy": "greedy"})).expect(200);
    let best = ranked["items"][0]["item"].as_str().unwrap();
    let highest = after.values().copied().fold(f64::NEG_INFINITY, f64::max);
    assert_eq!(after[best], highest, "the best of all is ranked first: {ranked}");
}

#[test]
fn a_taste_for_horror_is_learnt_on_synthetic_films() {
    assert_the_demo_learns(&SyntheticSettings::default().generate().unwrap().dataset, None);
}

#[test]
fn a_taste_for_horror_is_learnt_on_movielens_films() {
    let Some(folder) = skip::unless_downloaded(Need::MovieLens, "ml-latest-small") else { return };
    assert_the_demo_learns(&Dataset::load(&folder).unwrap(), Some(&folder));
}
