//! Loss curve over a model's lifetime in bounded memory: points are merged as their number grows.

use celeris_model::{Timestamp, VersionId};

use super::windows::Running;

/// Maximum number of points of a curve.
const POINTS_MAX: usize = 240;

/// Observations of a point before the first merge.
const POINT_OBSERVATIONS: u64 = 50;

/// Mean loss of consecutive observations under one version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// Number of records in the stream's log when the last of these observations was processed.
    pub position: u64,
    /// Time of that moment.
    pub at: Timestamp,
    /// The version that made the predictions.
    pub version: VersionId,
    /// Number of observations.
    pub count: u64,
    pub mean: f64,
}

/// Position of an observation in its stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    /// Number of records in the stream's log at that time.
    pub(crate) position: u64,
    /// Time of processing.
    pub(crate) at: Timestamp,
}

/// A loss curve, oldest point first.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    points: Vec<CurvePoint>,
    /// Observations of a point before the next point starts.
    point_observations: u64,
}

impl Default for Curve {
    fn default() -> Self {
        Self { points: Vec::new(), point_observations: POINT_OBSERVATIONS }
    }
}

impl Curve {
    pub(crate) fn add(&mut self, place: Place, version: VersionId, loss: f64) {
        if let Some(last) = self.points.last_mut()
            && last.version == version
            && last.count < self.point_observations
        {
            let mut running = Running { count: last.count, sum: last.mean * last.count as f64 };
            running.add(loss);
            (last.count, last.mean) = (running.count, running.sum / running.count as f64);
            (last.position, last.at) = (place.position, place.at);
            return;
        }
        if self.points.len() == POINTS_MAX {
            self.coarsen();
        }
        self.points.push(CurvePoint { position: place.position, at: place.at, version, count: 1, mean: loss });
    }

    /// Merges neighbouring points of the same version until half of the capacity is free. If
    /// versions change too often for that, the oldest points are dropped.
    fn coarsen(&mut self) {
        self.point_observations *= 2;
        let mut joined: Vec<CurvePoint> = Vec::with_capacity(POINTS_MAX);
        for point in self.points.drain(..) {
            match joined.last_mut() {
                Some(last) if last.version == point.version && last.count + point.count <= self.point_observations => {
                    let count = last.count + point.count;
                    let sum = last.mean * last.count as f64 + point.mean * point.count as f64;
                    *last = CurvePoint { count, mean: sum / count as f64, ..point };
                }
                _ => joined.push(point),
            }
        }
        let excess = joined.len().saturating_sub(POINTS_MAX * 3 / 4);
        joined.drain(..excess);
        self.points = joined;
    }

    pub(crate) fn points(&self) -> &[CurvePoint] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_has_few_points_that_cover_every_observation() {
        let mut curve = Curve::default();
        for position in 1..=100_000_u64 {
            let version = VersionId(1 + position / 40_000);
            curve.add(Place { position, at: Timestamp(position as i64) }, version, position as f64);
        }
        let points = curve.points();
        assert!(points.len() <= POINTS_MAX, "{}", points.len());
        assert_eq!(points.iter().map(|point| point.count).sum::<u64>(), 100_000);
        let mut position = 0;
        for point in points {
            let middle = (position + 1 + point.position) as f64 / 2.0;
            assert!((point.mean - middle).abs() < 1e-6, "{point:?} is the mean of what it covers");
            assert_eq!(point.version, VersionId(1 + point.position / 40_000), "no point joins two versions");
            position += point.count;
            assert_eq!(position, point.position);
        }
    }

    #[test]
    fn versions_that_follow_each_other_at_every_observation_stay_bounded() {
        let mut curve = Curve::default();
        for position in 1..=5000 {
            curve.add(Place { position, at: Timestamp(0) }, VersionId(position), 1.0);
        }
        assert!(curve.points().len() <= POINTS_MAX);
        assert_eq!(curve.points().last().map(|point| point.position), Some(5000));
    }
}
