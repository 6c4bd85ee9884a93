//! The baseline of the HTTP benches: an axum handler that parses the same JSON and returns the same
//! JSON without any other work.

use axum::body::Body as HttpBody;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use celeris_model::{DecisionId, ObservationId};
use futures_util::StreamExt;
use tokio::net::TcpListener;

use celeris_api::schema::observations::{ObserveBody, ObserveReply};
use celeris_api::schema::predictions::{PredictBody, PredictReply, Score};
use celeris_api::schema::rankings::{Slot, TopkBody, TopkReply};
use celeris_cli::Failure;
use celeris_cli::serve::{announce, runtime};

const SCORE: f32 = 3.870_592_7;
const STD_ERROR: f32 = 0.271_828_2;
const LABEL_STD: f32 = 0.757_872_1;

/// Serves until it is killed.
///
/// # Errors
/// If no port can be bound.
pub fn run() -> Result<(), Failure> {
    runtime()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Failure::other)?;
        announce(&format!("http://{}", listener.local_addr().map_err(Failure::other)?))?;
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
    let score = |item| Score {
        item,
        score: SCORE,
        std_error: STD_ERROR,
        label_std: LABEL_STD,
        probability: None,
        known: true,
        confidence: None,
    };
    Json(PredictReply {
        missing: Vec::new(),
        user: body.user,
        version: 2,
        user_epoch: 20,
        cold: false,
        scores: body.items.unwrap_or_default().into_iter().chain(body.item).map(score).collect(),
        arm: None,
        arm_propensity: None,
        arms: None,
        stale_ms: None,
    })
}

async fn topk(Json(body): Json<TopkBody>) -> Json<TopkReply> {
    let slot = |item| Slot {
        item,
        score: SCORE,
        std_error: STD_ERROR,
        label_std: LABEL_STD,
        probability: None,
        propensity: Some(1.0),
        known: true,
        confidence: None,
    };
    Json(TopkReply {
        missing: Vec::new(),
        decision_id: DecisionId::new("01930b1c-6d4e-7c50-9d1a-0123456789ab").expect("a valid id"),
        logged: true,
        user: Some(body.user),
        version: 2,
        user_epoch: 20,
        cold: false,
        policy: body.policy.unwrap_or_default().into(),
        seed: body.seed.unwrap_or(1),
        seed_given: body.seed.is_some(),
        pool: false,
        items: body.items.into_iter().take(body.k).map(slot).collect(),
        arm: None,
        arm_propensity: None,
        arms: None,
        stale_ms: None,
    })
}

async fn observe(Json(body): Json<ObserveBody>) -> Json<ObserveReply> {
    Json(observed(body))
}

fn observed(body: ObserveBody) -> ObserveReply {
    let made = || ObservationId::new("~12-3456").expect("a valid id");
    ObserveReply {
        user_epoch: 21,
        sequence: 3456,
        observation_id: body.observation_id.unwrap_or_else(made),
        duplicate: false,
        predicted: Some(SCORE),
        clipped: None,
        joined: None,
    }
}

/// Answers every line of a chunk as soon as it has arrived.
async fn observations(body: HttpBody) -> Response {
    let mut rest = Vec::new();
    let answers = body.into_data_stream().map(move |chunk| {
        rest.extend_from_slice(&chunk?);
        let mut answers = Vec::new();
        let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        for line in rest[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let body: ObserveBody = serde_json::from_slice(line).map_err(axum::Error::new)?;
            serde_json::to_writer(&mut answers, &observed(body)).map_err(axum::Error::new)?;
            answers.push(b'\n');
        }
        rest.drain(..end);
        Ok::<_, axum::Error>(answers)
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], HttpBody::from_stream(answers)).into_response()
}
