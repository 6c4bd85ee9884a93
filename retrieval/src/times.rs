//! Times as numbers: Unix milliseconds, which 64-bit floats represent exactly for 285,000 years.

/// Parses an RFC 3339 time to Unix milliseconds; `None` for any other string.
#[must_use]
pub(crate) fn unix_milliseconds(text: &str) -> Option<f64> {
    // A cheap test of the shape first: most strings are not times.
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= "2000-01-01T00:00:00Z".len() && bytes[4] == b'-' && bytes[7] == b'-';
    let parsed: jiff::Timestamp = shaped.then(|| text.parse().ok())??;
    Some(parsed.as_millisecond() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rfc_3339_times_are_parsed() {
        assert_eq!(unix_milliseconds("1970-01-01T00:00:01Z"), Some(1000.0));
        assert_eq!(unix_milliseconds("1970-01-01T01:00:00+01:00"), Some(0.0));
        for other in ["", "1970-01-01", "Drama", "1970-01-01T00:00:01Zz", "2001-2002-2003 the odd years"] {
            assert_eq!(unix_milliseconds(other), None, "{other}");
        }
    }
}
