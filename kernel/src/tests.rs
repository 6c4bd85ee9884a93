use super::codes::{self, BLOCK_ROWS, GROUP, Multiplier, QUERY_MAX};
use super::{InstructionSet, ROWS};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Rounding of a sum of `dim` products, relative to the sum of their magnitudes, which here are
/// below 1 each.
fn tolerance(dim: usize) -> f32 {
    2.0 * dim as f32 * f32::EPSILON
}

fn uniform(rng: &mut ChaCha8Rng, count: usize) -> Vec<f32> {
    (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn symmetric(rng: &mut ChaCha8Rng, dim: usize) -> Vec<f32> {
    let mut matrix = uniform(rng, dim * dim);
    for i in 0..dim {
        for j in 0..i {
            matrix[i * dim + j] = matrix[j * dim + i];
        }
    }
    matrix
}

fn in_f64(matrix: &[f32], row: &[f32]) -> Vec<f64> {
    let products = |entries: &[f32]| entries.iter().zip(row).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    matrix.chunks_exact(row.len()).map(products).collect()
}

/// Every length up to two registers and a block of columns, and some longer ones.
fn dims() -> impl Iterator<Item = usize> {
    (1..=68).chain([100, 127, 128, 129, 200, 255, 512])
}

#[test]
fn every_instruction_set_computes_the_same_products() {
    for set in InstructionSet::available() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for dim in dims() {
            let (matrix, weights, row) = (symmetric(&mut rng, dim), uniform(&mut rng, dim), uniform(&mut rng, dim));
            let exact = in_f64(&matrix, &row);
            let close = |ours: f32, exact: f64, scale: f32| {
                assert!((f64::from(ours) - exact).abs() <= f64::from(tolerance(dim) * scale), "{set:?} at {dim}");
            };
            let mut product = vec![f32::NAN; dim];
            let [spread, response] = set.multiply(&matrix, &weights, &row, &mut product);
            for (ours, exact) in product.iter().zip(&exact) {
                close(*ours, *exact, dim as f32);
            }
            let quadratic: f64 = exact.iter().zip(&row).map(|(a, b)| a * f64::from(*b)).sum();
            close(spread, quadratic, (dim * dim) as f32);
            close(response, in_f64(&weights, &row)[0], dim as f32);
            close(set.quadratic(&matrix, &[&row], dim)[0], quadratic, (dim * dim) as f32);
            close(set.dot(&weights, &row), in_f64(&weights, &row)[0], dim as f32);
        }
    }
}

#[test]
fn every_instruction_set_reduces_a_matrix_and_multiplies_by_it() {
    for set in InstructionSet::available() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for dim in dims() {
            let (before, reduction) = (symmetric(&mut rng, dim), uniform(&mut rng, dim));
            let (weights, row) = (uniform(&mut rng, dim), uniform(&mut rng, dim));
            let (mut matrix, mut product) = (before.clone(), vec![f32::NAN; dim]);
            let [spread, response] = set.reduce_and_multiply(&mut matrix, &reduction, &weights, &row, &mut product);
            for i in 0..dim {
                for j in 0..dim {
                    let exact = before[i * dim + j] - reduction[i] * reduction[j];
                    assert!((matrix[i * dim + j] - exact).abs() <= 4.0 * f32::EPSILON, "{set:?} at {dim}");
                    assert_eq!(matrix[i * dim + j].to_bits(), matrix[j * dim + i].to_bits(), "{set:?} at {dim}");
                }
            }
            let mut expected = vec![f32::NAN; dim];
            let dots = set.multiply(&matrix, &weights, &row, &mut expected);
            assert_eq!(([spread, response], product), (dots, expected), "{set:?} at {dim}");
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    for set in InstructionSet::available() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for dim in dims() {
            let (matrix, weights) = (symmetric(&mut rng, dim), uniform(&mut rng, dim));
            let table = uniform(&mut rng, ROWS * dim);
            let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &table[row * dim..(row + 1) * dim]);
            let (dots, quadratics) = (set.dots(&weights, &rows), set.quadratics(&matrix, &rows, dim));
            let offsets = uniform(&mut rng, ROWS);
            let mut scores = [f32::NAN; ROWS];
            set.score_rows(&weights, &offsets, &table, &mut scores);
            for row in 0..ROWS {
                let alone = set.dot(&weights, rows[row]);
                assert_eq!(dots[row].to_bits(), alone.to_bits(), "{set:?} at {dim}");
                assert_eq!(scores[row].to_bits(), (offsets[row] + alone).to_bits(), "{set:?} at {dim}");
                let alone = set.quadratic(&matrix, &[rows[row]], dim)[0];
                assert_eq!(quadratics[row].to_bits(), alone.to_bits(), "{set:?} at {dim}");
            }
        }
    }
}

#[test]
fn a_pass_adds_the_value_to_every_entry() {
    for set in InstructionSet::available() {
        for dim in dims() {
            let before: Vec<f32> = (0..dim).map(|index| index as f32).collect();
            let mut after = before.clone();
            set.pass(&mut after, 0.0);
            assert_eq!(after, before);
            set.pass(&mut after, 1.0);
            assert!(after.iter().zip(&before).all(|(after, before)| *after == before + 1.0), "{set:?} at {dim}");
        }
    }
}

#[test]
fn every_instruction_set_inverts_and_sums_the_same_way() {
    for set in InstructionSet::available() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for dim in dims().filter(|dim| *dim <= 200) {
            let (count, stride) = (dim + 3, super::padded(dim));
            let mut rows = vec![0.0; count * stride];
            for row in rows.chunks_exact_mut(stride) {
                row[..dim].fill_with(|| rng.random_range(-1.0..1.0));
            }
            let scales: Vec<f64> = (0..count).map(|_| rng.random_range(0.1..1.0)).collect();
            let mut triangle = vec![0.0; dim * (dim + 1) / 2];
            let mut one_by_one = triangle.clone();
            set.add_outers(&mut triangle, &rows, &scales, dim);
            for (row, scale) in rows.chunks_exact(stride).zip(&scales) {
                set.add_outers(&mut one_by_one, row, &[*scale], dim);
            }
            assert_eq!(triangle, one_by_one, "{set:?} at {dim}: the number of rows per call changes no bit");
            let x = nalgebra::DMatrix::from_fn(count, dim, |k, i| rows[k * stride + i] * scales[k].sqrt());
            let gram = x.tr_mul(&x);
            let entry = |i: usize, j: usize| triangle[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)];
            let sums = nalgebra::DMatrix::from_fn(dim, dim, entry);
            assert!((&sums - gram).norm() <= 1e-13 * sums.norm(), "{set:?} at {dim}");

            let matrix = &sums + nalgebra::DMatrix::identity(dim, dim);
            let mut inverse = matrix.as_slice().to_vec();
            assert!(set.invert(&mut inverse, dim));
            let ours = nalgebra::DMatrix::from_vec(dim, dim, inverse);
            let left = (&matrix * &ours - nalgebra::DMatrix::identity(dim, dim)).norm();
            assert!(left <= 1e-12 * dim as f64, "{set:?} at {dim}: {left:e}");
            assert!((0..dim).all(|i| (0..i).all(|j| ours[(i, j)].to_bits() == ours[(j, i)].to_bits())));
            let mut indefinite = matrix.as_slice().to_vec();
            indefinite[dim * dim - 1] = -1.0;
            assert!(!set.invert(&mut indefinite, dim), "{set:?} at {dim}");

            let singles = uniform(&mut rng, dim);
            let exact: f64 = rows[..dim].iter().zip(&singles).map(|(a, b)| a * f64::from(*b)).sum();
            let close = (set.dot_double(&rows[..dim], &singles) - exact).abs() <= 1e-15 * dim as f64;
            assert!(close, "{set:?} at {dim}");
        }
    }
}

#[test]
fn every_instruction_set_sums_up_the_same_normal_equations() {
    for set in InstructionSet::available() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for stride in [16, 32, 48, 64, 144] {
            for count in [0, 1, 7, 8, 9, 40] {
                let rows = uniform(&mut rng, count * stride);
                let row = |k: usize| &rows[k * stride..(k + 1) * stride];
                let mut sums = vec![f32::NAN; stride * stride];
                set.gram(&rows, &mut sums, stride);
                let allowed = f64::from(tolerance(count.max(1)));
                for i in 0..stride {
                    for j in i..stride {
                        let exact: f64 = (0..count).map(|k| f64::from(row(k)[i]) * f64::from(row(k)[j])).sum();
                        let sum = f64::from(sums[i * stride + j]);
                        assert!((sum - exact).abs() <= allowed, "{set:?}, {count} rows of {stride}: {sum} {exact}");
                    }
                }
                let vector = uniform(&mut rng, stride);
                let (constants, slopes) = (uniform(&mut rng, count), uniform(&mut rng, count));
                let mut out = uniform(&mut rng, stride);
                let mut exact: Vec<f64> = out.iter().map(|x| f64::from(*x)).collect();
                for k in 0..count {
                    let weight = f64::from(constants[k]) + f64::from(slopes[k]) * in_f64(row(k), &vector)[0];
                    exact.iter_mut().zip(row(k)).for_each(|(sum, x)| *sum += weight * f64::from(*x));
                }
                set.add_weighted(&rows, &vector, &constants, &slopes, &mut out);
                let allowed = f64::from(tolerance(stride) * stride as f32 * (count + 1) as f32);
                for (ours, exact) in out.iter().zip(&exact) {
                    assert!((f64::from(*ours) - exact).abs() <= allowed, "{set:?}, {count} rows of {stride}");
                }
            }
        }
    }
}

#[test]
fn every_instruction_set_finds_the_same_rows_of_a_block() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for groups in [1, 2, 13, 128] {
        let columns = groups * GROUP;
        for extreme in [false, true] {
            // With the largest codes and entries, the case in which 16-bit sums would overflow
            // first.
            let mut entry = || if extreme { QUERY_MAX } else { rng.random_range(-QUERY_MAX..=QUERY_MAX) };
            let query: Vec<i8> = (0..columns).map(|_| entry()).collect();
            let mut code = || if extreme { u8::MAX } else { rng.random_range(0..=u8::MAX) };
            let block: Vec<u8> = (0..columns * BLOCK_ROWS).map(|_| code()).collect();
            let product = |row: usize| -> i32 {
                (0..columns).map(|at| i32::from(block[codes::place(row, at)]) * i32::from(query[at])).sum()
            };
            for least in [i32::MIN, product(0), product(17), product(63) + 1, 0, i32::MAX] {
                let expected =
                    (0..BLOCK_ROWS).filter(|row| product(*row) >= least).fold(0, |mask, row| mask | 1 << row);
                for multiplier in Multiplier::available() {
                    let found = multiplier.rows_reaching(&block, &query, least);
                    assert_eq!(found, expected, "{multiplier:?}, {columns} columns, {least} or more");
                }
            }
        }
    }
}
