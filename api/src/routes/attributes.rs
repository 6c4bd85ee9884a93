//! What the items of a stream can be filtered by.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{InModel, Params};
use crate::schema::attributes::Attributes;
use crate::state::Node;

/// Maximum and default number of values of each attribute: there are up to 256 attributes.
const VALUES_MAX: usize = 100;
const VALUES_DEFAULT: usize = 20;

/// How much of each attribute is listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Listing {
    /// Maximum number of values of each attribute; 20 by default.
    #[param(minimum = 0, maximum = 100)]
    values: Option<usize>,
}

pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(list_attributes))
}

/// Lists the attributes that filters can name: their kinds, numbers of items and most frequent
/// values, in the order of their names.
///
/// Reads the values of the whole catalog: tenths of a second for a million titles.
#[utoipa::path(get, path = "/v1/models/{model}/attributes", tag = "items", params(InModel, Listing),
    responses((status = 200, body = Attributes)))]
async fn list_attributes(
    State(node): State<Node>,
    InModel(model): InModel,
    Params(Listing { values }): Params<Listing>,
) -> Result<Json<Attributes>, ApiError> {
    let values = values.unwrap_or(VALUES_DEFAULT);
    if values > VALUES_MAX {
        return Err(ApiError::field("values", format!("must be from 0 to {VALUES_MAX}, got {values}")));
    }
    let found = node.predictor.catalog().attributes(&model, values)?;
    Ok(Json(Attributes { attributes: found.into_iter().map(Into::into).collect() }))
}
