//! The logs and policies that both sides evaluate.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use celeris_datasets::OpenBandit;
use rand::RngExt;
use rand::seq::SliceRandom;

use crate::Settings;
use crate::places;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;

/// Items and positions of the synthetic log.
const ITEMS: usize = 20;
const POSITIONS: usize = 3;

/// A policy as `--policy` takes it.
pub struct Policy {
    pub name: &'static str,
    pub text: String,
    pub deterministic: bool,
}

/// The sample of the Open Bandit Dataset if it is found, and a synthetic log.
pub fn logs(settings: &Settings, folder: &Path) -> Result<Vec<OpenBandit>, Failure> {
    let mut logs = Vec::new();
    match places::find("open-bandit", "random/men/men.csv") {
        // Skipped in the smoke test, because obp would take a minute.
        Some(_) if settings.quick => {}
        Some(folder) => {
            for policy in ["random", "bts"] {
                logs.push(OpenBandit::load(folder.join(policy).join("men"))?);
            }
        }
        None => eprintln!("  no open-bandit: its cases are left out; CELERIS_DATA names the folder that holds it"),
    }
    logs.push(invented(&folder.join("invented"), settings.pick(10_000, 300))?);
    Ok(logs)
}

/// A synthetic log of a policy that prefers some items, which differ by position.
fn invented(folder: &Path, impressions: usize) -> Result<OpenBandit, Failure> {
    let mut rng = scene::rng(60);
    let mut likely: Vec<Vec<f64>> = Vec::new();
    for _ in 0..POSITIONS {
        let mut weights: Vec<f64> = (1..=ITEMS).map(|rank| 1.0 / rank as f64).collect();
        weights.shuffle(&mut rng);
        let sum: f64 = weights.iter().sum();
        likely.push(weights.iter().map(|weight| weight / sum).collect());
    }
    let mut rows = "item_id,position,click,propensity_score,user_feature_0\n".to_owned();
    for _ in 0..impressions {
        let position = rng.random_range(0..POSITIONS);
        let mut left = rng.random::<f64>();
        let item = likely[position].iter().position(|probability| {
            left -= probability;
            left < 0.0
        });
        let item = item.unwrap_or(ITEMS - 1);
        let group = rng.random_range(0..4);
        let chance = 0.05 + 0.3 * (item % 5) as f64 / 5.0 + 0.02 * f64::from(group);
        let click = u8::from(rng.random::<f64>() < chance);
        // Writing to a string cannot fail.
        let _ = writeln!(rows, "{item},{position},{click},{},{group}", likely[position][item]);
    }
    let folder = folder.join("log");
    fs::create_dir_all(&folder).map_err(Failure::other)?;
    let items: String = (0..ITEMS).map(|item| format!("{item}\n")).collect();
    fs::write(folder.join("item_context.csv"), format!("item_id\n{items}")).map_err(Failure::other)?;
    fs::write(folder.join("log.csv"), rows).map_err(Failure::other)?;
    let mut log = OpenBandit::load(&folder)?;
    log.name = "invented".to_owned();
    Ok(log)
}

/// The evaluated policies: uniform, one that prefers later items, and one that always shows the
/// log's most frequent item.
pub fn policies(log: &OpenBandit, folder: &Path) -> Result<Vec<Policy>, Failure> {
    let sum = (log.items * (log.items + 1) / 2) as f64;
    let tilted = distribution(log, folder, "tilted", |item| (item + 1) as f64 / sum)?;
    let mut shown = vec![0_usize; log.items];
    log.impressions.iter().for_each(|impression| shown[impression.item] += 1);
    let most_shown = (0..log.items).max_by_key(|item| shown[*item]).unwrap_or_default();
    let always = always(log, most_shown, folder)?;
    Ok(vec![
        Policy { name: "uniform", text: "uniform".to_owned(), deterministic: false },
        Policy { name: "tilted", text: tilted, deterministic: false },
        Policy { name: "always", text: always, deterministic: true },
    ])
}

/// The policy that always shows one item.
pub fn always(log: &OpenBandit, item: usize, folder: &Path) -> Result<String, Failure> {
    distribution(log, folder, "always", |other| if other == item { 1.0 } else { 0.0 })
}

fn distribution(
    log: &OpenBandit,
    folder: &Path,
    name: &str,
    probability: impl Fn(usize) -> f64,
) -> Result<String, Failure> {
    fs::create_dir_all(folder).map_err(Failure::other)?;
    let rows: String = (0..log.items).map(|item| format!("{item},{}\n", probability(item))).collect();
    let file = folder.join(format!("{name}.csv"));
    fs::write(&file, format!("item_id,probability\n{rows}")).map_err(Failure::other)?;
    Ok(file.to_string_lossy().into_owned())
}
