//! Exploration of a model and rewards of its rankings.

use axum::Json;
use axum::extract::State;
use celeris_model::{Joined, ModelName};
use celeris_predictor::ExplorationCounts;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::InModel;
use crate::schema::ids::Name;
use crate::schema::policies::Policy;
use crate::state::Node;

/// Counts over a time span, or since the node started.
#[derive(Debug, Serialize, ToSchema)]
pub struct Counts {
    /// Start of the span, in Unix milliseconds; null for the totals since the node started.
    from: Option<i64>,
    /// Number of rankings.
    decisions: u64,
    /// Rankings whose decision record was accepted for writing.
    logged: u64,
    /// Rankings drawn uniformly for the validation pool.
    pool: u64,
    /// Number of shown slots.
    slots: u64,
    /// Shown slots whose item the greedy policy would not have shown in any slot.
    explored: u64,
    /// `explored / slots`; null before the first slot.
    explored_share: Option<f64>,
    /// Number of rewards of slots, including default rewards.
    rewards: u64,
    /// Mean reward; null before the first reward.
    mean_reward: Option<f64>,
    /// Default rewards: given because no reward had arrived in time.
    defaults: u64,
    /// Default rewards that were replaced by a later reward.
    defaults_replaced: u64,
}

/// Number of observations that referred to a decision, by the result of joining them to it.
#[derive(Debug, Serialize, ToSchema)]
pub struct JoinedCounts {
    /// Rewards of slots that show the item.
    slot: u64,
    /// The slot already had a reward.
    repeated: u64,
    /// The decision does not show the item.
    not_shown: u64,
    /// The decision was made for another user.
    other_user: u64,
    /// The decision was older than the retention of decisions.
    expired: u64,
    /// There was no record of the decision.
    unknown: u64,
}

impl From<&ExplorationCounts> for JoinedCounts {
    fn from(counts: &ExplorationCounts) -> Self {
        Self {
            slot: counts.joined(Joined::Slot),
            repeated: counts.joined(Joined::Repeated),
            not_shown: counts.joined(Joined::NotShown),
            other_user: counts.joined(Joined::OtherUser),
            expired: counts.joined(Joined::Expired),
            unknown: counts.joined(Joined::Unknown),
        }
    }
}

/// The exploration of a model since the node started.
#[derive(Debug, Serialize, ToSchema)]
pub struct ExplorationReply {
    #[schema(value_type = Name)]
    model: ModelName,
    /// The policy of requests that name none.
    policy: Policy,
    /// The share of rankings without a named policy that are drawn uniformly for the validation
    /// pool.
    pool_share: f64,
    /// Counts since the node started.
    totals: Counts,
    /// Observations that referred to a decision, by the result of the join.
    joined: JoinedCounts,
    /// Length of the spans, in milliseconds. It doubles when there would be more than 256 spans.
    span_ms: i64,
    /// Spans with activity, oldest first.
    spans: Vec<Counts>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get_exploration))
}

fn describe(from: Option<i64>, counts: &ExplorationCounts) -> Counts {
    Counts {
        from,
        decisions: counts.decisions,
        logged: counts.logged,
        pool: counts.pool,
        slots: counts.slots,
        explored: counts.explored,
        explored_share: (counts.slots > 0).then(|| counts.explored as f64 / counts.slots as f64),
        rewards: counts.rewards(),
        mean_reward: counts.mean_reward(),
        defaults: counts.defaults,
        defaults_replaced: counts.replaced,
    }
}

/// Returns how much a model explores and the rewards of its rankings, since the node started.
#[utoipa::path(get, path = "/v1/models/{model}/exploration", tag = "quality", params(InModel),
    responses((status = 200, body = ExplorationReply)))]
async fn get_exploration(
    State(node): State<Node>,
    InModel(model): InModel,
) -> Result<Json<ExplorationReply>, ApiError> {
    let config = node.manager.registry().model(&model)?.config;
    let view = node.predictor.models().exploration(&model)?;
    Ok(Json(ExplorationReply {
        model,
        policy: config.policy.into(),
        pool_share: config.pool_share.into(),
        totals: describe(None, &view.totals),
        joined: (&view.totals).into(),
        span_ms: view.span_ms,
        spans: view.spans.iter().map(|span| describe(Some(span.from.0), &span.counts)).collect(),
    }))
}

/// Updates the metrics of decisions.
pub fn render(node: &Node) {
    let counters = node.storage.decisions().counters();
    metrics::counter!("celeris_decisions_dropped_total").absolute(counters.dropped());
    let dropped = [("queue_full", counters.queue_full), ("over_rate", counters.over_rate), ("failed", counters.failed)];
    for (reason, count) in dropped {
        metrics::counter!("celeris_decisions_lost_total", "reason" => reason).absolute(count);
    }
    metrics::counter!("celeris_decisions_bytes_total").absolute(counters.bytes);
    metrics::counter!("celeris_decisions_expired_total").absolute(counters.expired);
    for model in node.predictor.models().names() {
        let Ok(view) = node.predictor.models().exploration(&model) else { continue };
        render_model(model.as_str(), &view.totals);
    }
}

fn render_model(model: &str, totals: &ExplorationCounts) {
    let model = || ("model", model.to_owned());
    metrics::counter!("celeris_decisions_total", &[model()]).absolute(totals.decisions);
    metrics::counter!("celeris_decisions_logged_total", &[model()]).absolute(totals.logged);
    metrics::counter!("celeris_decisions_pool_total", &[model()]).absolute(totals.pool);
    metrics::counter!("celeris_slots_total", &[model()]).absolute(totals.slots);
    metrics::counter!("celeris_slots_explored_total", &[model()]).absolute(totals.explored);
    metrics::counter!("celeris_default_rewards_total", &[model()]).absolute(totals.defaults);
    metrics::counter!("celeris_default_rewards_replaced_total", &[model()]).absolute(totals.replaced);
    for joined in Joined::ALL {
        let labels = [model(), ("joined", joined.name().to_owned())];
        metrics::counter!("celeris_rewards_total", &labels).absolute(totals.joined(joined));
    }
}
