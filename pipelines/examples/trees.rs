//! Times a tree ensemble: `cargo run --release --example trees -- MODEL ROWS [EXPECTED]`.
//!
//! MODEL is a LightGBM text model, ROWS holds rows of little-endian f32, EXPECTED the outputs of the model for them as
//! f64. Prints the least time of a pass over 1, 100 and 1,000 rows, and the largest difference from the expected
//! outputs.

use std::hint::black_box;
use std::time::Instant;

use celeris_pipelines::import::lightgbm;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, rows, expected @ ..] = arguments.as_slice() else {
        return Err("usage: trees MODEL ROWS [EXPECTED]".into());
    };
    let ensemble = lightgbm::read(&std::fs::read(model)?)?.ensemble;
    let (inputs, outputs) = (ensemble.inputs(), ensemble.outputs());
    let rows: Vec<f32> =
        std::fs::read(rows)?.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let mut lines = vec![format!("{} trees, {} nodes, {} bytes", ensemble.trees(), ensemble.nodes(), ensemble.bytes())];
    let mut out = vec![0.0; rows.len() / inputs * outputs];
    for (count, rounds) in [(1, 20_000), (100, 3000), (1000, 300)] {
        let rows = &rows[..count * inputs];
        let out = &mut out[..count * outputs];
        let pass = |out: &mut [f32]| {
            let start = Instant::now();
            if count == 1 {
                ensemble.score(black_box(rows), out);
            } else {
                ensemble.score_rows(black_box(rows), out);
            }
            start.elapsed()
        };
        let least = (0..rounds).map(|_| pass(black_box(out))).min().unwrap_or_default();
        lines.push(format!("rows={count}: {:.2} us", least.as_secs_f64() * 1e6));
    }
    if let [expected] = expected {
        ensemble.score_rows(&rows, &mut out);
        let expected = std::fs::read(expected)?;
        let expected = expected.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default()));
        let differences = out.iter().zip(expected).map(|(out, expected)| (f64::from(*out) - expected).abs());
        lines.push(format!("largest difference {:e}", differences.fold(0.0, f64::max)));
    }
    std::io::Write::write_all(&mut std::io::stdout(), (lines.join("\n") + "\n").as_bytes())?;
    Ok(())
}
