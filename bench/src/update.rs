//! `celeris-bench update`: a rank-one update against the normal equations, and against a pass over
//! the same matrix.

use celeris_kernel as kernel;
use celeris_model::{Example, History, Learning, Prior, Timestamp, UserModel};
use nalgebra::{DMatrix, DVector, RealField};

use crate::Settings;
use crate::plot::{Figure, Series};
use crate::report::Report;
use crate::stopwatch::Least;
use celeris_cli::Failure;
use celeris_cli::estimate::scene;

/// Dimensions measured; Velox's figure goes up to 500.
const DIMS: [usize; 7] = [10, 20, 50, 100, 128, 200, 512];

/// Observations of the user before the update, which the baseline solves for.
const OBSERVATIONS: usize = 50;

/// Updates per sample: up to the next checkpoint, at 64, where the state is solved from scratch.
const STEPS: usize = 13;

/// A user's observations in memory.
struct Observations {
    dim: usize,
    features: Vec<f32>,
    labels: Vec<f32>,
    /// The choice vectors of the items; empty without them.
    choices: Vec<f32>,
}

impl Observations {
    fn invent(count: usize, dim: usize) -> Self {
        let mut rng = scene::rng(2);
        let features = scene::features(&mut rng, count, dim);
        // Any finite, non-constant label will do.
        let labels = features.chunks_exact(dim).map(|row| row.iter().sum::<f32>() / dim as f32).collect();
        Self { dim, features, labels, choices: Vec::new() }
    }

    /// The same, with choice vectors, which move the prior mean.
    fn with_choices(&self) -> Self {
        let choices = scene::features(&mut scene::rng(3), self.labels.len(), self.dim);
        Self { features: self.features.clone(), labels: self.labels.clone(), choices, ..*self }
    }
}

impl History for Observations {
    fn example(&self, index: u64) -> Example<'_> {
        let index = usize::try_from(index).expect("an index into memory");
        let of_item = index * self.dim..(index + 1) * self.dim;
        Example {
            features: &self.features[of_item.clone()],
            label: self.labels[index],
            offset: 0.0,
            weight: 1.0,
            timestamp: Timestamp(0),
            taken_before: None,
            choice: self.choices.get(of_item).unwrap_or_default(),
        }
    }
}

/// Forms `Lambda + X^T X` and `X^T y`, factorises, and solves.
fn resolve<T: RealField + Copy>(precision: &DMatrix<T>, x: &DMatrix<T>, y: &DVector<T>) -> Option<DVector<T>> {
    let mut gram = precision.clone();
    gram.gemm_tr(T::one(), x, x, T::one());
    let moment = x.tr_mul(y);
    Some(gram.cholesky()?.solve(&moment))
}

/// The same data as nalgebra matrices.
struct Dense<T> {
    precision: DMatrix<T>,
    x: DMatrix<T>,
    y: DVector<T>,
}

impl<T: RealField + Copy> Dense<T> {
    fn new(prior: &Prior, observations: &Observations, real: impl Fn(f64) -> T) -> Self {
        let dim = observations.dim;
        let entry = |value: &f32| real(f64::from(*value));
        let features = observations.features[..OBSERVATIONS * dim].iter().map(entry);
        Self {
            precision: DMatrix::from_row_iterator(dim, dim, prior.precision().iter().map(|value| real(*value))),
            x: DMatrix::from_row_iterator(OBSERVATIONS, dim, features),
            y: DVector::from_iterator(OBSERVATIONS, observations.labels[..OBSERVATIONS].iter().map(entry)),
        }
    }

    fn resolve(&self) -> Option<DVector<T>> {
        resolve(&self.precision, &self.x, &self.y)
    }
}

/// The costs at one dimension.
struct Costs {
    absorb: Least,
    /// With choice vectors.
    absorb_choices: Least,
    resolve: Least,
    pass: Least,
}

#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest f32 is what is asked for")]
fn measure(dim: usize, settings: &Settings) -> Result<Costs, Failure> {
    let prior = scene::prior(dim).map_err(Failure::other)?;
    let observations = Observations::invent(OBSERVATIONS + STEPS, dim);
    let learning = Learning::from(prior.clone());
    let choosing = observations.with_choices();
    let state = |of: &Observations| UserModel::rebuild(&learning, of, OBSERVATIONS as u64).map_err(Failure::other);
    let (start, start_choosing) = (state(&observations)?, state(&choosing)?);
    let (single, double) = (
        Dense::<f32>::new(&prior, &observations, |value| value as f32),
        Dense::<f64>::new(&prior, &observations, |value| value),
    );
    let mut matrix = vec![1.0_f32; dim * dim];
    let none = Least::NONE;
    let mut costs = Costs { absorb: none, absorb_choices: none, resolve: none, pass: none };
    for _ in 0..settings.pick(rounds(dim), 2) {
        // All are measured in turn, so that disturbances affect all of them.
        for (cost, start, of) in
            [(&mut costs.absorb, &start, &observations), (&mut costs.absorb_choices, &start_choosing, &choosing)]
        {
            let mut model = start.clone();
            let absorbed = cost.sample(STEPS, || (0..STEPS).try_for_each(|_| model.absorb(&learning, of)));
            absorbed.map_err(Failure::other)?;
            std::hint::black_box(&model);
        }
        costs.pass.sample(STEPS, || {
            for _ in 0..STEPS {
                kernel::pass(std::hint::black_box(&mut matrix));
            }
        });
        // The baseline is the faster of the two precisions.
        let solved = costs.resolve.sample(1, || single.resolve()).is_some();
        let solved = costs.resolve.sample(1, || double.resolve()).is_some() && solved;
        if !solved {
            return Err(Failure::other(format!("the normal equations of d = {dim} cannot be solved")));
        }
    }
    Ok(costs)
}

/// Fewer rounds for larger dimensions: about a second per dimension.
fn rounds(dim: usize) -> usize {
    (40_000_000 / (dim * dim * dim)).clamp(40, 4_000)
}

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("update");
    let (mut ours, mut solved) = (Vec::new(), Vec::new());
    for dim in DIMS {
        let costs = measure(dim, settings)?;
        report.compare(format!("resolve/d={dim}"), "us", costs.absorb.micros(), costs.resolve.micros());
        report.compare(format!("pass/d={dim}"), "us", costs.absorb.micros(), costs.pass.micros());
        report.compare(format!("choices/d={dim}"), "us", costs.absorb_choices.micros(), costs.absorb.micros());
        ours.push((dim as f64, costs.absorb.seconds() * 1e3));
        solved.push((dim as f64, costs.resolve.seconds() * 1e3));
    }
    if let Some(path) = settings.figure("update-latency.svg") {
        let figure = Figure {
            title: "Update latency against dimension (Velox, Figure 2.3)",
            x: "dimension d",
            y: "milliseconds an update",
            series: vec![
                Series { name: format!("normal equations of {OBSERVATIONS} observations, re-solved"), points: solved },
                Series { name: "Celeris, one rank-one step".to_owned(), points: ours },
            ],
        };
        figure.draw(&path)?;
    }
    Ok(report)
}
