//! The users in bodies.

use celeris_model::{UserEpoch, UserId};

use super::for_user::Named;
use crate::schema::consistency::Consistency;
use crate::schema::observations::ObserveBody;
use crate::schema::personalizer::{RankBody, RankSlotsBody};
use crate::schema::predictions::PredictBody;
use crate::schema::rankings::{RecommendBody, TopkBody};
use crate::state::Node;

impl Named for PredictBody {
    fn user(&self) -> Option<&UserId> {
        Some(&self.user)
    }

    fn reads(&self) -> Option<(Consistency, Option<UserEpoch>)> {
        Some((self.consistency, self.min_epoch))
    }
}

impl Named for TopkBody {
    fn user(&self) -> Option<&UserId> {
        Some(&self.user)
    }

    fn reads(&self) -> Option<(Consistency, Option<UserEpoch>)> {
        Some((self.consistency, self.min_epoch))
    }
}

impl Named for RecommendBody {
    /// Of a group, the first: the node reads the histories of the others from its copy.
    fn user(&self) -> Option<&UserId> {
        self.user.as_ref().or_else(|| self.users.as_ref()?.first())
    }

    fn reads(&self) -> Option<(Consistency, Option<UserEpoch>)> {
        Some((self.consistency, self.min_epoch))
    }
}

impl Named for ObserveBody {
    fn user(&self) -> Option<&UserId> {
        Some(&self.user)
    }

    fn is_repeatable(&self) -> bool {
        self.observation_id.is_some()
    }

    fn reads(&self) -> Option<(Consistency, Option<UserEpoch>)> {
        None
    }
}

impl Named for RankBody {
    fn complete(&mut self, node: &Node) {
        self.circumstances = node.personalizer.circumstances(&self.context_features);
    }

    fn user(&self) -> Option<&UserId> {
        self.circumstances.user.as_ref()
    }

    fn reads(&self) -> Option<(Consistency, Option<UserEpoch>)> {
        Some((Consistency::default(), None))
    }
}

impl Named for RankSlotsBody {
    fn complete(&mut self, node: &Node) {
        self.circumstances = node.personalizer.circumstances(&self.context_features);
    }

    fn user(&self) -> Option<&UserId> {
        self.circumstances.user.as_ref()
    }

    fn reads(&self) -> Option<(Consistency, Option<UserEpoch>)> {
        Some((Consistency::default(), None))
    }
}
