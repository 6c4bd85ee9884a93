//! The view "Operate": keys and roles, rewards by day, version and policy, sources and backups.

use anyhow::{Context as _, Result, ensure};
use celeris_tests::NodeProcess;
use celeris_tests::fixtures::{all_items, create_model};
use fantoccini::{Client, Locator};
use serde_json::json;
use tempfile::TempDir;

use super::accessibility::is_fine;
use super::browser::{Screen, browse, evaluate, wait_until};
use super::{fits, has_browser, is_drawn, text};

async fn click(page: &Client, selector: &str) -> Result<()> {
    // A click on what lies outside of a phone's screen needs it scrolled there first.
    evaluate(page, &format!("document.querySelector('{selector}').scrollIntoView({{ block: 'center' }})")).await?;
    Ok(page.find(Locator::Css(selector)).await?.click().await?)
}

async fn fill(page: &Client, selector: &str, words: &str) -> Result<()> {
    Ok(page.find(Locator::Css(selector)).await?.send_keys(words).await?)
}

/// Makes a key by the form, and returns the secret that the page shows.
async fn make_key(page: &Client, name: &str, role: &str, models: &str) -> Result<String> {
    click(page, "#new-key summary").await?;
    fill(page, "[data-testid=new-key-name]", name).await?;
    click(page, &format!("[data-testid=new-key-{role}]")).await?;
    if !models.is_empty() {
        fill(page, "[data-testid=new-key-models]", models).await?;
    }
    click(page, "[data-testid=create-key]").await?;
    wait_until(page, "!document.querySelector('#key-made').hidden").await?;
    let secret = evaluate(page, "document.querySelector('#key-secret').value").await?;
    Ok(secret.as_str().context("the secret is text")?.to_owned())
}

#[tokio::test]
async fn keys_are_made_and_revoked_and_a_secret_is_shown_once() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    for screen in [Screen::DESK, Screen::PHONE] {
        let data_dir = TempDir::new()?;
        let node = NodeProcess::serve(data_dir.path());
        let films = create_model(&node.client(), "films", 3);
        films.observe(&json!({"user": "u", "item": "item-1", "label": 1}));
        browse(screen, async |page| {
            page.goto(&format!("{}/?model=films#operate", node.client().url())).await?;
            wait_until(page, "!document.querySelector('#keys').hidden").await?;
            ensure!(text(page, "#keys-caption").await?.contains("everybody"), "an open node says that it is");
            let root = make_key(page, "root", "admin", "").await?;
            ensure!(
                text(page, "#key-made").await?.contains("needs a key from now on"),
                "the first key closes the node"
            );
            ensure!(node.client().get("/v1/models").status == 401, "the node is closed");
            // The page goes on with it, and does not ask.
            wait_until(page, "document.querySelectorAll('#keys-list [data-state=valid]').length === 1").await?;
            ensure!(evaluate(page, "document.querySelector('#login').open").await? == false, "the page has the key");
            fits(page, screen).await?;
            is_fine(page, "a key that was made").await?;
            click(page, "[data-testid=key-hide]").await?;
            let shop = make_key(page, "shop", "observe", "films, other").await?;
            let client = node.client().with_key(&shop);
            let status =
                client.post("/v1/models/films/observe", &json!({"user": "u", "item": "item-1", "label": 1})).status;
            ensure!(status == 200, "the key works: {status}");
            ensure!(client.get("/v1/keys").status == 403, "for what it is for only");
            click(page, "[data-testid=key-hide]").await?;
            let secrets = json!([root, shop]);
            let shown = format!(
                "{secrets}.some((secret) => document.documentElement.outerHTML.includes(secret.split('_')[2]) \
                 || [...document.querySelectorAll('input')].some((it) => it.value.includes(secret)))"
            );
            ensure!(evaluate(page, &shown).await? == false, "a secret that is hidden is gone from the page");
            let id = shop.split('_').nth(1).context("keys have ids")?;
            let row = format!("#keys-list [data-key=\"{id}\"]");
            wait_until(page, &format!("document.querySelector('{row}') !== null")).await?;
            let words = text(page, &row).await?;
            ensure!(words.contains("model films · model other") && words.contains("observe"), "its bounds: {words}");
            click(page, &format!("{row} button")).await?;
            wait_until(page, "document.querySelector('#confirm').open").await?;
            click(page, "#confirm-do").await?;
            wait_until(page, &format!("document.querySelector('{row}').dataset.state === 'revoked'")).await?;
            ensure!(client.get("/v1/models").status == 401, "the key is refused");
            // The last admin stays, and the page says why.
            let id = root.split('_').nth(1).context("keys have ids")?;
            click(page, &format!("#keys-list [data-key=\"{id}\"] button")).await?;
            wait_until(page, "document.querySelector('#confirm').open").await?;
            click(page, "#confirm-do").await?;
            wait_until(page, "!document.querySelector('#notice').hidden").await?;
            ensure!(node.client().with_key(&root).get("/v1/keys").status == 200, "the admin stays");
            fits(page, screen).await
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_page_with_the_key_of_an_operator_has_no_keys() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    create_model(&node.client(), "films", 3).observe(&json!({"user": "u", "item": "item-1", "label": 1}));
    let made = |client: &celeris_tests::Client, role: &str| {
        let key = client.post("/v1/keys", &json!({"name": role, "roles": [role]})).expect(201);
        key["key"].as_str().unwrap_or_default().to_owned()
    };
    let admin = node.client().with_key(&made(&node.client(), "admin"));
    let operator = made(&admin, "operate");
    browse(Screen::DESK, async |page| {
        page.goto(&format!("{}/?model=films#operate", node.client().url())).await?;
        wait_until(page, "document.querySelector('#login').open").await?;
        fill(page, "[data-testid=login-key]", &operator).await?;
        click(page, "[data-testid=login-do]").await?;
        wait_until(page, "document.querySelectorAll('[data-testid=event]').length > 0").await?;
        wait_until(page, "document.querySelector('#rewards-caption').textContent !== ''").await?;
        ensure!(evaluate(page, "document.querySelector('#keys').hidden").await? == true, "keys are not for operators");
        ensure!(evaluate(page, "document.querySelector('#notice').hidden").await? == true, "and that is no error");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn rewards_are_shown_by_version_and_policy() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    let films = create_model(&node.client(), "films", 3);
    for (number, policy) in [(0, "greedy"), (1, "greedy"), (2, "softmax")] {
        let user = format!("u{number}");
        let ranking =
            films.post("topk", &json!({"user": user, "items": all_items(), "k": 2, "policy": policy})).expect(200);
        let item = &ranking["items"][0]["item"];
        films.observe(&json!({"user": user, "item": item, "label": number, "decision_id": ranking["decision_id"]}));
    }
    for screen in [Screen::DESK, Screen::PHONE] {
        browse(screen, async |page| {
            page.goto(&format!("{}/?model=films#operate", node.client().url())).await?;
            wait_until(page, "document.querySelectorAll('[data-testid=rewards-row]').length === 2").await?;
            let rows = "[...document.querySelectorAll('[data-testid=rewards-row]')].map((it) =>
                [it.dataset.name, it.querySelector('[data-fact=mean]').textContent])";
            let expected = json!([["films v1 · Greedy", "0.500"], ["films v1 · Softmax", "2.000"]]);
            ensure!(evaluate(page, rows).await? == expected, "{}", evaluate(page, rows).await?);
            let caption = text(page, "#rewards-caption").await?;
            // The page may have ranked for its visitor meanwhile.
            ensure!(caption.ends_with(" rankings of the last 30 days: 3 rewards."), "{caption}");
            is_drawn(page, "rewards-chart").await?;
            fits(page, screen).await?;
            is_fine(page, "rewards").await
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn sources_and_backups_are_shown_where_there_are_any() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    create_model(&node.client(), "films", 3).observe(&json!({"user": "u", "item": "item-1", "label": 1}));
    for screen in [Screen::DESK, Screen::PHONE] {
        browse(screen, async |page| {
            page.goto(&format!("{}/?model=films#operate", node.client().url())).await?;
            wait_until(page, "document.querySelectorAll('[data-testid=event]').length > 0").await?;
            let partition = |number: u32, lag: u32| json!({"partition": number, "position": 5, "end": 5 + lag, "lag": lag});
            let ingests = json!({"ingests": [
                {"name": "clicks", "source": "kafka://broker/clicks", "state": "running", "problem": null,
                 "partitions": [partition(0, 3), partition(1, 4)], "dead_letters": 2, "observations": 1200},
                {"name": "<img src=x>", "source": {"kind": "file"}, "state": "stopped", "problem": "the broker does not answer",
                 "partitions": [], "dead_letters": 0, "observations": 0},
            ]});
            let shown = format!("import('/page/upkeep.js').then(({{ showIngests }}) => showIngests({ingests}))");
            evaluate(page, &shown).await?;
            let words = text(page, "#ingests").await?;
            ensure!(words.contains("7") && words.contains("in 2 partitions") && words.contains("1,200"), "{words}");
            ensure!(words.contains("<img src=x>") && words.contains("the broker does not answer"), "{words}");
            let at = 1_700_000_000_000_i64;
            let backups = json!({"backups": [{"id": "b1", "at": at, "finished": at, "principal": null, "to": "s3://b/films",
                 "records": 7, "bytes": 2048, "sent_bytes": 1024}], "running": [{"id": "b2", "at": at, "principal": null}]});
            let shown = format!("import('/page/upkeep.js').then(({{ showBackups }}) => showBackups({backups}))");
            evaluate(page, &shown).await?;
            let words = text(page, "#backups").await?;
            ensure!(words.contains("s3://b/films") && words.contains("2 KiB, 1 KiB of it new"), "{words}");
            ensure!(words.contains("being made"), "{words}");
            fits(page, screen).await?;
            is_fine(page, "sources and backups").await?;
            evaluate(page, "import('/page/upkeep.js').then(({ showBackups }) => showBackups(null))").await?;
            ensure!(evaluate(page, "document.querySelector('#backups').hidden").await? == true, "none, none shown");
            Ok(())
        })
        .await?;
    }
    Ok(())
}
