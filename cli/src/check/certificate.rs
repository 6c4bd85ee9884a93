//! How long a certificate is valid.

use std::path::Path;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::finding::Findings;

/// Less time than this should be used to get another one.
const SOON_DAYS: i64 = 14;

pub fn check(file: &Path, findings: &mut Findings) {
    let Ok(certificate) = CertificateDer::from_pem_file(file) else { return };
    let Some((begin, end)) = validity(&certificate) else {
        let what = format!("{}: its times cannot be read", file.display());
        findings.warning("certificate", what, "check it by `openssl x509 -noout -dates`");
        return;
    };
    let now = Timestamp::now();
    let (name, shown) = (file.display(), "%Y-%m-%d %H:%M UTC");
    let until = format!("{name} is valid until {}", end.strftime(shown));
    if now >= end {
        findings.problem("certificate", format!("{name} has expired on {}", end.strftime(shown)), "renew it");
    } else if now < begin {
        let what = format!("{name} is valid from {} on", begin.strftime(shown));
        findings.problem("certificate", what, "wait, set the clock of this machine, or get one that is valid now");
    } else if end < now + (24 * SOON_DAYS).hours() {
        findings.warning("certificate", until, "renew it; a running node reads the files again when they change");
    } else {
        findings.ok("certificate", format!("{until}, and fits its key"));
    }
}

/// From when and until when a certificate is valid (RFC 5280, section 4.1).
fn validity(certificate: &[u8]) -> Option<(Timestamp, Timestamp)> {
    const SEQUENCE: u8 = 0x30;
    let (outer, _) = element(certificate, SEQUENCE)?;
    let (mut fields, _) = element(outer, SEQUENCE)?;
    // The version is optional.
    if let Some((_, rest)) = element(fields, 0xa0) {
        fields = rest;
    }
    // Serial number, algorithm and issuer.
    for tag in [0x02, SEQUENCE, SEQUENCE] {
        fields = element(fields, tag)?.1;
    }
    let (times, _) = element(fields, SEQUENCE)?;
    let (begin, times) = time(times)?;
    Some((begin, time(times)?.0))
}

/// The contents of the element with this tag at the beginning, and what follows it (X.690, definite lengths).
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, length], mut rest) = bytes.split_first_chunk::<2>()?;
    let mut length = usize::from(length);
    if length & 0x80 != 0 {
        let (digits, after) = rest.split_at_checked(length & 0x7f)?;
        if digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |number, digit| (number << 8) | usize::from(*digit));
        rest = after;
    }
    if found == tag { rest.split_at_checked(length) } else { None }
}

/// A time as `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(bytes: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (text, rest) = element(bytes, 0x17).or_else(|| element(bytes, 0x18))?;
    let digits = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = match digits.len() {
        12 if digits < "50" => format!("20{digits}"),
        12 => format!("19{digits}"),
        14 => digits.to_owned(),
        _ => return None,
    };
    let part = |range: std::ops::Range<usize>| digits[range].parse::<i8>().ok();
    let year = digits[..4].parse().ok()?;
    let date = DateTime::new(year, part(4..6)?, part(6..8)?, part(8..10)?, part(10..12)?, part(12..14)?, 0).ok()?;
    Some((date.to_zoned(TimeZone::UTC).ok()?.timestamp(), rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    /// A sequence of these elements.
    fn sequence(elements: &[&[u8]]) -> Vec<u8> {
        let contents = elements.concat();
        [&[0x30, u8::try_from(contents.len()).unwrap()], contents.as_slice()].concat()
    }

    #[test]
    fn both_forms_of_times_are_read() {
        let times = sequence(&[b"\x17\x0d500101000000Z", b"\x18\x0f20500102030405Z"]);
        let fields = sequence(&[b"\xa0\x03\x02\x01\x02", b"\x02\x01\x07", b"\x30\x00", b"\x30\x00", &times]);
        let (begin, end) = validity(&sequence(&[&fields])).unwrap();
        assert_eq!(begin.to_string(), "1950-01-01T00:00:00Z");
        assert_eq!(end.to_string(), "2050-01-02T03:04:05Z");
    }

    #[test]
    fn what_is_cut_off_or_false_has_no_validity() {
        let times = sequence(&[b"\x17\x0d300101000000Z", b"\x17\x0d310101000000Z"]);
        let fields = sequence(&[b"\x02\x01\x07", b"\x30\x00", b"\x30\x00", &times]);
        let whole = sequence(&[&fields]);
        assert!(validity(&whole).is_some());
        for length in 0..whole.len() {
            assert_eq!(validity(&whole[..length]), None, "{length}");
        }
        for place in 0..whole.len() {
            for byte in [0x00, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = whole.clone();
                damaged[place] = byte;
                // Whatever it says, it ends.
                let _ = validity(&damaged);
            }
        }
        assert!(element(b"\x30\x85\x01\x01\x01\x01\x01x", 0x30).is_none(), "a length of 5 bytes");
    }
}
