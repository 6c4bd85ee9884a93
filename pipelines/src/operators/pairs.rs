//! Columns and values in the order in which they were found.

/// Collects columns, of which several may be equal.
#[derive(Debug, Clone, Default)]
pub struct Pairs {
    /// Column, position and value.
    found: Vec<(u32, u32, f32)>,
}

impl Pairs {
    pub fn clear(&mut self) {
        self.found.clear();
    }

    pub fn push(&mut self, column: u32, value: f32) {
        self.found.push((column, self.found.len() as u32, value));
    }

    /// Writes the columns in ascending order, each once with the sum of its values in the order in which they were
    /// found, without those whose sum is 0.
    pub fn merge_into(&mut self, columns: &mut Vec<u32>, values: &mut Vec<f32>) {
        self.found.sort_unstable_by_key(|(column, position, _)| (*column, *position));
        for run in self.found.chunk_by(|one, other| one.0 == other.0) {
            let sum: f64 = run.iter().map(|(_, _, value)| f64::from(*value)).sum();
            if sum != 0.0 {
                columns.push(run[0].0);
                values.push(crate::values::bounded(sum));
            }
        }
    }
}
