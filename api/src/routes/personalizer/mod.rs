//! Requests in the form of Azure Personalizer. `crate::personalizer` maps paths, keys and errors.

mod actions;
mod rank;
mod rewards;
mod service;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(super) use self::actions::write_here;
use crate::state::Node;

/// Routes that serve users.
pub fn router() -> OpenApiRouter<Node> {
    OpenApiRouter::new()
        .routes(routes!(rank::personalizer_rank))
        .routes(routes!(rank::personalizer_rank_slots))
        .routes(routes!(rewards::personalizer_reward))
        .routes(routes!(rewards::personalizer_reward_slots))
        .routes(routes!(rewards::personalizer_activate))
        .routes(routes!(rewards::personalizer_activate_slots))
}

/// Routes of operators.
pub fn operating() -> OpenApiRouter<Node> {
    OpenApiRouter::new().routes(routes!(service::get_personalizer_service, service::put_personalizer_service))
}
