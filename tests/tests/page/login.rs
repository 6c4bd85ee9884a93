//! A node that needs a key.

use anyhow::{Result, ensure};
use celeris_tests::NodeProcess;
use fantoccini::Locator;
use serde_json::json;
use tempfile::TempDir;

use super::accessibility::is_fine;
use super::browser::{Screen, browse, evaluate, wait_until};
use super::{fits, has_browser, text};

#[tokio::test]
async fn the_page_asks_for_a_key_and_works_with_it() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    let open = node.client();
    let admin = open.post("/v1/keys", &json!({"name": "root", "roles": ["admin"]})).expect(201);
    let admin = open.with_key(admin["key"].as_str().unwrap_or_default());
    let page_key = admin.post("/v1/keys", &json!({"name": "page", "roles": ["operate", "observe"]})).expect(201);
    let page_key = page_key["key"].as_str().unwrap_or_default().to_owned();
    let enter = async |page: &fantoccini::Client, key: &str| -> Result<()> {
        wait_until(page, "document.querySelector('#login').open").await?;
        page.find(Locator::Css("[data-testid=login-key]")).await?.send_keys(key).await?;
        page.find(Locator::Css("[data-testid=login-do]")).await?.click().await?;
        Ok(())
    };
    for screen in [Screen::DESK, Screen::PHONE] {
        browse(screen, async |page| {
            page.goto(node.client().url()).await?;
            wait_until(page, "document.querySelector('#login').open").await?;
            fits(page, screen).await?;
            is_fine(page, "the question for a key").await?;
            enter(page, "celeris_wrong").await?;
            wait_until(page, "!document.querySelector('#login-problem').hidden").await?;
            ensure!(text(page, "#login-problem").await?.contains("not known"), "what the node says");
            enter(page, &page_key).await?;
            wait_until(page, "!document.querySelector('#setup').hidden").await?;
            ensure!(evaluate(page, "document.querySelector('#login').open").await? == false, "it asks once");
            // The key stays while the tab is open, and is nowhere in the page.
            page.refresh().await?;
            wait_until(page, "!document.querySelector('#setup').hidden").await?;
            let shown = format!("document.documentElement.outerHTML.includes('{page_key}')");
            ensure!(evaluate(page, &shown).await? == false, "the key is not shown");
            ensure!(evaluate(page, "location.href.includes('celeris_')").await? == false, "nor in the address");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
