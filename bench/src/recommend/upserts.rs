//! Item upserts at a high rate while a node recommends: their effect on the latency of
//! recommendations, and the time until a change is found.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::Settings;
use crate::load::{self, Sender, ask, connect};
use crate::process::{MODEL, Server, prepare};
use crate::report::Report;
use crate::stopwatch::Durations;
use celeris_cli::Failure;

/// Items in the table of the active version; and in a quick run.
const ITEMS: [usize; 2] = [100_000, 2_000];

const DIM: usize = 50;

/// Changes per second.
const RATE: u64 = 2_000;

/// Interval between two sends.
const TICK: Duration = Duration::from_millis(10);

/// Duration of the changes; and in a quick run.
const UNDER_LOAD: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(1)];

/// Pause between two recommendations, so that the node is not saturated.
const PAUSE: Duration = Duration::from_millis(2);

/// One in this many changes is polled until it is found.
const WATCHED: u64 = 500;

/// Number of distinct items that change: each is added once and then changed repeatedly.
const CHANGING: u64 = 20_000;

/// Slots of a recommendation.
const K: usize = 10;

/// Adds the cases `upserts/…`.
///
/// # Errors
/// If the node fails.
pub fn run(report: &mut Report, settings: &Settings) -> Result<(), Failure> {
    eprintln!("  recommending while items change …");
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let duration = settings.pick(UNDER_LOAD[0], UNDER_LOAD[1]);
    prepare(dir.path(), settings.pick(ITEMS[0], ITEMS[1]), DIM)?;
    let node = Server::node(dir.path())?;
    let (mut quiet, mut busy, outcome) = load::client()?.block_on(async {
        // Warm-up, not counted.
        recommend(&node, duration / 20).await?;
        let quiet = recommend(&node, duration / 2).await?;
        let (busy, outcome) =
            futures_util::future::try_join(recommend(&node, duration), change(&node, duration)).await?;
        Ok::<_, Failure>((quiet, busy, outcome))
    })?;
    node.stop()?;
    let millis = |durations: &mut Durations| durations.quantile_micros(0.99) / 1e3;
    report.compare("upserts/p99", "ms", millis(&mut busy), millis(&mut quiet));
    report.single("upserts/rate", "items/s", Some(outcome.rate));
    report.single("upserts/stale_max", "ms", Some(outcome.stale_max.as_secs_f64() * 1e3));
    Ok(())
}

fn path(call: &str) -> String {
    format!("/v1/models/{MODEL}/{call}")
}

/// Recommends to one user after another for `duration`.
async fn recommend(node: &Server, duration: Duration) -> Result<Durations, Failure> {
    let mut sender = connect(node.address()).await?;
    let (path, deadline, mut taken) = (path("recommend"), Instant::now() + duration, Durations::default());
    for user in 0.. {
        let asked = Instant::now();
        if asked >= deadline {
            break;
        }
        let body = json!({"user": format!("user-{}", user % 100), "k": K, "policy": "greedy"});
        ask(&mut sender, &path, body.to_string().into()).await?;
        taken.add(asked.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    Ok(taken)
}

/// The result of the changes.
struct Outcome {
    /// Answered changes per second.
    rate: f64,
    /// The longest time from sending a change to finding it.
    stale_max: Duration,
}

/// Changes items for `duration` by one NDJSON stream, and polls some of the changes.
async fn change(node: &Server, duration: Duration) -> Result<Outcome, Failure> {
    let (chunks, to_send) = mpsc::channel::<Bytes>(16);
    let answers = tokio::spawn(send(node.address(), to_send));
    let mut watcher = connect(node.address()).await?;
    let (started, mut sent, mut stale_max) = (Instant::now(), 0, Duration::ZERO);
    let mut ticks = tokio::time::interval(TICK);
    while started.elapsed() < duration {
        ticks.tick().await;
        let due = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX) * RATE / 1000;
        let lines: Vec<String> = (sent..due).map(line).collect();
        let watched = (sent..due).find(|number| number % WATCHED == 0);
        sent = due;
        let at = Instant::now();
        chunks.send(lines.concat().into()).await.map_err(Failure::other)?;
        if let Some(number) = watched {
            found(&mut watcher, number).await?;
            stale_max = stale_max.max(at.elapsed());
        }
    }
    drop(chunks);
    let answered = answers.await.map_err(Failure::other)??;
    if answered != sent {
        return Err(Failure::other(format!("{answered} of {sent} changes were answered")));
    }
    Ok(Outcome { rate: sent as f64 / started.elapsed().as_secs_f64(), stale_max })
}

/// The line of a change; its number is a unique attribute value.
fn line(number: u64) -> String {
    let item = number % CHANGING;
    let genre = ["drama", "noir", "comedy"][number as usize % 3];
    let attributes = json!({"title": format!("Item {item}"), "genres": [genre], "change": number});
    json!({"item": format!("new-{item}"), "attributes": attributes}).to_string() + "\n"
}

/// Recommends items with this change's number until there is one.
async fn found(sender: &mut Sender, number: u64) -> Result<(), Failure> {
    let filter = json!({"eq": {"field": "change", "value": number}});
    let body = json!({"user": "watcher", "k": 1, "policy": "greedy", "filter": filter}).to_string();
    loop {
        let answer = ask(sender, &path("recommend"), body.clone().into()).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(Failure::other)?;
        if answer["items"].as_array().is_some_and(|items| !items.is_empty()) {
            return Ok(());
        }
    }
}

/// Sends the lines of `chunks` as one body; returns the number of replies.
async fn send(address: std::net::SocketAddr, chunks: mpsc::Receiver<Bytes>) -> Result<u64, Failure> {
    let stream = TcpStream::connect(address).await.map_err(Failure::other)?;
    stream.set_nodelay(true).map_err(Failure::other)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::other)?;
    // The next request on a broken connection reports the error.
    tokio::spawn(async move { drop(connection.await) });
    let frames = futures_util::stream::unfold(chunks, |mut chunks| async {
        let chunk = chunks.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), chunks))
    });
    let request = Request::builder()
        .method(Method::POST)
        .uri(path("items"))
        .header(header::HOST, "localhost")
        .header(header::CONTENT_TYPE, "application/x-ndjson")
        .body(StreamBody::new(Box::pin(frames)))
        .map_err(Failure::other)?;
    let reply = sender.send_request(request).await.map_err(Failure::other)?;
    if reply.status() != StatusCode::OK {
        return Err(Failure::other(format!("items answered {}", reply.status())));
    }
    let (mut body, mut answers) = (reply.into_body(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(Failure::other)?;
        let Some(data) = frame.data_ref() else { continue };
        if memchr::memmem::find(data, b"\"error\":").is_some() {
            return Err(Failure::other(format!("a change was refused: {}", String::from_utf8_lossy(data))));
        }
        answers += memchr::memchr_iter(b'\n', data).count() as u64;
        answers -= memchr::memmem::find_iter(data, b"{\"summary\":").count() as u64;
    }
    Ok(answers)
}
