//! EASE and the library `implicit`, each with the settings that find held-out items best.

use celeris_datasets::Rating as NamedRating;
use celeris_retrain::{Rating, Ratings};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::TRAININGS;
use super::ease::Ease;
use super::peer::{Factors, Peer};
use super::report::Lists;
use super::scene::Scene;
use crate::lists::Taken;
use crate::peers::trainers::PeerSettings;
use crate::{EvaluateSettings, Numbered, by_user};

/// Candidates for EASE.
const LAMBDAS: [f64; 6] = [10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0];

/// Candidates for the library: its default and others, with half, equal and double `dim` factors.
const REGULARIZATIONS: [f64; 4] = [0.01, 2.0, 8.0, 32.0];

/// The default of the library.
const ITERATIONS: usize = 15;

/// One pair in this many is held out; the setting with the highest NDCG at 20 for them is chosen.
const HELD_OUT_ONE_IN: usize = 10;

/// A candidate for the library.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Setting {
    pub(super) factors: usize,
    pub(super) regularization: f64,
}

/// The training data.
pub(super) struct Known<'a> {
    pub(super) rows: &'a [NamedRating],
    pub(super) numbered: &'a Numbered,
    pub(super) settings: &'a EvaluateSettings<'a>,
}

/// A random tenth of the training data, and the rest.
struct HeldOut {
    rest: Vec<NamedRating>,
    counts: Vec<u32>,
    taken: Vec<Vec<Rating>>,
    tested: Vec<Rating>,
}

impl HeldOut {
    /// The candidate whose lists find the held-out items best.
    fn best<C: Copy>(
        &self,
        candidates: &[C],
        lists: impl Fn(C, &Scene) -> anyhow::Result<Vec<Vec<u32>>>,
    ) -> anyhow::Result<C> {
        let taken = Taken { counts: &self.counts, by_user: &self.taken };
        let scene = Scene { taken, times: &[], tested: &self.tested };
        let mut best = (f64::NEG_INFINITY, candidates[0]);
        for candidate in candidates {
            let found = Lists::of(&[lists(*candidate, &scene)?], &self.tested).ndcg_at_20;
            if found > best.0 {
                best = (found, *candidate);
            }
        }
        Ok(best.1)
    }
}

impl Known<'_> {
    fn held_out(&self) -> anyhow::Result<HeldOut> {
        let mut rest = self.rows.to_vec();
        rest.shuffle(&mut ChaCha8Rng::seed_from_u64(self.settings.seed));
        let tested = rest.split_off(rest.len() - rest.len() / HELD_OUT_ONE_IN);
        let (known, tested) = (self.numbered.numbers(&rest), self.numbered.numbers(&tested));
        let (users, items) = (self.numbered.users.len(), self.numbered.items.len());
        let counts = Ratings::new(users, items, known.clone())?.observed();
        Ok(HeldOut { rest, counts, taken: by_user(users, &known), tested })
    }

    /// The regularization and lists of EASE; `None` if its closed form is too expensive.
    pub(super) fn ease(&self, scene: &Scene) -> anyhow::Result<Option<(f64, Lists)>> {
        let (users, items) = (self.numbered.users.len(), self.numbered.items.len());
        if !Ease::is_feasible(users, items) {
            return Ok(None);
        }
        self.settings.stage("EASE", None);
        let held_out = self.held_out()?;
        let lambda = held_out
            .best(&LAMBDAS, |lambda, scene| Ok(scene.of_ease(&Ease::solve(items, scene.taken.by_user, lambda)?)))?;
        let lists = scene.of_ease(&Ease::solve(items, scene.taken.by_user, lambda)?);
        Ok(Some((lambda, Lists::of(&[lists], scene.tested))))
    }

    /// The settings and lists of the library; `None` if it is not installed.
    pub(super) fn implicit(&self, scene: &Scene) -> anyhow::Result<Option<(Setting, Lists)>> {
        let Some(peer) = Peer::find()? else { return Ok(None) };
        self.settings.stage("training the library implicit", None);
        let held_out = self.held_out()?;
        let setting = held_out.best(&candidates(self.settings.dim), |setting, scene| {
            let factors = self.factors(&peer, &held_out.rest, (setting, self.settings.seed))?;
            Ok(scene.of_factors(&factors, self.numbered, setting.factors))
        })?;
        let mut trainings = Vec::new();
        for number in 0..TRAININGS {
            let seed = self.settings.seed.wrapping_add(number);
            let factors = self.factors(&peer, self.rows, (setting, seed))?;
            trainings.push(scene.of_factors(&factors, self.numbered, setting.factors));
        }
        Ok(Some((setting, Lists::of(&trainings, scene.tested))))
    }

    fn factors(&self, peer: &Peer, rows: &[NamedRating], (of, seed): (Setting, u64)) -> anyhow::Result<Factors> {
        let Setting { factors, regularization } = of;
        peer.train(rows, PeerSettings { factors, iterations: ITERATIONS, regularization, seed })
    }
}

fn candidates(dim: usize) -> Vec<Setting> {
    let of_factors = |factors| REGULARIZATIONS.map(|regularization| Setting { factors, regularization });
    [dim.div_ceil(2), dim, 2 * dim].into_iter().flat_map(of_factors).collect()
}
