//! What the checks have found.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// A node starts, and something will be worse than it could be, or cannot be known.
    Warning,
    /// A node does not start, or loses data, or refuses work that it should take.
    Problem,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "PROBLEM",
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Finding {
    /// The subject, in one word or two.
    pub check: &'static str,
    pub state: State,
    /// In one line, without the control characters that a terminal obeys.
    pub what: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

#[derive(Debug, Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    pub fn ok(&mut self, check: &'static str, what: impl Into<String>) {
        self.add(check, State::Ok, (what.into(), None));
    }

    pub fn warning(&mut self, check: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(check, State::Warning, (what.into(), Some(remedy.into())));
    }

    pub fn problem(&mut self, check: &'static str, what: impl Into<String>, remedy: impl Into<String>) {
        self.add(check, State::Problem, (what.into(), Some(remedy.into())));
    }

    /// A problem whose message names the next step itself.
    pub fn refusal(&mut self, check: &'static str, what: impl Into<String>) {
        self.add(check, State::Problem, (what.into(), None));
    }

    fn add(&mut self, check: &'static str, state: State, (what, remedy): (String, Option<String>)) {
        self.0.push(Finding { check, state, what: in_one_line(&what), remedy: remedy.map(|text| in_one_line(&text)) });
    }
}

fn in_one_line(text: &str) -> String {
    let text = text.trim().replace('\n', "; ");
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
