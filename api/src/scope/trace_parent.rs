//! The header `traceparent` of W3C Trace Context.

use std::fmt;
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The longest `tracestate` that is passed on; 512 bytes are what the recommendation asks for at least.
const STATE_BYTES_MAX: usize = 512;

/// A place in a trace: a span, and whether the trace is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: u128,
    pub span: u64,
    pub is_sampled: bool,
}

impl TraceParent {
    pub const HEADER: HeaderName = HeaderName::from_static("traceparent");

    /// Vendors' notes on the trace.
    pub const STATE: HeaderName = HeaderName::from_static("tracestate");

    /// The place that a request names; `None` if it names none, or not as the recommendation says.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all(&Self::HEADER).iter();
        let (Some(text), None) = (given.next(), given.next()) else { return None };
        Self::read(text.as_bytes())
    }

    /// `VERSION-TRACE-SPAN-FLAGS`. A later version may have more behind a further `-`.
    fn read(text: &[u8]) -> Option<Self> {
        let (known, further) = text.split_at_checked(55)?;
        let version = hex(&known[..2])?;
        if [known[2], known[35], known[52]] != [b'-'; 3] || version == 0xff {
            return None;
        }
        if !further.is_empty() && (version == 0 || further[0] != b'-') {
            return None;
        }
        let trace = hex(&known[3..35])?;
        let span = u64::try_from(hex(&known[36..52])?).ok()?;
        let is_sampled = hex(&known[53..])? & 1 == 1;
        (trace != 0 && span != 0).then_some(Self { trace, span, is_sampled })
    }

    /// A place in a trace that begins here and is not recorded.
    #[must_use]
    pub fn unrecorded() -> Self {
        Self { trace: rand::random::<u128>().max(1), span: rand::random::<u64>().max(1), is_sampled: false }
    }

    /// The place of a span.
    #[must_use]
    pub fn of_span(context: &SpanContext) -> Option<Self> {
        let trace = u128::from_be_bytes(context.trace_id().to_bytes());
        let span = u64::from_be_bytes(context.span_id().to_bytes());
        context.is_valid().then_some(Self { trace, span, is_sampled: context.is_sampled() })
    }

    /// The context below which spans of this node are, with the notes of the request.
    #[must_use]
    pub fn context(self, headers: &HeaderMap) -> SpanContext {
        let mut notes = headers.get_all(&Self::STATE).iter();
        let state = match (notes.next().map(HeaderValue::to_str), notes.next()) {
            (Some(Ok(text)), None) if text.len() <= STATE_BYTES_MAX => TraceState::from_str(text).unwrap_or_default(),
            _ => TraceState::default(),
        };
        let flags = TraceFlags::default().with_sampled(self.is_sampled);
        SpanContext::new(TraceId::from(self.trace), SpanId::from(self.span), flags, true, state)
    }

    /// The value of the header.
    #[must_use]
    pub fn value(self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).expect("hexadecimal digits are a header's value")
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The number that lower-case hexadecimal digits stand for.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_recommendation_is_read_and_written() {
        let read = TraceParent::read(EXAMPLE.as_bytes()).unwrap();
        assert_eq!(read.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert!(read.span == 0x00f0_67aa_0ba9_02b7 && read.is_sampled);
        assert_eq!(read.value(), EXAMPLE);
        assert_eq!(TraceParent::of_span(&read.context(&HeaderMap::new())), Some(read));
        let flags = |text: &str| TraceParent::read(text.as_bytes()).map(|parent| parent.is_sampled);
        assert_eq!(flags(&EXAMPLE.replace("-01", "-00")), Some(false));
        assert_eq!(flags(&EXAMPLE.replace("-01", "-03")), Some(true));
        assert_eq!(flags(&format!("cc{}-later", &EXAMPLE[2..])), Some(true), "of a later version");
    }

    #[test]
    fn what_the_recommendation_does_not_allow_is_not_read() {
        let refused = [
            String::new(),
            EXAMPLE[..54].to_owned(),
            format!("{EXAMPLE}-more"),
            format!("cc{}later", &EXAMPLE[2..]),
            format!("ff{}", &EXAMPLE[2..]),
            EXAMPLE.to_uppercase(),
            EXAMPLE.replace('-', "_"),
            EXAMPLE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            EXAMPLE.replace("00f067aa0ba902b7", &"0".repeat(16)),
            EXAMPLE.replace("4bf9", "4bg9"),
            "é".repeat(40),
        ];
        for text in refused {
            assert_eq!(TraceParent::read(text.as_bytes()), None, "{text}");
        }
        let headers = |values: &[&str]| {
            values.iter().map(|value| (TraceParent::HEADER, value.parse().unwrap())).collect::<HeaderMap>()
        };
        assert!(TraceParent::of(&headers(&[EXAMPLE])).is_some());
        assert_eq!(TraceParent::of(&headers(&[EXAMPLE, EXAMPLE])), None);
    }

    #[test]
    fn notes_of_vendors_are_kept_unless_they_are_too_long_or_damaged() {
        let kept = |notes: &str| {
            let headers = HeaderMap::from_iter([(TraceParent::STATE, notes.parse().unwrap())]);
            TraceParent::read(EXAMPLE.as_bytes()).unwrap().context(&headers).trace_state().header()
        };
        assert_eq!(kept("vendor=1,other=2"), "vendor=1,other=2");
        assert_eq!(kept("no equals sign"), "");
        assert_eq!(kept(&format!("vendor={}", "1".repeat(STATE_BYTES_MAX))), "");
    }
}
