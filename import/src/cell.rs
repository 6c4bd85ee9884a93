//! A value of a row, whatever kind of file it comes from, and its meaning as an id, a number or a
//! text.

use std::borrow::Cow;

use crate::display::{calendar_time, quoted, time};

/// The whole numbers that an `f64` holds exactly end here.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A value of a row. Text is trimmed; an empty one is [`Cell::Missing`].
#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    Missing,
    Text(Cow<'a, str>),
    Integer(i64),
    Number(f64),
    Bool(bool),
    /// A point in time, in Unix milliseconds.
    Time(i64),
    Texts(Vec<String>),
    /// A JSON object, as JSON.
    Object(String),
    /// A value that is never taken, with the reason.
    Unusable(&'static str),
}

impl<'a> Cell<'a> {
    pub(crate) fn text(text: &'a str) -> Self {
        match text.trim() {
            "" => Self::Missing,
            text => Self::Text(Cow::Borrowed(text)),
        }
    }

    /// The value as an id.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn id(self) -> Result<Cow<'a, str>, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Integer(number) => Ok(number.to_string().into()),
            // A column of integers with gaps becomes one of floats in many tools.
            Self::Number(number) if number.fract() == 0.0 && number.abs() < EXACT_MAX => {
                Ok(format!("{number:.0}").into())
            }
            Self::Missing => Err("is empty; every row needs an id here".to_owned()),
            other => Err(format!("{} is not an id; ids are texts or whole numbers", other.quoted())),
        }
    }

    /// The value as a number; true is 1 and false is 0.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn number(&self, comma: DecimalComma) -> Result<f64, String> {
        match self {
            Self::Integer(number) => Ok(*number as f64),
            Self::Number(number) if number.is_finite() => Ok(*number),
            Self::Bool(flag) => Ok(f64::from(u8::from(*flag))),
            Self::Text(text) => parse_number(text, comma).ok_or_else(|| {
                let point = text.replacen(',', ".", 1);
                if comma == DecimalComma::No && text.contains(',') && parse_number(&point, comma).is_some() {
                    format!(
                        "{} has a decimal comma, which is read only where the delimiter is \";\"; write {point}",
                        self.quoted()
                    )
                } else {
                    format!("{} is not a number", self.quoted())
                }
            }),
            Self::Missing => Err("is empty; a number is needed here".to_owned()),
            other => Err(format!("{} is not a number", other.quoted())),
        }
    }

    /// The value for an error message: its beginning, quoted if it is text.
    #[must_use]
    pub fn quoted(&self) -> String {
        match self {
            Self::Missing => "nothing".to_owned(),
            Self::Text(text) => quoted(text),
            Self::Integer(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Bool(flag) => flag.to_string(),
            Self::Time(milliseconds) => time(*milliseconds),
            Self::Texts(_) => "a list".to_owned(),
            Self::Object(_) => "a JSON object".to_owned(),
            Self::Unusable(what) => (*what).to_owned(),
        }
    }

    /// The value as text for comparisons: two rows are equal if their cells are.
    #[must_use]
    pub fn content(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Missing => Cow::Borrowed(""),
            Self::Texts(texts) => texts.join("|").into(),
            Self::Object(json) => Cow::Borrowed(json),
            Self::Time(milliseconds) => calendar_time(*milliseconds).unwrap_or_else(|| milliseconds.to_string()).into(),
            other => other.quoted().into(),
        }
    }
}

/// Whether `3,5` is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecimalComma {
    Yes,
    No,
}

fn parse_number(text: &str, comma: DecimalComma) -> Option<f64> {
    match text {
        "true" | "True" | "TRUE" => return Some(1.0),
        "false" | "False" | "FALSE" => return Some(0.0),
        _ => {}
    }
    let number: f64 = match comma {
        DecimalComma::Yes if text.contains(',') && !text.contains('.') => text.replacen(',', ".", 1).parse().ok()?,
        _ => text.parse().ok()?,
    };
    number.is_finite().then_some(number)
}
