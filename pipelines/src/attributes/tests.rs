//! Tests of the encoder.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde_json::json;

use super::*;

fn attributes(value: Value) -> Map<String, Value> {
    let Value::Object(attributes) = value else { panic!("{value} is no object") };
    attributes
}

fn film(index: usize) -> Map<String, Value> {
    let studio = ["north", "south"][index % 2];
    attributes(json!({
        "title": format!("The number {index}"),
        "studio": studio,
        "year": 1990 + index,
        "genres": ["Drama"],
        "released": format!("20{:02}-01-01T00:00:00Z", index % 50),
        "embedding": [index as f64, 1.0, -2.0],
        "available_from": 7,
    }))
}

fn encoder() -> AttributeEncoder {
    let films: Vec<_> = (0..40).map(film).collect();
    AttributeEncoder::learn(&films)
}

fn columns_of(encoder: &AttributeEncoder, value: Value) -> Vec<(u32, f32)> {
    encoder.encode(&attributes(value))
}

#[test]
fn the_kind_of_a_field_follows_from_its_values() {
    let encoder = encoder();
    let strings = |name: &str| encoder.fields[name].strings;
    assert_eq!(strings("title"), Some(Strings::Text), "titles do not repeat");
    assert_eq!(strings("studio"), Some(Strings::Keyword));
    assert_eq!(strings("released"), Some(Strings::Time));
    assert_eq!(encoder.fields["embedding"].vector.unwrap().length, 3);
    assert!(!encoder.fields.contains_key("available_from"), "availability is no property of an item");
    // Two numbers of two columns, a vector of three entries and its presence.
    assert_eq!(encoder.width(), 64 + 2 * 2 + 4);
    encoder.check().unwrap();
}

#[test]
fn keywords_and_tags_have_a_column_each_and_texts_have_length_one() {
    let encoder = encoder();
    assert_eq!(columns_of(&encoder, json!({"studio": "north"})).len(), 1);
    assert_ne!(columns_of(&encoder, json!({"studio": "north"})), columns_of(&encoder, json!({"studio": "south"})));
    let tags = columns_of(&encoder, json!({"genres": ["Drama", "Comedy"]}));
    assert!(tags.iter().all(|(column, value)| *column < 64 && value.abs() == 1.0) && tags.len() == 2, "{tags:?}");
    let text = columns_of(&encoder, json!({"title": "A longer title of many words"}));
    let length: f32 = text.iter().map(|(_, value)| value * value).sum();
    assert!((length - 1.0).abs() < 1e-5, "{length}; rounding of some dozen terms");
}

#[test]
fn numbers_are_standardised_and_clamped_and_missing_differs_from_average() {
    let encoder = encoder();
    let year = encoder.fields["year"].number.unwrap();
    assert!(columns_of(&encoder, json!({})).is_empty());
    assert_eq!(columns_of(&encoder, json!({"year": year.mean})), [(year.column + 1, 1.0)]);
    let far = columns_of(&encoder, json!({"year": 1e300}));
    assert_eq!(far, [(year.column, 4.0), (year.column + 1, 1.0)]);
    let above = columns_of(&encoder, json!({"year": year.mean + year.deviation}));
    assert!((above[0].1 - 1.0).abs() < 1e-6);
}

#[test]
fn vectors_keep_their_entries_and_those_of_another_length_are_missing() {
    let encoder = encoder();
    let vector = encoder.fields["embedding"].vector.unwrap();
    let [one, two] =
        [[1.0, 0.5, -0.5], [2.0, 1.0, -1.0]].map(|entries| columns_of(&encoder, json!({"embedding": entries})));
    assert_eq!(
        one.iter().map(|(column, _)| *column).collect::<Vec<_>>(),
        (vector.column..vector.column + 4).collect::<Vec<_>>()
    );
    assert!(one.iter().zip(&two).take(3).all(|(one, two)| (2.0 * one.1 - two.1).abs() < 1e-6));
    assert!(columns_of(&encoder, json!({"embedding": [1.0, 2.0]})).is_empty());
}

#[test]
fn fields_and_kinds_unknown_to_the_training_are_ignored() {
    let encoder = encoder();
    let odd =
        json!({"director": "x", "year": "soon", "studio": 7, "genres": {"a": 1}, "title": null, "embedding": "x"});
    assert!(columns_of(&encoder, odd).is_empty());
}

#[test]
fn the_fields_of_most_items_get_columns_first() {
    let item = |index: usize| {
        let mut item = attributes(json!({"wide": vec![1.0; DENSE_COLUMNS_MAX], "narrow": [1.0, 2.0]}));
        if index == 0 {
            item.remove("narrow");
        }
        item
    };
    let items: Vec<_> = (0..5).map(item).collect();
    let encoder = AttributeEncoder::learn(&items);
    assert!(
        !encoder.fields.contains_key("wide") && encoder.fields.contains_key("narrow"),
        "one column too many with its presence"
    );
    assert_eq!(encoder.width(), 64 + 3);
}
