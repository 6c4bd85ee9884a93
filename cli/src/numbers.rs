//! Whole numbers on the command line.

use std::num::IntErrorKind;

/// The whole number of a text such as `1000000`, `1_000_000` or `1e6`.
///
/// # Errors
/// What is expected.
pub fn whole(text: &str) -> Result<u64, String> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    match digits.parse::<u64>() {
        Ok(number) => return Ok(number),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => return Err(too_large(text)),
        Err(_) => {}
    }
    let (mantissa, exponent) = digits.split_once(['e', 'E']).ok_or_else(|| not_whole(text))?;
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: u32 = exponent.parse().map_err(|_| not_whole(text))?;
    let after = after.trim_end_matches('0');
    let zeros = u32::try_from(after.len()).ok().and_then(|places| exponent.checked_sub(places));
    let zeros = zeros.ok_or_else(|| not_whole(text))?;
    if before.is_empty() || !before.chars().chain(after.chars()).all(|c| c.is_ascii_digit()) {
        return Err(not_whole(text));
    }
    let shown: u64 = format!("{before}{after}").parse().map_err(|_| too_large(text))?;
    let scale = 10_u64.checked_pow(zeros);
    scale.and_then(|scale| shown.checked_mul(scale)).ok_or_else(|| too_large(text))
}

/// As [`whole`], for a number of things in memory.
///
/// # Errors
/// What is expected.
pub fn count(text: &str) -> Result<usize, String> {
    usize::try_from(whole(text)?).map_err(|_| too_large(text))
}

fn not_whole(text: &str) -> String {
    format!("expected a whole number such as 1000000, 1_000_000 or 1e6, got {text:?}")
}

fn too_large(text: &str) -> String {
    format!("{text} is beyond the largest number that is counted, {}", u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn whole_numbers_are_read_as_people_write_them() {
        for (text, number) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("1_000_000", 1_000_000),
            ("1e6", 1_000_000),
            ("2.5E3", 2_500),
            ("1.20e1", 12),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(whole(text).unwrap(), number, "{text}");
        }
        for text in ["lots", "", "-1", "1.5", "1e-3", "1.25e1", "e6", "1e", ".5e1", "0x10", "1,000", "-1e3", "1e+"] {
            assert!(whole(text).unwrap_err().contains("expected a whole number"), "{text}");
        }
        for text in ["18446744073709551616", "1e20", "99e18"] {
            assert!(whole(text).unwrap_err().contains("beyond"), "{text}");
        }
    }
}
