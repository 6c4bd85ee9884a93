//! A node without models or without titles, and an address that names no model.

use anyhow::{Result, ensure};
use celeris_tests::NodeProcess;
use fantoccini::Locator;
use serde_json::json;
use tempfile::TempDir;

use super::browser::{Screen, browse, evaluate, wait_until};
use super::{SETTLED, demo, fill, first_model, fits, has_browser, order, text, train};

#[tokio::test]
async fn an_empty_node_leads_to_a_trained_model() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    for (screen, loss, label) in [(Screen::DESK, "squared", 4.0), (Screen::PHONE, "logistic", 1.0)] {
        let data_dir = TempDir::new()?;
        let node = NodeProcess::serve(data_dir.path());
        browse(screen, async |page| {
            page.goto(node.client().url()).await?;
            wait_until(page, "!document.querySelector('#setup').hidden").await?;
            ensure!(text(page, "#setup").await?.contains("Start with your own data"), "the steps are shown");
            fits(page, screen).await?;
            let done = |step: &str| format!("document.querySelector('[data-testid=step-{step}]').dataset.done");

            page.find(Locator::Css("#setup [data-testid=new-model-name]")).await?.send_keys("films").await?;
            page.find(Locator::Css(&format!("#setup [value={loss}]"))).await?.click().await?;
            page.find(Locator::Css("#setup [data-testid=create-model]")).await?.click().await?;
            wait_until(page, &format!("{} === 'true'", done("create"))).await?;
            let model = node.model("films");
            ensure!(model.get("").expect(200)["loss"] == loss, "the form creates the model");
            ensure!(evaluate(page, &done("observe")).await? == "false", "nothing was sent yet");
            let import = format!("celeris import --url {} --model films", node.client().url().trim_end_matches('/'));
            ensure!(text(page, "[data-testid=step-observe]").await?.contains(&import), "the command to import a file");
            let copies = "document.querySelectorAll('#setup .copy').length";
            ensure!(evaluate(page, copies).await? == 3, "each command can be copied");
            let train = "document.querySelector('#setup [data-testid=retrain]').disabled";
            ensure!(evaluate(page, train).await? == true, "there is nothing to train on");

            // The page is not reloaded.
            let lines: String = (0..400)
                .map(|line| {
                    let label = if line % 2 == 0 { label } else { 0.0 };
                    format!("{}\n", json!({"user": line % 20, "item": format!("item-{}", line % 33), "label": label}))
                })
                .collect();
            ensure!(model.observe_lines(&lines)?.all(|line| line.is_ok()), "the node takes them");
            wait_until(page, &format!("{} === 'true'", done("observe"))).await?;
            wait_until(page, "!document.querySelector('#setup [data-testid=retrain]').disabled").await?;
            let got = "document.querySelector('[data-testid=observed]').textContent";
            wait_until(page, &format!("{got} === '400 observations so far'")).await?;

            page.find(Locator::Css("#setup [data-testid=retrain]")).await?.click().await?;
            wait_until(page, "document.querySelector('#confirm').open").await?;
            page.find(Locator::Css("#confirm-do")).await?.click().await?;
            wait_until(page, "document.querySelector('#setup').hidden").await?;
            wait_until(page, SETTLED).await?;
            ensure!(order(page).await?.len() == 25, "items without titles are ranked");
            fits(page, screen).await
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn items_without_titles_are_listed_beside_those_with() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    let model = fill(&node, "films", "squared", |user, item| f64::from((user + item) % 5 + 1));
    for item in 0..4 {
        let described = json!({"attributes": {"title": format!("Film {item} (1999)"), "genres": ["Drama"]}});
        let _put = model.put(&format!("items/item-{item}"), &described).expect(200);
    }
    train(&model);
    browse(Screen::DESK, async |page| {
        page.goto(&format!("{}/?user=newcomer", node.client().url())).await?;
        wait_until(page, SETTLED).await?;
        ensure!(text(page, "#status").await?.starts_with("30 items ranked"), "all items are counted");
        page.find(Locator::Css("#more")).await?.click().await?;
        wait_until(page, "document.querySelectorAll('#ranking [data-testid=row]').length === 30").await?;
        let name = |item: &str| format!("document.querySelector('#ranking [data-item={item}] .name').firstChild.data");
        ensure!(evaluate(page, &name("item-1")).await? == "Film 1", "a title where there is one");
        ensure!(evaluate(page, &name("item-17")).await? == "item-17", "the id where there is none");
        page.find(Locator::Css("#search")).await?.send_keys("item-17").await?;
        wait_until(page, "document.querySelectorAll('#ranking [data-testid=row]').length === 1").await?;
        page.find(Locator::Css("#tab-operate")).await?.click().await?;
        wait_until(page, "document.querySelector('#browse-says').textContent === '30 items'").await
    })
    .await
}

#[tokio::test]
async fn an_unknown_model_is_named_and_no_other_is_opened() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    browse(Screen::DESK, async |page| {
        page.goto(&format!("{}/?model=nope", demo.client().url())).await?;
        wait_until(page, "!document.querySelector('#unknown').hidden").await?;
        ensure!(text(page, "#unknown").await?.contains("There is no model “nope”"), "the page says so");
        let rows = "document.querySelectorAll('#ranking [data-testid=row]').length";
        ensure!(evaluate(page, rows).await? == 0, "no other model is ranked");
        page.find(Locator::LinkText(&name)).await?.click().await?;
        wait_until(page, SETTLED).await
    })
    .await
}
