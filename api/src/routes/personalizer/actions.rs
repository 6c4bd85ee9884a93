//! Actions become items: those that are new, and those whose features have changed.

use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use celeris_model::ModelName;
use celeris_predictor::{ItemDescription, PredictorError};
use serde_json::Map;
use xxhash_rust::xxh3::xxh3_64;

use crate::cluster::events::{ACTIONS_PATH, ActionItem, DescribedActions};
use crate::cluster::{Answered, Cluster, Kept, Peer};
use crate::error::ApiError;
use crate::personalizer::{attributes, factors_of, flattened};
use crate::schema::personalizer::Action;
use crate::state::Node;

/// Describes actions as items of a model. What cannot be described is ranked as an item of which nothing is known, so that
/// a ranking never fails by it.
///
/// # Errors
/// If there is no such model, or the store cannot be read.
pub(super) async fn describe(node: &Node, model: &ModelName, actions: &[Action]) -> Result<(), ApiError> {
    let id = node.predictor.models().decides_as(model)?;
    let mut described = Vec::new();
    let mut changed = Vec::new();
    for action in actions {
        let attributes = attributes(&flattened(&action.features));
        let digest = serde_json::to_vec(&attributes).map(|text| xxh3_64(&text)).unwrap_or_default();
        if node.personalizer.is_described(id, &action.id, digest) {
            continue;
        }
        let known = node.predictor.catalog().description(model, &action.id)?;
        let room = node.personalizer.settings().actions.saturating_sub(known.items);
        if known.is_known || changed.len() < room {
            changed.extend(change(action, attributes, &known));
        }
        described.push((&action.id, digest));
    }
    if !changed.is_empty()
        && let Err(problem) = write(node, model, changed).await
    {
        tracing::warn!(%model, %problem, "actions were not described as items, and are ranked by what is known of them");
    }
    for (item, digest) in described {
        node.personalizer.note_described(id, item, digest);
    }
    Ok(())
}

/// What has to be written of an action. An operator who has deleted an item does not get it back, and features that others
/// have given stay.
fn change(action: &Action, attributes: Map<String, serde_json::Value>, known: &ItemDescription) -> Option<ActionItem> {
    if known.is_deleted {
        return None;
    }
    let factors = |of: &Map<_, _>| factors_of(action.id.as_str(), of, known.factors);
    let is_same = known.attributes.as_ref().map_or(attributes.is_empty(), |there| *there == attributes);
    // An action without features says nothing of an item that has attributes.
    let keeps_attributes = is_same || attributes.is_empty();
    let nothing = Map::new();
    let before = known.attributes.as_ref().unwrap_or(&nothing);
    let is_ours = known.given_features.as_ref().is_some_and(|given| *given == factors(before));
    let after = if keeps_attributes { before } else { &attributes };
    let wants = known.factors > 0
        && match known.given_features {
            Some(_) => is_ours && !keeps_attributes,
            None => known.is_plain,
        };
    let features = wants.then(|| factors(after));
    let attributes = (!keeps_attributes).then_some(attributes);
    let is_something = features.is_some() || attributes.is_some();
    is_something.then(|| ActionItem { item: action.id.clone(), features, attributes })
}

/// Writes the items, here or at the coordinator of the cluster.
async fn write(node: &Node, model: &ModelName, actions: Vec<ActionItem>) -> Result<(), String> {
    let elsewhere = node.cluster.as_ref().and_then(|cluster| Some((cluster, coordinator(cluster)?)));
    let Some((cluster, coordinator)) = elsewhere else {
        return write_here(node, model, actions).map_err(|error| error.to_string());
    };
    let described = DescribedActions { model: model.clone(), actions };
    let body = serde_json::to_vec(&described).map_err(|error| error.to_string())?;
    let mut request = Request::post(ACTIONS_PATH).body(()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let request = Kept { parts: request.into_parts().0, body: Bytes::from(body) };
    let (_, name, revision) = cluster.peers();
    match cluster.forwarder().send(&coordinator, (&name, revision), &request).await {
        Ok(Answered::Reply(reply)) if reply.status().is_success() => Ok(()),
        Ok(Answered::Reply(reply)) => Err(format!("the coordinator has answered {}", reply.status())),
        Ok(Answered::Misplaced) => Err("the coordinator of the cluster is changing".to_owned()),
        Err(failure) => Err(format!("the coordinator was not reached: {failure:?}")),
    }
}

/// Writes the items as the owner of the catalog. An item whose attributes the stream does not take gets its features at
/// least.
///
/// # Errors
/// As [`celeris_predictor::ItemCatalog::edit_items`].
pub(in crate::routes) fn write_here(
    node: &Node,
    model: &ModelName,
    actions: Vec<ActionItem>,
) -> Result<(), PredictorError> {
    let catalog = node.predictor.catalog();
    let edits: Vec<_> = actions.iter().cloned().map(ActionItem::edit).collect();
    let edited = catalog.edit_items(model, &edits)?;
    let refused =
        actions.into_iter().zip(edited).filter(|(action, edited)| edited.is_err() && action.features.is_some());
    let bare: Vec<_> = refused.map(|(action, _)| ActionItem { attributes: None, ..action }.edit()).collect();
    if !bare.is_empty() {
        catalog.edit_items(model, &bare)?.into_iter().try_for_each(|edited| edited.map(drop))?;
    }
    Ok(())
}

/// The coordinator, if it is another node.
fn coordinator(cluster: &Cluster) -> Option<Peer> {
    let view = cluster.view();
    let node = view.placement.coordinator.as_ref().filter(|coordinator| **coordinator != view.node)?;
    Some(Peer { node: node.clone(), url: view.placement.url(node)?.to_owned() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn action(features: &Value) -> Action {
        serde_json::from_value(json!({"id": "a", "features": features})).unwrap()
    }

    fn changed(features: &Value, known: &ItemDescription) -> Option<ActionItem> {
        let action = action(features);
        change(&action, attributes(&flattened(&action.features)), known)
    }

    fn unknown() -> ItemDescription {
        ItemDescription {
            is_deleted: false,
            is_known: false,
            attributes: None,
            given_features: None,
            is_plain: true,
            factors: 8,
            items: 0,
        }
    }

    fn map(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn new_actions_get_attributes_and_factors_and_what_others_have_set_stays() {
        let (arts, news) = (json!([{"topic": "arts"}]), json!([{"topic": "news"}]));
        let new = changed(&arts, &unknown()).unwrap();
        assert_eq!(new.attributes, Some(map(json!({"topic": "arts"}))));
        assert_eq!(new.features, Some(factors_of("a", &map(json!({"topic": "arts"})), 8)));
        let ours = ItemDescription {
            is_known: true,
            attributes: new.attributes.clone(),
            given_features: new.features.clone(),
            is_plain: false,
            ..unknown()
        };
        assert_eq!(changed(&arts, &ours), None);
        assert_eq!(changed(&json!([]), &ours), None, "an action without features");
        let renewed = changed(&news, &ours).unwrap();
        assert_eq!(renewed.features, Some(factors_of("a", &map(json!({"topic": "news"})), 8)));
        let theirs = ItemDescription { given_features: Some(vec![0.5; 9]), ..ours.clone() };
        assert_eq!(changed(&news, &theirs).unwrap().features, None);
        let trained = ItemDescription { given_features: None, ..ours.clone() };
        assert_eq!(changed(&arts, &trained), None);
        assert_eq!(changed(&arts, &ItemDescription { is_deleted: true, ..ours }), None);
        let constant = ItemDescription { factors: 0, ..unknown() };
        assert_eq!(changed(&arts, &constant).unwrap().features, None);
        assert_eq!(changed(&json!([]), &unknown()).unwrap().attributes, None);
    }
}
