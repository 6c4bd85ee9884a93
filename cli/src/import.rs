//! `celeris import`: streams a data set into a running node as observations.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use celeris_datasets::{Dataset, ItemInfo, Rating};
use serde_json::{Value, json};
use ureq::Agent;

use crate::Failure;
use crate::progress::Report;

/// Lines per request: many enough to amortise the request, few enough to show progress.
const BATCH: usize = 5000;

/// Streams a data set into a running node.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The URL of the node, for example `http://127.0.0.1:7117`.
    #[arg(long)]
    url: String,
    /// The model whose stream receives the observations; it must exist.
    #[arg(long)]
    model: String,
    /// A MovieLens folder or ratings file.
    #[arg(long)]
    dataset: PathBuf,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let dataset = Dataset::load(&args.dataset)?;
    let agent: Agent = Agent::config_builder().http_status_as_error(false).build().into();
    let model_url = format!("{}/v1/models/{}", args.url.trim_end_matches('/'), args.model);
    let report = Report::new();
    let file = args.dataset.display().to_string();
    for (number, items) in dataset.items.chunks(BATCH).enumerate() {
        let sent = Sent { file: &file, what: "item", first: number * BATCH, count: items.len() };
        let line = |item: &ItemInfo| format!("{}\n", json!({"item": item.id, "attributes": item.attributes()}));
        read_answers(post_lines(&agent, &format!("{model_url}/items"), items.iter().map(line).collect())?, &sent)?;
        report.at("items", (sent.first + sent.count) as f32 / dataset.items.len() as f32);
    }
    let mut duplicates = 0;
    for (number, ratings) in dataset.ratings.chunks(BATCH).enumerate() {
        let first = number * BATCH;
        let body: String = ratings.iter().zip(first..).map(|(rating, row)| line(&dataset.name, rating, row)).collect();
        let sent = Sent { file: &file, what: "rating", first, count: ratings.len() };
        duplicates += read_answers(post_lines(&agent, &format!("{model_url}/observations"), body)?, &sent)?;
        report.at("observations", (first + ratings.len()) as f32 / dataset.ratings.len() as f32);
    }
    report.done();
    let taken = dataset.ratings.len() - duplicates;
    eprintln!("{taken} observations taken in, {duplicates} were there already; retrain to learn features from them");
    Ok(())
}

/// The NDJSON line of a rating. Ids derive from the data set's name and the row, so an interrupted
/// import can be repeated.
fn line(dataset: &str, rating: &Rating, row: usize) -> String {
    let observation = json!({
        "user": rating.user, "item": rating.item, "label": rating.label, "timestamp": rating.timestamp.0,
        "observation_id": format!("{dataset}-{row}"), "feedback": "rating",
    });
    format!("{observation}\n")
}

/// The lines of one request.
struct Sent<'a> {
    file: &'a str,
    what: &'static str,
    /// Number of lines sent before.
    first: usize,
    count: usize,
}

fn post_lines(agent: &Agent, url: &str, body: String) -> Result<Response, Failure> {
    let request = agent.post(url).header("content-type", "application/x-ndjson");
    refuse(request.send(body).map_err(Failure::other)?)
}

type Response = ureq::http::Response<ureq::Body>;

fn refuse(mut response: Response) -> Result<Response, Failure> {
    let status = response.status();
    // Replies to lines say what is wrong with each, also if all were rejected.
    let of_lines = response.headers().get("content-type").is_some_and(|kind| kind == "application/x-ndjson");
    if status.is_success() || of_lines {
        return Ok(response);
    }
    let problem: Value = response.body_mut().read_json().unwrap_or_default();
    let message = format!("the node answered {status}: {}", problem["detail"].as_str().unwrap_or("no detail"));
    Err(if status.is_client_error() { Failure::bad_input(message) } else { Failure::other(message) })
}

/// Counts the duplicates among the reply lines, of which there must be one for every line sent.
fn read_answers(response: Response, sent: &Sent<'_>) -> Result<usize, Failure> {
    let Sent { file, what, first, count } = sent;
    let (mut answered, mut duplicates) = (0, 0);
    for answer in BufReader::new(response.into_body().into_reader()).lines() {
        let answer: Value = serde_json::from_str(&answer.map_err(Failure::other)?).map_err(Failure::other)?;
        if let Some(detail) = answer["error"]["detail"].as_str() {
            return Err(Failure::bad_input(format!("{file}: {what} {}: {detail}", first + answered + 1)));
        }
        if answer.get("summary").is_some() {
            break;
        }
        answered += 1;
        duplicates += usize::from(answer["duplicate"] == true);
    }
    if answered < *count {
        return Err(Failure::other(format!("the node answered {answered} of {count} {what}s; run the import again")));
    }
    Ok(duplicates)
}
