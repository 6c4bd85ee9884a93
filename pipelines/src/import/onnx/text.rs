//! Operators over texts: `StringNormalizer`, `Tokenizer`, `TfIdfVectorizer`.

use std::sync::Arc;

use super::super::ImportError;
use super::super::emit::{Column, Fields, Form, Numbers};
use super::convert::{Converter, TokenKind, Tokens, Value};
use crate::limits::{CHAR_N_MAX, DICTIONARY_MAX, WORD_N_MAX};
use crate::objects::{Content, Dictionary, Idf};
use crate::onnx::model::{LIST_MAX, Node};
use crate::spec::{CharNgrams, CharWindow, FieldType, Operator, TfIdf, Tokenize, WordNgrams, Words};

/// The change to lower case, which tokenizers of pipelines always make.
pub(super) fn normalizer<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let Value::Fields(fields) = converter.value(node, 0)? else {
        return Err(node.problem("input", "texts must be fields"));
    };
    if !matches!(fields.content, Column::Texts | Column::LowerTexts) {
        return Err(node.problem("input", "the fields must be texts"));
    }
    if !node.texts("stopwords", 1)?.is_empty() {
        return Err(node.problem("stopwords", "stop words are not supported"));
    }
    if node.text("case_change_action")? != "LOWER" {
        return Err(node.problem("case_change_action", "it must be LOWER"));
    }
    Ok(Value::Fields(Fields { content: Column::LowerTexts, ..fields }))
}

pub(super) fn tokenizer<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let Value::Fields(fields) = converter.value(node, 0)? else {
        return Err(node.problem("input", "texts must be fields"));
    };
    let [field] = fields.names.as_slice() else {
        return Err(node.problem("input", "one text can be split into tokens"));
    };
    if fields.content != Column::LowerTexts {
        return Err(node.problem("input", "the text must be in lower case, by StringNormalizer"));
    }
    if node.value::<i64>("mark")?.unwrap_or(0) != 0 {
        return Err(node.problem("mark", "marks of the ends of texts are not supported"));
    }
    let least = node.value::<i64>("mincharnum")?.unwrap_or(1);
    let expression = node.text("tokenexp")?;
    let kind = match (expression, least) {
        (".", ..=1) => TokenKind::Characters,
        ("[a-zA-Z0-9_]+" | "[a-zA-Z0-9]+" | "\\w+", ..=1) => TokenKind::Words,
        ("[a-zA-Z0-9_]+" | "\\w+", 2) | ("\\w\\w+" | "\\b\\w\\w+\\b", ..=2) => TokenKind::LongWords,
        _ => return Err(node.problem("tokenexp", format!("the expression {expression:?} is not supported"))),
    };
    let note = match kind {
        TokenKind::Words if expression.contains('_') => {
            "words are runs of Unicode letters and digits, without underscores"
        }
        TokenKind::Words | TokenKind::LongWords => "words are runs of Unicode letters and digits",
        TokenKind::Characters => "runs of white space count as one space",
    };
    converter.emitter.note(format!("{field}: {note}; the model's expression is {expression}"));
    Ok(Value::Tokens(Tokens { field: field.clone(), kind }))
}

/// Counts of n-grams.
pub(super) fn vectorizer<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let Value::Tokens(tokens) = converter.value(node, 0)? else {
        return Err(node.problem("input", "n-grams are of tokens of a text"));
    };
    let pool = Pool::read(node, tokens.kind)?;
    let dim = pool.grams.len();
    let dictionary = Dictionary::new(&pool.grams).map_err(|error| node.problem("pool_strings", error.to_string()))?;
    let dictionary = Some(converter.object(node, &Content::Dictionary(Arc::new(dictionary)))?);
    let input =
        converter.emitter.field(&tokens.field, FieldType::Text).map_err(|problem| node.problem("input", problem))?;
    let (n, hash_bits, fit) = (pool.n, None, None);
    let grams = if tokens.kind == TokenKind::Characters {
        Operator::CharNgrams(CharNgrams { input, n, window: CharWindow::Char, dictionary, hash_bits, fit })
    } else {
        let words = if tokens.kind == TokenKind::Words { Words::Unicode } else { Words::TwoOrMore };
        let input = converter.emitter.add(node.index, Operator::Tokenize(Tokenize { input, words }));
        Operator::WordNgrams(WordNgrams { input, n, dictionary, hash_bits, fit })
    };
    let mut name = converter.emitter.add(node.index, grams);
    if let Some(weights) = pool.weights {
        let idf = Idf::new(weights).map_err(|error| node.problem("weights", error.to_string()))?;
        let idf = Some(converter.object(node, &Content::Idf(Arc::new(idf)))?);
        name = converter
            .emitter
            .add(node.index, Operator::TfIdf(TfIdf { input: name, idf, sublinear: false, norm: None }));
    }
    Ok(Numbers { node: name, dim, form: Form::Sparse }.into())
}

/// The n-grams of a vectorizer.
struct Pool {
    /// Smallest and largest length.
    n: [u8; 2],
    /// In the order of their columns, written as dictionaries hold them.
    grams: Vec<String>,
    /// Factors of the columns.
    weights: Option<Vec<f32>>,
}

impl Pool {
    fn read(node: &Node<'_>, kind: TokenKind) -> Result<Self, ImportError> {
        let (separator, n_max) = if kind == TokenKind::Characters { ("", CHAR_N_MAX) } else { (" ", WORD_N_MAX) };
        let length = |name: &str| {
            let length = node.value::<i64>(name)?;
            let length =
                length.and_then(|length| u8::try_from(length).ok()).filter(|n| (1..=n_max).contains(&usize::from(*n)));
            length.ok_or_else(|| node.problem(name, format!("it must be 1 to {n_max}")))
        };
        let n = [length("min_gram_length")?, length("max_gram_length")?];
        if node.value::<i64>("max_skip_count")?.unwrap_or(0) != 0 {
            return Err(node.problem("max_skip_count", "n-grams with gaps are not supported"));
        }
        let strings = node.texts("pool_strings", LIST_MAX)?;
        let starts: Vec<i64> = node.list("ngram_counts", n_max)?;
        let columns: Vec<i64> = node.list("ngram_indexes", DICTIONARY_MAX)?;
        let mut grams: Vec<Option<String>> = vec![None; columns.len()];
        let mut next = columns.iter();
        for (index, start) in starts.iter().enumerate() {
            let range = usize::try_from(*start)
                .ok()
                .zip(starts.get(index + 1).map_or(Some(strings.len()), |end| usize::try_from(*end).ok()));
            let range = range.and_then(|(start, end)| strings.get(start..end));
            let tokens = range.ok_or_else(|| node.problem("ngram_counts", "the counts do not fit pool_strings"))?;
            let grams_of_n = tokens.chunks_exact(index + 1);
            if !grams_of_n.remainder().is_empty() {
                return Err(node.problem("ngram_counts", format!("there are no whole n-grams of {} tokens", index + 1)));
            }
            if !tokens.is_empty() && !(usize::from(n[0])..=usize::from(n[1])).contains(&(index + 1)) {
                return Err(
                    node.problem("ngram_counts", "there are n-grams of other lengths than those that are counted")
                );
            }
            for gram in grams_of_n {
                let column = next.next().and_then(|column| usize::try_from(*column).ok());
                // As many n-grams as columns, each with a column of its own: none is left over.
                match column.and_then(|column| grams.get_mut(column)) {
                    Some(place @ None) => *place = Some(gram.join(separator)),
                    _ => return Err(node.problem("ngram_indexes", "each n-gram needs a column of its own, from 0 on")),
                }
            }
        }
        let grams: Option<Vec<String>> = grams.into_iter().collect();
        let grams = grams.filter(|grams| !grams.is_empty());
        let grams = grams.ok_or_else(|| node.problem("ngram_indexes", "each column needs an n-gram"))?;
        let weights = match node.text("mode")? {
            "TF" => None,
            "TFIDF" if columns.is_sorted() => Some(node.list::<f32>("weights", DICTIONARY_MAX)?),
            other => return Err(node.problem("mode", format!("{other} is not supported"))),
        };
        if weights.as_ref().is_some_and(|weights| weights.len() != grams.len()) {
            return Err(node.problem("weights", "there must be a weight for each n-gram"));
        }
        Ok(Self { n, grams, weights })
    }
}
