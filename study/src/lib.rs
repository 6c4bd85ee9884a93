//! Studies: a search among settings for those that give the lowest loss.
//!
//! A [`Study`] proposes settings ([`Study::ask`]), takes the losses that they were found to have
//! ([`Study::tell`]), and decides when to end. It is a state machine without I/O,
//! clock or global state: the time is an argument, random numbers follow from the study's seed and
//! the number of the trial, and the whole state is one JSON document. A study that was written and
//! read back goes on as if nothing had happened.
//!
//! Not in this crate: training, evaluation, processes, and what the settings mean.
//!
//! Modules: [`space`] is what is searched; [`sampler`] proposes the next point ([`gp`] is the
//! Gaussian process behind the default, `tpe` the crate of this name); [`collaborative`] decides
//! which trials continue from the best one so far; [`mod@importance`] tells how much of the differences
//! each setting explains; [`study`], [`trial`] and [`messages`] are the state machine; [`minima`] has
//! functions that tests and benches compare samplers on, and runs studies of them.
//!
//! The words are those of Optuna (Akiba et al. 2019), the protocol of workers that of Rafiki (Wang
//! et al. 2018, algorithms 1 and 2).

pub mod collaborative;
pub mod error;
pub mod gp;
pub mod history;
pub mod importance;
pub mod messages;
pub mod minima;
mod normal;
pub mod sampler;
pub mod settings;
pub mod space;
pub mod study;
pub mod trial;

pub use collaborative::{Collaborative, Start};
pub use error::StudyError;
pub use history::History;
pub use importance::importance;
pub use messages::{Asked, Assignment, Worker};
pub use sampler::Sampler;
pub use settings::Settings;
pub use space::{Axis, AxisSpec, Params, Space};
pub use study::{Ended, Study};
pub use trial::{Outcome, Trial, TrialState};
