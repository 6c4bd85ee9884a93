//! The context of rankings: set field by field, in the address, sent with rankings and answers, and what it moves.

use anyhow::{Result, ensure};
use celeris_tests::{ModelClient, NodeProcess, eventually};
use fantoccini::{Client, Locator};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::accessibility::is_fine;
use super::browser::{Screen, browse, evaluate, wait_until};
use super::{OPERATING, SETTLED, demo, first_model, fits, has_browser, open, order, rate, text};

/// Keeps the bodies of rankings and answers in `sent`.
const RECORD: &str = "window.sent = [];
    const real = window.fetch;
    window.fetch = (path, request) => {
        const call = path.split('/').at(-1);
        if (['topk', 'recommend', 'observe'].includes(call)) sent.push([call, JSON.parse(request.body)]);
        return real(path, request);
    };";

/// Makes rankings depend on the context, as those of models with features of it: with a context they are reversed, and
/// without one a part is missing. The model describes its parts.
const DEPEND: &str = "const plain = window.fetch;
    window.fetch = async (path, request) => {
        const response = await plain(path, request);
        const call = path.split('/').at(-1);
        const reply = response.ok ? await response.clone().json() : null;
        if (['topk', 'recommend'].includes(call)) {
            const context = JSON.parse(request.body).context;
            if (context) reply.items.reverse();
            return Response.json({ ...reply, missing: context ? [] : ['weather', 'daytime'] });
        }
        if (!/^\\/v1\\/models\\/[^/]+$/.test(path)) return response;
        const features = [{ part: 'text', from: 'attributes', dim: 30 }, { part: 'weather', pipeline: 'clicks', dim: 4 }];
        return Response.json({ ...reply, features });
    };";

/// A demo whose stream has four fields of contexts, one of each type.
fn demo_with_fields(data_dir: &TempDir) -> Result<(NodeProcess, ModelClient)> {
    let demo = demo(data_dir.path());
    let model = demo.model(&first_model(&demo)?);
    let context = json!({"device": "phone", "hour": 21, "returning": true, "tags": ["sale", "home"]});
    model.observe(&json!({"user": "another", "item": "1", "label": 4, "context": context}));
    Ok((demo, model))
}

fn control(field: &str) -> String {
    format!("#context [data-field='{field}']")
}

fn value_of(field: &str) -> String {
    format!("document.querySelector(\"{}\").value", control(field))
}

/// Replaces the text of a field.
async fn type_into(page: &Client, field: &str, words: &str) -> Result<()> {
    let input = page.find(Locator::Css(&control(field))).await?;
    input.clear().await?;
    input.send_keys(words).await?;
    Ok(())
}

async fn choose(page: &Client, field: &str, value: &str) -> Result<()> {
    page.find(Locator::Css(&format!("{} option[value='{value}']", control(field)))).await?.click().await?;
    Ok(())
}

/// Waits until the address has this context, or none, and the ranking is shown.
async fn ranks_in(page: &Client, context: &Value) -> Result<()> {
    let text = if context.is_null() { Value::Null } else { Value::from(context.to_string()) };
    wait_until(page, &format!("new URLSearchParams(location.search).get('context') === {text}")).await?;
    wait_until(page, SETTLED).await
}

#[tokio::test]
async fn a_context_is_sent_with_rankings_and_answers_and_is_in_the_address() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let (demo, model) = demo_with_fields(&data_dir)?;
    for screen in [Screen::DESK, Screen::PHONE] {
        browse(screen, async |page| {
            let user = format!("guest-c{}", screen.width());
            open(page, &demo, &user).await?;
            page.execute(RECORD, Vec::new()).await?;
            let fields = "[...document.querySelectorAll('#context label > span')].map((it) => it.textContent)";
            let types = json!(["devicetext", "hournumber", "returningyes or no", "tagstexts, with commas"]);
            ensure!(evaluate(page, fields).await? == types, "a field of each type");
            is_fine(page, "no context").await?;

            type_into(page, "device", "tablet").await?;
            ranks_in(page, &json!({"device": "tablet"})).await?;
            choose(page, "returning", "false").await?;
            type_into(page, "hour", "7.5").await?;
            type_into(page, "tags", "new, home ,").await?;
            let context = json!({"device": "tablet", "hour": 7.5, "returning": false, "tags": ["new", "home"]});
            ranks_in(page, &context).await?;
            wait_until(page, "document.querySelector('#context-says').textContent.startsWith('Ranked again')").await?;
            ensure!(evaluate(page, "sent.at(-1)[1].context").await? == context, "it is sent with the ranking");
            eventually("the context is in the record of the ranking", || {
                let listed = model.get(&format!("decisions?user={user}&limit=1")).expect(200);
                let id = listed["decisions"][0]["decision_id"].as_str()?;
                (model.get(&format!("decisions/{id}")).expect(200)["context"] == context).then_some(())
            });
            is_fine(page, "a context").await?;
            fits(page, screen).await?;

            // Searched items are ranked by another call.
            page.find(Locator::Css("#search")).await?.send_keys("1").await?;
            wait_until(page, "sent.at(-1)[0] === 'topk'").await?;
            ensure!(evaluate(page, "sent.at(-1)[1].context").await? == context, "the other call has it too");
            wait_until(page, SETTLED).await?;
            let best = order(page).await?.swap_remove(0);
            rate(page, &best, 4).await?;
            let answers = "sent.filter(([call]) => call === 'observe').map(([, { context }]) => context)";
            ensure!(evaluate(page, answers).await? == json!([context]), "the answer has it");
            ensure!(model.user(&user, 1)["history"][0]["context"] == context, "it is learnt with it");

            // The address alone shows the same.
            let address = page.current_url().await?;
            page.goto("about:blank").await?;
            page.goto(address.as_str()).await?;
            wait_until(page, SETTLED).await?;
            let values = format!(
                "[{}, {}, {}, {}]",
                value_of("device"),
                value_of("hour"),
                value_of("returning"),
                value_of("tags")
            );
            ensure!(
                evaluate(page, &values).await? == json!(["tablet", "7.5", "false", "new, home"]),
                "it is set again"
            );
            page.execute(RECORD, Vec::new()).await?;
            let typed =
                format!("[...document.querySelector(\"{}\").list.options].map((it) => it.value)", control("device"));
            ensure!(evaluate(page, &typed).await? == json!(["tablet"]), "what was typed before is suggested");

            page.find(Locator::Css("#context-clear")).await?.click().await?;
            ranks_in(page, &Value::Null).await?;
            wait_until(page, "sent.length > 0").await?;
            ensure!(evaluate(page, "'context' in sent.at(-1)[1]").await? == false, "none is sent");
            ensure!(evaluate(page, &values).await? == json!(["", "", "", ""]), "nothing is set");
            ensure!(
                evaluate(page, "document.activeElement.dataset.field").await? == "device",
                "the focus stays at the bar"
            );
            Ok(())
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_context_that_the_node_refuses_is_explained_at_its_field() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let (demo, _) = demo_with_fields(&data_dir)?;
    browse(Screen::DESK, async |page| {
        open(page, &demo, "guest-c2").await?;
        let shown = order(page).await?;
        type_into(page, "hour", "late").await?;
        let says = "document.querySelector('#context-says').textContent";
        let refusal = "hour: the stream has a number in this field, got a string";
        wait_until(page, &format!("{says}.includes({})", json!(refusal))).await?;
        let invalid = "[...document.querySelectorAll('#context [aria-invalid=true]')].map((it) => it.dataset.field)";
        ensure!(evaluate(page, invalid).await? == json!(["hour"]), "the field is marked");
        ensure!(evaluate(page, "document.querySelector('#notice').hidden").await? == true, "it is said once");
        ensure!(order(page).await? == shown, "the ranking of before stays");
        is_fine(page, "a refused context").await?;

        type_into(page, "hour", "21").await?;
        wait_until(page, &format!("{says}.startsWith('Ranked again')")).await?;
        ensure!(evaluate(page, invalid).await? == json!([]), "nothing is wrong any more");

        // A link may have what no input can give.
        let context = json!({"returning": "perhaps", "weather": "rain"}).to_string();
        page.goto(&format!("{}/?user=guest-c3&context={context}", demo.client().url())).await?;
        wait_until(page, &format!("{says}.includes('returning: the stream has a boolean')")).await?;
        ensure!(evaluate(page, invalid).await? == json!(["returning"]), "the field is marked");
        ensure!(evaluate(page, &value_of("returning")).await? == "perhaps", "its value is shown");
        ensure!(evaluate(page, &value_of("weather")).await? == "rain", "a field that is new to the stream is shown");
        choose(page, "returning", "").await?;
        ranks_in(page, &json!({"weather": "rain"})).await
    })
    .await
}

#[tokio::test]
async fn what_a_context_moves_is_shown_by_signs_and_words() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let (demo, model) = demo_with_fields(&data_dir)?;
    for screen in [Screen::DESK, Screen::PHONE.dark()] {
        browse(screen, async |page| {
            open(page, &demo, "guest-c4").await?;
            let missing = "document.querySelector('#missing')";
            ensure!(evaluate(page, &format!("{missing}.hidden")).await? == true, "the reply names no missing part");
            page.execute(DEPEND, Vec::new()).await?;
            page.find(Locator::Css("#policy option[value=greedy]")).await?.click().await?;
            pick_all(page).await?;
            wait_until(page, &format!("!{missing}.hidden")).await?;
            let note = text(page, "#missing").await?;
            ensure!(note.contains("2 parts of the features: weather and daytime"), "it says {note:?}");
            let before = order(page).await?;

            choose(page, "returning", "true").await?;
            ranks_in(page, &json!({"returning": true})).await?;
            wait_until(page, &format!("{missing}.hidden")).await?;
            let after = order(page).await?;
            ensure!(after.iter().rev().eq(&before), "the order is reversed");
            let moves = "[...document.querySelectorAll('#ranking .move')].map((it) => it.textContent)";
            let moves: Vec<String> = serde_json::from_value(evaluate(page, moves).await?)?;
            let (rose, fell) = (before.len() - 1, format!("▼{0}down {0}", before.len() - 1));
            ensure!(moves.first() == Some(&format!("▲{rose}up {rose}")), "the first one says {:?}", moves.first());
            ensure!(moves.last() == Some(&fell), "the last one says {:?}", moves.last());
            let says = text(page, "#context-says").await?;
            ensure!(
                says == format!("Ranked again: {0} items up, {0} down.", before.len() / 2),
                "the bar says {says:?}"
            );
            is_fine(page, "moved").await?;
            fits(page, screen).await?;

            // The description of a model may have the parts of its features.
            wait_until(page, "document.querySelectorAll('[data-testid=part]').length === 0").await?;
            page.find(Locator::Css("#tab-operate")).await?.click().await?;
            wait_until(page, OPERATING).await?;
            wait_until(page, "document.querySelectorAll('[data-testid=part]').length === 2").await?;
            let parts = "[...document.querySelectorAll('[data-testid=part]')]\
                .map((row) => [...row.children].map((it) => it.textContent))";
            let expected = json!([["text", "attributes", "30"], ["weather", "pipeline clicks", "4"]]);
            ensure!(evaluate(page, parts).await? == expected, "the parts are listed");
            is_fine(page, "features").await?;
            fits(page, screen).await
        })
        .await?;
    }
    // Another stream has no fields.
    let _other = demo.client().post("/v1/models", &json!({"name": "other", "dim": 4})).expect(201);
    browse(Screen::DESK, async |page| {
        let context = json!({"device": "phone"}).to_string();
        let url = demo.client().url().to_owned();
        page.goto(&format!("{url}/?model={}&user=guest-c5&context={context}", model.name())).await?;
        wait_until(page, SETTLED).await?;
        ensure!(evaluate(page, &value_of("device")).await? == "phone", "the context of the link");
        page.find(Locator::Css("#model option[value=other]")).await?.click().await?;
        wait_until(page, "new URLSearchParams(location.search).get('model') === 'other'").await?;
        wait_until(page, "document.querySelector('#context').hidden").await?;
        ranks_in_none(page).await
    })
    .await
}

#[tokio::test]
async fn rankings_of_the_demo_in_contexts_follow_the_device() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = NodeProcess::demo_in_contexts(data_dir.path());
    browse(Screen::DESK, async |page| {
        open(page, &demo, "guest-c6").await?;
        page.find(Locator::Css("#policy option[value=greedy]")).await?.click().await?;
        pick_all(page).await?;
        wait_until(page, "!document.querySelector('#missing').hidden").await?;
        let says = "document.querySelector('#context-says').textContent";
        let mut best = Vec::new();
        for device in ["phone", "desktop"] {
            type_into(page, "device", device).await?;
            ranks_in(page, &json!({"device": device})).await?;
            wait_until(page, &format!("/^Ranked again: [1-9]/.test({says})")).await?;
            wait_until(page, "document.querySelector('#missing').hidden").await?;
            best.push(order(page).await?);
        }
        ensure!(best[0] != best[1], "{best:?}");
        Ok(())
    })
    .await
}

/// Ranks all items again.
async fn pick_all(page: &Client) -> Result<()> {
    page.find(Locator::Css("#genres .chip")).await?.click().await?;
    wait_until(page, SETTLED).await
}

async fn ranks_in_none(page: &Client) -> Result<()> {
    wait_until(page, "!new URLSearchParams(location.search).has('context')").await
}
