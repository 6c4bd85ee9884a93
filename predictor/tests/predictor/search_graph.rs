//! A large version's graph is built once, in the background, and opened from its directory later.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use celeris_features::{ColdItem, Theta};
use celeris_model::{ItemId, ModelId, ModelName, Prior, StreamName, VersionId};
use celeris_predictor::{Predictor, PredictorOptions, RankingDefaults, RetrievalView, ServingVersion};
use celeris_storage::{Storage, StorageOptions};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 8;

/// The smallest table for which a graph is built.
const LARGE: usize = 50_000;

/// Building takes seconds, and minutes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);

fn model() -> ModelName {
    ModelName::new("films").unwrap()
}

fn version(items: usize, dir: &Path) -> ServingVersion {
    let mut random = ChaCha8Rng::seed_from_u64(60);
    let mut features: Vec<f32> = (0..items * DIM).map(|_| random.random_range(-1.0..1.0)).collect();
    for row in features.chunks_exact_mut(DIM) {
        // A few rows are long, as a few items are popular: the case that suits a graph.
        let length = random.random_range(0.05_f32..1.0).powi(4) * 10.0;
        row.iter_mut().for_each(|value| *value *= length);
        row[DIM - 1] = 1.0;
    }
    let ids = (0..items).map(|item| ItemId::new(format!("item-{item}")).unwrap()).collect();
    let theta = Theta::new(ids, vec![0.0; items], features, ColdItem::blank(DIM)).unwrap();
    let learning = Prior::isotropic(DIM, 1.0, 1.0).unwrap().into();
    ServingVersion::new((model(), ModelId(1)), VersionId(1), theta, learning).unwrap().kept_in(dir.to_owned())
}

/// Serves the version until its graph is complete, if it gets one, and returns the figures.
fn served(storage: &Storage, items: usize, dir: &Path) -> RetrievalView {
    let (predictor, _losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
    predictor
        .activation()
        .activate(&StreamName::of_model(&model()), RankingDefaults::default(), version(items, dir))
        .unwrap();
    let started = Instant::now();
    loop {
        let view = predictor.catalog().searches()[0].retrieval;
        if view.graph_rows.is_some() || items < LARGE {
            return view;
        }
        assert!(started.elapsed() < DEADLINE, "no graph after {DEADLINE:?}: {view:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn written(dir: &Path) -> SystemTime {
    std::fs::metadata(dir.join("search_graph.json")).unwrap().modified().unwrap()
}

#[test]
fn a_graph_is_built_once_for_a_large_version_and_not_for_a_small_one() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path().join("data"), &StorageOptions::default()).unwrap();
    let (large, small) = (dir.path().join("large"), dir.path().join("small"));
    std::fs::create_dir_all(&large).unwrap();
    std::fs::create_dir_all(&small).unwrap();

    let built = served(&storage, LARGE, &large);
    let first = written(&large);
    assert_eq!(served(&storage, LARGE, &large).graph_rows, built.graph_rows);
    assert_eq!(written(&large), first, "an existing graph is opened");
    // A corrupt file is not used.
    std::fs::write(large.join("search_graph.json"), b"{").unwrap();
    assert!(served(&storage, LARGE, &large).graph_rows.is_some());
    assert!(written(&large) > first, "and built again");

    assert_eq!(served(&storage, LARGE - 1, &small).graph_rows, None);
    assert_eq!(std::fs::read_dir(&small).unwrap().count(), 0);
}
