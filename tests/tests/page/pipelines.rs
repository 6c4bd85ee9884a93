//! The view "Pipelines": the list, the drawing of stages with the same in words, objects, and runs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use celeris_tests::{NodeProcess, binary};
use fantoccini::{Client, Locator};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::accessibility::is_fine;
use super::browser::{Screen, browse, evaluate, wait_until};
use super::{demo, fits, has_browser, open, text};

/// The names of the boxes and of the ends of the edges of the drawing.
const DRAWN: &str = "(() => {
    const boxes = [...document.querySelectorAll('#pipeline-graph [data-testid=stage-box]')].map((it) => it.dataset.stage);
    const edges = [...document.querySelectorAll('#pipeline-graph [data-testid=edge]')]
        .map(({ dataset: { from, to } }) => [boxes[from], boxes[to]]);
    return { boxes, edges };
})()";

/// Features of an item, of the context and of both; nothing in them is learnt.
fn clicks() -> Value {
    json!({"name": "clicks", "output": "all", "nodes": {
        "words": {"op": "tokenize", "input": "item.title"},
        "grams": {"op": "word_ngrams", "input": "words", "n": [1, 2], "hash_bits": 4},
        "genres": {"op": "multi_hot", "input": "item.genres", "categories": ["Drama", "Comedy"]},
        "device": {"op": "one_hot", "input": "context.device", "categories": ["phone", "desktop"]},
        "hour": {"op": "cyclic", "input": "context.hour", "period": 24},
        "cross": {"op": "cross", "inputs": ["genres", "device"], "hash_bits": 4},
        "all": {"op": "concat", "inputs": ["grams", "genres", "device", "hour", "cross"]}}})
}

/// Declares a linear model of the same features, which is learnt from some rows. The optimizer takes it apart.
fn declare_interest(folder: &Path, node: &NodeProcess) -> Result<()> {
    let mut declaration = clicks();
    declaration["name"] = json!("interest");
    declaration["output"] = json!("model");
    declaration["nodes"]["model"] = json!({"op": "linear", "input": "all", "link": "logistic", "fit": "label"});
    let [file, rows, out] =
        ["interest.json", "rows.jsonl", "interest"].map(|name| folder.join(name).display().to_string());
    fs::write(&file, declaration.to_string())?;
    let row = |row: usize| {
        let device = ["phone", "desktop"][row % 2];
        let context = json!({"device": device, "hour": row % 24});
        json!({"item": {"title": "Heat", "genres": ["Drama"]}, "context": context, "label": (row / 2) % 2})
    };
    fs::write(&rows, (0..40).map(|number| row(number).to_string() + "\n").collect::<String>())?;
    let url = node.client().url().to_owned();
    for arguments in [
        &["pipelines", "fit", &file, "--rows", &rows, "--out", &out][..],
        &["pipelines", "declare", &out, "--url", &url],
    ] {
        let finished = binary::run(arguments.iter().copied());
        ensure!(finished.code == Some(0), "{arguments:?}: {}", finished.stderr);
    }
    Ok(())
}

/// Opens a pipeline by its address.
async fn show(page: &Client, node: &NodeProcess, name: &str) -> Result<()> {
    page.goto("about:blank").await?;
    page.goto(&format!("{}/?pipeline={name}#pipelines", node.client().url().trim_end_matches('/'))).await?;
    let named = format!("document.querySelector('#pipeline-name').textContent === '{name}'");
    wait_until(page, &format!("{named} && !document.querySelector('#pipeline').hidden")).await
}

async fn run(page: &Client, item: &str, context: &str) -> Result<String> {
    for (input, json) in [("#run-item", item), ("#run-context", context)] {
        let input = page.find(Locator::Css(input)).await?;
        input.clear().await?;
        input.send_keys(json).await?;
    }
    evaluate(page, "document.querySelector('#run-says').textContent = ''").await?;
    page.find(Locator::Css("#run-do")).await?.click().await?;
    wait_until(page, "document.querySelector('#run-says').textContent !== ''").await?;
    text(page, "#run-says").await
}

#[tokio::test]
async fn a_pipeline_is_drawn_and_described() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    let _clicks = demo.client().post("/v1/pipelines", &clicks()).expect(201);
    let folder = TempDir::new()?;
    declare_interest(folder.path(), &demo)?;
    for (kind, screen) in [("desk", Screen::DESK), ("dark", Screen::DESK.dark()), ("phone", Screen::PHONE)] {
        browse(screen, async |page| {
            open(page, &demo, "guest-9a").await?;
            page.find(Locator::Css("#tab-pipelines")).await?.click().await?;
            // The first one of the list is open.
            wait_until(page, "document.querySelector('#pipeline-name').textContent === 'clicks'").await?;
            ensure!(evaluate(page, "document.title").await? == "Pipelines · Celeris", "the title names the view");
            let listed = "[...document.querySelectorAll('[data-testid=pipeline]')].map((it) => it.dataset.pipeline)";
            ensure!(evaluate(page, listed).await? == json!(["clicks", "interest"]), "both are listed");
            shows(page, &demo, "clicks").await?;
            is_fine(page, &format!("{kind}: clicks")).await?;
            fits(page, screen).await?;

            page.find(Locator::Css("[data-pipeline=interest] a")).await?.click().await?;
            wait_until(page, "document.querySelector('#pipeline-name').textContent === 'interest'").await?;
            let address = "new URLSearchParams(location.search).get('pipeline')";
            ensure!(evaluate(page, address).await? == "interest", "it is in the address");
            wait_until(page, "document.activeElement.textContent === 'interest'").await?;
            shows(page, &demo, "interest").await?;
            let objects = "[...document.querySelectorAll('[data-testid=object]')].map((row) => row.innerText)";
            let objects: Vec<String> = serde_json::from_value(evaluate(page, objects).await?)?;
            ensure!(objects.len() == 1 && objects[0].starts_with("weights"), "the objects are {objects:?}");
            ensure!(objects[0].contains("bytes") && objects[0].contains("use"), "with size and uses: {objects:?}");
            is_fine(page, &format!("{kind}: interest")).await?;
            fits(page, screen).await
        })
        .await?;
    }
    Ok(())
}

/// Checks that the page shows what the node explains: a box and a row for each stage, and an edge where one is read.
async fn shows(page: &Client, node: &NodeProcess, name: &str) -> Result<()> {
    let described = node.client().get(&format!("/v1/pipelines/{name}?explain=true")).expect(200);
    let fact = |name: &str| format!("document.querySelector('#pipeline-facts [data-fact=\"{name}\"]').textContent");
    ensure!(evaluate(page, &fact("Revision")).await? == "1", "the revision");
    ensure!(evaluate(page, &fact("Dimension")).await? == format!("{}", described["dim"]), "the dimension");
    ensure!(evaluate(page, &fact("Fields of contexts")).await? == "device and hour", "the fields");
    let stages = described["plan"]["stages"].as_array().context("stages")?;
    let drawn = evaluate(page, DRAWN).await?;
    let names: Vec<&Value> = stages.iter().map(|stage| &stage["stage"]).collect();
    ensure!(drawn["boxes"] == json!(names), "the boxes of {stages:?} are {}", drawn["boxes"]);
    let rows = "[...document.querySelectorAll('[data-testid=stage]')].map((row) => row.innerText)";
    let rows: Vec<String> = serde_json::from_value(evaluate(page, rows).await?)?;
    ensure!(rows.len() == stages.len(), "{} rows", rows.len());
    for (row, stage) in rows.iter().zip(stages) {
        let computed = stage["computed"].as_str().context("words")?;
        ensure!(row.contains(&format!("computed {computed}")), "{row:?} does not say {computed:?}");
    }
    // Every stage but that of the output is read by a later one.
    let edges: Vec<(String, String)> = serde_json::from_value(drawn["edges"].clone())?;
    for (at, name) in names[..names.len() - 1].iter().enumerate() {
        let read = edges.iter().any(|(from, to)| json!(from) == **name && names[at + 1..].contains(&&json!(to)));
        ensure!(read, "{name} is read by none: {edges:?}");
    }
    let rewrites = "[...document.querySelectorAll('[data-testid=rewrite]')].map((it) => it.textContent)";
    ensure!(evaluate(page, rewrites).await? == described["plan"]["rewrites"], "the rewrites");
    let overlaps = "(() => {
        const boxes = [...document.querySelectorAll('#pipeline-graph .ground')].map((it) => it.getBoundingClientRect());
        const apart = (a, b) => a.right < b.left || b.right < a.left || a.bottom < b.top || b.bottom < a.top;
        return boxes.some((a, index) => boxes.slice(index + 1).some((b) => !apart(a, b)));
    })()";
    ensure!(evaluate(page, overlaps).await? == false, "boxes overlap");
    let wide = "[...document.querySelectorAll('#pipeline-graph .stage')].flatMap((stage) => {
        const right = stage.querySelector('.ground').getBoundingClientRect().right;
        return [...stage.querySelectorAll('text, .stripe')].filter((it) => it.getBoundingClientRect().right > right)
            .map((it) => it.textContent || it.outerHTML);
    })";
    let wide = evaluate(page, wide).await?;
    ensure!(wide == json!([]), "these parts leave their box: {wide}");
    Ok(())
}

#[tokio::test]
async fn edges_follow_the_nodes_that_the_optimizer_adds_and_merges() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    browse(Screen::DESK, async |page| {
        page.goto(node.client().url()).await?;
        // `twin` computes what `genres` does; `all` is pushed apart, and its parts are added up by dependence.
        let described = json!({
            "declaration": {"nodes": {
                "genres": {"op": "multi_hot", "input": "item.genres", "categories": ["Drama"]},
                "twin": {"op": "multi_hot", "input": "item.genres", "categories": ["Drama"]},
                "price": {"op": "field", "of": "item", "name": "price", "type": "number"},
                "hour": {"op": "cyclic", "input": "context.hour", "period": 24},
                "cross": {"op": "cross", "inputs": ["twin", "device"], "hash_bits": 4},
                "device": {"op": "one_hot", "input": "context.device", "categories": ["phone"]},
                "all": {"op": "concat", "inputs": ["genres", "price", "hour", "cross"]},
                "model": {"op": "linear", "input": "all"}}},
            "plan": {"stages": [
                {"stage": "s1", "nodes": ["item.genres", "genres"], "depends_on": "item"},
                {"stage": "s2", "nodes": ["price", "model.price", "model.genres", "model.total.the item"], "depends_on": "item"},
                {"stage": "s3", "nodes": ["context.hour", "hour", "model.hour"], "depends_on": "context"},
                {"stage": "s4", "nodes": ["context.device", "device"], "depends_on": "context"},
                {"stage": "s5", "nodes": ["cross", "model.cross", "model.total", "model"], "depends_on": "item_and_context"}]}
        });
        let flow = format!(
            "import('/page/flow.js').then(({{ flowOf }}) => flowOf({described}).map(({{ after, reads }}) => [after, reads]))"
        );
        let expected = json!([
            [[], ["item.genres"]],
            [[0], ["item.price"]],
            [[], ["context.hour"]],
            [[], ["context.device"]],
            [[0, 1, 2, 3], []]
        ]);
        let found = evaluate(page, &flow).await?;
        ensure!(found == expected, "{found}");
        // The edge from the first box to the last one has a lane in the column between them.
        let boxes = json!([{"height": 40, "after": []}, {"height": 40, "after": [0]}, {"height": 40, "after": [0, 1]}]);
        let lanes = format!(
            "import('/page/layers.js').then(({{ layout }}) => {{
                const {{ places, edges, width, height }} = layout({boxes}, {{ width: 100, gapX: 20, gapY: 10 }});
                return [places.map(({{ x }}) => x), edges.map(({{ lanes }}) => lanes.map(({{ x }}) => x)), width, height];
            }})"
        );
        let found = evaluate(page, &lanes).await?;
        ensure!(found == json!([[0, 120, 240], [[], [120], []], 340, 58]), "{found}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_pipeline_is_run_on_an_item_in_a_context() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    let _clicks = node.client().post("/v1/pipelines", &clicks()).expect(201);
    let hour = json!({"hour": {"op": "scale", "input": "context.hour"}});
    let _unfitted =
        node.client().post("/v1/pipelines", &json!({"name": "raw", "output": "hour", "nodes": hour})).expect(201);
    browse(Screen::PHONE, async |page| {
        // A node without models has the view too.
        page.goto(node.client().url()).await?;
        wait_until(page, "!document.querySelector('#setup').hidden").await?;
        page.find(Locator::Css("#tab-pipelines")).await?.click().await?;
        wait_until(page, "!document.querySelector('#pipeline-try').hidden").await?;
        let written = "document.querySelector('#run-item').value";
        let nothing = "{ \"genres\": null, \"title\": null }";
        ensure!(evaluate(page, written).await? == nothing, "the attributes that it reads");

        let item = json!({"title": "Heat", "genres": ["Drama"]});
        let context = json!({"device": "phone", "hour": 6});
        let says = run(page, &item.to_string(), &context.to_string()).await?;
        let record = json!({"records": [{"item": item, "context": context}]});
        let outputs = node.client().post("/v1/pipelines/clicks/run", &record).expect(200)["outputs"][0].clone();
        let numbers: Vec<f64> = serde_json::from_value(outputs)?;
        let nonzero = numbers.iter().filter(|number| **number != 0.0).count();
        ensure!(says == format!("{nonzero} of {} columns are not 0", numbers.len()), "it says {says:?}");
        let shown = text(page, "#run-output").await?;
        let shown: Vec<(usize, f64)> = shown
            .lines()
            .map(|line| {
                let (column, number) = line.trim().split_once(' ').context("two numbers")?;
                Ok((column.parse()?, number.trim().parse()?))
            })
            .collect::<Result<_>>()?;
        let expected = numbers.iter().copied().enumerate().filter(|(_, number)| *number != 0.0).collect::<Vec<_>>();
        ensure!(shown == expected, "{shown:?} is not {expected:?}");
        is_fine(page, "run").await?;
        fits(page, Screen::PHONE).await?;

        let invalid = "[...document.querySelectorAll('#run [aria-invalid=true]')].map((it) => it.id)";
        for (item, context, problem, input) in [
            ("{", "{}", "This is not JSON yet", json!(["run-item"])),
            ("{}", "[1]", "This is no JSON object", json!(["run-context"])),
            ("{}", "{\"hour\": {\"of\": \"day\"}}", "hour", json!(["run-context"])),
        ] {
            let says = run(page, item, context).await?;
            ensure!(says.contains(problem), "{item} and {context}: {says:?}");
            ensure!(evaluate(page, invalid).await? == input, "{item} and {context}: another input is marked");
            ensure!(evaluate(page, "document.querySelector('#run-output').hidden").await? == true, "no output");
        }
        is_fine(page, "a wrong run").await?;

        show(page, &node, "raw").await?;
        ensure!(text(page, "#pipeline-unfitted").await?.contains("it lacks hour.moments"), "what is to be fitted");
        ensure!(evaluate(page, "document.querySelector('#pipeline-plan').hidden").await? == true, "it has no stages");
        let says = run(page, "{}", "{}").await?;
        ensure!(says.contains("hour.moments: is not fitted yet"), "the node says {says:?}");

        // Another revision is shown without a reload.
        let _next = node.client().post("/v1/pipelines", &clicks_named("raw")).expect(201);
        wait_until(page, "document.querySelector('#pipeline-facts [data-fact=Revision]').textContent === '2'").await?;
        wait_until(page, "!document.querySelector('#pipeline-plan').hidden").await?;
        let deleted = node.client().try_json("DELETE", "/v1/pipelines/raw", &json!({}))?;
        ensure!(deleted.status == 204, "deleted: {}", deleted.text);
        wait_until(page, "document.querySelector('#pipeline-gone').textContent === 'There is no pipeline “raw”.'")
            .await?;
        ensure!(evaluate(page, "document.querySelector('#pipeline').hidden").await? == true, "it is shown no more");
        is_fine(page, "gone").await
    })
    .await
}

fn clicks_named(name: &str) -> Value {
    let mut declaration = clicks();
    declaration["name"] = json!(name);
    declaration
}

#[tokio::test]
async fn a_node_without_pipelines_says_how_one_is_declared() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let node = NodeProcess::serve(data_dir.path());
    browse(Screen::PHONE, async |page| {
        page.goto(&format!("{}/#pipelines", node.client().url().trim_end_matches('/'))).await?;
        wait_until(page, "document.querySelector('#pipelines-none .command') !== null").await?;
        let command = format!("celeris pipelines declare FOLDER --url {}", node.client().url().trim_end_matches('/'));
        ensure!(text(page, "#pipelines-none").await?.contains(&command), "the command");
        ensure!(evaluate(page, "document.querySelector('#view-try').checkVisibility()").await? == false, "one view");
        is_fine(page, "no pipelines").await?;
        fits(page, Screen::PHONE).await
    })
    .await
}
