//! The pictures of the documentation, which `scripts/screenshots` writes.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use fantoccini::{Client, Locator};
use serde_json::json;
use tempfile::TempDir;

use super::browser::{Screen, browse, evaluate, wait_until};
use super::{demo, first_model, has_browser, is_drawn, open, operate, order, rate};

/// Environment variable with the folder of the pictures.
const FOLDER: &str = "CELERIS_SCREENSHOTS";

/// Labels of the user in the picture, from the first title of the ranking on.
const LABELS: [u8; 9] = [5, 4, 1, 5, 2, 4, 5, 3, 5];

#[tokio::test]
#[ignore = "writes files: run by scripts/screenshots"]
async fn both_views() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let folder = env::var(FOLDER).with_context(|| format!("{FOLDER} names the folder of the pictures"))?;
    let folder = Path::new(&folder);
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    browse(Screen::DESK, async |page| {
        open(page, &demo, "ada").await?;
        for label in LABELS {
            let best = order(page).await?.swap_remove(0);
            rate(page, &best, label).await?;
        }
        is_drawn(page, "error-chart").await?;
        take(page, &folder.join("page.png")).await?;
        page.find(Locator::Css("#ranking [data-testid=why]")).await?.click().await?;
        wait_until(page, "document.querySelector('#card').getAttribute('aria-busy') === 'false'").await?;
        take(page, &folder.join("page-why.png")).await?;

        let _back = demo.model(&name).post("retrain", &json!({})).expect(202);
        operate(page, &demo, &name).await?;
        wait_until(page, "document.querySelector('[data-fact=Serving]').textContent === 'v3'").await?;
        is_drawn(page, "quality-chart").await?;
        take(page, &folder.join("page-operate.png")).await
    })
    .await
}

async fn take(page: &Client, file: &Path) -> Result<()> {
    evaluate(page, "(scrollTo(0, 0), document.activeElement.blur())").await?;
    wait_until(page, "document.getAnimations().length === 0").await?;
    fs::write(file, page.screenshot().await?).with_context(|| format!("cannot write {}", file.display()))
}
