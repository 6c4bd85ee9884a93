//! `celeris-bench pipelines`: pipelines of computed features against their operators one at a time, scikit-learn and ONNX
//! Runtime, after the experiments of PRETZEL (Lee et al., OSDI 2018).
//!
//! | module | has |
//! |---|---|
//! | `sentiment`, `attendees` | the two sets of pipelines, over `texts` and over invented columns and `forests` |
//! | `fleet` | a set of pipelines in memory and as a folder |
//! | `latency` | single records on warm pipelines |
//! | `loading` | memory, loading and first runs, in processes of their own |
//! | `sklearn`, `trees` | comparisons with peers |
//! | `subplans`, `batches` | kept results, and the batch engine |
//! | `shortlist` | recommendations of a node whose candidates have a computed part |

mod attendees;
mod batches;
mod fleet;
mod forests;
mod latency;
mod loading;
mod sentiment;
mod shortlist;
mod sklearn;
mod subplans;
mod texts;
mod trees;

use celeris_cli::Failure;
use celeris_evaluate::peers::Python;

use self::sklearn::Ours;
use crate::Settings;
use crate::report::Report;

pub use loading::process as load;

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("pipelines");
    // The quick run skips the peers.
    let with = |modules: &[&str]| if settings.quick { None } else { Python::with(modules) };
    sentiments(settings, &mut report, with(&["sklearn"]).as_ref())?;
    let attendees = attendees::fleet(settings)?;
    let folder = tempfile::tempdir().map_err(Failure::other)?;
    attendees.write(folder.path())?;
    loading::run(settings, &mut report, "ac", folder.path())?;
    latency::run(settings, &mut report, "ac", &attendees)?;
    shortlist::run(settings, &mut report)?;
    trees::run(settings, &mut report, with(&["lightgbm", "onnxmltools", "onnxruntime"]).as_ref(), folder.path())?;
    Ok(report)
}

/// The cases of the sentiment pipelines.
fn sentiments(settings: &Settings, report: &mut Report, python: Option<&Python>) -> Result<(), Failure> {
    let fleet = sentiment::fleet(settings)?;
    let folder = tempfile::tempdir().map_err(Failure::other)?;
    fleet.write(folder.path())?;
    let loaded = loading::run(settings, report, "sa", folder.path())?;
    sklearn::run(report, python, &Ours { fleet: &fleet, folder: folder.path(), loaded: &loaded })?;
    latency::run(settings, report, "sa", &fleet)?;
    subplans::run(settings, report, &fleet)?;
    batches::run(settings, report, &fleet)
}
