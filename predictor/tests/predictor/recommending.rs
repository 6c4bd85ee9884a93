//! Recommendations show exactly the allowed items, and their propensities are correct.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use celeris_bandits::{PolicySpec, PoolShare};
use celeris_features::{ColdItem, Theta};
use celeris_model::{
    Decision, ItemId, ModelId, ModelName, Observation, ObservationId, Prior, RecordKind, StreamName, Timestamp,
    UserEpoch, UserId, VersionId,
};
use celeris_predictor::{
    Audience, Boost, ItemChange, PredictRequest, Predictor, PredictorOptions, RankingDefaults, RecommendRequest,
    Recommendation, ReplayOutcome, SeenRule, ServingSettings, ServingVersion, is_same,
};
use celeris_retrieval::Filter;
use celeris_storage::{Storage, StorageOptions};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

const DIM: usize = 6;

fn model() -> ModelName {
    ModelName::new("films").unwrap()
}

fn stream() -> StreamName {
    StreamName::new("films").unwrap()
}

fn user(index: usize) -> UserId {
    UserId::new(format!("user {index}")).unwrap()
}

fn item(index: usize) -> ItemId {
    ItemId::new(format!("film {index}")).unwrap()
}

/// A model that was trained on `items` items.
fn open(dir: &Path, items: usize, settings: ServingSettings) -> (Storage, Predictor) {
    let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
    let (predictor, _losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut vector = || -> Vec<f32> { (1..DIM).map(|_| rng.random_range(-1.0..1.0)).chain([1.0]).collect() };
    let features = (0..items).flat_map(|_| vector()).collect();
    let cold = ColdItem { offset: 3.0, features: vector() };
    let offsets = (0..items).map(|item| 3.0 + (item % 7) as f32 / 10.0).collect();
    let theta = Theta::new((0..items).map(item).collect(), offsets, features, cold).unwrap();
    let prior = Prior::isotropic(DIM, 1.0, 1.0).unwrap();
    let version = ServingVersion::new((model(), ModelId(1)), VersionId(1), theta, prior.into()).unwrap();
    predictor.activation().activate(&stream(), settings, version).unwrap();
    (storage, predictor)
}

fn request(k: usize) -> RecommendRequest {
    RecommendRequest {
        model: model(),
        audience: Audience::User(user(0)),
        k,
        filter: None,
        exclude: Vec::new(),
        exclude_seen: Some(SeenRule::default()),
        boosts: Vec::new(),
        diversity: None,
        page: None,
        policy: Some(PolicySpec::named("greedy").unwrap()),
        seed: None,
        min_epoch: None,
        segment: None,
        context: None,
    }
}

fn observation(who: usize, what: usize, label: f32) -> Observation {
    Observation {
        user: user(who),
        item: item(what),
        label,
        weight: 1.0,
        timestamp: None,
        observation_id: None,
        feedback: None,
        decision: None,
        context: None,
    }
}

async fn rate(predictor: &Predictor, who: usize, items: impl IntoIterator<Item = usize>) {
    for what in items {
        predictor.ingest().observe(&model(), observation(who, what, 1.0 + (what % 5) as f32)).await.unwrap();
    }
}

async fn ask(predictor: &Predictor, request: &RecommendRequest) -> Recommendation {
    predictor.recommend(request).await.unwrap()
}

fn items(recommendation: &Recommendation) -> Vec<ItemId> {
    recommendation.ranking.items.iter().map(|ranked| ranked.scored.item.clone()).collect()
}

/// The scores of all these items by `predict`.
async fn scores(predictor: &Predictor, count: usize) -> BTreeMap<ItemId, f32> {
    let items = (0..count).map(item).collect();
    let request =
        PredictRequest { model: model(), user: user(0), items, min_epoch: None, segment: None, context: None };
    let predictions = predictor.predict(&request).await.unwrap();
    predictions.scores.into_iter().map(|scored| (scored.item, scored.estimate.score)).collect()
}

fn best_first(mut scored: Vec<(ItemId, f32)>) -> Vec<(ItemId, f32)> {
    scored.sort_by(|left, right| right.1.total_cmp(&left.1));
    scored
}

#[tokio::test(flavor = "multi_thread")]
async fn greedy_shows_the_best_allowed_items() {
    let dir = tempfile::tempdir().unwrap();
    let count = 1500;
    let (_storage, predictor) = open(dir.path(), count, ServingSettings::default());
    rate(&predictor, 0, (0..40).map(|at| at * 31)).await;
    let excluded: Vec<ItemId> = (0..count).step_by(3).map(item).collect();
    for k in [1, 10, 300, 1000] {
        let request = RecommendRequest { exclude: excluded.clone(), ..request(k) };
        let shown = ask(&predictor, &request).await;
        let seen: BTreeSet<ItemId> = (0..40).map(|at| item(at * 31)).collect();
        let scores = scores(&predictor, count).await;
        let left = scores.into_iter().filter(|(item, _)| !excluded.contains(item) && !seen.contains(item)).collect();
        let best: Vec<(ItemId, f32)> = best_first(left).into_iter().take(k).collect();
        let shown: Vec<(ItemId, f32)> = shown
            .ranking
            .items
            .into_iter()
            .map(|ranked| {
                assert_eq!(ranked.propensity, Some(1.0));
                (ranked.scored.item, ranked.scored.estimate.score)
            })
            .collect();
        assert_eq!(shown, best, "k = {k}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_fills_slots_with_distinct_items_and_is_reproducible_by_seed() {
    let dir = tempfile::tempdir().unwrap();
    let (_storage, predictor) = open(dir.path(), 1500, ServingSettings::default());
    rate(&predictor, 0, 0..30).await;
    for name in PolicySpec::NAMES {
        for k in [1, 20, 400] {
            let policy = Some(PolicySpec::named(name).unwrap());
            let request = RecommendRequest { policy, seed: Some(9), ..request(k) };
            let first = ask(&predictor, &request).await;
            assert_eq!(items(&first).into_iter().collect::<BTreeSet<_>>().len(), k, "{name}");
            assert_eq!(items(&first), items(&ask(&predictor, &request).await), "{name}");
        }
    }
    let few = RecommendRequest { exclude: (0..1495).map(item).collect(), ..request(50) };
    let few = ask(&predictor, &few).await;
    assert_eq!((few.ranking.items.len(), few.next), (5, None), "all remaining items");
}

/// The 99.9 % quantile of chi-square with 14 degrees of freedom.
const CHI_SQUARE_MAX: f64 = 36.12;

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_draws_uniformly_from_the_whole_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let ranking = RankingDefaults { policy: PolicySpec::default(), pool_share: PoolShare::new(1.0).unwrap() };
    let settings = ServingSettings { ranking, ..ServingSettings::default() };
    let (_storage, predictor) = open(dir.path(), 1500, settings);
    rate(&predictor, 0, 0..30).await;
    let ranked: Vec<ItemId> = {
        let scores = scores(&predictor, 1500).await;
        best_first(scores.into_iter().collect()).into_iter().map(|(item, _)| item).collect()
    };
    let place: BTreeMap<&ItemId, usize> = ranked.iter().zip(0..).collect();
    let (mut counts, rounds) = ([0_u32; 15], 1500);
    for seed in 0..rounds {
        let request = RecommendRequest { policy: None, exclude_seen: None, seed: Some(seed), ..request(3) };
        let shown = ask(&predictor, &request).await;
        assert!(shown.ranking.pool);
        for (slot, ranked) in shown.ranking.items.iter().enumerate() {
            // One of the 64 drawn candidates; then one of the others.
            assert_eq!(ranked.propensity, Some((1.0 / (64.0 - slot as f64)) as f32));
        }
        counts[place[&shown.ranking.items[0].scored.item] / 100] += 1;
    }
    let expected = rounds as f64 / 15.0;
    let statistic: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    assert!(statistic < CHI_SQUARE_MAX, "{statistic}: {counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn propensities_equal_the_frequencies_of_shown_items() {
    let dir = tempfile::tempdir().unwrap();
    // Few items are all candidates; of many items, a shortlist and a sample.
    for count in [15, 1500] {
        let dir = dir.path().join(count.to_string());
        let (_storage, predictor) = open(&dir, count, ServingSettings::default());
        let policy: PolicySpec = serde_json::from_value(json!({"name": "epsilon_greedy", "epsilon": 0.5})).unwrap();
        let best = items(&ask(&predictor, &request(1)).await).remove(0);
        let (mut shown_best, mut expected, mut weights, mut others) = (0_u32, 0.0, 0.0, BTreeSet::new());
        let rounds = 3000;
        for seed in 0..rounds {
            let request = RecommendRequest { policy: Some(policy.clone()), seed: Some(seed), ..request(1) };
            let slot = ask(&predictor, &request).await.ranking.items.remove(0);
            let propensity = f64::from(slot.propensity.unwrap());
            if slot.scored.item == best {
                shown_best += 1;
                weights += 1.0 / propensity;
            } else {
                // The minimum propensity of every candidate gives their number.
                let candidates = 0.5 / propensity;
                assert!(if count == 15 { (candidates - 15.0).abs() < 1e-3 } else { candidates <= 193.0 });
                expected = 0.5 + 0.5 / candidates;
                others.insert(slot.scored.item);
            }
        }
        let frequency = f64::from(shown_best) / rounds as f64;
        let std_error = (expected * (1.0 - expected) / rounds as f64).sqrt();
        assert!((frequency - expected).abs() < 4.0 * std_error, "{count} items: {frequency} for {expected}");
        // The basis of inverse propensity weighting: an item that is always a candidate has mean
        // weight 1.
        assert!((weights / rounds as f64 - 1.0).abs() < 4.0 * std_error / expected, "{count} items: {weights}");
        // Of 1500 draws from the shortlist and the uniform sample, many are far down the ranking.
        assert!(others.len() > if count == 15 { 13 } else { 400 }, "{count} items: {}", others.len());
    }
}

fn filter(json: &Value) -> Filter {
    Filter::from_json(json).unwrap()
}

/// A filter, its boost, and the items that it matches.
type Preference = (Value, f32, fn(usize) -> bool);

#[tokio::test(flavor = "multi_thread")]
async fn boosts_add_up_exactly_and_leave_the_reported_score_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let count = 600;
    let (_storage, predictor) = open(dir.path(), count, ServingSettings::default());
    rate(&predictor, 0, 0..30).await;
    for at in 0..count {
        let attributes = json!({"third": at % 3 == 0, "number": at, "kind": format!("k{}", at % 4)});
        let attributes = attributes.as_object().cloned();
        predictor.catalog().put_item(&model(), &item(at), ItemChange { attributes, features: None }).unwrap();
    }
    let boosts: [Preference; 4] = [
        (json!({"eq": {"field": "third", "value": true}}), 0.8, |at| at % 3 == 0),
        (json!({"range": {"field": "number", "lt": 400}}), -0.3, |at| at < 400),
        (json!({"eq": {"field": "kind", "value": "k1"}}), 0.55, |at| at % 4 == 1),
        (json!({"not": {"eq": {"field": "kind", "value": "k2"}}}), 0.21, |at| at % 4 != 2),
    ];
    for used in 1..=4 {
        let request = RecommendRequest {
            boosts: boosts[..used].iter().map(|(json, add, _)| Boost { filter: filter(json), add: *add }).collect(),
            exclude_seen: None,
            ..request(300)
        };
        let shown = ask(&predictor, &request).await;
        let scores = scores(&predictor, count).await;
        let boosted = |at: usize| {
            let adds = boosts[..used].iter().filter(|(_, _, matches)| matches(at)).map(|(_, add, _)| add);
            (item(at), scores[&item(at)] + adds.sum::<f32>())
        };
        let best = best_first((0..count).map(boosted).collect());
        let best: Vec<ItemId> = best.into_iter().take(300).map(|(item, _)| item).collect();
        assert_eq!(items(&shown), best, "{used} boosts");
        assert!(shown.ranking.items.iter().all(|slot| slot.scored.estimate.score == scores[&slot.scored.item]));
    }
}

/// The seen items by a rule, computed in the simplest way.
fn seen(storage: &Storage, rule: &SeenRule, now: Timestamp) -> BTreeSet<ItemId> {
    let since = rule.window.map_or(i64::MIN, |window| now.0 - i64::try_from(window.as_millis()).unwrap());
    let history = storage.histories().of(&stream(), &user(0)).unwrap();
    let counted = history.into_iter().map(|(_, record)| record).filter(|record| {
        let kind = record.feedback.as_ref();
        record.kind == RecordKind::Observe
            && record.timestamp.0 >= since
            && (rule.feedback.is_empty() || kind.is_some_and(|kind| rule.feedback.contains(kind)))
    });
    counted.filter_map(|record| record.item).collect()
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Observations, corrections, retractions and erasures in random order, checked now and then, with
/// restarts.
#[tokio::test(flavor = "multi_thread")]
async fn seen_items_equal_those_in_the_log() {
    const ITEMS: usize = 60;
    const KINDS: [Option<&str>; 3] = [None, Some("view"), Some("buy")];
    let dir = tempfile::tempdir().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut ids: Vec<ObservationId> = Vec::new();
    let now: Timestamp = SystemTime::now().into();
    let mut looks = 0;
    for _ in 0..3 {
        // Some observed items are not in the catalog at first, and are added later.
        let (storage, predictor) = open(dir.path(), ITEMS - 10, ServingSettings::default());
        for round in 0..150 {
            match rng.random_range(0..30) {
                0 if !ids.is_empty() => {
                    let id = ids.swap_remove(rng.random_range(0..ids.len()));
                    predictor.ingest().forget(&model(), None, &id).await.unwrap();
                }
                1 if !ids.is_empty() => {
                    let id = &ids[rng.random_range(0..ids.len())];
                    predictor.ingest().correct(&model(), None, id, rng.random_range(1.0..5.0)).await.unwrap();
                }
                2 if round % 4 == 0 => {
                    predictor.erase(&model(), &user(0)).await.unwrap();
                    ids.clear();
                }
                3 => {
                    let late = item(ITEMS - 1 - rng.random_range(0..10));
                    let change = ItemChange { attributes: Some(serde_json::Map::new()), features: None };
                    predictor.catalog().put_item(&model(), &late, change).unwrap();
                }
                _ => {
                    let observation = Observation {
                        timestamp: Some(Timestamp(now.0 - rng.random_range(0..100_i64) * 24 * 3_600_000 / 10 - 1000)),
                        feedback: KINDS[rng.random_range(0..3)].map(str::to_owned),
                        ..observation(0, rng.random_range(0..ITEMS), 3.0)
                    };
                    ids.push(predictor.ingest().observe(&model(), observation).await.unwrap().observation_id);
                }
            }
            if rng.random_bool(0.4) {
                let rule = SeenRule {
                    // Half a tenth of a day from any observation, so that the clock of the request
                    // makes no difference.
                    window: rng.random_bool(0.5).then(|| DAY * rng.random_range(0..10) + DAY / 20),
                    feedback: KINDS
                        .iter()
                        .flatten()
                        .filter(|_| rng.random_bool(0.4))
                        .map(|kind| (*kind).into())
                        .collect(),
                };
                let unseen = RecommendRequest { exclude_seen: Some(rule.clone()), ..request(ITEMS) };
                let all = RecommendRequest { exclude_seen: None, ..request(ITEMS) };
                let of =
                    async |request| items(&ask(&predictor, request).await).into_iter().collect::<BTreeSet<ItemId>>();
                let expected: BTreeSet<ItemId> = &of(&all).await - &seen(&storage, &rule, now);
                assert_eq!(of(&unseen).await, expected, "{rule:?}");
                looks += 1;
            }
        }
        drop(predictor);
        storage.close().unwrap();
    }
    assert!(looks > 100, "{looks}");
}

/// The record of a recommendation.
fn decision(storage: &Storage, recommendation: &Recommendation) -> Arc<Decision> {
    let id = &recommendation.ranking.decision_id;
    storage.decisions().get(ModelId(1), id).unwrap().expect("it was logged")
}

#[tokio::test(flavor = "multi_thread")]
async fn rankings_from_a_large_catalog_are_recorded_in_full_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let ranking = RankingDefaults { policy: PolicySpec::default(), pool_share: PoolShare::new(0.5).unwrap() };
    let settings = ServingSettings { ranking, ..ServingSettings::default() };
    let (storage, predictor) = open(dir.path(), 1500, settings);
    rate(&predictor, 0, 0..30).await;
    let version = predictor.models().active(&model()).unwrap();
    let mut pools = BTreeSet::new();
    let named = PolicySpec::NAMES.map(|name| Some(PolicySpec::named(name).unwrap()));
    for (seed, policy) in (0..).zip(named.into_iter().chain([None, None, None, None, None, None])) {
        let request = RecommendRequest { policy, seed: Some(seed), ..request(10) };
        let recommendation = ask(&predictor, &request).await;
        assert!(recommendation.ranking.logged);
        let decision = decision(&storage, &recommendation);
        let ReplayOutcome::Rebuilt(scene) = predictor.explainer().replay_decision(&version, &decision).unwrap() else {
            panic!("{decision:?} is not rebuilt");
        };
        let drawn = scene.draw(&version, &decision).unwrap();
        assert!(is_same(&drawn, &decision), "{:?}", request.policy);
        let replied: Vec<Option<f32>> = recommendation.ranking.items.iter().map(|ranked| ranked.propensity).collect();
        assert_eq!(drawn.iter().map(|slot| slot.propensity).collect::<Vec<_>>(), replied);
        if request.policy.is_none() {
            let pool = recommendation.ranking.pool;
            assert_eq!(decision.pool_share, Some(if pool { 1.0 } else { 0.0 }), "given the candidates it is 0 or 1");
            pools.insert(pool);
        }
    }
    assert_eq!(pools.len(), 2, "with and without the pool");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_predictions_that_need_neither_a_load_nor_a_wait_are_quick() {
    let dir = tempfile::tempdir().unwrap();
    let (_storage, predictor) = open(dir.path(), 40, ServingSettings::default());
    let request = |count: usize, min_epoch| {
        let items = (0..count).map(item).collect();
        PredictRequest { model: model(), user: user(0), items, min_epoch, segment: None, context: None }
    };
    assert!(!predictor.is_quick(&request(1, None)), "the user is not in memory");
    rate(&predictor, 0, 0..3).await;
    assert!(predictor.is_quick(&request(1, None)));
    assert!(predictor.is_quick(&request(16, None)));
    assert!(!predictor.is_quick(&request(17, None)));
    assert!(!predictor.is_quick(&request(1, Some(UserEpoch(3)))), "the state may be dropped during the wait");
    let elsewhere = PredictRequest { user: user(1), ..request(1, None) };
    assert!(!predictor.is_quick(&elsewhere));
}
