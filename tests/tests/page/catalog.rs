//! Browsing the catalog, and the explanation of a recommendation.

use anyhow::{Context, Result, ensure};
use fantoccini::{Client, Locator};
use serde_json::json;
use tempfile::TempDir;

use super::browser::{Screen, browse, evaluate, wait_until};
use super::{demo, first_model, fits, fits_in, has_browser, open, operate, order, rate, text};

#[tokio::test]
async fn the_catalog_is_searched_and_filtered_and_a_title_shows_similar_titles() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    browse(Screen::DESK, async |page| {
        operate(page, &demo, &name).await?;
        wait_until(page, "document.querySelectorAll('[data-testid=shelved]').length === 20").await?;
        evaluate(page, "document.querySelector('#shelf-more').click()").await?;
        wait_until(page, "document.querySelectorAll('[data-testid=shelved]').length === 40").await?;

        let item = attribute(page, "[data-testid=shelved]:nth-child(7)", "data-item").await?;
        let title = "document.querySelector('[data-testid=shelved]:nth-child(7) .title').firstChild.data";
        let title = evaluate(page, title).await?.as_str().context("a title")?.to_owned();
        let word = title.split(' ').max_by_key(|word| word.len()).context("a word")?.to_owned();
        type_into(page, "#browse-query", &word).await?;
        wait_until(page, &format!("document.querySelector('#shelf [data-item=\"{item}\"]') !== null")).await?;
        wait_until(page, "document.querySelectorAll('[data-testid=shelved]').length < 20").await?;
        type_into(page, "#browse-query", "").await?;
        wait_until(page, "document.querySelectorAll('[data-testid=shelved]').length === 20").await?;

        open_card(page, "[data-testid=shelved] .title").await?;
        let of = attribute(page, "#card", "data-item").await?;
        let alike = "[...document.querySelectorAll('[data-testid=similar]')].map((row) => row.dataset.item)";
        let alike: Vec<String> = serde_json::from_value(evaluate(page, alike).await?)?;
        ensure!(alike.len() == 8 && !alike.contains(&of), "eight others are like {of}: {alike:?}");
        page.find(Locator::Css("[data-testid=similar] .title")).await?.click().await?;
        wait_until(page, &format!("document.querySelector('#card').dataset.item === '{}'", alike[0])).await?;
        wait_until(page, "document.querySelector('#card').getAttribute('aria-busy') === 'false'").await?;
        page.find(Locator::Css("#card-close")).await?.click().await?;
        wait_until(page, "!document.querySelector('#card').open").await
    })
    .await
}

#[tokio::test]
async fn a_filter_is_a_form_or_json_and_is_sent_on_submit_only() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    let model = demo.model(&name);
    let listed = model.get("items?filter=%7B%22all%22:%5B%5D%7D&limit=1").expect(200);
    let genre = listed["items"][0]["attributes"]["genres"][0].as_str().context("a genre")?.to_owned();
    for screen in [Screen::DESK, Screen::PHONE] {
        browse(screen, async |page| {
            operate(page, &demo, &name).await?;
            page.find(Locator::Css("#filter-field option[value=genres]")).await?.click().await?;
            type_into(page, "#filter-value", &genre).await?;
            page.find(Locator::Css("[data-testid=filter-apply]")).await?.click().await?;
            let says = "document.querySelector('[data-testid=browse-says]').textContent";
            wait_until(page, &format!("/^[0-9]+ items match$/.test({says})")).await?;
            let others = format!(
                "[...document.querySelectorAll('[data-testid=shelved] .tags')]\
                    .every((genres) => genres.textContent.split(' · ').includes({}))",
                json!(genre)
            );
            wait_until(page, &others).await?;
            let json = evaluate(page, "document.querySelector('#browse-filter').value").await?;
            let expected = json!({"eq": {"field": "genres", "value": genre}});
            ensure!(json == json!(expected.to_string()), "the form is also shown as JSON: {json}");

            // Incomplete JSON is not sent: neither while it is typed nor on submit.
            evaluate(page, "document.querySelector('.as-json').open = true").await?;
            let calls =
                "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/items?')).length";
            let before = evaluate(page, calls).await?;
            type_into(page, "#browse-filter", r#"{"eq": {"field": "#).await?;
            page.find(Locator::Css("[data-testid=filter-json-apply]")).await?.click().await?;
            wait_until(page, &format!("{says}.startsWith('This is not JSON yet')")).await?;
            ensure!(evaluate(page, calls).await? == before, "no request was sent");
            let invalid = "document.querySelector('#browse-filter').getAttribute('aria-invalid')";
            ensure!(evaluate(page, invalid).await? == "true", "the filter is marked");

            // What is wrong with a filter in JSON is what the service says.
            type_into(page, "#browse-filter", r#"{"eq": {"field": "genres"}}"#).await?;
            page.find(Locator::Css("[data-testid=filter-json-apply]")).await?.click().await?;
            wait_until(page, &format!("{says}.includes('value') && !{says}.startsWith('This')")).await?;
            page.find(Locator::Css("#filter-clear")).await?.click().await?;
            wait_until(page, &format!("/^[0-9,]+ items$/.test({says})")).await
        })
        .await?;
    }
    Ok(())
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
            let score = "+document.querySelector('#ranking [data-testid=row]').dataset.score";
            let score = evaluate(page, score).await?.as_f64().context("a score")?;
            open_card(page, "#ranking [data-testid=why]").await?;
            ensure!(text(page, "[data-testid=why-score]").await? == shown, "the explained score is the score shown");
            let terms = "[...document.querySelectorAll('[data-testid=reason]')].map((row) => +row.dataset.value)";
            let terms: Vec<f64> = serde_json::from_value(evaluate(page, terms).await?)?;
            ensure!(terms.len() == 1 + rated.len(), "the prior and each rating contribute: {terms:?}");
            let sum: f64 = terms.iter().sum();
            // Scores are single precision.
            ensure!((sum - score).abs() < 1e-4, "{terms:?} sum to {sum}, not {score}");
            fits(page, screen).await?;
            fits_in(page, "#because", "#card").await
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
