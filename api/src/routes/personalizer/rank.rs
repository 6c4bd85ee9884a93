//! Rank: an action is chosen for each slot, each by a decision of its own.
//!
//! A decision for each slot makes the probabilities those of the choice among what the slots above have left, and gives
//! each slot its default reward and its context.

use std::collections::HashSet;

use axum::extract::State;
use axum::http::StatusCode;
use celeris_model::context::ContextValue;
use celeris_model::{DecisionId, EventId, EventSlot, ItemId, ModelId, ModelName, Partition, RankingEvent, UserEpoch};
use celeris_predictor::ChooseRequest;
use celeris_storage::AddedEvent;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::actions;
use crate::answer::Answer;
use crate::error::ApiError;
use crate::extract::InModel;
use crate::personalizer::{self, Circumstances, Fields, flattened};
use crate::routing::ForUser;
use crate::schema::personalizer::{Action, RankBody, RankReply, RankSlotsBody, RankSlotsReply};
use crate::state::Node;

/// The field with the name of a slot, and what the names of its features begin with.
const SLOT: &str = "slot";

/// What is ranked.
struct Asked<'a> {
    model: &'a ModelName,
    model_id: ModelId,
    event_id: Option<&'a EventId>,
    digest: u64,
    defer: bool,
    actions: &'a [Action],
    circumstances: &'a Circumstances,
    slots: Vec<AskedSlot<'a>>,
}

struct AskedSlot<'a> {
    name: String,
    excluded: HashSet<&'a ItemId>,
    fields: Fields,
}

/// Chooses one of the given actions by the policy of the model, in the form of Azure Personalizer.
///
/// The path may have a version of that API after `personalizer`, and `/personalizer/…` stands for the model in
/// `personalizer.model`. The user is the one whom context features name by `personalizer.user_fields`.
#[utoipa::path(post, path = "/v1/models/{model}/personalizer/rank", tag = "personalizer", request_body = RankBody,
    params(InModel), responses((status = 201, body = RankReply)))]
pub(super) async fn personalizer_rank(
    State(node): State<Node>,
    InModel(model): InModel,
    ForUser { body, .. }: ForUser<RankBody>,
) -> Result<(StatusCode, Answer<RankReply>), ApiError> {
    body.check()?;
    let slot =
        AskedSlot { name: String::new(), excluded: body.excluded_actions.iter().collect(), fields: Fields::new() };
    let asked = Asked {
        model_id: node.predictor.models().decides_as(&model)?,
        model: &model,
        event_id: body.event_id.as_ref(),
        digest: digest_of(&body)?,
        defer: body.defer_activation,
        actions: &body.actions,
        circumstances: &body.circumstances,
        slots: vec![slot],
    };
    let (id, event) = rank(&node, &asked).await?;
    let ids = body.actions.iter().map(|action| &action.id);
    let excluded: Vec<ItemId> = ids.filter(|id| body.excluded_actions.contains(id)).cloned().collect();
    let reply = RankReply::new(id.clone(), &event, &excluded).ok_or_else(|| other_request(&id))?;
    Ok((StatusCode::CREATED, Answer(reply)))
}

/// Chooses an action for each of several slots, in the form of Azure Personalizer.
///
/// Slots are filled in their order, each from the actions that are left; the choice for a slot depends on the context, and
/// on the slot's id and features as fields `slot` and `slot.…` of it.
#[utoipa::path(post, path = "/v1/models/{model}/personalizer/multislot/rank", tag = "personalizer",
    request_body = RankSlotsBody, params(InModel), responses((status = 201, body = RankSlotsReply)))]
pub(super) async fn personalizer_rank_slots(
    State(node): State<Node>,
    InModel(model): InModel,
    ForUser { body, .. }: ForUser<RankSlotsBody>,
) -> Result<(StatusCode, Answer<RankSlotsReply>), ApiError> {
    body.check()?;
    let slots = body.slots.iter().map(|slot| {
        let named = (SLOT.to_owned(), ContextValue::Text(slot.id.to_string()));
        let features = flattened(&slot.features).into_iter().map(|(name, value)| (format!("{SLOT}.{name}"), value));
        AskedSlot {
            name: slot.id.to_string(),
            excluded: slot.excluded_actions.iter().collect(),
            fields: features.chain([named]).collect(),
        }
    });
    let asked = Asked {
        model_id: node.predictor.models().decides_as(&model)?,
        model: &model,
        event_id: body.event_id.as_ref(),
        digest: digest_of(&body)?,
        defer: body.defer_activation,
        actions: &body.actions,
        circumstances: &body.circumstances,
        slots: slots.collect(),
    };
    let (id, event) = rank(&node, &asked).await?;
    Ok((StatusCode::CREATED, Answer(RankSlotsReply::new(id, &event))))
}

/// A request is known again by what it says, not by its bytes.
fn digest_of(body: &impl Serialize) -> Result<u64, ApiError> {
    serde_json::to_vec(body).map(|text| xxh3_64(&text)).map_err(ApiError::internal)
}

fn other_request(id: &EventId) -> ApiError {
    ApiError::conflict(format!("event {id} is of another request; use another eventId, or leave it out"))
}

/// The event, made now or by an earlier request like this one.
async fn rank(node: &Node, asked: &Asked<'_>) -> Result<(EventId, RankingEvent), ApiError> {
    let repeated = |id: &EventId, there: RankingEvent| {
        if there.digest == asked.digest { Ok((id.clone(), there)) } else { Err(other_request(id)) }
    };
    asked.event_id.map_or(Ok(()), |id| check_reachable(node, asked, id))?;
    let _ranking = asked.event_id.map(|id| node.personalizer.begin(asked.model_id, id)).transpose()?;
    if let Some(id) = asked.event_id
        && let Some(there) = node.storage.decisions().event(asked.model_id, id)?
    {
        return repeated(id, there);
    }
    actions::describe(node, asked.model, asked.actions).await?;
    let (slots, user_epoch) = choose(node, asked).await?;
    let first = slots.iter().find_map(|slot| slot.decision.as_ref());
    let first = first.ok_or_else(|| ApiError::invalid("every slot excludes all actions; leave one to choose"))?;
    let id = asked.event_id.cloned().unwrap_or_else(|| personalizer::event_of(first));
    let user = asked.circumstances.user.clone().ok_or_else(|| ApiError::internal("a request without a user"))?;
    let (digest, is_active) = (asked.digest, !asked.defer);
    let event = RankingEvent { user, user_epoch, digest, slots, is_active, held: Vec::new() };
    match node.storage.decisions().add_event(asked.model_id, &id, &event)? {
        AddedEvent::Added => Ok((id, event)),
        AddedEvent::Exists(there) => repeated(&id, *there),
        AddedEvent::Refused => Err(not_recorded()),
    }
}

/// In a cluster an id in the form of the node's own says where its event is. One that says another place than that of
/// the user would be ranked and could not be rewarded.
///
/// # Errors
/// 422 if it does.
fn check_reachable(node: &Node, asked: &Asked<'_>, id: &EventId) -> Result<(), ApiError> {
    let said = personalizer::decision_in(id).as_ref().and_then(DecisionId::partition);
    let is = asked.circumstances.user.as_ref().map(Partition::of);
    if node.cluster.is_some() && said.is_some() && said != is {
        return Err(ApiError::field("eventId", "has the form of ids that nodes make; use another, or leave it out"));
    }
    Ok(())
}

/// Fills the slots.
async fn choose(node: &Node, asked: &Asked<'_>) -> Result<(Vec<EventSlot>, UserEpoch), ApiError> {
    let user = asked.circumstances.user.clone().ok_or_else(|| ApiError::internal("a request without a user"))?;
    let mut taken: HashSet<ItemId> = HashSet::new();
    let (mut slots, mut epoch) = (Vec::with_capacity(asked.slots.len()), UserEpoch(0));
    for AskedSlot { name, excluded, fields } in &asked.slots {
        let ids = asked.actions.iter().map(|action| &action.id);
        let items: Vec<ItemId> = ids.filter(|id| !excluded.contains(id) && !taken.contains(*id)).cloned().collect();
        if items.is_empty() {
            slots.push(EventSlot { name: name.clone(), decision: None, chances: Vec::new() });
            continue;
        }
        let context = asked.circumstances.context(fields);
        let request = ChooseRequest { model: asked.model.clone(), user: user.clone(), items, context };
        let choice = node.predictor.choose(&request).await?;
        if !choice.ranking.logged {
            return Err(not_recorded());
        }
        epoch = choice.ranking.user_epoch;
        taken.extend(choice.chances.first().map(|chance| chance.item.clone()));
        let decision = Some(choice.ranking.decision_id);
        let mut chances = choice.chances;
        if !name.is_empty() {
            // The probabilities of several slots are not answered; those of the decisions are recorded.
            chances.truncate(1);
        }
        slots.push(EventSlot { name: name.clone(), decision, chances });
    }
    Ok((slots, epoch))
}

/// Without a record an event cannot be rewarded.
fn not_recorded() -> ApiError {
    ApiError::unavailable(
        "the decision could not be recorded, without which no reward can be learnt: decisions.enabled is false, \
         decisions.bytes_per_second or decisions.queue is exceeded, or the user is being erased; try again",
    )
}
