//! Lines with their numbers.

use super::ImportError;

/// Reads lines one after the other.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    /// The number of the line last read.
    number: usize,
}

/// A line without surrounding white space.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub number: usize,
    pub text: &'a str,
}

/// Characters of a message that come from the file.
const QUOTED_MAX: usize = 40;

impl<'a> Lines<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, number: 0 }
    }

    /// The next line that is not empty.
    ///
    /// # Errors
    /// The end of the file, or text that is not UTF-8.
    pub fn next_filled(&mut self) -> Result<Line<'a>, ImportError> {
        self.next_unless(|_| false)?.ok_or_else(|| self.missing("end of trees"))
    }

    /// The next line that is not empty; `None`, and the line stays to be read, if `stops` holds, and at the end of the
    /// file.
    ///
    /// # Errors
    /// Text that is not UTF-8.
    pub fn next_unless(&mut self, stops: impl Fn(&str) -> bool) -> Result<Option<Line<'a>>, ImportError> {
        while !self.rest.is_empty() {
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            let (line, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            let number = self.number + 1;
            let text =
                str::from_utf8(line).map_err(|_| Line { number, text: "" }.problem("the line is not UTF-8"))?.trim();
            if stops(text) {
                return Ok(None);
            }
            self.rest = rest.get(1..).unwrap_or_default();
            self.number = number;
            if !text.is_empty() {
                return Ok(Some(Line { number, text }));
            }
        }
        Ok(None)
    }

    /// The number of lines to come that begin with `start`.
    pub fn count(&self, start: &str) -> usize {
        self.rest.split(|byte| *byte == b'\n').filter(|line| line.starts_with(start.as_bytes())).count()
    }

    /// The error of a key that should have come before the next line.
    pub fn missing(&self, key: &str) -> ImportError {
        ImportError::Line { line: self.number + 1, key: key.to_owned(), problem: "it is missing".to_owned() }
    }
}

impl<'a> Line<'a> {
    /// Key and value.
    pub fn pair(&self) -> Option<(&'a str, &'a str)> {
        self.text.split_once('=')
    }

    /// What follows the key.
    pub fn value(&self) -> &'a str {
        self.pair().map_or("", |(_, value)| value)
    }

    pub fn problem(&self, problem: impl Into<String>) -> ImportError {
        let key = self.pair().map_or(self.text, |(key, _)| key);
        ImportError::Line { line: self.number, key: key.chars().take(QUOTED_MAX).collect(), problem: problem.into() }
    }

    /// The line of a key of the tree that this line begins.
    ///
    /// # Errors
    /// The key is missing.
    pub fn needs(&self, line: Option<Self>, key: &str) -> Result<Self, ImportError> {
        let problem = || format!("the tree that begins at line {} lacks it", self.number);
        line.ok_or_else(|| ImportError::Line { line: self.number, key: key.to_owned(), problem: problem() })
    }

    /// # Errors
    /// A value that is not an integer from `min` to `max`.
    pub fn integer(&self, min: usize, max: usize) -> Result<usize, ImportError> {
        let value = self.value().parse().ok().filter(|value| (min..=max).contains(value));
        value.ok_or_else(|| self.problem(format!("the value must be an integer from {min} to {max}")))
    }

    /// # Errors
    /// A text that is not a number. Infinite numbers and NaN are numbers here.
    pub fn number(&self, text: &str) -> Result<f64, ImportError> {
        text.parse().map_err(|_| self.problem(format!("{:?} is not a number", quoted(text))))
    }

    /// The values of a list that has `count` of them.
    ///
    /// # Errors
    /// Another number of values, or one that `T` does not have.
    pub fn list<T: std::str::FromStr>(&self, count: usize) -> Result<Vec<T>, ImportError> {
        let mut values = Vec::new();
        for text in self.value().split_ascii_whitespace() {
            if values.len() == count {
                return Err(self.problem(format!("there must be {count} values, got more")));
            }
            let value =
                text.parse().map_err(|_| self.problem(format!("{:?} is not a value of this list", quoted(text))))?;
            values.push(value);
        }
        if values.len() < count {
            return Err(self.problem(format!("there must be {count} values, got {}", values.len())));
        }
        Ok(values)
    }
}

fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_MAX).collect()
}
