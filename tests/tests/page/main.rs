//! The page of a node, in a browser.

mod accessibility;
mod browser;
mod catalog;
mod cluster;
mod context;
mod first_steps;
mod keys;
mod login;
mod losses;
mod operate;
mod pipelines;
mod screenshots;
mod try_it;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail, ensure};
use celeris_skip::{self as skip, Need};
use celeris_tests::{ModelClient, NodeProcess, binary, data_dir, eventually};
use fantoccini::{Client, Locator};
use serde_json::{Value, json};

use browser::{Screen, evaluate, missing_programs, wait_until};

/// True once a ranking is shown and its animations have ended.
const SETTLED: &str = "document.querySelector('#ranking').getAttribute('aria-busy') === 'false' \
    && document.querySelector('#ranking [data-testid=row]') !== null \
    && document.getAnimations().length === 0";

/// True once the view of the operator is shown.
const OPERATING: &str = "!document.querySelector('#view-operate').hidden \
    && document.querySelector('[data-testid=model]') !== null \
    && document.querySelector('#shelf').getAttribute('aria-busy') === 'false'";

/// The data directory of a demo that has loaded and trained.
static PREPARED: LazyLock<PathBuf> = LazyLock::new(|| {
    let data_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    // An earlier run may have left one of an earlier version.
    let _ = fs::remove_dir_all(&data_dir);
    let path = data_dir.to_str().expect("the target folder has a plain name");
    let ended = binary::run(["demo", "--exit-when-ready", "--listen", "127.0.0.1:0", "--data-dir", path]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    data_dir
});

/// A demo on a copy of [`PREPARED`].
fn demo(data_dir: &Path) -> NodeProcess {
    data_dir::copy(&PREPARED, data_dir);
    NodeProcess::demo(data_dir, None)
}

/// `None` without the programs of a browser; the test is skipped.
fn has_browser() -> Option<()> {
    let missing = missing_programs();
    let installed = missing.is_empty().then_some(());
    skip::unless(Need::Browser, installed, &format!("not installed: {}", missing.join(", ")))
}

/// Creates a model of `loss` and sends it the label `label(user, item)` for 40 users and 30 items,
/// half of all pairs.
fn fill(node: &NodeProcess, name: &str, loss: &str, label: impl Fn(u32, u32) -> f64) -> ModelClient {
    // What is shown does not depend on the verdict of the gate.
    let settings = json!({"name": name, "dim": 5, "loss": loss, "gate": {"force": true}});
    let created = node.client().post("/v1/models", &settings).expect(201);
    assert_eq!(created["loss"], loss);
    let model = node.model(name);
    let pairs = (0..40).flat_map(|user| (0..30).map(move |item| (user, item)));
    let lines: String = pairs
        .filter(|(user, item)| (user * 7 + item * 5) % 4 < 2)
        .map(|(user, item)| {
            let label = label(user, item);
            format!("{}\n", json!({"user": format!("user-{user}"), "item": format!("item-{item}"), "label": label}))
        })
        .collect();
    assert!(model.observe_lines(&lines).expect("the node answers").all(|line| line.is_ok()));
    model
}

/// Trains the model and waits for the end.
fn train(model: &ModelClient) {
    let job = model.post("retrain", &json!({})).expect(202)["job"].as_str().expect("a job has an id").to_owned();
    let done = eventually("the end of the training", || {
        let job = model.node().get(&format!("/v1/jobs/{job}")).expect(200);
        (!matches!(job["state"].as_str(), Some("queued" | "running"))).then_some(job)
    });
    assert_eq!(done["state"], "succeeded", "{done}");
}

/// Opens the view "Try it" of the node's first model for a user.
async fn open(page: &Client, node: &NodeProcess, user: &str) -> Result<()> {
    page.goto(&format!("{}/?user={user}", node.client().url().trim_end_matches('/'))).await?;
    wait_until(page, SETTLED).await
}

/// Opens the view "Operate" of a model.
async fn operate(page: &Client, node: &NodeProcess, model: &str) -> Result<()> {
    page.goto(&format!("{}/?model={model}&user=guest-0#operate", node.client().url().trim_end_matches('/'))).await?;
    wait_until(page, OPERATING).await
}

/// The name of the node's first model.
fn first_model(node: &NodeProcess) -> Result<String> {
    let models = node.client().get("/v1/models").expect(200);
    Ok(models["models"][0]["name"].as_str().context("the demo's model has a name")?.to_owned())
}

/// Rates the best title of one genre that is not of the other.
async fn rate_best_of(page: &Client, genre: &str, other: &str, label: u8) -> Result<()> {
    pick_genre(page, genre).await?;
    let best = titles_of(page, genre, other).await?.into_iter().next().with_context(|| format!("no more {genre}"))?;
    rate(page, &best, label).await
}

async fn pick_genre(page: &Client, genre: &str) -> Result<()> {
    let chips = page.find_all(Locator::Css("#genres .chip")).await?;
    for chip in chips {
        if chip.text().await? == genre {
            chip.click().await?;
            return wait_until(page, SETTLED).await;
        }
    }
    bail!("there is no chip for {genre}")
}

/// Clicks a star and waits for the updated ranking.
async fn rate(page: &Client, item: &str, label: u8) -> Result<()> {
    answer(page, item, &format!("[data-testid=star-{label}]")).await
}

/// Clicks a control in the row of an item, and waits until the answer is listed and the ranking is
/// updated.
async fn answer(page: &Client, item: &str, control: &str) -> Result<()> {
    let answers = "document.querySelectorAll('#ratings [data-testid=rating]').length";
    let before = evaluate(page, answers).await?;
    page.find(Locator::Css(&format!("#ranking [data-item=\"{item}\"] {control}"))).await?.click().await?;
    let epoch = "+document.querySelector('#ranking').dataset.epoch";
    wait_until(page, &format!("{answers} > {before} && {epoch} > {before}")).await?;
    wait_until(page, SETTLED).await
}

async fn order(page: &Client) -> Result<Vec<String>> {
    let rows = "[...document.querySelectorAll('#ranking [data-testid=row]')].map((row) => row.dataset.item)";
    Ok(serde_json::from_value(evaluate(page, rows).await?)?)
}

/// The items in the ranking that are of one genre and not of the other.
async fn titles_of(page: &Client, genre: &str, other: &str) -> Result<Vec<String>> {
    let (genre, other) = (serde_json::to_string(genre)?, serde_json::to_string(other)?);
    let rows = format!(
        "[...document.querySelectorAll('#ranking [data-testid=row]')].filter((row) => {{
            const genres = row.querySelector('.genres').firstChild.textContent.split(' · ');
            return genres.includes({genre}) && !genres.includes({other});
        }}).map((row) => row.dataset.item)"
    );
    Ok(serde_json::from_value(evaluate(page, &rows).await?)?)
}

/// The genres in the order of their chips, without "All".
async fn genres_by_frequency(page: &Client) -> Result<Vec<String>> {
    let chips = "[...document.querySelectorAll('#genres .chip')].slice(1).map((chip) => chip.textContent)";
    Ok(serde_json::from_value(evaluate(page, chips).await?)?)
}

async fn text(page: &Client, selector: &str) -> Result<String> {
    Ok(page.find(Locator::Css(selector)).await?.text().await?)
}

/// What a chart has recorded about itself: `points`, `marks`, `versions`, `lines`.
async fn of_chart(page: &Client, chart: &str, what: &str) -> Result<Value> {
    evaluate(page, &format!("document.querySelector('#{chart}').dataset.{what} ?? null")).await
}

/// Checks that a chart is drawn: its canvas is large enough and not blank.
async fn is_drawn(page: &Client, chart: &str) -> Result<()> {
    let drawn = format!(
        "(() => {{
            const canvas = document.querySelector('#{chart} canvas');
            if (canvas === null || canvas.getBoundingClientRect().height < 100) return false;
            const {{ data }} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size > 2;
        }})()"
    );
    wait_until(page, &drawn).await
}

async fn fits(page: &Client, screen: Screen) -> Result<()> {
    let width = evaluate(page, "document.documentElement.scrollWidth").await?.as_u64().context("a width")?;
    ensure!(width <= u64::from(screen.width()), "the page is {width} pixels wide");
    Ok(())
}

/// Checks that one element is no wider than another.
async fn fits_in(page: &Client, inner: &str, outer: &str) -> Result<()> {
    let width = |selector: &str| format!("document.querySelector('{selector}').getBoundingClientRect().width");
    let fits = format!("{} <= {}", width(inner), width(outer));
    ensure!(evaluate(page, &fits).await? == true, "{inner} is wider than {outer}");
    Ok(())
}
