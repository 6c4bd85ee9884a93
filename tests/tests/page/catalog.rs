//! Browsing the catalog, and the explanation of a recommendation.

use anyhow::{Context, Result, ensure};
use fantoccini::{Client, Locator};
use serde_json::json;
use tempfile::TempDir;

use super::browser::{Screen, browse, evaluate, wait_until};
use super::{demo, fits, fits_in, genres_by_frequency, has_browser, open, order, rate, take_picture_here, text};

#[tokio::test]
async fn the_catalog_is_searched_and_filtered_and_a_title_shows_similar_titles() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::DESK, async |page| {
        open(page, &demo, "guest-2a6c").await?;
        wait_until(page, "document.querySelectorAll('[data-testid=shelved]').length === 20").await?;
        evaluate(page, "document.querySelector('#shelf-more').click()").await?;
        wait_until(page, "document.querySelectorAll('[data-testid=shelved]').length === 40").await?;

        let title = attribute(page, "[data-testid=shelved]:nth-child(7) .title", "title").await?;
        let item = attribute(page, "[data-testid=shelved]:nth-child(7)", "data-item").await?;
        type_into(page, "#browse-query", &title).await?;
        wait_until(page, &format!("document.querySelector('#shelf [data-item=\"{item}\"]') !== null")).await?;
        wait_until(page, "document.querySelectorAll('[data-testid=shelved]').length < 20").await?;
        type_into(page, "#browse-query", "").await?;

        let genre = genres_by_frequency(page).await?.swap_remove(0);
        let filter = json!({"eq": {"field": "genres", "value": genre}}).to_string();
        type_into(page, "#browse-filter", &filter).await?;
        let others = format!(
            "[...document.querySelectorAll('[data-testid=shelved] .hint')]\
                .every((genres) => genres.textContent.split(' · ').includes({}))",
            serde_json::to_string(&genre)?
        );
        wait_until(page, &others).await?;
        let says = "document.querySelector('[data-testid=browse-says]').textContent";
        type_into(page, "#browse-filter", r#"{"eq": {"field": "genres"}}"#).await?;
        wait_until(page, &format!("{says}.includes('value')")).await?;
        let invalid = "document.querySelector('#browse-filter').getAttribute('aria-invalid')";
        ensure!(evaluate(page, invalid).await? == "true", "the filter is marked");
        type_into(page, "#browse-filter", "").await?;
        wait_until(page, &format!("{says} === '' && document.querySelector('[data-testid=shelved]') !== null")).await?;

        open_card(page, "[data-testid=shelved] .title").await?;
        let of = attribute(page, "#card", "data-item").await?;
        let alike = "[...document.querySelectorAll('[data-testid=similar]')].map((row) => row.dataset.item)";
        let alike: Vec<String> = serde_json::from_value(evaluate(page, alike).await?)?;
        ensure!(alike.len() == 8 && !alike.contains(&of), "eight others are like {of}: {alike:?}");
        page.find(Locator::Css("[data-testid=similar] .title")).await?.click().await?;
        wait_until(page, &format!("document.querySelector('#card').dataset.item === '{}'", alike[0])).await?;
        wait_until(page, "document.querySelector('#card').getAttribute('aria-busy') === 'false'").await?;
        take_picture_here(page).await?;
        page.find(Locator::Css("#card-close")).await?.click().await?;
        wait_until(page, "!document.querySelector('#card').open").await
    })
    .await
}

#[tokio::test]
async fn each_recommendation_is_explained_by_the_ratings_of_the_user() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    for screen in [Screen::DESK, Screen::PHONE] {
        browse(screen, async |page| {
            open(page, &demo, &format!("guest-{}", screen.width())).await?;
            let mut rated = Vec::new();
            for label in [5, 1, 4] {
                let best = order(page).await?.swap_remove(0);
                rate(page, &best, label).await?;
                rated.push(best);
            }
            let shown = text(page, "#ranking [data-testid=score]").await?;
            open_card(page, "#ranking [data-testid=why]").await?;
            ensure!(text(page, "[data-testid=why-score]").await? == shown, "the explained score is the score shown");
            let terms = "[...document.querySelectorAll('[data-testid=reason]')].map((row) => +row.dataset.value)";
            let terms: Vec<f64> = serde_json::from_value(evaluate(page, terms).await?)?;
            ensure!(terms.len() == 1 + rated.len(), "the prior and each rating contribute: {terms:?}");
            let sum: f64 = terms.iter().sum();
            ensure!((sum - shown.parse::<f64>()?).abs() < 0.006, "{terms:?} sum to {sum}, not {shown}");
            if screen == Screen::PHONE {
                fits(page).await?;
                fits_in(page, "#because", "#card").await?;
            }
            take_picture_here(page).await
        })
        .await?;
    }
    Ok(())
}

/// Clicks the element that opens an item's card, and waits until the card is loaded.
async fn open_card(page: &Client, selector: &str) -> Result<()> {
    page.find(Locator::Css(selector)).await?.click().await?;
    wait_until(page, "document.querySelector('#card').open").await?;
    wait_until(page, "document.querySelector('#card').getAttribute('aria-busy') === 'false'").await
}

/// Replaces the text of a field.
async fn type_into(page: &Client, selector: &str, text: &str) -> Result<()> {
    let field = page.find(Locator::Css(selector)).await?;
    field.clear().await?;
    if !text.is_empty() {
        field.send_keys(text).await?;
    }
    let typed = format!("document.querySelector('{selector}').dispatchEvent(new Event('input'))");
    evaluate(page, &typed).await.map(drop)
}

async fn attribute(page: &Client, selector: &str, name: &str) -> Result<String> {
    let found = page.find(Locator::Css(selector)).await?.attr(name).await?;
    found.with_context(|| format!("{selector} has no {name}"))
}
