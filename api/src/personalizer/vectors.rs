//! Factors of an action, from its id and its attributes.
//!
//! A new model has no factors, by which the weights of a user could tell one action from another. Each name of an
//! attribute with its value, and the id, has a vector of random signs (a random projection of the one-hot features:
//! Achlioptas, "Database-friendly random projections", 2003): those of different ones are nearly orthogonal. Rewards of an
//! action thus move its own score, and by what they have in common, those of others.

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The factors and the constant of an item: length `factors + 1`, the last entry 1. The id has length 1, and all
/// attributes together have at most length 1.
#[must_use]
pub fn factors_of(id: &str, attributes: &Map<String, Value>, factors: usize) -> Vec<f32> {
    let tokens = tokens_of(attributes);
    let share = 1.0 / (tokens.len().max(1) as f64).sqrt();
    let of_id = (format!("id\0{id}"), 1.0);
    let weighted = tokens.into_iter().map(|(token, weight)| (token, weight * share)).chain([of_id]);
    let mut vector = vec![0.0; factors];
    for (token, weight) in weighted {
        add(&mut vector, token.as_bytes(), weight);
    }
    vector.into_iter().map(|factor| factor as f32).chain([1.0]).collect()
}

/// The features of the attributes with their weights, from -1 to 1.
fn tokens_of(attributes: &Map<String, Value>) -> Vec<(String, f64)> {
    let mut tokens = Vec::new();
    for (name, value) in attributes {
        match value {
            Value::Number(number) => {
                let number = number.as_f64().unwrap_or_default();
                tokens.push((format!("number\0{name}"), number / (1.0 + number.abs())));
            }
            Value::Array(values) => tokens.extend(values.iter().map(|value| (format!("value\0{name}\0{value}"), 1.0))),
            value => tokens.push((format!("value\0{name}\0{value}"), 1.0)),
        }
    }
    tokens
}

/// Adds the vector of a token: entries of random signs, of length `weight` together.
fn add(vector: &mut [f64], token: &[u8], weight: f64) {
    let size = weight / (vector.len().max(1) as f64).sqrt();
    for (block, entries) in vector.chunks_mut(u64::BITS as usize).enumerate() {
        let signs = xxh3_64_with_seed(token, block as u64);
        for (bit, entry) in entries.iter_mut().enumerate() {
            *entry += if (signs >> bit) & 1 == 1 { size } else { -size };
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vector(id: &str, attributes: &Value, factors: usize) -> Vec<f32> {
        factors_of(id, attributes.as_object().unwrap_or(&Map::new()), factors)
    }

    fn product(left: &[f32], right: &[f32]) -> f32 {
        left.iter().zip(right).map(|(left, right)| left * right).take(left.len() - 1).sum()
    }

    #[test]
    fn an_action_is_like_itself_and_hardly_like_others() {
        let factors = 200;
        let of = |id: &str| vector(id, &json!({}), factors);
        assert_eq!(of("a").len(), factors + 1);
        assert_eq!(of("a").last(), Some(&1.0));
        assert!((product(&of("a"), &of("a")) - 1.0).abs() < 1e-5, "its length is 1 up to rounding");
        // Five standard deviations of a product of random signs.
        let bound = 5.0 / (factors as f32).sqrt();
        for other in 0..50 {
            assert!(product(&of("a"), &of(&format!("b{other}"))).abs() < bound);
        }
        let alike =
            product(&vector("a", &json!({"topic": "arts"}), factors), &vector("b", &json!({"topic": "arts"}), factors));
        assert!((alike - 1.0).abs() < 3.0 * bound, "what they have in common has length 1: {alike}");
        assert_eq!(vector("a", &json!({"price": 1e30, "tags": ["x", "y"]}), 0), [1.0]);
    }
}
