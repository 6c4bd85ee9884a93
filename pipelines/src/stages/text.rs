//! Stages over a text: lower case, words, n-grams, look-up, weighting and dot product in one pass, without strings.

use std::sync::Arc;

use super::subplans::{Outcome, SubPlans};
use crate::graph::Fingerprint;
use crate::operators::{EachColumn, FieldOp, PartOp, Record, TfIdfOp, add_part, normalize, text_of, weight_counts};
use crate::spec::{Norm, Words};
use crate::text::{
    CharGrams, TextScratch, WordGrams, count_hits, for_each_char_gram, for_each_word_gram, hash_words, lower_into,
    split_words,
};
use crate::values::{Slot, View};

/// N-grams of a text.
#[derive(Debug, Clone)]
pub enum FeaturizedText {
    Words(Words, WordGrams),
    Chars(CharGrams),
}

/// What happens to counts before they are used.
#[derive(Debug, Clone)]
pub enum Weighting {
    TfIdf(TfIdfOp),
    Normalize(Norm),
}

/// One kind of n-grams and what becomes of them: a sparse vector, or sums of a linear model.
#[derive(Debug, Clone)]
pub struct Branch {
    /// Shared with other stages that count the same n-grams.
    pub grams: Arc<(Fingerprint, FeaturizedText)>,
    pub weightings: Vec<Weighting>,
    pub part: Option<PartOp>,
}

/// All n-grams of one field.
#[derive(Debug, Clone)]
pub struct TextStage {
    pub field: FieldOp,
    /// Those of words first, grouped by what a word is.
    pub branches: Vec<Branch>,
}

/// What a run of a stage uses.
pub struct TextRun<'a> {
    pub record: Record<'a>,
    pub scratch: &'a mut TextScratch,
    /// Kept n-grams of texts, of stages that several plans share.
    pub kept: Option<&'a SubPlans>,
    /// Whether the whole stage is shared.
    pub is_shared: bool,
}

/// How far the text is prepared.
#[derive(Default)]
struct Prepared {
    is_lowered: bool,
    words: Option<Words>,
}

impl TextStage {
    /// Computes the values of all branches.
    pub fn run(&self, run: &mut TextRun, out: &mut [Slot]) {
        let text = text_of(&self.field, run.record).unwrap_or_default();
        let mut prepared = Prepared::default();
        for (branch, out) in self.branches.iter().zip(out) {
            match run.kept {
                Some(kept) if run.is_shared || Arc::strong_count(&branch.grams) > 1 => {
                    let hits = match kept.get(branch.grams.0, text.as_bytes()) {
                        Some(Outcome::Hits(hits)) => hits,
                        _ => {
                            prepared.prepare(text, &branch.grams.1, run.scratch);
                            run.scratch.collect(&branch.grams.1);
                            let hits: Arc<[u32]> = run.scratch.hits.as_slice().into();
                            kept.insert(branch.grams.0, text.as_bytes(), Outcome::Hits(hits.clone()));
                            hits
                        }
                    };
                    match &branch.part {
                        Some(part) if branch.weightings.is_empty() => {
                            add_part(part, out, Collected(&hits));
                        }
                        _ => {
                            run.scratch.hits.clear();
                            run.scratch.hits.extend_from_slice(&hits);
                            branch.weigh(run.scratch, out);
                        }
                    }
                }
                _ => {
                    prepared.prepare(text, &branch.grams.1, run.scratch);
                    branch.run(run.scratch, out);
                }
            }
        }
    }
}

impl Prepared {
    fn prepare(&mut self, text: &str, grams: &FeaturizedText, scratch: &mut TextScratch) {
        if !std::mem::replace(&mut self.is_lowered, true) {
            scratch.lowered.clear();
            lower_into(text, &mut scratch.lowered);
        }
        if let FeaturizedText::Words(rule, _) = grams
            && self.words != Some(*rule)
        {
            self.words = Some(*rule);
            scratch.words.clear();
            scratch.hashes.clear();
            split_words(&scratch.lowered, *rule, &mut scratch.words);
            hash_words(&scratch.lowered, &scratch.words, &mut scratch.hashes);
        }
    }
}

impl TextScratch {
    /// Calls `hit` for each n-gram of the prepared text.
    #[inline]
    fn each(&mut self, grams: &FeaturizedText, hit: impl FnMut(u32)) {
        match grams {
            FeaturizedText::Words(_, grams) => {
                for_each_word_gram(grams, &self.lowered, &self.words, &self.hashes, hit);
            }
            FeaturizedText::Chars(grams) => for_each_char_gram(grams, self, hit),
        }
    }

    /// Collects the columns of all n-grams, in the order of the text.
    fn collect(&mut self, grams: &FeaturizedText) {
        let mut hits = std::mem::take(&mut self.hits);
        hits.clear();
        self.each(grams, |column| hits.push(column));
        self.hits = hits;
    }
}

/// The n-grams of a prepared text.
struct Counted<'a>(&'a FeaturizedText, &'a mut TextScratch);

impl EachColumn for Counted<'_> {
    #[inline]
    fn each(self, take: impl FnMut(u32)) {
        self.1.each(self.0, take);
    }
}

/// Columns that were collected before.
struct Collected<'a>(&'a [u32]);

impl EachColumn for Collected<'_> {
    #[inline]
    fn each(self, take: impl FnMut(u32)) {
        self.0.iter().copied().for_each(take);
    }
}

impl Branch {
    /// Computes its value from a prepared text.
    fn run(&self, scratch: &mut TextScratch, out: &mut Slot) {
        match &self.part {
            Some(part) if self.weightings.is_empty() => {
                add_part(part, out, Counted(&self.grams.1, scratch));
            }
            _ => {
                scratch.collect(&self.grams.1);
                self.weigh(scratch, out);
            }
        }
    }

    /// Computes its value from collected columns.
    fn weigh(&self, scratch: &mut TextScratch, out: &mut Slot) {
        let (columns, values) = out.sparse();
        count_hits(&mut scratch.hits, columns, values);
        for weighting in &self.weightings {
            match weighting {
                Weighting::TfIdf(tf_idf) => weight_counts(tf_idf, columns, values),
                Weighting::Normalize(norm) => normalize(*norm, values),
            }
        }
        if let Some(part) = &self.part {
            let mut sums = [0.0; crate::limits::OUTPUTS_MAX];
            let sums = &mut sums[..part.weights.outputs()];
            part.add(View::Sparse(columns, values), sums);
            out.sums(sums.len()).copy_from_slice(sums);
        }
    }
}
