//! Generates unique film titles from the words of their genres.

use std::collections::HashMap;

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

use super::genres::{GENRES, Genre};

/// New titles tried before a film becomes a sequel.
const TRIES_MAX: usize = 12;

/// Titles used so far, with the number of films of each.
#[derive(Default)]
pub(super) struct Titles {
    films: HashMap<String, u32>,
}

impl Titles {
    /// A new title for a film of these genres (indices in [`GENRES`], the main one first).
    pub(super) fn draw(&mut self, main: usize, second: Option<usize>, rng: &mut impl Rng) -> String {
        let (main, second) = (&GENRES[main], second.map(|genre| &GENRES[genre]));
        let mut title = compose(main, second, rng);
        for _ in 1..TRIES_MAX {
            if !self.films.contains_key(&title) {
                break;
            }
            title = compose(main, second, rng);
        }
        let part = self.films.entry(title.clone()).or_default();
        *part += 1;
        match *part {
            1 => title,
            part => format!("{title}, Part {part}"),
        }
    }
}

/// Composes a title: the noun comes from the main genre, the adjective, place or companion from the
/// second.
fn compose(main: &Genre, second: Option<&Genre>, rng: &mut impl Rng) -> String {
    let lender = second.unwrap_or(main);
    let noun = pick(&main.nouns, rng);
    match rng.random_range(0..100) {
        0..45 => format!("The {} {noun}", pick(&lender.adjectives, rng)),
        45..70 => format!("The {noun} of {}", pick(&lender.places, rng)),
        70..90 => format!("{} {}", pick(&main.openings, rng), pick(&lender.places, rng)),
        _ => {
            let companion = pick(&lender.nouns, rng);
            if companion == noun { format!("The Other {noun}") } else { format!("The {noun} and the {companion}") }
        }
    }
}

fn pick<'a>(words: &[&'a str], rng: &mut impl Rng) -> &'a str {
    words.choose(rng).expect("every list of words has some")
}
