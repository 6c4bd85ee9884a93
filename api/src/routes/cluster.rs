//! The cluster of the node.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::schema::cluster::{ClusterMap, ClusterReply};
use crate::state::Node;

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(get_cluster))
}

/// Returns the nodes of the cluster, and which of them answers for which users.
#[utoipa::path(get, path = "/v1/cluster", tag = "node", responses((status = 200, body = ClusterReply)))]
async fn get_cluster(State(node): State<Node>) -> Json<ClusterReply> {
    let map = node.cluster.as_ref().map(|cluster| ClusterMap::from(&*cluster.view()));
    Json(ClusterReply { enabled: map.is_some(), map })
}
