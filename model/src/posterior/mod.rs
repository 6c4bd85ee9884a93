//! The posterior of one user's weights: the prior, the losses, and the online regression with its
//! canonical form.

pub mod canonical;
mod choices;
pub mod learning;
pub mod prediction_loss;
pub mod preference;
pub mod prior;
mod rank_one;
pub mod recent_bias;
pub mod user_model;
