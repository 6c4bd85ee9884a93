//! Devices and hours, and what they are worth to genres.

use celeris_model::{Context, ContextValue};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// The devices of contexts.
pub const DEVICES: [&str; 3] = ["phone", "tablet", "desktop"];

/// The shares of the devices.
const DEVICE_SHARES: [f64; 3] = [0.5, 0.2, 0.3];

/// The hours at which the parts of the day begin that have effects; the first part lasts from midnight to the first one.
pub const HOUR_EDGES: [u8; 3] = [6, 12, 18];

const DAY_PARTS: usize = HOUR_EDGES.len() + 1;

/// A device and an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    /// Its place in [`DEVICES`].
    pub device: usize,
    /// From 0 to 23.
    pub hour: u8,
}

impl Circumstances {
    /// The part of the day, from 0; each begins at an edge of [`HOUR_EDGES`].
    #[must_use]
    pub fn day_part(self) -> usize {
        HOUR_EDGES.iter().filter(|edge| **edge <= self.hour).count()
    }

    /// As a client describes them.
    #[must_use]
    pub fn context(self) -> Context {
        let device = ContextValue::Text(DEVICES[self.device].to_owned());
        let fields = [("device", device), ("hour", ContextValue::Number(self.hour.into()))];
        Context::new(fields.map(|(name, value)| (name.to_owned(), value))).expect("two short fields are a context")
    }

    pub(super) fn draw(rng: &mut ChaCha8Rng) -> Self {
        let at = rng.random::<f64>();
        let mut end = 0.0;
        let device = DEVICE_SHARES.iter().position(|share| {
            end += share;
            at < end
        });
        Self { device: device.unwrap_or(DEVICES.len() - 1), hour: rng.random_range(0..24) }
    }
}

/// What device and part of the day are worth to each genre.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Effects {
    by_device: Vec<[f64; DEVICES.len()]>,
    by_day_part: Vec<[f64; DAY_PARTS]>,
}

impl Effects {
    /// Independent normal effects, each with this standard deviation.
    pub(super) fn draw(genres: usize, deviation: f64, rng: &mut ChaCha8Rng) -> Self {
        Self {
            by_device: (0..genres).map(|_| normals(deviation, rng)).collect(),
            by_day_part: (0..genres).map(|_| normals(deviation, rng)).collect(),
        }
    }

    /// The effect on a genre, by its place.
    pub(super) fn of(&self, genre: usize, circumstances: Circumstances) -> f64 {
        self.by_device[genre][circumstances.device] + self.by_day_part[genre][circumstances.day_part()]
    }
}

/// Independent normal numbers with this standard deviation.
pub(super) fn normals<const N: usize>(deviation: f64, rng: &mut ChaCha8Rng) -> [f64; N] {
    std::array::from_fn(|_| {
        let number: f64 = StandardNormal.sample(rng);
        deviation * number
    })
}
