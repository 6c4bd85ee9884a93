//! Trainers.
mod als;
mod error;
mod learn;
pub mod prior_fit;
pub mod progress;
pub mod ratings;
mod served;
pub mod trainer;
mod traits;
mod tuning;

pub use error::RetrainError;
pub use learn::Pinned;
pub use progress::{JsonLines, Phase, Progress, Silent, Step};
pub use ratings::{Rating, Ratings};
pub use trainer::{Metrics, TrainSettings, Trained, train};
