//! The page of the demo, in a browser.

mod browser;
mod catalog;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail, ensure};
use celeris_skip::{self as skip, Need};
use celeris_tests::{NodeProcess, binary, data_dir};
use fantoccini::{Client, Locator};
use serde_json::json;
use tempfile::TempDir;

use browser::{Screen, browse, evaluate, missing_programs, wait_until};

/// Environment variable with the path of the screenshot; without it, none is taken.
const SCREENSHOT: &str = "CELERIS_SCREENSHOT";

/// Rounds of one liked and one disliked title. The error is that of the last ten ratings, so it no
/// longer includes the first rounds.
const ROUNDS: usize = 8;

/// The chip that removes the genre filter.
const ALL: &str = "All";

/// Minimum width and height of a touch target, in CSS pixels.
const TAPPABLE_MIN: f64 = 32.0;

/// True once a ranking is shown and its animations have ended.
const SETTLED: &str = "document.querySelector('#ranking').getAttribute('aria-busy') === 'false' \
    && document.querySelector('#ranking [data-testid=row]') !== null \
    && document.getAnimations().length === 0";

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

#[tokio::test]
async fn ratings_move_the_ranking_at_once() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::DESK, async |page| {
        open(page, &demo, "guest-4f2a").await?;
        let before = order(page).await?;
        ensure!(points(page).await? == 0, "a new user has rated nothing");

        // One star for the best title.
        rate(page, &before[0], 1).await?;
        let after = order(page).await?;
        let rest: Vec<&String> = before[1..].iter().filter(|item| after.contains(*item)).collect();
        let moved: Vec<&String> = after.iter().filter(|item| before.contains(*item)).collect();
        ensure!(!after.contains(&before[0]), "a rated title leaves the ranking");
        ensure!(rest != moved || rest.len() < before.len() - 1, "the order of the others is still {rest:?}");
        ensure!(points(page).await? == 1, "the error chart has its first point");
        ensure!(text(page, "#error-now").await?.parse::<f64>()? > 0.0, "the error is a number");
        ensure!(text(page, "#ratings-count").await? == "1", "the rating is listed");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn ratings_for_one_genre_raise_its_titles_and_the_error_falls() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::DESK, async |page| {
        open(page, &demo, "guest-7c1e").await?;
        let genres = genres_by_frequency(page).await?;
        ensure!(genres.len() >= 2, "the catalog has genres, not {genres:?}");
        let (disliked, liked) = (&genres[0], &genres[1]);
        let before = titles_of(page, liked, disliked).await?.len();
        let mut errors = Vec::new();
        for _ in 0..ROUNDS {
            rate_best_of(page, liked, disliked, 5).await?;
            rate_best_of(page, disliked, liked, 1).await?;
            errors.push(text(page, "#error-now").await?.parse::<f64>()?);
        }
        ensure!(errors[ROUNDS - 1] < errors[0], "the error of the last ratings went {errors:?}");
        pick_genre(page, ALL).await?;
        let after = titles_of(page, liked, disliked).await?;
        ensure!(after.len() > before, "of {liked} there are {} titles, after {before}", after.len());
        rate(page, &after[0], 5).await?;
        take_picture(page).await
    })
    .await
}

#[tokio::test]
async fn the_timeline_of_the_model_is_updated_live() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::DESK, async |page| {
        open(page, &demo, "guest-9d3b").await?;
        wait_until(page, "document.querySelectorAll('[data-testid=event]').length > 0").await?;
        let events = kinds(page, "event").await?;
        for kind in ["created", "training_started", "activated"] {
            ensure!(events.iter().any(|other| other == kind), "{kind} is not among {events:?}");
        }
        ensure!(kinds(page, "life-mark").await? == ["activated"], "the switch to what the demo trained is marked");

        // Another client switches the version and switches back. The page is not reloaded.
        let model = demo.model(&text(page, "#model-name").await?);
        let _switched = model.post("versions/1/activate", &json!({})).expect(200);
        wait_until(page, "document.querySelectorAll('#events [data-kind=activated]').length === 2").await?;
        wait_until(page, "document.querySelector('[data-fact=Version]').textContent === 'v1'").await?;
        let _back = model.post("rollback", &json!({})).expect(200);
        wait_until(page, "document.querySelector('[data-fact=Version]').textContent === 'v2'").await?;
        wait_until(page, "document.querySelectorAll('[data-testid=life-mark]').length === 3").await?;
        let marks = kinds(page, "life-mark").await?;
        ensure!(marks == ["activated", "activated", "rolled_back"], "every switch is marked, oldest first: {marks:?}");
        let listed = text(page, "#events").await?;
        ensure!(listed.contains("v1 serves") && listed.contains("rolled back to v2"), "the page lists {listed:?}");

        let best = order(page).await?.swap_remove(0);
        rate(page, &best, 1).await?;
        wait_until(page, "+document.querySelector('#life-now').textContent > 0").await?;
        let versions = "[...new Set([...document.querySelectorAll('[data-testid=life-line]')]\
            .map((line) => line.dataset.version))]";
        let versions: Vec<String> = serde_json::from_value(evaluate(page, versions).await?)?;
        ensure!(versions == ["1", "2"], "the curve has a line per version: {versions:?}");
        let height = "document.querySelector('#life-chart').getBoundingClientRect().height";
        ensure!(evaluate(page, height).await?.as_f64() > Some(100.0), "the chart can be seen");
        let outside = "[...document.querySelectorAll('#life-chart path')].filter((line) => {
            const { x, y, width, height } = line.getBBox();
            return !(x >= 0 && y >= 0 && x + width <= 360 && y + height <= 190);
        }).map((line) => line.getAttribute('d')).join()";
        ensure!(evaluate(page, outside).await? == "", "out of the frame: {}", evaluate(page, outside).await?);
        take_picture(page).await
    })
    .await
}

#[tokio::test]
async fn the_weights_of_a_selection_are_updated_live() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let trained = demo.client().get("/v1/models").expect(200)["models"][0]["name"].clone();
    let stream = trained.as_str().context("the demo's model has a name")?.to_owned();
    let second = json!({"name": "untrained", "stream": stream, "dim": 4});
    let _second = demo.client().post("/v1/models", &second).expect(201);
    let selection = json!({
        "name": "best", "kind": "selection", "arms": [stream, "untrained"], "strategy": "exp4", "label_range": [1, 5],
    });
    let _selection = demo.client().post("/v1/models", &selection).expect(201);
    browse(Screen::DESK, async |page| {
        page.goto(&format!("{}/?model=best&user=guest-11aa", demo.client().url())).await?;
        wait_until(page, SETTLED).await?;
        let weights =
            "[...document.querySelectorAll('[data-testid=arm-weight]')].map((it) => parseFloat(it.textContent))";
        let weights = async || -> Result<Vec<f64>> { Ok(serde_json::from_value(evaluate(page, weights).await?)?) };
        ensure!(weights().await?.len() == 2, "both arms are listed");
        for _ in 0..ROUNDS {
            let best = order(page).await?.swap_remove(0);
            rate(page, &best, 4).await?;
        }
        wait_until(page, "document.querySelectorAll('[data-testid=weight-line]').length === 2").await?;
        let now = weights().await?;
        ensure!(now[0] > now[1], "the trained model predicts better, and weighs more: {now:?}");
        ensure!(text(page, "#status").await?.contains("2 models together"), "the page says that both models answered");
        let height = "document.querySelector('#selection-chart').getBoundingClientRect().height";
        ensure!(evaluate(page, height).await?.as_f64() > Some(100.0), "the chart can be seen");
        let hidden = "getComputedStyle(document.querySelector('#life')).display";
        ensure!(evaluate(page, hidden).await? == "none", "the timeline of a model is hidden for a selection");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn exploration_is_shown_with_its_mean_reward() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::DESK, async |page| {
        open(page, &demo, "guest-4e1d").await?;
        wait_until(page, "document.querySelector('#exploration-now').textContent === '0.0 %'").await?;
        let best = order(page).await?.swap_remove(0);
        rate(page, &best, 4).await?;
        let fact = |name: &str| format!("document.querySelector('[data-explored=\"{name}\"]')?.textContent");
        wait_until(page, &format!("{} === '1'", fact("Rewards"))).await?;
        wait_until(page, &format!("{} === '4.000'", fact("Mean reward"))).await?;

        // Another client ranks uniformly and refers to an unknown decision. The page is not
        // reloaded.
        let model = demo.model(&text(page, "#model-name").await?);
        let uniform = json!({"name": "epsilon_greedy", "epsilon": 1});
        let items: Vec<String> = (1..=200).map(|item| item.to_string()).collect();
        let _ranking =
            model.post("topk", &json!({"user": "v", "items": items, "k": 20, "policy": uniform})).expect(200);
        model.observe(&json!({"user": "v", "item": "1", "label": 3, "decision_id": "of-nobody"}));
        wait_until(page, "parseFloat(document.querySelector('#exploration-now').textContent) > 0").await?;
        wait_until(page, &format!("{} === '1'", fact("unknown"))).await?;
        let lines = "document.querySelectorAll('#exploration-chart [data-testid=exploration-line]').length";
        ensure!(evaluate(page, lines).await? == 1, "the reward has a curve");
        let height = "document.querySelector('#exploration-chart').getBoundingClientRect().height";
        ensure!(evaluate(page, height).await?.as_f64() > Some(80.0), "the chart can be seen");

        // Images far below the viewport are not loaded yet.
        evaluate(page, "document.querySelector('.regret').scrollIntoView()").await?;
        evaluate(page, "document.querySelector('.regret summary').click()").await?;
        wait_until(page, "document.querySelector('[data-testid=regret]').naturalWidth > 0").await?;
        fits_in(page, "[data-testid=regret]", ".exploration").await?;
        take_picture(page).await
    })
    .await
}

/// Checks that one element is no wider than another.
async fn fits_in(page: &Client, inner: &str, outer: &str) -> Result<()> {
    let width = |selector: &str| format!("document.querySelector('{selector}').getBoundingClientRect().width");
    let fits = format!("{} <= {}", width(inner), width(outer));
    ensure!(evaluate(page, &fits).await? == true, "{inner} is wider than {outer}");
    Ok(())
}

/// The kinds of the elements with this test id, in the order of the page.
async fn kinds(page: &Client, test_id: &str) -> Result<Vec<String>> {
    let kinds = format!("[...document.querySelectorAll('[data-testid={test_id}]')].map((it) => it.dataset.kind)");
    Ok(serde_json::from_value(evaluate(page, &kinds).await?)?)
}

#[tokio::test]
async fn a_phone_needs_no_horizontal_scrolling_and_its_stars_are_large_enough() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::PHONE, async |page| {
        open(page, &demo, "guest-0b5d").await?;
        fits(page).await?;
        let least = "Math.min(...[...document.querySelectorAll('#ranking .stars button')]\
            .map((star) => star.getBoundingClientRect()).flatMap(({ width, height }) => [width, height]))";
        let least = evaluate(page, least).await?.as_f64().context("there are no stars")?;
        ensure!(least >= TAPPABLE_MIN, "the smallest star measures {least} pixels");
        let first = order(page).await?.swap_remove(0);
        rate(page, &first, 5).await?;
        ensure!(text(page, "#ratings-count").await? == "1", "a tap rates");
        fits(page).await
    })
    .await
}

async fn fits(page: &Client) -> Result<()> {
    let width = evaluate(page, "document.documentElement.scrollWidth").await?.as_u64().context("a width")?;
    ensure!(width <= u64::from(Screen::PHONE.width()), "the page is {width} pixels wide");
    Ok(())
}

async fn open(page: &Client, demo: &NodeProcess, user: &str) -> Result<()> {
    page.goto(&format!("{}/?user={user}", demo.client().url().trim_end_matches('/'))).await?;
    wait_until(page, SETTLED).await
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
    let rated = "document.querySelectorAll('#ratings [data-testid=rating]').length";
    let before = evaluate(page, rated).await?;
    let star = format!("#ranking [data-item=\"{item}\"] [data-testid=star-{label}]");
    page.find(Locator::Css(&star)).await?.click().await?;
    wait_until(page, &format!("{rated} > {before} && +document.querySelector('#ranking').dataset.epoch > {before}"))
        .await?;
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

async fn points(page: &Client) -> Result<usize> {
    Ok(page.find_all(Locator::Css("[data-testid=error-point]")).await?.len())
}

async fn text(page: &Client, selector: &str) -> Result<String> {
    Ok(page.find(Locator::Css(selector)).await?.text().await?)
}

async fn take_picture(page: &Client) -> Result<()> {
    page.execute("scrollTo(0, 0); document.activeElement.blur()", Vec::new()).await?;
    take_picture_here(page).await
}

async fn take_picture_here(page: &Client) -> Result<()> {
    let Some(path) = env::var_os(SCREENSHOT) else { return Ok(()) };
    fs::write(&path, page.screenshot().await?).with_context(|| format!("cannot write {}", path.display()))
}

/// `None` without the programs of a browser; the test is skipped.
fn has_browser() -> Option<()> {
    let missing = missing_programs();
    let installed = missing.is_empty().then_some(());
    skip::unless(Need::Browser, installed, &format!("not installed: {}", missing.join(", ")))
}
