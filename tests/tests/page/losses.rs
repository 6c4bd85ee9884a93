//! Scores and answers in the form of the model's labels: stars, amounts, thumbs, plays.

use anyhow::{Context, Result, ensure};
use celeris_tests::NodeProcess;
use fantoccini::{Client, Locator};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::browser::{Screen, browse, evaluate, wait_until};
use super::{OPERATING, SETTLED, answer, fill, fits, has_browser, is_drawn, order, text, train};

/// A model whose labels have one form, and what the page shows for it.
struct Form {
    loss: &'static str,
    label: fn(u32, u32) -> f64,
    /// The control that answers in a row, and the label that it sends.
    control: &'static str,
    sends: f64,
    /// A pattern of all scores.
    scores: &'static str,
    /// The answer as it is listed, and the unit of the error.
    listed: &'static str,
    error: &'static str,
    unit: &'static str,
}

fn good(user: u32, item: u32) -> bool {
    (user + item).is_multiple_of(3)
}

async fn shows(form: &Form) -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    let model = fill(&node, "films", form.loss, form.label);
    train(&model);
    for screen in [Screen::DESK, Screen::PHONE] {
        browse(screen, async |page| {
            let user = format!("user-{}", screen.width());
            page.goto(&format!("{}/?model=films&user={user}", node.client().url())).await?;
            wait_until(page, SETTLED).await?;
            let scores = "[...document.querySelectorAll('[data-testid=score]')].map((it) => it.textContent)";
            let scores: Vec<String> = serde_json::from_value(evaluate(page, scores).await?)?;
            ensure!(scores.len() == 25, "the page lists {} of 30 items", scores.len());
            let all_match = format!("{}.every((score) => /^{}$/.test(score))", json!(scores), form.scores);
            ensure!(evaluate(page, &all_match).await? == true, "{} scores are {scores:?}", form.loss);

            let item = order(page).await?.swap_remove(0);
            give(page, &item, form).await?;
            let learnt = &model.user(&user, 1)["history"][0];
            ensure!(learnt["item"] == json!(item) && learnt["label"].as_f64() == Some(form.sends), "sent {learnt}");
            let listed = "document.querySelector('[data-testid=rating]').innerHTML";
            let listed = evaluate(page, listed).await?.as_str().context("a row")?.to_owned();
            ensure!(listed.contains(form.listed), "listed as {listed}");
            ensure!(!listed.contains("NaN"), "the prediction is listed: {listed}");
            is_drawn(page, "error-chart").await?;
            let caption = text(page, "#error-caption").await?;
            ensure!(caption.starts_with(form.error), "the error is a {caption}");
            fits(page, screen).await?;

            page.find(Locator::Css("#ranking [data-testid=why]")).await?.click().await?;
            wait_until(page, "document.querySelector('#card').getAttribute('aria-busy') === 'false'").await?;
            sums_up(page).await?;
            page.find(Locator::Css("#card-close")).await?.click().await?;

            page.find(Locator::Css("#tab-operate")).await?.click().await?;
            wait_until(page, OPERATING).await?;
            wait_until(page, "+document.querySelector('#quality-now').textContent >= 0").await?;
            let caption = text(page, "#quality-caption").await?;
            ensure!(caption.contains(form.unit), "the quality has a unit: {caption}");
            fits(page, screen).await
        })
        .await?;
    }
    Ok(())
}

/// Answers for an item, by a press or, where the control is a field, by a number.
async fn give(page: &Client, item: &str, form: &Form) -> Result<()> {
    if form.control == "[data-testid=amount-send]" {
        let field = format!("#ranking [data-item=\"{item}\"] [data-testid=amount]");
        page.find(Locator::Css(&field)).await?.send_keys(&form.sends.to_string()).await?;
    }
    answer(page, item, form.control).await
}

/// Checks that the terms in the card sum to the score.
async fn sums_up(page: &Client) -> Result<()> {
    let terms = "[...document.querySelectorAll('[data-testid=reason]')].map((row) => +row.dataset.value)";
    let terms: Vec<f64> = serde_json::from_value(evaluate(page, terms).await?)?;
    let score = evaluate(page, "+document.querySelector('#why-score').dataset.score").await?;
    let (sum, score) = (terms.iter().sum::<f64>(), score.as_f64().context("a score")?);
    // Scores are single precision.
    ensure!((sum - score).abs() < 1e-3 * score.abs().max(1.0), "{terms:?} sum to {sum}, not {score}");
    Ok(())
}

#[tokio::test]
async fn ratings_are_stars() -> Result<()> {
    let label = |user, item| if good(user, item) { 5.0 } else { 1.0 };
    let scores = "(\\d\\.\\d\\d|above 5|below 1)";
    let control = "[data-testid=star-4]";
    let (listed, error, unit) = ("aria-label=\"4 stars\"", "RMSE (stars)", "RMSE (stars)");
    shows(&Form { loss: "squared", label, control, sends: 4.0, scores, listed, error, unit }).await
}

#[tokio::test]
async fn other_labels_are_numbers_within_the_range_seen() -> Result<()> {
    let label = |user, item| if good(user, item) { 200.0 } else { 10.0 };
    let scores = "(\\d+\\.\\d|above 200|below 10)";
    let control = "[data-testid=amount-send]";
    let (listed, error, unit) = (">120<", "RMSE (labels)", "RMSE (labels)");
    shows(&Form { loss: "squared", label, control, sends: 120.0, scores, listed, error, unit }).await
}

#[tokio::test]
async fn clicks_are_thumbs_with_probabilities() -> Result<()> {
    let label = |user, item| f64::from(u8::from(good(user, item)));
    let scores = "\\d+ %";
    let control = "[data-testid=thumb-up]";
    let (listed, error, unit) = ("aria-label=\"thumb up\"", "Log loss (nats)", "log loss (nats)");
    shows(&Form { loss: "logistic", label, control, sends: 1.0, scores, listed, error, unit }).await
}

#[tokio::test]
async fn plays_are_counted_with_preferences_up_to_one() -> Result<()> {
    let label = |user, item| if good(user, item) { 46.0 } else { 1.0 };
    let scores = "(0\\.\\d\\d|1\\.00|above 1|below 0)";
    let control = "[data-testid=play]";
    let (listed, error, unit) = (">1 play<", "RMSE (preference)", "RMSE (preference)");
    shows(&Form { loss: "implicit", label, control, sends: 1.0, scores, listed, error, unit }).await
}

#[tokio::test]
async fn probabilities_are_those_of_the_service() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    let model = fill(&node, "clicks", "logistic", |user, item| f64::from(u8::from(good(user, item))));
    train(&model);
    let body = json!({"user": "user-1", "k": 25, "policy": "greedy"});
    let reply = model.post("recommend", &body).expect(200);
    browse(Screen::DESK, async |page| {
        page.goto(&format!("{}/?user=user-1", node.client().url())).await?;
        wait_until(page, SETTLED).await?;
        for slot in reply["items"].as_array().context("a ranking")? {
            let item = slot["item"].as_str().context("an id")?;
            let score = format!("#ranking [data-item=\"{item}\"] [data-testid=score]");
            let probability = slot["probability"].as_f64().context("a probability")?;
            let shown: Value = json!(text(page, &score).await?);
            ensure!(shown == json!(format!("{:.0} %", 100.0 * probability)), "{item}: {shown} for {probability}");
        }
        Ok(())
    })
    .await
}
