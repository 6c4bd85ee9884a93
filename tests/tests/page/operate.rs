//! The view "Operate": quality over time, exploration, selections, and changes with a second click.

use anyhow::{Result, ensure};
use fantoccini::{Client, Locator};
use serde_json::json;
use tempfile::TempDir;

use super::browser::{Screen, browse, evaluate, wait_until};
use super::{
    OPERATING, SETTLED, answer, demo, first_model, fits, fits_in, has_browser, is_drawn, of_chart, open, operate,
    order, rate, text,
};

#[tokio::test]
async fn quality_versions_and_events_are_updated_live() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    let model = demo.model(&name);
    let before = model.get("").expect(200)["active_version"].clone();
    browse(Screen::DESK, async |page| {
        operate(page, &demo, &name).await?;
        let events = kinds(page).await?;
        for kind in ["created", "training_started", "gate_passed", "activated"] {
            ensure!(events.iter().any(|other| other == kind), "{kind} is not among {events:?}");
        }
        ensure!(before == 2, "the demo serves what it trained");
        ensure!(text(page, "#events").await?.contains("v2 passed the gate"), "the verdict is not called better");
        ensure!(of_chart(page, "quality-chart", "marks").await? == "activated", "the demo's switch is marked");
        is_drawn(page, "quality-chart").await?;

        // Another client switches the version and switches back. The page is not reloaded.
        let _switched = model.post("versions/1/activate", &json!({})).expect(200);
        wait_until(page, "document.querySelectorAll('#events [data-kind=activated]').length === 2").await?;
        wait_until(page, "document.querySelector('[data-fact=Serving]').textContent === 'v1'").await?;
        let _back = model.post("rollback", &json!({})).expect(200);
        wait_until(page, "document.querySelector('[data-fact=Serving]').textContent === 'v2'").await?;
        let marks = "document.querySelector('#quality-chart').dataset.marks";
        wait_until(page, &format!("{marks} === 'activated activated rolled_back'")).await?;
        let listed = text(page, "#events").await?;
        ensure!(listed.contains("v1 serves") && listed.contains("rolled back to v2"), "the page lists {listed:?}");

        model.observe(&json!({"user": "another", "item": "1", "label": 3}));
        wait_until(page, "+document.querySelector('#quality-now').textContent > 0").await?;
        ensure!(of_chart(page, "quality-chart", "versions").await? == "1 2", "the curve has a line for each version");
        let caption = text(page, "#quality-caption").await?;
        ensure!(caption == "RMSE (stars) over the last 1 observation under v2", "the figure has a unit: {caption}");
        let worded = text(page, "#versions").await?;
        ensure!(worded.contains("on held-out data") && !worded.contains("train rmse"), "versions compare {worded:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_trials_of_the_latest_study_are_drawn() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    let model = demo.model(&name);
    browse(Screen::DESK, async |page| {
        operate(page, &demo, &name).await?;
        ensure!(text(page, "[data-testid=study]").await?.contains("None yet"), "there is a study");
        let _accepted =
            model.post("studies", &json!({"space": {"iterations": {"int": [1, 3]}}, "trials": 2})).expect(202);
        let facts = "document.querySelector('#study-facts').textContent";
        wait_until(page, &format!("{facts}.includes('all trials made: 3 of 3 trials')")).await?;
        is_drawn(page, "study-chart").await?;
        let told = text(page, "#study-chart").await?;
        ensure!(told.contains("trial 2: RMSE") && told.contains("iterations"), "the last trial is described: {told}");
        let events = kinds(page).await?;
        ensure!(events.iter().any(|kind| kind == "study_ended"), "its end is not among {events:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn labels_of_marks_do_not_touch() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::DESK, async |page| {
        operate(page, &demo, &first_model(&demo)?).await?;
        let places = "import('/page/chart.js').then(({ placed }) => placed(
            [10, 40, 95, 99, 100].map((at) => ({ at, width: 20 })), [0, 100]))";
        let places = evaluate(page, places).await?;
        ensure!(places == json!([0, 30, null, null, 80]), "the newest of labels that collide is kept: {places}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_weights_of_a_selection_are_updated_live() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let stream = first_model(&demo)?;
    let second = json!({"name": "untrained", "stream": stream, "dim": 4});
    let _second = demo.client().post("/v1/models", &second).expect(201);
    let selection = json!({
        "name": "best", "kind": "selection", "arms": [stream, "untrained"], "strategy": "exp4", "label_range": [1, 5],
    });
    let _selection = demo.client().post("/v1/models", &selection).expect(201);
    browse(Screen::DESK, async |page| {
        page.goto(&format!("{}/?model=best&user=guest-11aa", demo.client().url())).await?;
        wait_until(page, SETTLED).await?;
        for _ in 0..8 {
            let best = order(page).await?.swap_remove(0);
            rate(page, &best, 4).await?;
        }
        ensure!(text(page, "#status").await?.contains("2 models together"), "the page says that both models answered");
        page.find(Locator::Css("#tab-operate")).await?.click().await?;
        wait_until(page, OPERATING).await?;
        wait_until(page, "document.querySelector('#selection-chart').dataset.lines === '2'").await?;
        is_drawn(page, "selection-chart").await?;
        let weights =
            "[...document.querySelectorAll('[data-testid=arm-weight]')].map((it) => parseFloat(it.textContent))";
        let now: Vec<f64> = serde_json::from_value(evaluate(page, weights).await?)?;
        ensure!(now[0] > now[1], "the trained model predicts better, and weighs more: {now:?}");
        let hidden = "getComputedStyle(document.querySelector('#quality')).display";
        ensure!(evaluate(page, hidden).await? == "none", "the curve of a model is hidden for a selection");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn exploration_is_shown_with_its_mean_reward() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    browse(Screen::DESK, async |page| {
        open(page, &demo, "guest-4e1d").await?;
        let best = order(page).await?.swap_remove(0);
        answer(page, &best, "[data-testid=star-4]").await?;
        page.find(Locator::Css("#tab-operate")).await?.click().await?;
        wait_until(page, "document.querySelector('#exploration-now').textContent === '0.0 %'").await?;
        let fact =
            |name: &str| format!("document.querySelector('#exploration-facts [data-fact=\"{name}\"]')?.textContent");
        wait_until(page, &format!("{} === '1'", fact("Rewards"))).await?;
        wait_until(page, &format!("{} === '4.000 (labels)'", fact("Mean reward"))).await?;

        // Another client ranks uniformly and refers to an unknown decision. The page is not
        // reloaded.
        let model = demo.model(&first_model(&demo)?);
        let uniform = json!({"name": "epsilon_greedy", "epsilon": 1});
        let items: Vec<String> = (1..=200).map(|item| item.to_string()).collect();
        let _ranking =
            model.post("topk", &json!({"user": "v", "items": items, "k": 20, "policy": uniform})).expect(200);
        model.observe(&json!({"user": "v", "item": "1", "label": 3, "decision_id": "of-nobody"}));
        wait_until(page, "parseFloat(document.querySelector('#exploration-now').textContent) > 0").await?;
        wait_until(page, &format!("{} === '1'", fact("Rewards of unknown decisions"))).await?;
        ensure!(of_chart(page, "exploration-chart", "points").await? == "1", "the reward has a curve");
        is_drawn(page, "exploration-chart").await?;

        // Images far below the viewport are not loaded yet.
        evaluate(page, "document.querySelector('.regret').scrollIntoView()").await?;
        evaluate(page, "document.querySelector('.regret summary').click()").await?;
        wait_until(page, "document.querySelector('[data-testid=regret]').naturalWidth > 0").await?;
        fits_in(page, "[data-testid=regret]", ".exploration").await
    })
    .await
}

#[tokio::test]
async fn nothing_changes_a_model_without_a_second_click() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    let model = demo.model(&name);
    let state = || {
        let now = model.get("").expect(200);
        let trainings = model.get("events?limit=1000").expect(200)["events"]
            .as_array()
            .map_or(0, |events| events.iter().filter(|event| event["kind"] == "training_started").count());
        (now["active_version"].clone(), trainings)
    };
    let untouched = state();
    for (screen, renewed) in [(Screen::DESK, 3), (Screen::PHONE, 4)] {
        let started = state();
        browse(screen, async |page| {
            operate(page, &demo, &name).await?;
            fits(page, screen).await?;
            let retrain = "#view-operate [data-testid=retrain]";
            let serve = "[data-testid=version][data-version='1'] button";
            let delete = format!("[data-testid=model][data-model='{name}'] button");
            for (button, says) in
                [(retrain, "60,000"), (serve, "come from v1 from then on"), (delete.as_str(), "are deleted for good")]
            {
                page.find(Locator::Css(button)).await?.click().await?;
                wait_until(page, "document.querySelector('#confirm').open").await?;
                let words = text(page, "#confirm").await?;
                ensure!(words.contains(says), "{button}: the dialog says {words:?}");
                let focused = "document.activeElement.id";
                ensure!(evaluate(page, focused).await? == "confirm-cancel", "Enter does no harm");
                page.find(Locator::Css("#confirm-cancel")).await?.click().await?;
                wait_until(page, "!document.querySelector('#confirm').open").await?;
                let returned = format!("document.activeElement === document.querySelector(\"{button}\")");
                ensure!(evaluate(page, &returned).await? == true, "{button}: the focus returns");
            }
            ensure!(state() == started, "a cancelled dialog changes nothing: {:?}", state());

            press_and_confirm(page, retrain).await?;
            wait_until(page, &format!("document.querySelector('[data-fact=Serving]').textContent === 'v{renewed}'"))
                .await?;
            wait_until(page, "document.querySelector('#view-operate [data-testid=job]').dataset.state === 'succeeded'")
                .await?;
            wait_until(page, "document.querySelector('#jobs [data-state=succeeded]') !== null").await?;
            ensure!(state().1 == started.1 + 1, "one training was started");
            press_and_confirm(page, "[data-testid=version][data-version='2'] button").await?;
            wait_until(page, "document.querySelector('[data-fact=Serving]').textContent === 'v2'").await
        })
        .await?;
    }
    ensure!(state().0 == untouched.0 && state().1 == untouched.1 + 2, "two trainings, and v2 again: {:?}", state());
    Ok(())
}

#[tokio::test]
async fn a_model_is_deleted_after_the_second_click() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let name = first_model(&demo)?;
    let _other = demo.client().post("/v1/models", &json!({"name": "other", "dim": 4})).expect(201);
    browse(Screen::DESK, async |page| {
        operate(page, &demo, "other").await?;
        press_and_confirm(page, "[data-testid=model][data-model=other] button").await?;
        wait_until(page, &format!("document.querySelector('#model-name').textContent === '{name}'")).await?;
        wait_until(page, "document.querySelector('[data-model=other]') === null").await?;
        ensure!(demo.client().get("/v1/models/other").status == 404, "the model is gone");
        Ok(())
    })
    .await
}

async fn press_and_confirm(page: &Client, button: &str) -> Result<()> {
    page.find(Locator::Css(button)).await?.click().await?;
    wait_until(page, "document.querySelector('#confirm').open").await?;
    page.find(Locator::Css("#confirm-do")).await?.click().await?;
    Ok(())
}

/// The kinds of the listed events, newest first.
async fn kinds(page: &Client) -> Result<Vec<String>> {
    wait_until(page, "document.querySelectorAll('[data-testid=event]').length > 0").await?;
    let kinds = "[...document.querySelectorAll('[data-testid=event]')].map((it) => it.dataset.kind)";
    Ok(serde_json::from_value(evaluate(page, kinds).await?)?)
}
