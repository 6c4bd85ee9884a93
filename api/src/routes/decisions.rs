//! Decision records: candidates, shown slots and outcomes of a ranking, and its replay.

use std::ops::ControlFlow;

use axum::Json;
use axum::extract::State;
use celeris_model::{Decision, DecisionId, ItemId, Record, RecordedCandidates, Sequence, ShownSlot, UserId};
use celeris_predictor::attribution::{DEFAULT_FEEDBACK, default_reward_id};
use celeris_predictor::{PredictorError, ReplayOutcome, WhyNot, is_same};
use celeris_storage::observation_id;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{InModel, OfDecision, Params};
use crate::paging;
use crate::schema::decisions::{
    Candidates, DecisionReply, DecisionSlot, Decisions, ListedDecision, Outcome, Replay, SelectionOfArm, SlotAgain,
};
use crate::schema::ids::Id;
use crate::state::Node;

/// Query parameters of a decision.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DecisionParams {
    /// Whether to replay the ranking, to explain why it showed its items.
    #[serde(default)]
    replay: bool,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list_decisions)).routes(routes!(get_decision))
}

fn candidates(recorded: &RecordedCandidates) -> Candidates {
    let digest = match recorded {
        RecordedCandidates::Digest { digest, .. } => Some(digest.to_string()),
        RecordedCandidates::Full(_) | RecordedCandidates::Count(_) => None,
    };
    Candidates { count: recorded.count(), items: recorded.items().map(<[ItemId]>::to_vec), digest }
}

fn slot((number, shown): (usize, &ShownSlot), outcomes: &[(Sequence, Record)]) -> DecisionSlot {
    let is_its = |record: &Record| {
        let slot = record.decision.as_ref().and_then(|facts| facts.slot);
        slot.is_some_and(|slot| slot as usize == number)
    };
    DecisionSlot {
        item: shown.item.clone(),
        score: shown.score,
        std_error: shown.std_error,
        propensity: shown.propensity,
        propensity_std_error: shown.propensity_std_error,
        explored: shown.explored,
        reward: outcomes.iter().find(|(_, record)| is_its(record)).map(|(_, record)| record.label),
    }
}

fn outcome(decision: &Decision, sequence: Sequence, record: &Record) -> Outcome {
    let facts = record.decision.as_ref();
    let slot = facts.and_then(|facts| facts.slot);
    let observation_id = observation_id(sequence, record);
    let of_slot = slot.is_some_and(|slot| default_reward_id(&decision.id, slot) == observation_id);
    Outcome {
        default: of_slot && record.feedback.as_deref() == Some(DEFAULT_FEEDBACK),
        observation_id,
        item: record.item.clone(),
        label: record.label,
        timestamp: record.timestamp.0,
        joined: facts.map(|facts| facts.joined.into()),
        slot,
    }
}

/// Why a replay may differ although the user's history is unchanged.
const DIFFERS: &str = "the features of a candidate outside of the version's table have changed since, or the ranking \
                       was computed on another kind of processor";

fn replay(node: &Node, decision: &Decision) -> Result<Replay, ApiError> {
    let impossible = |why: WhyNot| Replay { same: None, why_not: Some(why.in_words().to_owned()), slots: Vec::new() };
    if decision.selection.as_ref().is_some_and(|facts| facts.arm.is_none()) {
        return Ok(impossible(WhyNot::SeveralAnswered));
    }
    let Some(version) = node.manager.versions().of_decision(decision)? else {
        return Ok(impossible(WhyNot::VersionPruned));
    };
    let rebuilt = match node.predictor.explainer().replay_decision(&version, decision)? {
        ReplayOutcome::Rebuilt(rebuilt) => rebuilt,
        ReplayOutcome::Impossible(why) => return Ok(impossible(why)),
    };
    let slots = rebuilt.draw(&version, decision)?;
    let same = rebuilt.is_of(decision) && is_same(&slots, decision);
    let why_not = (!same).then(|| DIFFERS.to_owned());
    Ok(Replay { same: Some(same), why_not, slots: slots.into_iter().map(SlotAgain::from).collect() })
}

fn describe(node: &Node, decision: &Decision, params: &DecisionParams) -> Result<DecisionReply, ApiError> {
    let outcomes = node.predictor.attribution().outcomes(decision)?;
    let selection = decision.selection.as_ref();
    Ok(DecisionReply {
        decision_id: decision.id.clone(),
        model: decision.model.clone(),
        version: decision.version.0,
        user: decision.user.clone(),
        user_epoch: decision.user_epoch.0,
        timestamp: decision.timestamp.0,
        seed: decision.seed,
        seed_given: decision.seed_given,
        policy: serde_json::from_str(&decision.policy).ok(),
        pool_share: decision.pool_share,
        pool: decision.pool,
        selection: selection.map(|facts| SelectionOfArm {
            arm: facts.arm.clone(),
            segment: facts.segment.clone(),
            propensity: facts.propensity,
        }),
        context: decision.context.clone(),
        candidates: candidates(&decision.candidates),
        slots: decision.shown.iter().enumerate().map(|shown| slot(shown, &outcomes)).collect(),
        outcomes: outcomes.iter().map(|(sequence, record)| outcome(decision, *sequence, record)).collect(),
        replay: params.replay.then(|| replay(node, decision)).transpose()?,
    })
}

/// Which decisions are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DecisionsWanted {
    /// Only the decisions for this user.
    #[param(value_type = Option<Id>)]
    user: Option<UserId>,
    /// The last decision of the previous page.
    #[param(value_type = Option<Id>)]
    before: Option<DecisionId>,
    /// Maximum number of decisions; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Lists the decisions of a model, the latest first.
#[utoipa::path(get, path = "/v1/models/{model}/decisions", tag = "serving", params(InModel, DecisionsWanted),
    responses((status = 200, body = Decisions)))]
async fn list_decisions(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(DecisionsWanted { user, before, limit }): Params<DecisionsWanted>,
) -> Result<Json<Decisions>, ApiError> {
    let limit = paging::entries(limit)?;
    let decided_by = node.manager.registry().decides_as(&model)?;
    let mut decisions = Vec::new();
    let visit = |decision: Decision| {
        decisions.push(ListedDecision::from(decision));
        if decisions.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let stored = node.storage.decisions();
    match &user {
        Some(user) => stored.scan_back_for((decided_by, user), before.as_ref(), visit),
        None => stored.scan_back(decided_by, before.as_ref(), visit),
    }
    .map_err(PredictorError::from)?;
    let next = paging::next(&decisions, limit, |decision| decision.decision_id.clone());
    Ok(Json(Decisions { decisions, next }))
}

/// Returns a decision: its record, its outcomes and, on request, a replay of the ranking.
#[utoipa::path(get, path = "/v1/models/{model}/decisions/{decision_id}", tag = "serving",
    params(OfDecision, DecisionParams),
    responses((status = 200, body = DecisionReply)))]
async fn get_decision(
    State(node): State<Node>,
    OfDecision { model, decision_id }: OfDecision,
    Params(params): Params<DecisionParams>,
) -> Result<Json<DecisionReply>, ApiError> {
    let decided_by = node.manager.registry().decides_as(&model)?;
    if let Some(cluster) = &node.cluster {
        cluster.fetch_decision(&node.storage, (decided_by, &decision_id)).await?;
    }
    let Some(decision) = node.storage.decisions().get(decided_by, &decision_id).map_err(PredictorError::from)? else {
        let kept = humantime_serde::re::humantime::format_duration(node.storage.decisions().retention());
        return Err(ApiError::not_found(format!(
            "no decision {decision_id} of model {model} is on record: it was never logged, is older than {kept}, \
             or was erased with its user"
        )));
    };
    Ok(Json(describe(&node, &decision, &params)?))
}
