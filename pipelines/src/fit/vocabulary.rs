//! Dictionaries of strings that occur in enough rows.

use std::collections::{HashMap, HashSet};

use crate::error::PipelineError;
use crate::limits::STRING_BYTES_MAX;
use crate::objects::Dictionary;
use crate::spec::{CharWindow, FitDictionary};
use crate::text::{TextScratch, for_each_window, lower_into};
use crate::values::View;

/// Number of strings that are counted at once. When there are more, the rarest ones are forgotten, so that a string that is
/// rare at first and frequent later may be counted too low.
const COUNTED_MAX: usize = 4 << 20;

/// What a text is cut into.
pub(super) enum Pieces {
    Words([usize; 2]),
    Chars([usize; 2], CharWindow),
    Whole,
}

/// Counts the rows that strings occur in.
pub(super) struct Vocabulary {
    node: String,
    pieces: Pieces,
    fit: FitDictionary,
    counts: HashMap<String, u32>,
    /// The strings of one row.
    row: HashSet<String>,
    scratch: TextScratch,
}

impl Vocabulary {
    pub fn new(node: String, pieces: Pieces, fit: FitDictionary) -> Self {
        let (counts, row, scratch) = (HashMap::new(), HashSet::new(), TextScratch::default());
        Self { node, pieces, fit, counts, row, scratch }
    }

    pub fn add(&mut self, value: View) {
        self.row.clear();
        match (&self.pieces, value) {
            (Pieces::Words([least, most]), View::Texts(text, spans)) => {
                let words: Vec<&str> = spans.iter().map(|[begin, end]| &text[*begin as usize..*end as usize]).collect();
                for n in *least..=*most {
                    self.row.extend(words.windows(n).map(|gram| gram.join(" ")));
                }
            }
            (Pieces::Chars(n, window), View::Text(text)) => {
                self.scratch.lowered.clear();
                lower_into(text, &mut self.scratch.lowered);
                let row = &mut self.row;
                for_each_window(*n, *window, &mut self.scratch, |_, gram| {
                    row.insert(String::from_utf8_lossy(gram).into_owned());
                });
            }
            (Pieces::Whole, View::Text(text)) => {
                self.row.insert(text.to_owned());
            }
            (Pieces::Whole, View::Texts(text, spans)) => {
                self.row.extend(spans.iter().map(|[begin, end]| text[*begin as usize..*end as usize].to_owned()));
            }
            _ => {}
        }
        for string in self.row.drain().filter(|string| string.len() <= STRING_BYTES_MAX) {
            *self.counts.entry(string).or_default() += 1;
        }
        let mut least = 1;
        while self.counts.len() > COUNTED_MAX {
            self.counts.retain(|_, count| *count > least);
            least += 1;
        }
    }

    /// The most frequent strings, in alphabetical order.
    pub fn finish(self) -> Result<Dictionary, PipelineError> {
        let least = self.fit.min_count.max(1);
        let mut frequent: Vec<(String, u32)> = self.counts.into_iter().filter(|(_, count)| *count >= least).collect();
        if frequent.is_empty() {
            let problem = format!("no string occurs in {least} rows");
            return Err(PipelineError::Fit { node: self.node, problem });
        }
        frequent.sort_unstable_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        frequent.truncate(self.fit.max_size as usize);
        let mut strings: Vec<String> = frequent.into_iter().map(|(string, _)| string).collect();
        strings.sort_unstable();
        Dictionary::new(strings)
    }
}
