//! Fault points: steps at which a test can stop this node, or one store, to kill it there or to
//! read what is not durable yet.
//!
//! They exist only with the feature `failpoints`, and do nothing until they are configured: those
//! of a process by [`configure`], those of a store in the process of a test by the crate `fail`.
//! Without the feature these functions are empty, and the crate `fail` is not linked.
//! `CONTRIBUTING.md` lists the points.

/// Configures the points that the environment variable `FAILPOINTS` names, as in
/// `training=pause;flip=panic`.
///
/// # Panics
/// With the feature, if the variable is malformed.
pub fn configure() {
    #[cfg(feature = "failpoints")]
    // The points stay configured until the process ends.
    std::mem::forget(fail::FailScenario::setup());
}

/// Performs the action that is configured for `point`, and first prints `reached POINT` on standard
/// error; does nothing if there is none.
#[inline]
pub fn reach(point: &str) {
    #[cfg(feature = "failpoints")]
    {
        if fail::list().iter().any(|(name, _)| name == point) {
            eprintln!("reached {point}");
        }
        fail::fail_point!(point);
    }
    #[cfg(not(feature = "failpoints"))]
    let _ = point;
}

/// The point `STEP FOLDER` of the store whose database is in this folder.
#[inline]
pub(crate) fn reach_in(folder: &std::path::Path, step: &str) {
    #[cfg(feature = "failpoints")]
    fail::fail_point!(&format!("{step} {}", folder.display()));
    #[cfg(not(feature = "failpoints"))]
    let _ = (folder, step);
}
