//! The bounds of the numbers of a version; they apply to every trainer.
//!
//! They are far beyond the result of any training on sound data, and small enough that scores,
//! uncertainties and losses under the version are finite for any user: a score is a sum of at most
//! [`DIM_MAX`](celeris_formats::version_dir::DIM_MAX) products of a weight and a feature.

use std::path::Path;

use celeris_formats::manifest::{MANIFEST_FILE, Manifest};
use celeris_formats::{FormatError, cold_map, item_features, prior, user_map};
use celeris_model::prior::CONDITION_MAX;
use celeris_model::{Prior, linear};

use crate::cold_map::ColdMap;
use crate::error::FeaturesError;
use crate::table::{OFFSET_ABS_MAX, Theta};
use crate::user_map::UserMap;

/// The largest magnitude of a mean weight.
pub const MEAN_ABS_MAX: f64 = 1e7;

/// The largest row sum of magnitudes of the precision: the strongest prior.
pub const PRECISION_NORM_MAX: f64 = 1e15;
/// The largest row sum of magnitudes of the precision's inverse: the weakest prior.
pub const INVERSE_NORM_MAX: f64 = 1e9;

/// The largest variance of a label around its expected value: ten times that of labels of the
/// largest magnitude.
pub const NOISE_VARIANCE_MAX: f64 = 1e13;

/// The largest magnitude of a label that a version was trained on.
const LABEL_ABS_MAX: f32 = celeris_model::observation::LABEL_ABS_MAX;

/// The largest magnitude of a coefficient of a map from attributes.
const COEFFICIENT_ABS_MAX: f32 = 1e7;
const COVARIANCE_ABS_MAX: f64 = 1e15;

/// The longest description of the training algorithm, and the longest name of a metric, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// Maximum number of metrics of a version.
const METRICS_MAX: usize = 256;

/// The parsed contents of a version directory.
pub(crate) struct Contents<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) manifest: &'a Manifest,
    pub(crate) theta: &'a Theta,
    pub(crate) prior: &'a Prior,
    pub(crate) cold_map: Option<&'a ColdMap>,
    pub(crate) user_map: Option<&'a UserMap>,
}

impl Contents<'_> {
    /// Checks that all numbers are within their bounds.
    ///
    /// # Errors
    /// [`FeaturesError::OutOfBounds`], naming the file and the figure, or
    /// [`FormatError::Manifest`].
    pub(crate) fn check(&self) -> Result<(), FeaturesError> {
        self.check_manifest()?;
        self.check_offsets()?;
        self.check_prior()?;
        if let Some(map) = self.user_map {
            let largest = f64::from(map.coefficient_max());
            self.within(user_map::FILE, "the largest coefficient", largest, COEFFICIENT_ABS_MAX)?;
        }
        let Some(map) = self.cold_map else { return Ok(()) };
        self.within(cold_map::FILE, "the largest coefficient", f64::from(map.coefficient_max()), COEFFICIENT_ABS_MAX)?;
        self.within(cold_map::FILE, "the largest residual covariance", map.covariance_max(), COVARIANCE_ABS_MAX)
    }

    fn check_manifest(&self) -> Result<(), FeaturesError> {
        let manifest = self.manifest;
        let refused =
            |problem: String| Err(FormatError::Manifest { path: self.dir.join(MANIFEST_FILE), problem }.into());
        let plain = |text: &str| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
        if !plain(&manifest.algorithm) || !manifest.metrics.keys().all(|name| plain(name)) {
            return refused(format!(
                "algorithm and the names of metrics must be at most {TEXT_BYTES_MAX} bytes without control characters"
            ));
        }
        if manifest.metrics.len() > METRICS_MAX {
            return refused(format!("has {} metrics, at most {METRICS_MAX} are kept", manifest.metrics.len()));
        }
        if let Some((low, high)) = manifest.label_range {
            self.within(MANIFEST_FILE, "the lower end of label_range", f64::from(low), LABEL_ABS_MAX)?;
            self.within(MANIFEST_FILE, "the upper end of label_range", f64::from(high), LABEL_ABS_MAX)?;
            if low > high {
                return refused(format!("label_range begins at {low} and ends at {high}; put the smaller label first"));
            }
        }
        self.within(MANIFEST_FILE, "noise_variance", manifest.noise_variance, NOISE_VARIANCE_MAX)
    }

    fn check_offsets(&self) -> Result<(), FeaturesError> {
        let cold = f64::from(self.theta.cold_item().offset);
        self.within(MANIFEST_FILE, "cold_item_offset", cold, OFFSET_ABS_MAX)?;
        for (item, offset) in self.theta.items().iter().zip(self.theta.offsets()) {
            if !within(f64::from(*offset), OFFSET_ABS_MAX) {
                let what = format!("the offset of item {item}");
                return Err(self.out_of_bounds(item_features::FILE, what, f64::from(*offset), OFFSET_ABS_MAX));
            }
        }
        Ok(())
    }

    fn check_prior(&self) -> Result<(), FeaturesError> {
        let (prior, dim) = (self.prior, self.prior.dim());
        for (row, mean) in prior.mean().iter().enumerate() {
            if !within(*mean, MEAN_ABS_MAX) {
                return Err(self.out_of_bounds(prior::FILE, format!("the mean in row {row}"), *mean, MEAN_ABS_MAX));
            }
        }
        let norm = linear::norm_inf(prior.precision(), dim);
        self.within(prior::FILE, "the largest row sum of the precision", norm, PRECISION_NORM_MAX)?;
        let inverse = linear::norm_inf(prior.inverse(), dim);
        self.within(prior::FILE, "the largest row sum of the precision's inverse", inverse, INVERSE_NORM_MAX)?;
        // The product is an upper bound of the condition; where it is small, the eigenvalues need
        // not be computed.
        if norm * inverse <= CONDITION_MAX {
            return Ok(());
        }
        self.within(prior::FILE, "the condition of the precision", prior.condition(), CONDITION_MAX)
    }

    fn within(&self, file: &str, what: &str, value: f64, max: impl Into<f64>) -> Result<(), FeaturesError> {
        let max = max.into();
        if within(value, max) { Ok(()) } else { Err(self.out_of_bounds(file, what.to_owned(), value, max)) }
    }

    fn out_of_bounds(&self, file: &str, what: String, value: f64, max: impl Into<f64>) -> FeaturesError {
        FeaturesError::OutOfBounds { path: self.dir.join(file), what, value, max: max.into() }
    }
}

/// NaN is not within any bound.
fn within(value: f64, max: impl Into<f64>) -> bool {
    value.abs() <= max.into()
}
