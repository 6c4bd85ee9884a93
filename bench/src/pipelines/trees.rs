//! An ensemble of trees that LightGBM has trained, against ONNX Runtime and LightGBM on one thread.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_evaluate::peers::Python;
use celeris_pipelines::import::lightgbm;
use celeris_pipelines::trees::TreeEnsemble;
use rand_distr::{Distribution, StandardNormal};
use serde::Deserialize;

use super::forests::{self, Size};
use crate::Settings;
use crate::report::Report;
use crate::script::{Script, Source};
use crate::stopwatch::Least;

const SOURCE: Source = Source { name: "lightgbm_onnx.py", text: include_str!("lightgbm_onnx.py") };

/// Invented instead, if there is no LightGBM.
const INVENTED: Size = Size { columns: 28, trees: 100, depth: 5, outputs: 1 };
const INVENTED_ROWS: usize = 1000;

/// Numbers of rows of a pass, and passes of a turn.
const PASSES: [(usize, usize); 3] = [(1, 2000), (100, 500), (1000, 50)];
const TURNS: [usize; 2] = [6, 1];

/// The seconds of the fastest pass.
#[derive(Deserialize)]
struct Fastest {
    seconds: f64,
}

/// Compares passes over rows in turns.
///
/// # Errors
/// If the script fails, or the model cannot be read.
pub fn run(settings: &Settings, report: &mut Report, python: Option<&Python>, folder: &Path) -> Result<(), Failure> {
    eprintln!("  trees …");
    let mut script = python.map(|python| Script::start(python, &SOURCE, folder, &[])).transpose()?;
    let (ensemble, rows) = match &mut script {
        Some(script) => trained(script, report, folder)?,
        None => {
            eprintln!("  no LightGBM: the trees are invented");
            invented()?
        }
    };
    for (count, passes) in PASSES {
        let rows = &rows[..count * ensemble.inputs()];
        let mut out = vec![0.0; count * ensemble.outputs()];
        let (mut ours, mut onnx, mut booster) = (Least::NONE, f64::INFINITY, f64::INFINITY);
        for _ in 0..settings.pick(TURNS[0], TURNS[1]) {
            for _ in 0..settings.pick(passes, 2) {
                ours.sample(1, || match count {
                    1 => ensemble.score(black_box(rows), black_box(&mut out)),
                    _ => ensemble.score_rows(black_box(rows), black_box(&mut out)),
                });
            }
            if let Some(script) = &mut script {
                let mut ask = |what: &str| script.ask::<Fastest>(&format!("{what} {count} {passes}"));
                onnx = onnx.min(ask("onnx")?.seconds);
                booster = booster.min(ask("lightgbm")?.seconds);
            }
        }
        let theirs = |seconds: f64| script.is_some().then_some(seconds * 1e6);
        report.measured(format!("trees/rows={count}"), "us", ours.micros(), theirs(onnx));
        report.measured(format!("trees/rows={count}/lightgbm"), "us", ours.micros(), theirs(booster));
    }
    Ok(())
}

/// The model that LightGBM has trained, and rows; reports the largest difference of our outputs from LightGBM's.
fn trained(script: &mut Script, report: &mut Report, folder: &Path) -> Result<(TreeEnsemble, Vec<f32>), Failure> {
    let _: serde_json::Value = script.ask("train")?;
    let read = |name: &str| fs::read(folder.join(name)).map_err(Failure::other);
    let ensemble = lightgbm::read(&read("model.txt")?).map_err(Failure::other)?.ensemble;
    let (rows, expected) = (read("rows.f32")?, read("expected.f64")?);
    let rows: Vec<f32> = rows.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let expected = expected.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
    let mut out = vec![0.0; rows.len() / ensemble.inputs() * ensemble.outputs()];
    ensemble.score_rows(&rows, &mut out);
    let largest = out.iter().zip(expected).map(|(ours, theirs)| (f64::from(*ours) - theirs).abs()).fold(0.0, f64::max);
    report.single("trees/difference", "output", Some(largest));
    Ok((ensemble, rows))
}

fn invented() -> Result<(TreeEnsemble, Vec<f32>), Failure> {
    let mut rng = scene::rng(99);
    let ensemble = forests::grow(INVENTED, &mut rng, |rng, _| StandardNormal.sample(rng))?;
    let rows = (0..INVENTED_ROWS * INVENTED.columns).map(|_| StandardNormal.sample(&mut rng)).collect();
    Ok((ensemble, rows))
}
