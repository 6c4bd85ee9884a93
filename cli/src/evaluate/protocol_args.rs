//! Options of single protocols.

use celeris_evaluate::density::{DENSITIES_MAX, DensitySettings, ORDERS_MAX};
use celeris_evaluate::folds::FOLDS_MAX;
use celeris_evaluate::prequential::{PrequentialSettings, RETRAININGS_MAX};

use super::Protocol;
use crate::Failure;
use crate::numbers::count;

/// The options.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
pub struct ProtocolArgs {
    /// Numbers of training ratings of a user; protocols `density` and `table` only, 5,10,20,40,80 by
    /// default.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = count)]
    densities: Vec<usize>,
    /// Number of random orders of each user's ratings; protocols `density` and `table` only, 1 by default.
    #[arg(long, value_name = "N", value_parser = count)]
    orders: Option<usize>,
    /// The pair of files NAME.base and NAME.test in the folder of the data set, once for each fold; protocol `folds`
    /// only. By default all pairs whose names end with a number, such as u1 to u5, or all pairs if there are none.
    #[arg(long = "fold", value_name = "NAME")]
    pub folds: Vec<String>,
    /// The share of the rows to train on before the others are predicted one by one; protocols `prequential`
    /// and `table` only, 0.3 by default.
    #[arg(long, value_name = "SHARE")]
    first_share: Option<f64>,
    /// Number of retrainings along the stream; protocols `prequential` and `table` only, 10 by default.
    #[arg(long, value_name = "N", value_parser = count)]
    retrainings: Option<usize>,
}

impl ProtocolArgs {
    /// Refuses options that do not go with the protocol.
    ///
    /// # Errors
    /// Bad usage.
    pub fn check(&self, protocol: Protocol) -> Result<(), Failure> {
        let of = |is_given: bool, protocols: &[Protocol], problem: &str| {
            if is_given && !protocols.contains(&protocol) { Err(Failure::bad_input(problem)) } else { Ok(()) }
        };
        let of_density = !self.densities.is_empty() || self.orders.is_some();
        of(
            of_density,
            &[Protocol::Density, Protocol::Table],
            "--densities and --orders go with --protocol density or table",
        )?;
        of(!self.folds.is_empty(), &[Protocol::Folds], "--fold goes with --protocol folds")?;
        let of_stream = self.first_share.is_some() || self.retrainings.is_some();
        let problem = "--first-share and --retrainings go with --protocol prequential or table";
        of(of_stream, &[Protocol::Prequential, Protocol::Table], problem)?;
        self.check_ranges()
    }

    fn check_ranges(&self) -> Result<(), Failure> {
        let within = |name: &str, value: usize, min: usize, max: usize| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(Failure::bad_input(format!("{name} must be {min} to {max}, got {value}")))
        };
        if self.densities.contains(&0) {
            return Err(Failure::bad_input("--densities must be at least 1, got 0"));
        }
        within("the number of --densities", self.densities.len(), 0, DENSITIES_MAX)?;
        within("--orders", self.orders.unwrap_or(1), 1, ORDERS_MAX)?;
        within("the number of --fold", self.folds.len(), 0, FOLDS_MAX)?;
        within("--retrainings", self.retrainings.unwrap_or_default(), 0, RETRAININGS_MAX)?;
        match self.first_share {
            Some(share) if !(share > 0.0 && share < 1.0) => {
                Err(Failure::bad_input(format!("--first-share must be above 0 and below 1, got {share}")))
            }
            _ => Ok(()),
        }
    }

    pub fn density(&self) -> DensitySettings {
        let mut settings = DensitySettings::default();
        if !self.densities.is_empty() {
            settings.densities.clone_from(&self.densities);
        }
        settings.orders = self.orders.unwrap_or(settings.orders);
        settings
    }

    pub fn prequential(&self) -> PrequentialSettings {
        let PrequentialSettings { first_share, retrainings } = PrequentialSettings::default();
        PrequentialSettings {
            first_share: self.first_share.unwrap_or(first_share),
            retrainings: self.retrainings.unwrap_or(retrainings),
        }
    }
}
