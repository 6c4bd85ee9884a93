//! The card of the cluster, on the page of a node of a real one.

use anyhow::{Context as _, Result, ensure};
use celeris_tests::{Cluster, binary, eventually};
use fantoccini::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::accessibility::is_fine;
use super::browser::{Screen, browse, evaluate, wait_until};
use super::{OPERATING, demo, first_model, fits, fits_in, has_browser, operate, text};

const MODEL: &str = "films";

/// A cluster of three nodes with one model, which all of them serve.
fn cluster_with_model() -> Option<Cluster> {
    let cluster = Cluster::start(3, 1)?;
    cluster.client(0).post("/v1/models", &json!({"name": MODEL, "dim": 4})).expect(201);
    for node in 0..cluster.len() {
        let path = format!("/v1/models/{MODEL}");
        eventually("the node has the model", || (cluster.client(node).get(&path).status == 200).then_some(()));
    }
    Some(cluster)
}

/// Opens the view "Operate" of a node, and waits for the card of its cluster.
async fn open(page: &Client, cluster: &Cluster, node: usize) -> Result<()> {
    page.goto(&format!("{}/?model={MODEL}#operate", cluster.client(node).url().trim_end_matches('/'))).await?;
    wait_until(page, OPERATING).await?;
    wait_until(page, "!document.querySelector('#cluster').hidden").await
}

/// True once the page shows a node in this state.
fn shows(node: &str, state: &str) -> String {
    format!("document.querySelector('[data-testid=cluster-node][data-node={node}]')?.dataset.state === '{state}'")
}

/// The owners of the shards that the page shows.
async fn owners(page: &Client) -> Result<Vec<String>> {
    let owners = "[...document.querySelectorAll('[data-testid=cluster-log]:not([data-log=catalog]) [data-fact=owner]')]
        .map((owner) => owner.textContent)";
    Ok(serde_json::from_value(evaluate(page, owners).await?)?)
}

/// True once the owners on the page are these, by the numbers of the nodes.
fn owned_by(owners: &[usize]) -> String {
    let names: Vec<String> = owners.iter().map(|node| Cluster::name(*node)).collect();
    format!(
        "JSON.stringify([...document.querySelectorAll('[data-testid=cluster-log]:not([data-log=catalog]) \
         [data-fact=owner]')].map((owner) => owner.textContent)) === '{}'",
        json!(names)
    )
}

#[tokio::test]
async fn a_cluster_is_shown_live_with_its_owners_while_nodes_drain_and_die() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let Some(mut cluster) = cluster_with_model() else { return Ok(()) };
    let (coordinator, before) = cluster.await_owners();
    let map = cluster.client(0).get("/v1/cluster").expect(200);
    browse(Screen::DESK, async |page| {
        open(page, &cluster, 0).await?;
        for node in ["a", "b", "c"] {
            wait_until(page, &shows(node, "live")).await?;
        }
        wait_until(page, &owned_by(&before)).await?;
        let facts = text(page, "#cluster-facts").await?;
        let revision = &map["map"]["revision"];
        for words in ["test", "3 of 3 live", &format!("{}.{}", revision["epoch"], revision["number"])] {
            ensure!(facts.contains(words), "{facts:?} lacks {words:?}");
        }
        let leader = text(page, &format!("[data-node={}]", Cluster::name(coordinator))).await?;
        ensure!(leader.contains("coordinator"), "the coordinator is marked: {leader:?}");
        ensure!(text(page, "[data-node=a]").await?.contains("this node"), "the node of the page is marked");
        let rows = "document.querySelectorAll('[data-testid=cluster-log]').length";
        ensure!(evaluate(page, rows).await? == before.len() + 1, "one row a shard, and the catalog");
        ensure!(text(page, "[data-log=s00]").await?.contains("partitions 0–"), "a shard is named with its partitions");
        wait_until(
            page,
            "[...document.querySelectorAll('[data-state=following] [data-fact=age]')]
            .some((age) => age.textContent === 'under 1 s')",
        )
        .await?;

        let drained = binary::run(["cluster", "drain", "--url", cluster.client(1).url()]);
        ensure!(drained.code == Some(0), "{}", drained.stderr);
        wait_until(page, &shows("b", "draining")).await?;
        wait_until(page, "document.querySelector('[data-node=b]').textContent.includes('0 logs')").await?;
        cluster.kill(2);
        wait_until(page, &shows("c", "down")).await?;
        wait_until(page, &owned_by(&vec![0; before.len()])).await?;
        ensure!(text(page, "#cluster-facts").await?.contains("2 of 3 live"), "the dead node is not counted");
        let found = owners(page).await?;
        ensure!(found.iter().all(|owner| owner == "a"), "{found:?}");

        // The card of a node that has stopped says how old it is.
        cluster.kill(0);
        wait_until(page, "document.querySelector('#cluster-caption').textContent.includes('has not answered')").await
    })
    .await
}

/// Has the page show this change of the node's answers to `GET /v1/cluster`.
async fn pretend(page: &Client, change: &str) -> Result<()> {
    let install = format!(
        "window.fetch = async (path, ...others) => {{
            const response = await unchanged(path, ...others);
            if (path !== '/v1/cluster') return response;
            const reply = await response.json();
            ({change})(reply);
            return new Response(JSON.stringify(reply), {{ headers: {{ 'content-type': 'application/json' }} }});
        }}"
    );
    page.execute(&format!("window.unchanged ??= window.fetch; {install}"), Vec::new()).await?;
    Ok(())
}

/// What cannot be had at will: the problems of a log and of a node, long names, a log without an owner.
const TROUBLED: &str = "({ map, status }) => {
    Object.assign(status.logs.find(({ log }) => log === 's03'), { phase: 'stuck', lag: 12345, staleness_seconds: 754,
        problem: 'the log is broken: <b>checksum</b>. Compare the NATS servers' });
    Object.assign(status.logs.find(({ log }) => log === 's04'), { owner: 'c', staleness_seconds: null });
    map.shards[4].owner = null;
    map.shards[5].owner = 'a-node-with-a-very-long-name-in-a-far-away-data-centre';
    status.failure = 'the store fails: no space left on device';
    status.nodes.push({ node: map.shards[5].owner, url: 'http://127.0.0.1:1', live: true, draining: true, owns: 2 });
}";

#[tokio::test]
async fn problems_are_shown_with_their_text_and_axe_has_no_findings() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let Some(cluster) = cluster_with_model() else { return Ok(()) };
    for (kind, screen) in [
        ("desk", Screen::DESK),
        ("dark", Screen::DESK.dark()),
        ("phone", Screen::PHONE),
        ("dark phone", Screen::PHONE.dark()),
    ] {
        browse(screen, async |page| {
            open(page, &cluster, 0).await?;
            is_fine(page, &format!("{kind}: cluster")).await?;
            fits(page, screen).await?;
            ensure!(evaluate(page, "document.querySelector('#cluster').dataset.problems").await? == "0", "all is well");
            pretend(page, TROUBLED).await?;
            wait_until(page, "document.querySelectorAll('[data-testid=cluster-problem]').length === 2").await?;
            let problems = text(page, "#cluster-problems").await?;
            for words in ["this node", "no space left on device", "s03", "<b>checksum</b>. Compare the NATS servers"] {
                ensure!(problems.contains(words), "{problems:?} lacks {words:?}");
            }
            let broken = text(page, "[data-log=s03]").await?;
            ensure!(broken.contains("12,345") && broken.contains("13 min"), "{broken:?}");
            let unowned = text(page, "[data-log=s04]").await?;
            ensure!(unowned.contains("none, was c") && unowned.contains("unknown"), "{unowned:?}");
            ensure!(text(page, "[data-log=s05]").await?.contains("next a-node"), "an owner to come is named");
            ensure!(
                text(page, "#cluster-facts").await?.contains("6, 1 without an owner"),
                "unowned shards are counted"
            );
            is_fine(page, &format!("{kind}: cluster with problems")).await?;
            fits(page, screen).await?;
            fits_in(page, "#cluster table", "#cluster").await?;
            fits_in(page, "#cluster .scrolled table", "#cluster").await
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_node_in_no_cluster_shows_nothing_of_one() -> Result<()> {
    let Some(()) = has_browser() else { return Ok(()) };
    let data_dir = TempDir::new()?;
    let demo = demo(data_dir.path());
    ensure!(demo.client().get("/v1/cluster").expect(200) == json!({"enabled": false}), "the node is on its own");
    browse(Screen::DESK, async |page| {
        operate(page, &demo, &first_model(&demo)?).await?;
        // A second poll has been answered by then.
        let polls =
            "performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/v1/cluster')).length";
        let polls = format!("{polls} > 1");
        wait_until(page, &polls).await?;
        let visible = evaluate(page, "document.querySelector('#cluster').checkVisibility()").await?;
        ensure!(visible == Value::Bool(false), "the card is not there");
        let words = evaluate(page, "document.querySelector('#view-operate').innerText").await?;
        ensure!(!words.as_str().context("a text")?.to_lowercase().contains("cluster"), "{words}");
        Ok(())
    })
    .await
}
