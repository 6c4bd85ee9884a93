//! Whether a stream of losses has risen: the Page–Hinkley test. Pure.
//!
//! The test of Page ("Continuous inspection schemes", Biometrika 41, 1954, §2.2) in the form of Hinkley ("Inference about
//! the change-point from cumulative sum tests", Biometrika 58, 1971) that is usual for streams (Gama et al., "A survey
//! on concept drift adaptation", ACM Computing Surveys 46, 2014, §3.2.1): with the running mean `x̄_t`,
//!
//! ```text
//! m_t = sum_{i <= t} (x_i - x̄_i - delta),    M_t = min_{i <= t} m_i,    alarm when m_t - M_t > lambda.
//! ```
//!
//! So that `delta` and `lambda` mean the same for every model, losses are taken in standard deviations: `z = (x - x̄) /
//! s` with the running mean and deviation. Both are learnt alone from the first observations (`warm_up`); later losses
//! are first cut at `x̄ ± 5 s`, so that one absurd label neither raises an alarm nor blinds the test.
//!
//! *How often it is wrong.* Without a change, `m_t - M_t` is a random walk of drift `-delta`, reflected at 0. For
//! independent normal losses the mean time to an alarm is Siegmund's ("Sequential Analysis", 1985, eq. 2.57, with the
//! correction for discrete time), see [`observations_between_false_alarms`]. Squared errors are skewed and errors of one
//! user resemble each other, so defaults leave a wide margin.
//!
//! *How late it is.* After a rise by `r > delta` standard deviations, `m_t` grows by `r - delta` an observation: the alarm
//! comes after about `lambda / (r - delta)` observations.

use serde::{Deserialize, Serialize};

/// Losses further from the mean are cut, in standard deviations.
const CUT: f64 = 5.0;

/// Of a loss that has been (nearly) constant, any rise is one: its deviation is taken for at least this share of it.
const DEVIATION_SHARE_MIN: f64 = 1e-3;

/// The same for a constant loss of 0.
const DEVIATION_MIN: f64 = 1e-9;

/// What the test is told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DriftSettings {
    /// `delta`: a rise up to this is none, in standard deviations of the loss. 0.1 by default.
    pub tolerance: f64,
    /// `lambda`: how far the cumulative sum may rise above its minimum, in standard deviations. 100 by default.
    pub threshold: f64,
    /// Observations from which mean and deviation are learnt before the test begins. 500 by default.
    pub warm_up: u64,
}

impl Default for DriftSettings {
    fn default() -> Self {
        Self { tolerance: 0.1, threshold: 100.0, warm_up: 500 }
    }
}

/// A rise that the test has found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rise {
    /// The observations before it, counted from the beginning of the test: where the cumulative sum had its minimum,
    /// which is Hinkley's estimate of the change.
    pub before: u64,
    /// Their mean loss.
    pub mean_before: f64,
    /// The observations from there to the alarm.
    pub after: u64,
    /// Their mean loss.
    pub mean_after: f64,
    /// `m_t - M_t` at the alarm.
    pub statistic: f64,
}

/// The test, part of the way through a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct PageHinkley {
    settings: DriftSettings,
    count: u64,
    mean: f64,
    /// Sum of squared deviations from the mean (Welford 1962).
    squares: f64,
    /// `m_t - M_t`.
    statistic: f64,
    /// The observations up to the minimum, and the sum of their losses.
    before: (u64, f64),
    /// Those since.
    after: (u64, f64),
}

impl PageHinkley {
    /// A test that has seen nothing.
    #[must_use]
    pub fn new(settings: DriftSettings) -> Self {
        Self { settings, count: 0, mean: 0.0, squares: 0.0, statistic: 0.0, before: (0, 0.0), after: (0, 0.0) }
    }

    /// Takes in the next loss, which must be finite; answers the rise when this one raises the alarm.
    ///
    /// After an alarm the test goes on and answers with every loss for which the alarm holds; whoever has acted on one
    /// starts a new test.
    pub fn add(&mut self, loss: f64) -> Option<Rise> {
        let warm = self.count >= self.settings.warm_up;
        let loss = if warm { self.cut(loss) } else { loss };
        self.count += 1;
        let from_old_mean = loss - self.mean;
        self.mean += from_old_mean / self.count as f64;
        self.squares += from_old_mean * (loss - self.mean);
        self.after = (self.after.0 + 1, self.after.1 + loss);
        if !warm {
            self.minimum_is_here();
            return None;
        }
        self.statistic += (loss - self.mean) / self.deviation() - self.settings.tolerance;
        if self.statistic <= 0.0 {
            self.minimum_is_here();
        }
        (self.statistic > self.settings.threshold).then(|| self.rise())
    }

    fn cut(&self, loss: f64) -> f64 {
        let reach = CUT * self.deviation();
        loss.clamp(self.mean - reach, self.mean + reach)
    }

    fn minimum_is_here(&mut self) {
        self.statistic = 0.0;
        self.before = (self.before.0 + self.after.0, self.before.1 + self.after.1);
        self.after = (0, 0.0);
    }

    fn rise(&self) -> Rise {
        let mean = |(count, sum): (u64, f64)| if count == 0 { 0.0 } else { sum / count as f64 };
        Rise {
            before: self.before.0,
            mean_before: mean(self.before),
            after: self.after.0,
            mean_after: mean(self.after),
            statistic: self.statistic,
        }
    }

    fn deviation(&self) -> f64 {
        let variance = if self.count > 1 { self.squares / (self.count - 1) as f64 } else { 0.0 };
        variance.sqrt().max(DEVIATION_SHARE_MIN * self.mean.abs()).max(DEVIATION_MIN)
    }

    /// `m_t - M_t`, in standard deviations: 0 while there is nothing to see.
    #[must_use]
    pub fn statistic(&self) -> f64 {
        self.statistic
    }

    /// Observations taken in.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What it was told.
    #[must_use]
    pub fn settings(&self) -> &DriftSettings {
        &self.settings
    }
}

/// The mean number of independent, normally distributed losses from one false alarm to the next:
/// `(exp(2 delta b) - 2 delta b - 1) / (2 delta^2)` with `b = lambda + 1.166`; `(lambda + 1.166)^2` where `delta` is 0.
#[must_use]
pub fn observations_between_false_alarms(settings: &DriftSettings) -> f64 {
    let boundary = settings.threshold + 1.166;
    let (delta, exponent) = (settings.tolerance, 2.0 * settings.tolerance * boundary);
    // Where the exponent is small, the difference would be lost in rounding; its series begins with b^2.
    if exponent < 1e-4 { boundary * boundary } else { (exponent.exp_m1() - exponent) / (2.0 * delta * delta) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution as _, StandardNormal};

    use super::*;

    fn normal(random: &mut ChaCha8Rng) -> f64 {
        StandardNormal.sample(random)
    }

    /// What losses look like: errors of a normal prediction, squared.
    fn squared_error(random: &mut ChaCha8Rng, rmse: f64) -> f64 {
        (rmse * normal(random)).powi(2)
    }

    /// The log loss of calibrated predictions that are certain to a degree.
    fn log_loss(random: &mut ChaCha8Rng) -> f64 {
        let p = 1.0 / (1.0 + (-1.5 * normal(random)).exp());
        let clicked = normal(random) < 0.0;
        if clicked { -p.ln() } else { -(1.0 - p).ln() }
    }

    #[test]
    fn a_stationary_stream_raises_no_alarm_in_a_million_observations() {
        // Independent normal losses would take 3e10; skewed ones are far from it and still quiet.
        for seed in 0..50 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let (mut squared, mut logistic) =
                (PageHinkley::new(DriftSettings::default()), PageHinkley::new(DriftSettings::default()));
            for seen in 0..20_000 {
                assert_eq!(squared.add(squared_error(&mut random, 0.9)), None, "seed {seed}, squared, {seen}");
                assert_eq!(logistic.add(log_loss(&mut random)), None, "seed {seed}, logistic, {seen}");
            }
        }
    }

    #[test]
    fn false_alarms_are_as_frequent_as_stated() {
        let settings = DriftSettings { tolerance: 0.1, threshold: 15.0, warm_up: 20_000 };
        let stated = observations_between_false_alarms(&settings);
        assert!((1000.0..1100.0).contains(&stated), "eq. 2.57 gives 1055, not {stated}");
        let (mut observations, mut alarms) = (0_u64, 0_u64);
        for seed in 0..100 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut test = PageHinkley::new(settings);
            while test.count() < settings.warm_up {
                let _ = test.add(normal(&mut random));
            }
            for _ in 0..20_000 {
                observations += 1;
                if test.add(normal(&mut random)).is_some() {
                    alarms += 1;
                    test.minimum_is_here();
                }
            }
        }
        let measured = observations as f64 / alarms as f64;
        // Some 1900 alarms: a standard error of 2.3 %. The mean is estimated too, and the equation approximates.
        assert!((0.8..1.25).contains(&(measured / stated)), "stated {stated}, measured {measured}");
    }

    #[test]
    fn one_absurd_label_is_no_drift_and_hides_none() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut test = PageHinkley::new(DriftSettings::default());
        for _ in 0..2000 {
            assert_eq!(test.add(squared_error(&mut random, 0.9)), None);
        }
        assert_eq!(test.add(1e12), None);
        let risen = (0..400).find_map(|_| test.add(squared_error(&mut random, 1.4)));
        assert!(risen.is_some(), "a rise by half is found as if nothing had been");
    }

    #[test]
    fn a_rise_of_a_constant_loss_is_found() {
        let mut test = PageHinkley::new(DriftSettings::default());
        for _ in 0..1000 {
            assert_eq!(test.add(0.0), None);
        }
        assert!((0..1000).find_map(|_| test.add(0.25)).is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 64,
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(7),
            ..ProptestConfig::default()
        })]

        /// After a rise the alarm comes within the stated delay, tells where it began, and does not depend on the unit.
        #[test]
        fn a_rise_is_found_in_bounded_time(
            seed in 0_u64..1_000_000,
            stable in 1000_u64..20_000,
            factor in 1.4_f64..3.0,
            unit in 1e-3_f64..1e3,
        ) {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let settings = DriftSettings::default();
            let mut test = PageHinkley::new(settings);
            for _ in 0..stable {
                prop_assert_eq!(test.add(squared_error(&mut random, unit)), None);
            }
            // The mean of squared errors rises from u^2 to factor^2 u^2, whose deviation was sqrt(2) u^2. Cutting takes a
            // part of the rise, and the running mean follows: twice the time that these do not cost, and a little.
            let rise = (factor.powi(2) - 1.0) / 2.0_f64.sqrt();
            let delay = settings.threshold / (rise - settings.tolerance);
            let within = (2.0 * delay) as u64 + 100;
            let found = (1..=within).find_map(|_| test.add(squared_error(&mut random, factor * unit)));
            let found = found.ok_or_else(|| TestCaseError::fail(format!("not within {within}")))?;
            prop_assert!(found.mean_after > found.mean_before);
            prop_assert!(found.statistic > settings.threshold);
            // A walk of drift -0.1 returns to its minimum within some hundreds of steps, rarely a thousand: so much too
            // early the rise may seem to have begun.
            prop_assert!((stable.saturating_sub(2000)..stable + 100).contains(&found.before), "{found:?}");
        }

        /// A loss that falls, as of a model that learns, is no drift.
        #[test]
        fn a_fall_raises_no_alarm(seed in 0_u64..1_000_000, factor in 0.3_f64..1.0) {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut test = PageHinkley::new(DriftSettings::default());
            for _ in 0..2000 {
                prop_assert_eq!(test.add(squared_error(&mut random, 1.0)), None);
            }
            for _ in 0..5000 {
                prop_assert_eq!(test.add(squared_error(&mut random, factor)), None);
            }
        }
    }
}
