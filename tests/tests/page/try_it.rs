//! The view "Try it": rankings that change with each answer.

use anyhow::{Context, Result, ensure};
use fantoccini::Locator;
use serde_json::json;
use tempfile::TempDir;

use super::browser::{Screen, browse, evaluate, wait_until};
use super::{
    OPERATING, SETTLED, demo, first_model, fits, genres_by_frequency, has_browser, is_drawn, of_chart, open, order,
    pick_genre, rate, rate_best_of, text, titles_of,
};

/// Rounds of one liked and one disliked title. The error is that of the last ten ratings, so it no
/// longer includes the first rounds.
const ROUNDS: usize = 8;

/// The chip that removes the genre filter.
const ALL: &str = "All";

#[tokio::test]
async fn ratings_move_the_ranking_at_once() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    for screen in [Screen::DESK, Screen::PHONE] {
        browse(screen, async |page| {
            open(page, &demo, &format!("guest-{}", screen.width())).await?;
            let before = order(page).await?;
            ensure!(of_chart(page, "error-chart", "points").await? == "0", "a new user has rated nothing");

            // One star for the best title.
            rate(page, &before[0], 1).await?;
            let after = order(page).await?;
            let rest: Vec<&String> = before[1..].iter().filter(|item| after.contains(*item)).collect();
            let moved: Vec<&String> = after.iter().filter(|item| before.contains(*item)).collect();
            ensure!(!after.contains(&before[0]), "a rated title leaves the ranking");
            ensure!(rest != moved || rest.len() < before.len() - 1, "the order of the others is still {rest:?}");
            ensure!(of_chart(page, "error-chart", "points").await? == "1", "the error chart has its first point");
            is_drawn(page, "error-chart").await?;
            ensure!(text(page, "#error-now").await?.parse::<f64>()? > 0.0, "the error is a number");
            ensure!(text(page, "#ratings-count").await? == "1", "the rating is listed");
            fits(page, screen).await
        })
        .await?;
    }
    Ok(())
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
        Ok(())
    })
    .await
}

#[tokio::test]
async fn views_are_links_and_the_back_button_returns_to_the_other() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    for screen in [Screen::DESK, Screen::PHONE] {
        browse(screen, async |page| {
            open(page, &demo, "guest-5a1b").await?;
            page.find(Locator::Css("#tab-operate")).await?.click().await?;
            wait_until(page, OPERATING).await?;
            let current = "document.querySelector('.tabs [aria-current=page]').textContent";
            ensure!(evaluate(page, current).await? == "Operate", "the tab is marked");
            ensure!(evaluate(page, "document.querySelector('#view-try').hidden").await? == true, "one view is shown");
            ensure!(evaluate(page, "document.title").await? == "Operate · Celeris", "the title names the view");
            page.back().await?;
            wait_until(page, "!document.querySelector('#view-try').hidden && location.hash === '#try'").await?;
            wait_until(page, SETTLED).await?;
            ensure!(
                evaluate(page, "new URLSearchParams(location.search).get('user')").await? == "guest-5a1b",
                "the user"
            );
            page.refresh().await?;
            wait_until(page, SETTLED).await?;
            ensure!(text(page, "#whose").await? == "guest-5a1b", "the address opens the same user");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn every_policy_ranks_or_is_disabled() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    let second = json!({"name": "second", "stream": name, "dim": 4});
    let _second = demo.client().post("/v1/models", &second).expect(201);
    let together = json!({
        "name": "together", "kind": "selection", "arms": [name, "second"], "strategy": "exp4", "label_range": [1, 5],
    });
    let _selection = demo.client().post("/v1/models", &together).expect(201);
    browse(Screen::DESK, async |page| {
        for (model, impossible) in [(name.as_str(), json!([])), ("together", json!(["thompson"]))] {
            page.goto(&format!("{}/?model={model}&user=guest-90aa", demo.client().url())).await?;
            wait_until(page, SETTLED).await?;
            let of = |disabled: bool| {
                format!(
                    "[...document.querySelector('#policy').options].filter((it) => it.disabled === {disabled})\
                        .map((it) => it.value)"
                )
            };
            ensure!(evaluate(page, &of(true)).await? == impossible, "{model}: disabled");
            let policies: Vec<String> = serde_json::from_value(evaluate(page, &of(false)).await?)?;
            ensure!(policies.len() >= 6, "{model} offers {policies:?}");
            let mut explanations = Vec::new();
            for policy in policies {
                let option = format!("#policy option[value={policy}]");
                page.find(Locator::Css(&option)).await?.click().await?;
                wait_until(page, SETTLED).await?;
                let notice = "document.querySelector('#notice').hidden";
                ensure!(evaluate(page, notice).await? == true, "{policy}: {}", text(page, "#notice").await?);
                explanations.push(text(page, "#policy-does").await?);
            }
            explanations.sort();
            explanations.dedup();
            ensure!(explanations.len() >= 6, "each has its own explanation: {explanations:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn scores_beyond_the_highest_label_say_so() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::DESK, async |page| {
        // A user with ratings in the data set, whose best scores exceed five stars.
        open(page, &demo, "1").await?;
        let scores = "[...document.querySelectorAll('[data-testid=row]')]\
            .map((row) => [+row.dataset.score, row.querySelector('[data-testid=score]').textContent])";
        let scores: Vec<(f64, String)> = serde_json::from_value(evaluate(page, scores).await?)?;
        ensure!(scores[0].0 > 5.0, "the best score is {}", scores[0].0);
        for (score, shown) in scores {
            let expected = if score > 5.0 { "above 5".to_owned() } else { format!("{score:.2}") };
            ensure!(shown == expected, "{score} is shown as {shown}");
        }
        let bars = "[...document.querySelectorAll('.bar')].every((bar) => {
            const tick = bar.querySelector('.tick').getBoundingClientRect();
            return tick.right <= bar.getBoundingClientRect().right + 2;
        })";
        ensure!(evaluate(page, bars).await? == true, "the marks are on the bars");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_phone_cuts_no_title_and_needs_no_horizontal_scrolling() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::PHONE, async |page| {
        open(page, &demo, "guest-0b5d").await?;
        fits(page, Screen::PHONE).await?;
        let first = order(page).await?.swap_remove(0);
        rate(page, &first, 5).await?;
        ensure!(text(page, "#ratings-count").await? == "1", "a tap rates");
        fits(page, Screen::PHONE).await?;
        page.find(Locator::Css("#ranking [data-testid=why]")).await?.click().await?;
        wait_until(page, "document.querySelector('#card').getAttribute('aria-busy') === 'false'").await?;
        let cut = "[...document.querySelectorAll('.name, .words, .title, #card-title')]\
            .filter((it) => it.offsetParent !== null && it.scrollWidth > it.clientWidth + 1).map((it) => it.textContent)";
        let cut = evaluate(page, cut).await?;
        ensure!(cut == json!([]), "these titles are cut: {cut}");
        let widths = "document.querySelector('#card').scrollWidth <= document.querySelector('#card').clientWidth";
        ensure!(evaluate(page, widths).await?.as_bool().context("a comparison")?, "the card scrolls sideways");
        Ok(())
    })
    .await
}
