//! The baseline of the HTTP benches: an axum handler that parses the same JSON and answers the same JSON, and does
//! nothing between.

use axum::body::Body as HttpBody;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use futures_util::StreamExt;
use tokio::net::TcpListener;

use crate::cli::Failure;
use crate::cli::serve::{announce, runtime};
use crate::routes::observe::{ObserveBody, ObserveReply};
use crate::routes::predict::{PredictBody, PredictReply};
use crate::routes::topk::{TopkBody, TopkReply};

/// Serves until it is killed.
///
/// # Errors
/// Where no port can be had.
pub fn run() -> Result<(), Failure> {
    runtime()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Failure::other)?;
        announce(listener.local_addr().map_err(Failure::other)?)?;
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        axum::serve(listener, router()).await.map_err(Failure::other)
    })
}

fn router() -> Router {
    Router::new()
        .route("/v1/models/{model}/predict", post(predict))
        .route("/v1/models/{model}/topk", post(topk))
        .route("/v1/models/{model}/observe", post(observe))
        .route("/v1/models/{model}/observations", post(observations))
}

async fn predict(Json(body): Json<PredictBody>) -> Json<PredictReply> {
    Json(PredictReply::example(body))
}

async fn topk(Json(body): Json<TopkBody>) -> Json<TopkReply> {
    Json(TopkReply::example(body))
}

async fn observe(Json(body): Json<ObserveBody>) -> Json<ObserveReply> {
    Json(ObserveReply::example(body))
}

/// Answers every line of a chunk as soon as it is there.
async fn observations(body: HttpBody) -> Response {
    let mut rest = Vec::new();
    let answers = body.into_data_stream().map(move |chunk| {
        rest.extend_from_slice(&chunk?);
        let mut answers = Vec::new();
        let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        for line in rest[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let body: ObserveBody = serde_json::from_slice(line).map_err(axum::Error::new)?;
            serde_json::to_writer(&mut answers, &ObserveReply::example(body)).map_err(axum::Error::new)?;
            answers.push(b'\n');
        }
        rest.drain(..end);
        Ok::<_, axum::Error>(answers)
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], HttpBody::from_stream(answers)).into_response()
}
