//! Times: ISO dates and date-times, and numbers in any unit, recognised by their magnitude.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::cell::Cell;
use crate::display::{name, quoted};

/// The last second that a date in any zone can name.
const LATEST: jiff::Timestamp = jiff::Timestamp::constant(253_402_207_200, 0);

/// The unit of times that are numbers, counted from the beginning of 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl TimeUnit {
    pub const ALL: [Self; 4] = [Self::Seconds, Self::Milliseconds, Self::Microseconds, Self::Nanoseconds];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
        }
    }

    /// The unit in which the number is a time between 1973 and 5138: these ranges do not overlap.
    fn of_magnitude(number: f64) -> Option<Self> {
        let mut first = 1e8;
        for unit in Self::ALL {
            if (first..first * 1e3).contains(&number) {
                return Some(unit);
            }
            first *= 1e3;
        }
        None
    }

    #[expect(clippy::cast_possible_truncation, reason = "saturates, and such a time is refused as out of range")]
    fn milliseconds(self, number: Numeral) -> i64 {
        match (self, number) {
            (Self::Seconds, Numeral::Whole(number)) => number.saturating_mul(1000),
            (Self::Milliseconds, Numeral::Whole(number)) => number,
            (Self::Microseconds, Numeral::Whole(number)) => number.div_euclid(1000),
            (Self::Nanoseconds, Numeral::Whole(number)) => number.div_euclid(1_000_000),
            (Self::Seconds, Numeral::Fraction(number)) => (number * 1e3).round() as i64,
            (Self::Milliseconds, Numeral::Fraction(number)) => number.round() as i64,
            (Self::Microseconds, Numeral::Fraction(number)) => (number / 1e3).round() as i64,
            (Self::Nanoseconds, Numeral::Fraction(number)) => (number / 1e6).round() as i64,
        }
    }
}

#[derive(Clone, Copy)]
enum Numeral {
    Whole(i64),
    Fraction(f64),
}

/// How times are written. All times of a column are written in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimeKind {
    /// The file says that it is a time.
    Typed,
    Iso,
    Number(TimeUnit),
}

impl TimeKind {
    /// A description for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Typed => "times",
            Self::Iso => "ISO times, UTC where they name no zone",
            Self::Number(unit) => unit.words(),
        }
    }
}

/// The first value of each kind among the times of a column, to refuse a mixture.
#[derive(Debug, Clone, Default)]
pub struct TimeKinds {
    first: Vec<(TimeKind, u64, String)>,
}

impl TimeKinds {
    /// Notes a time at a line or row of the file.
    pub fn note(&mut self, kind: TimeKind, number: u64, cell: &Cell) {
        if !self.first.iter().any(|(known, ..)| *known == kind) {
            self.first.push((kind, number, cell.quoted()));
        }
    }

    /// The one kind, if there were times.
    #[must_use]
    pub fn kind(&self) -> Option<TimeKind> {
        self.first.first().map(|(kind, ..)| *kind)
    }

    /// The problem of a column with times of several kinds; `place` is the word for a line or row.
    #[must_use]
    pub fn mixture(&self, column: &str, place: &str) -> Option<String> {
        let [(first, first_at, first_value), (other, other_at, other_value), ..] = self.first.as_slice() else {
            return None;
        };
        let named = |kind: &TimeKind| match kind {
            TimeKind::Iso => "ISO times",
            kind => kind.words(),
        };
        Some(format!(
            "column {} mixes {} ({place} {first_at}: {first_value}) and {} ({place} {other_at}: {other_value}); \
             write all times in one unit, or name it by --time-unit s, ms, us or ns and set the other rows aside by \
             --skip-bad FILE",
            name(column),
            named(first),
            named(other)
        ))
    }
}

/// The time in a cell, in Unix milliseconds, and the way in which it is written; `None` if the cell
/// is empty. Numbers are in `unit`, or in that of their magnitude.
///
/// # Errors
/// What is wrong with it.
pub fn read(cell: &Cell, unit: Option<TimeUnit>) -> Result<Option<(i64, TimeKind)>, String> {
    let (number, approximate) = match cell {
        Cell::Missing => return Ok(None),
        Cell::Time(time) => return Ok(Some((*time, TimeKind::Typed))),
        Cell::Integer(number) => (Numeral::Whole(*number), *number as f64),
        Cell::Number(number) if number.is_finite() => (Numeral::Fraction(*number), *number),
        Cell::Text(text) => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => (Numeral::Whole(whole), whole as f64),
            (Err(_), Ok(number)) if number.is_finite() => (Numeral::Fraction(number), number),
            _ => return iso(text).map(|time| Some((time, TimeKind::Iso))),
        },
        other => return Err(not_a_time(&other.quoted())),
    };
    if unit.is_none()
        && let Some(time) = compact_date(number)
    {
        return Ok(Some((time, TimeKind::Iso)));
    }
    let unit = match unit.or_else(|| TimeUnit::of_magnitude(approximate)) {
        Some(unit) => unit,
        None => {
            return Err(format!(
                "{} is no time between 1973 and 5138 in any unit; leave it empty for the time of arrival, or name the unit \
                 by --time-unit s, ms, us or ns",
                cell.quoted()
            ));
        }
    };
    Ok(Some((unit.milliseconds(number), TimeKind::Number(unit))))
}

/// A date such as 20240131, which as a number of seconds would be one of the year 1970.
fn compact_date(number: Numeral) -> Option<i64> {
    let Numeral::Whole(number @ 19_000_101..=20_991_231) = number else { return None };
    iso(&number.to_string()).ok()
}

fn iso(text: &str) -> Result<i64, String> {
    let zoned = text.strip_suffix(" UTC").or_else(|| text.strip_suffix(" GMT"));
    // Go writes its times in UTC like 2024-01-31 18:30:00 +0000 UTC.
    let go = zoned.or(Some(text)).and_then(|text| text.rsplit_once(' ')).filter(|(_, zone)| is_offset(zone));
    let go = go.map(|(local, zone)| format!("{local}{zone}"));
    let text_or_zoned = go.as_deref().or(zoned).unwrap_or(text);
    if let Ok(time) = text_or_zoned.parse::<jiff::Timestamp>() {
        return Ok(time.as_millisecond());
    }
    let local: DateTime = text_or_zoned.parse().map_err(|_| not_a_time(&quoted(text)))?;
    // Only the last and the first days of the calendar have no such time.
    let beyond = if local.year() > 0 { LATEST } else { jiff::Timestamp::MIN };
    let time = local.to_zoned(TimeZone::UTC).map_or(beyond, |time| time.timestamp());
    Ok(time.as_millisecond())
}

/// Whether a text is the difference of a zone to UTC, such as +0100.
fn is_offset(text: &str) -> bool {
    text.len() == 5 && text.starts_with(['+', '-']) && text[1..].bytes().all(|byte| byte.is_ascii_digit())
}

fn not_a_time(value: &str) -> String {
    format!(
        "{value} is not a time; times are ISO dates (2024-01-31), date-times (2024-01-31 18:30:00, \
         2024-01-31T18:30:00+01:00) or numbers since 1970"
    )
}
