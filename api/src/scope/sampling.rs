//! Which requests are recorded.

use crate::config;

/// Which requests are recorded, of those that do not say it themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// From 0 to 1.
    share: f64,
    names_users: bool,
}

impl Sampling {
    #[cfg(test)]
    pub(super) fn new(share: f64) -> Self {
        Self { share, names_users: false }
    }

    /// `None` if nothing collects traces.
    #[must_use]
    pub fn open(config: &config::Tracing) -> Option<Self> {
        let _collector = config.endpoint.as_ref()?;
        Some(Self { share: config.sample, names_users: config.users })
    }

    /// Whether the next request is recorded.
    #[must_use]
    pub fn draw(&self) -> bool {
        self.share > 0.0 && rand::random::<f64>() < self.share
    }

    /// Whether spans name users.
    #[must_use]
    pub fn names_users(&self) -> bool {
        self.names_users
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_requests_recorded() {
        assert!((0..1000).all(|_| Sampling::new(1.0).draw() && !Sampling::new(0.0).draw()));
        let quarter = Sampling::new(0.25);
        let drawn = (0..10_000).filter(|_| quarter.draw()).count();
        // Seven standard deviations of 43.
        assert!((2_200..2_800).contains(&drawn), "{drawn}");
    }

    #[test]
    fn without_a_collector_nothing_is_recorded() {
        assert_eq!(Sampling::open(&config::Tracing::default()), None);
    }
}
