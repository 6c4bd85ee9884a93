//! When a certificate expires, as its X.509 structure says (RFC 5280, 4.1.2.5).

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Tags of DER (X.690).
const SEQUENCE: u8 = 0x30;
const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The end of the validity of a certificate in DER; `None` if it is not read as one.
#[must_use]
pub fn expiry(certificate: &[u8]) -> Option<Timestamp> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if let Some((_, rest)) = element(fields, EXPLICIT_VERSION) {
        fields = rest;
    }
    // Serial number, algorithm and issuer.
    for _ in 0..3 {
        (_, _, fields) = any(fields)?;
    }
    let (validity, _) = element(fields, SEQUENCE)?;
    let (_, _, validity) = any(validity)?;
    let (tag, time, _) = any(validity)?;
    time_of(tag, std::str::from_utf8(time).ok()?)
}

/// The element at the beginning, which has this tag: its contents, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, contents, rest) = any(bytes)?;
    (found == tag).then_some((contents, rest))
}

/// The element at the beginning: its tag, its contents, and what follows it.
fn any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        // In as many bytes; certificates have fewer than 4 GiB.
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// A time as `YYMMDDHHMMSSZ`, with years from 1950 on, or as `YYYYMMDDHHMMSSZ`.
fn time_of(tag: u8, text: &str) -> Option<Timestamp> {
    let text = match tag {
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let time = DateTime::strptime("%Y%m%d%H%M%SZ", &text).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    /// Until 2027, and until 2081, where times have another form. Made by OpenSSL, which also says when they expire.
    const ONE_YEAR: &str = "\
-----BEGIN CERTIFICATE-----
MIIBiTCCAS+gAwIBAgIUdC0LbYpbS13P+9yWsdlbSBbgoaYwCgYIKoZIzj0EAwIw
GjEYMBYGA1UEAwwPY2VsZXJpcy5leGFtcGxlMB4XDTI2MTEyNjEzNDEwMVoXDTI3
MTEyNjEzNDEwMVowGjEYMBYGA1UEAwwPY2VsZXJpcy5leGFtcGxlMFkwEwYHKoZI
zj0CAQYIKoZIzj0DAQcDQgAENL4uHiulk+VYr4mXqhHmzkbziL2hawaiBlwbuEML
MHSGzY0P1U7pp2XYYHhab6muN2LEQOKSDqAvfn7YhGDQvqNTMFEwHQYDVR0OBBYE
FFVG9gCN4EwPVGsVMM+ZOoiwJwVSMB8GA1UdIwQYMBaAFFVG9gCN4EwPVGsVMM+Z
OoiwJwVSMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgaW/kg2lv
b1jTYaNWmqhmkQ4QIb6N7jQxz9UNzQ7wnEUCIQCUbESLk8kANJkA1ZDPWO+y0Jjd
RLshlx4dZHds1QCqbw==
-----END CERTIFICATE-----";
    const MANY_YEARS: &str = "\
-----BEGIN CERTIFICATE-----
MIIBizCCATGgAwIBAgIUJH9oSMuKKZjiuw8hF8ZIBnoqieIwCgYIKoZIzj0EAwIw
GjEYMBYGA1UEAwwPY2VsZXJpcy5leGFtcGxlMCAXDTI2MTEyNjEzNDEwMVoYDzIw
ODEwODI5MTM0MTAxWjAaMRgwFgYDVQQDDA9jZWxlcmlzLmV4YW1wbGUwWTATBgcq
hkjOPQIBBggqhkjOPQMBBwNCAAQKIvkV+WUJtOypxi4DxLErfxJbilRsu24xsE+7
We7d4w/SNXTXsa5ybmBETzHXqq7/BRUkNYB/wAyB0H5PWL7Wo1MwUTAdBgNVHQ4E
FgQUHf+32fUhK+SLBSzbQZjikh8tOOEwHwYDVR0jBBgwFoAUHf+32fUhK+SLBSzb
QZjikh8tOOEwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiB3i+rX
uBqu5kmjvjO4S2HBZ6952LmMgJPu3f9qa32ncwIhAOCuAJXGP9USIkI/yNtSB/Ml
zpFKMalTUbwh3WdnG9+B
-----END CERTIFICATE-----";

    fn der(pem: &str) -> Vec<u8> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
    }

    #[test]
    fn the_expiry_is_what_openssl_reads() {
        for (pem, seconds) in [(ONE_YEAR, 1_827_236_461), (MANY_YEARS, 3_523_700_461)] {
            assert_eq!(expiry(&der(pem)).unwrap().as_second(), seconds);
        }
    }

    #[test]
    fn what_is_cut_off_or_changed_is_no_certificate_and_does_no_harm() {
        let whole = der(ONE_YEAR);
        for end in 0..whole.len() {
            assert_eq!(expiry(&whole[..end]), None);
        }
        for (place, byte) in (0..whole.len()).flat_map(|place| [0, 0x30, 0x84, 0xff].map(|byte| (place, byte))) {
            let mut changed = whole.clone();
            changed[place] = byte;
            // Any answer, without a panic.
            let _ = expiry(&changed);
        }
        assert_eq!(time_of(UTC_TIME, "é261126134101Z"), None);
        assert_eq!(time_of(UTC_TIME, "500101000000Z").unwrap().as_second(), -631_152_000);
    }
}
