//! The page for keyboards, screen readers and fingers, in all of its states.

use anyhow::{Context, Result, ensure};
use fantoccini::key::Key;
use fantoccini::{Client, Locator};
use serde_json::{Value, json};
use tempfile::TempDir;

use celeris_tests::NodeProcess;

use super::browser::{Screen, browse, evaluate, wait_until};
use super::{demo, fill, first_model, has_browser, open, operate, order, rate, train};

/// axe-core 4.14.1 as published on npm (<https://github.com/dequelabs/axe-core>, MPL-2.0), unchanged.
const AXE: &str = include_str!("axe.min.js");

/// Minimum width and height of a touch target, in CSS pixels (WCAG 2.2, 2.5.8).
const TARGET_MIN: f64 = 24.0;

/// Minimum size of a star on a phone.
const STAR_MIN: f64 = 32.0;

/// The controls in the order in which they are reached, until the first chip.
const ORDER: [&str; 13] = [
    "skip",
    "brand",
    "tab-try",
    "tab-operate",
    "tab-pipelines",
    "/docs",
    "/metrics",
    "model",
    "user",
    "new-user",
    "policy",
    "search",
    "chip",
];

/// Checks that axe has no findings in this state of the page.
async fn has_no_findings(page: &Client, state: &str) -> Result<()> {
    wait_until(page, "document.getAnimations().length === 0").await?;
    page.execute(AXE, Vec::new()).await.context("axe-core runs")?;
    let findings = "axe.run().then(({ violations }) => violations.map(({ id, nodes }) =>
        ({ id, nodes: nodes.map(({ html, failureSummary }) => [html, failureSummary]) })))";
    let findings = evaluate(page, findings).await?;
    ensure!(findings == json!([]), "{state}: {findings:#}");
    Ok(())
}

/// Checks that everything that can be pressed is large enough. Links within sentences are exempt.
async fn has_large_targets(page: &Client, state: &str) -> Result<()> {
    let small = format!(
        "[...document.querySelectorAll('a, button, input, select, textarea, summary')]
            .filter((it) => it.checkVisibility() && !it.closest('label, p'))
            .map((it) => [it.outerHTML.slice(0, 90), it.getBoundingClientRect()])
            .filter(([, {{ width, height }}]) => width < {TARGET_MIN} || height < {TARGET_MIN})
            .map(([html, {{ width, height }}]) => `${{html}} ${{width}}x${{height}}`)"
    );
    let small = evaluate(page, &small).await?;
    ensure!(small == json!([]), "{state}: {small:#}");
    Ok(())
}

/// Checks both.
pub async fn is_fine(page: &Client, state: &str) -> Result<()> {
    has_no_findings(page, state).await?;
    has_large_targets(page, state).await
}

#[tokio::test]
async fn axe_has_no_findings_and_targets_are_large_enough() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    for (kind, screen) in [("desk", Screen::DESK), ("dark", Screen::DESK.dark()), ("phone", Screen::PHONE)] {
        browse(screen, async |page| {
            open(page, &demo, &format!("guest-{kind}")).await?;
            for label in [5, 2] {
                let best = order(page).await?.swap_remove(0);
                rate(page, &best, label).await?;
            }
            is_fine(page, &format!("{kind}: try")).await?;
            page.find(Locator::Css("#ranking [data-testid=why]")).await?.click().await?;
            wait_until(page, "document.querySelector('#card').getAttribute('aria-busy') === 'false'").await?;
            is_fine(page, &format!("{kind}: card")).await?;

            operate(page, &demo, &name).await?;
            evaluate(page, "document.querySelectorAll('#view-operate details').forEach((it) => { it.open = true })")
                .await?;
            is_fine(page, &format!("{kind}: operate")).await?;
            page.find(Locator::Css("#view-operate [data-testid=retrain]")).await?.click().await?;
            is_fine(page, &format!("{kind}: question")).await
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn axe_has_no_findings_for_other_labels_and_first_steps() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    browse(Screen::PHONE, async |page| {
        page.goto(node.client().url()).await?;
        wait_until(page, "!document.querySelector('#setup').hidden").await?;
        is_fine(page, "empty").await?;
        page.goto(&format!("{}/?model=nope", node.client().url())).await?;
        wait_until(page, "!document.querySelector('#setup').hidden").await?;
        let forms = [
            ("amounts", "squared", [300.0, 1.0]),
            ("clicks", "logistic", [1.0, 0.0]),
            ("plays", "implicit", [9.0, 1.0]),
        ];
        for (name, loss, [most, least]) in forms {
            let model = fill(&node, name, loss, |user, item| if (user + item) % 2 == 0 { most } else { least });
            page.goto(&format!("{}/?model={name}", node.client().url())).await?;
            wait_until(page, "!document.querySelector('#setup').hidden").await?;
            is_fine(page, &format!("{name}, untrained")).await?;
            train(&model);
            wait_until(page, "document.querySelector('#ranking [data-testid=row]') !== null").await?;
            is_fine(page, name).await?;
        }
        page.goto(&format!("{}/?model=nope", node.client().url())).await?;
        wait_until(page, "!document.querySelector('#unknown').hidden").await?;
        is_fine(page, "unknown model").await
    })
    .await
}

#[tokio::test]
async fn stars_on_a_phone_are_larger() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::PHONE, async |page| {
        open(page, &demo, "guest-51a6").await?;
        let least = "Math.min(...[...document.querySelectorAll('#ranking .stars button')]\
            .map((star) => star.getBoundingClientRect()).flatMap(({ width, height }) => [width, height]))";
        let least = evaluate(page, least).await?.as_f64().context("there are no stars")?;
        ensure!(least >= STAR_MIN, "the smallest star measures {least} pixels");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_keyboard_reaches_controls_in_order_and_the_focus_is_visible() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::DESK, async |page| {
        open(page, &demo, "guest-6b0d").await?;
        let mut reached = Vec::new();
        for _ in ORDER {
            press(page, Key::Tab).await?;
            let name = "(() => { const it = document.activeElement;
                return it.id || it.className || it.getAttribute('href'); })()";
            reached.push(evaluate(page, name).await?);
            let outline = "getComputedStyle(document.activeElement).outlineStyle";
            let outlined = evaluate(page, outline).await?;
            ensure!(outlined == "solid", "{:?} shows no focus: {outlined}", reached.last());
        }
        ensure!(reached == ORDER.map(Value::from), "the order is {reached:?}");

        // The skip link passes over the controls. From a star, a digit rates, and the focus stays
        // in the ranking.
        page.refresh().await?;
        wait_until(page, super::SETTLED).await?;
        press(page, Key::Tab).await?;
        press(page, Key::Enter).await?;
        ensure!(evaluate(page, "document.activeElement.id").await? == "view-try", "the content has the focus");
        ensure!(evaluate(page, "location.hash").await? == "#try", "the view is the same");
        evaluate(page, "document.querySelector('#ranking .stars button').focus()").await?;
        page.active_element().await?.send_keys("4").await?;
        wait_until(page, "document.querySelector('#ratings-count').textContent === '1'").await?;
        wait_until(page, "document.activeElement.closest('#ranking') !== null").await?;
        let heard = "document.querySelector('#announcement').textContent";
        wait_until(page, &format!("{heard}.includes('4 of 5 stars')")).await
    })
    .await
}

async fn press(page: &Client, key: Key) -> Result<()> {
    Ok(page.active_element().await?.send_keys(&char::from(key).to_string()).await?)
}
