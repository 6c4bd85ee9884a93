//! Texts with a sentiment: sentences of film reviews if they are found, or invented ones.

use std::path::Path;

use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Zipf};

use crate::Settings;
use crate::places;

/// Pang and Lee's sentences (ACL 2005), in Latin-1: the files and their labels.
const FILES: [(&str, f32); 2] = [("rt-polarity.pos", 1.0), ("rt-polarity.neg", 0.0)];

/// Invented: the number of texts and of different words.
const INVENTED: usize = 10_000;
const WORDS: usize = 20_000;

/// Number of texts of a quick run.
const QUICK: usize = 300;

/// A text and its label: 1 for a favourable one, otherwise 0.
pub type Labelled = (String, f32);

/// All texts, in random order.
///
/// # Errors
/// If a file cannot be read.
pub fn all(settings: &Settings) -> Result<Vec<Labelled>, Failure> {
    let mut texts = match places::find("text", FILES[0].0) {
        Some(folder) => {
            eprintln!("  texts: sentences of film reviews, {}", folder.display());
            reviews(&folder)?
        }
        None => {
            eprintln!(
                "  texts: invented; for sentences of film reviews, CELERIS_DATA names a folder with text/{} and text/{}",
                FILES[0].0, FILES[1].0
            );
            invented(settings.pick(INVENTED, QUICK))?
        }
    };
    texts.shuffle(&mut scene::rng(90));
    texts.truncate(settings.pick(usize::MAX, QUICK));
    Ok(texts)
}

fn reviews(folder: &Path) -> Result<Vec<Labelled>, Failure> {
    let mut texts = Vec::new();
    for (file, label) in FILES {
        let path = folder.join(file);
        let bytes = std::fs::read(&path).map_err(|error| Failure::bad_input(format!("{}: {error}", path.display())))?;
        let decoded: String = bytes.into_iter().map(char::from).collect();
        texts
            .extend(decoded.lines().filter(|line| !line.trim().is_empty()).map(|line| (line.trim().to_owned(), label)));
    }
    Ok(texts)
}

/// Texts of words by a Zipf law, each word with a sentiment of its own; the label is that of the text's sum.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank of the distribution is small")]
fn invented(count: usize) -> Result<Vec<Labelled>, Failure> {
    let mut rng = scene::rng(91);
    let words: Vec<(String, f32)> = (0..WORDS)
        .map(|_| {
            let length = rng.random_range(2..10);
            (scene::text(&mut rng, length), rng.random_range(-1.0..1.0))
        })
        .collect();
    let law = Zipf::new(WORDS as f64, 1.0).map_err(Failure::other)?;
    let text = |_| {
        let drawn: Vec<&(String, f32)> =
            (0..rng.random_range(5..40)).map(|_| &words[law.sample(&mut rng) as usize - 1]).collect();
        let text: Vec<&str> = drawn.iter().map(|(word, _)| word.as_str()).collect();
        let sentiment: f32 = drawn.iter().map(|(_, sentiment)| sentiment).sum();
        (text.join(" "), f32::from(sentiment > 0.0))
    };
    Ok((0..count).map(text).collect())
}
