//! What a catalog can be filtered by: its attributes, and the names nearest to a wrong one.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Catalog;

/// Maximum number of names that are suggested for a wrong one.
const NEAREST_MAX: usize = 3;

/// One attribute of a catalog. Counts are of items that are described and not deleted, available or
/// not.
#[derive(Debug, Clone, PartialEq)]
pub struct AttributeSummary {
    pub name: String,
    /// How filters can compare its values. If empty, only `exists` matches it.
    pub kinds: Vec<AttributeKind>,
    /// Number of items that have it.
    pub items: usize,
    /// Number of distinct values that `eq` finds, without numbers.
    pub distinct: usize,
    /// The most frequent of these values with their numbers of items, the most frequent first.
    pub values: Vec<(AttributeValue, usize)>,
    /// The range of its numbers and times.
    pub numbers: Option<NumberRange>,
}

/// How filters compare a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeKind {
    /// Texts, or lists of texts.
    Keyword,
    /// Numbers, or times in Unix milliseconds.
    Number,
    Boolean,
}

/// A value that `eq` finds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttributeValue {
    Keyword(String),
    Boolean(bool),
}

/// The numbers of an attribute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberRange {
    /// Number of items with a number.
    pub items: usize,
    pub min: f64,
    pub max: f64,
}

/// An attribute that no item has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownAttribute {
    pub name: String,
    /// The attributes with the most similar names, the nearest first.
    pub nearest: Vec<String>,
}

impl Catalog {
    /// Those of these attributes that no item has.
    #[must_use]
    pub fn unknown_attributes(&self, names: &BTreeSet<&str>) -> Vec<UnknownAttribute> {
        let unknown = names.iter().filter(|name| !self.postings.has_field(name));
        unknown
            .map(|name| UnknownAttribute { name: (*name).to_owned(), nearest: self.nearest_attributes(name) })
            .collect()
    }

    /// The attributes in the order of their names, each with at most `values_max` values. Takes time
    /// in proportion to the number of distinct values, and of items with numbers.
    #[must_use]
    pub fn attributes(&self, values_max: usize) -> Vec<AttributeSummary> {
        let mut names: Vec<&str> = self.postings.names().collect();
        names.sort_unstable();
        names.into_iter().map(|name| self.attribute(name, values_max)).collect()
    }

    fn attribute(&self, name: &str, values_max: usize) -> AttributeSummary {
        let mut keywords: Vec<(&str, usize)> =
            self.postings.keywords_of(name).map(|(keyword, rows)| (keyword, rows.count())).collect();
        let booleans = [false, true].map(|truth| (truth, self.postings.with_boolean(name, truth).count()));
        let booleans = booleans.into_iter().filter(|(_, items)| *items > 0);
        let number_range = self.postings.numbers(name).extent();
        let mut kinds = Vec::new();
        kinds.extend((!keywords.is_empty()).then_some(AttributeKind::Keyword));
        kinds.extend(number_range.map(|_| AttributeKind::Number));
        kinds.extend(booleans.clone().next().map(|_| AttributeKind::Boolean));
        let distinct = keywords.len() + booleans.clone().count();
        // Only as many strings are copied as are returned: titles have as many as there are items.
        if keywords.len() > values_max && values_max > 0 {
            keywords.select_nth_unstable_by_key(values_max - 1, |(keyword, items)| (Reverse(*items), *keyword));
        }
        keywords.truncate(values_max);
        let keywords =
            keywords.into_iter().map(|(keyword, items)| (AttributeValue::Keyword(keyword.to_owned()), items));
        let mut values: Vec<(AttributeValue, usize)> =
            keywords.chain(booleans.map(|(truth, items)| (AttributeValue::Boolean(truth), items))).collect();
        values.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        values.truncate(values_max);
        AttributeSummary {
            name: name.to_owned(),
            kinds,
            items: self.postings.having(name).count(),
            distinct,
            values,
            numbers: number_range.map(|(items, min, max)| NumberRange { items, min, max }),
        }
    }

    /// The attributes whose names are most like `name`, at most [`NEAREST_MAX`], the nearest first:
    /// those within an edit distance of a third of its length, ignoring case.
    fn nearest_attributes(&self, name: &str) -> Vec<String> {
        let wanted = name.to_lowercase();
        let most = wanted.chars().count().div_ceil(3);
        let distance = |known: &str| strsim::osa_distance(&wanted, &known.to_lowercase());
        let near =
            self.postings.names().map(|known| (distance(known), known)).filter(|(distance, _)| *distance <= most);
        let mut near: Vec<(usize, &str)> = near.collect();
        near.sort_unstable();
        near.into_iter().take(NEAREST_MAX).map(|(_, known)| known.to_owned()).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::ItemId;
    use serde_json::{Value, json};

    use super::*;

    fn catalog(items: &[(&str, Value)]) -> Catalog {
        let mut catalog = Catalog::new();
        for (item, attributes) in items {
            catalog.put(&ItemId::new(*item).unwrap(), attributes.as_object().unwrap());
        }
        catalog
    }

    #[test]
    fn attributes_are_summarised_by_kind_with_the_most_frequent_values_first() {
        let mut catalog = catalog(&[
            ("a", json!({"genres": ["War", "Drama"], "year": 1950, "seen": true, "cast": {"lead": "x"}})),
            ("b", json!({"genres": ["Drama"], "year": 1940})),
            ("c", json!({"genres": ["Drama", "Comedy"], "year": null, "seen": false})),
            ("d", json!({"genres": ["Noir"]})),
        ]);
        catalog.delete(&ItemId::new("d").unwrap());
        let keyword = |text: &str| AttributeValue::Keyword(text.to_owned());
        let found = catalog.attributes(2);
        let names: Vec<(&str, usize)> = found.iter().map(|found| (found.name.as_str(), found.items)).collect();
        assert_eq!(names, [("cast", 1), ("genres", 3), ("seen", 2), ("year", 2)]);
        assert_eq!((found[0].kinds.as_slice(), found[0].distinct), (&[][..], 0), "an object is not comparable");
        assert_eq!(found[1].kinds, [AttributeKind::Keyword]);
        assert_eq!(found[1].distinct, 3, "the deleted item has no values");
        assert_eq!(found[1].values, [(keyword("Drama"), 3), (keyword("Comedy"), 1)]);
        assert_eq!(found[2].values, [(AttributeValue::Boolean(false), 1), (AttributeValue::Boolean(true), 1)]);
        assert_eq!(found[3].kinds, [AttributeKind::Number]);
        assert_eq!(found[3].numbers, Some(NumberRange { items: 2, min: 1940.0, max: 1950.0 }));
        assert_eq!(catalog.attributes(0)[1].values, []);
    }

    #[test]
    fn wrong_names_get_the_nearest_ones() {
        let catalog = catalog(&[("a", json!({"genres": 1, "Genre2": 1, "gender": 1, "year": 1, "x": 1}))]);
        assert_eq!(catalog.nearest_attributes("genre"), ["Genre2", "genres", "gender"]);
        assert_eq!(catalog.nearest_attributes("GENRES"), ["genres", "Genre2", "gender"]);
        assert_eq!(catalog.nearest_attributes("yaer"), ["year"], "a transposition is one edit");
        assert_eq!(catalog.nearest_attributes("publisher"), Vec::<String>::new());
        let unknown = catalog.unknown_attributes(&["yaer", "year"].into());
        assert_eq!(unknown, [UnknownAttribute { name: "yaer".to_owned(), nearest: vec!["year".to_owned()] }]);
    }
}
