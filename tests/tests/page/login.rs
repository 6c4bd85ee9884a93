//! A node that needs a key.

use anyhow::{Result, ensure};
use celeris_tests::fixtures::{config_file, create_model};
use celeris_tests::{Issuer, NodeProcess, ProcessOptions};
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

#[tokio::test]
async fn the_page_signs_in_at_the_identity_provider() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let Some(issuer) = Issuer::unless_missing(data_dir.path()) else { return Ok(()) };
    let oidc = format!("[auth.oidc]\nissuer = {:?}\naudience = \"celeris\"\nclient_id = \"page\"\n", issuer.url);
    let node =
        ProcessOptions::default().config(config_file(data_dir.path(), oidc)).serve(&data_dir.path().join("data"));
    let header = json!({"alg": "RS256", "kid": "k1"});
    let admin = node.client().with_key(&issuer.token(&header, &json!({"roles": ["admin"]})));
    create_model(&admin, "films", 3);
    let token = issuer.token(&header, &json!({"roles": ["operate"]}));
    browse(Screen::DESK, async |page| {
        page.goto(&format!("{}/?model=films&user=ann#operate", node.client().url())).await?;
        wait_until(page, "document.querySelector('#login').open").await?;
        wait_until(page, "!document.querySelector('#login-provider').hidden").await?;
        is_fine(page, "the offer of a sign-in").await?;
        // A token that the node does not take, first.
        issuer.signs_in_as(issuer.token(&header, &json!({"aud": "other"})));
        page.find(Locator::Css("[data-testid=login-sign-in]")).await?.click().await?;
        wait_until(page, "document.querySelector('#notice-detail')?.textContent.includes('another audience')").await?;
        ensure!(evaluate(page, "location.href.includes('code=')").await? == false, "the code is not in the address");
        page.refresh().await?;
        wait_until(page, "!document.querySelector('#login-provider').hidden").await?;
        issuer.signs_in_as(token.clone());
        page.find(Locator::Css("[data-testid=login-sign-in]")).await?.click().await?;
        wait_until(page, "document.querySelector('#model-name')?.textContent === 'films'").await?;
        let address = evaluate(page, "location.search + location.hash").await?;
        ensure!(address == "?model=films&user=ann#operate", "the user is where they were: {address}");
        ensure!(evaluate(page, "sessionStorage.getItem('celeris-key')").await? == json!(token), "with the token");
        // A code that the page has not asked for signs nobody in.
        page.goto(&format!("{}/?code=once&state=forged", node.client().url())).await?;
        wait_until(page, "document.body.dataset.state === 'open'").await?;
        ensure!(evaluate(page, "sessionStorage.getItem('celeris-key')").await? == json!(token), "the token stays");
        Ok(())
    })
    .await
}
