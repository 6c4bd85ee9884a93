//! The estimates as a table.

use celeris_api::schema::policy_evaluation::Estimators;

/// Formats the estimates as lines of a table.
pub fn table(estimators: &Estimators) -> String {
    let mut text = format!("  {:<10} {:>9}  {:<20} {:>12}\n", "", "value", "95 % interval", "effective");
    for (name, estimate) in estimators.named() {
        let line = match (estimate.value, estimate.low, estimate.high) {
            (Some(value), Some(low), Some(high)) => {
                let interval = format!("[{low:.5}, {high:.5}]");
                format!("  {name:<10} {value:>9.5}  {interval:<20} {:>12.1}\n", estimate.effective_sample_size)
            }
            _ => format!("  {name:<10} refused: {}\n", estimate.refused.as_deref().unwrap_or_default()),
        };
        text.push_str(&line);
    }
    text
}
