//! Rows scored in batches get the same bits as rows scored alone.

use celeris_model::{Example, Learning, Prior, Timestamp, UserModel};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn rows_have_the_same_bits_in_batches_of_any_size_and_alone() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for dim in [1, 3, 8, 15, 16, 17, 33, 50, 128] {
        for scale in [1.0_f32, 3_000.0] {
            let mut vector = |count: usize| -> Vec<f32> { (0..count).map(|_| rng.random_range(-1.0..1.0)).collect() };
            let (trained, table, offsets) = (vector(5 * dim), vector(41 * dim), vector(41));
            // One feature of large magnitude makes the matrix badly conditioned, which requires
            // double precision.
            let loud = |(index, x)| if index % dim == 0 { x * scale } else { x };
            let trained: Vec<f32> = trained.into_iter().enumerate().map(loud).collect();
            let history: Vec<Example> = trained
                .chunks_exact(dim)
                .map(|features| Example {
                    features,
                    label: 2.0,
                    offset: 0.5,
                    weight: 1.5,
                    timestamp: Timestamp(0),
                    taken_before: None,
                    choice: &[],
                })
                .collect();
            let learning = Learning::from(Prior::isotropic(dim, 2.0, 0.5).unwrap());
            let model = UserModel::rebuild(&learning, history.as_slice(), 5).unwrap();
            assert_eq!(model.is_double(), scale > 1.0 && dim > 1, "both precisions are tested");
            for count in [0, 1, 2, 7, 8, 9, 41] {
                let (offsets, rows) = (&offsets[..count], &table[..count * dim]);
                let (mut estimates, mut scores, mut gathered) = (Vec::new(), Vec::new(), Vec::new());
                model.estimate_all(&learning, offsets, rows, &mut estimates);
                model.score_all(offsets, rows, &mut scores);
                let backwards = offsets.iter().copied().zip(rows.chunks_exact(dim)).rev();
                model.estimate_rows(&learning, backwards, &mut gathered);
                gathered.reverse();
                assert_eq!((estimates.len(), scores.len(), gathered.len()), (count, count, count));
                for (index, row) in rows.chunks_exact(dim).enumerate() {
                    let alone = model.estimate(&learning, offsets[index], row);
                    assert_eq!(estimates[index], alone, "row {index} of {count} at {dim}");
                    assert_eq!(gathered[index], alone, "row {index} of {count} at {dim}");
                    assert_eq!(scores[index].to_bits(), alone.score.to_bits(), "row {index} of {count} at {dim}");
                }
            }
        }
    }
}
