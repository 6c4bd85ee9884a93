//! Columns of categories.

use super::pairs::Pairs;
use super::{HashOp, Known};
use crate::keys::{column, key, mix};
use crate::values::{Slot, View};

/// The texts of a value: itself, or its elements.
pub(super) fn each_text<'a>(input: View<'a>, mut take: impl FnMut(&'a [u8])) {
    match input {
        View::Text(text) => take(text.as_bytes()),
        View::Texts(text, spans) => {
            spans.iter().for_each(|[begin, end]| take(&text.as_bytes()[*begin as usize..*end as usize]));
        }
        _ => {}
    }
}

/// 1 in the column of each known text, however often it occurs.
pub(super) fn hot(known: &Known, input: View, out: &mut Slot) {
    let (columns, values) = out.sparse();
    match known {
        Known::Strings(dictionary) => each_text(input, |text| columns.extend(dictionary.column(text))),
        Known::Numbers(count) => {
            if let View::Category(category) = input
                && category < *count
            {
                columns.push(category);
            }
        }
    }
    columns.sort_unstable();
    columns.dedup();
    values.resize(columns.len(), 1.0);
}

/// The hashed columns of texts; texts of one column are summed.
pub(super) fn hash(hash: HashOp, input: View, pairs: &mut Pairs, out: &mut Slot) {
    pairs.clear();
    each_text(input, |text| {
        let mixed = mix(key(text));
        pairs.push(column(mixed, hash.bits), if hash.signs && mixed & 1 == 1 { -1.0 } else { 1.0 });
    });
    let (columns, values) = out.sparse();
    pairs.merge_into(columns, values);
}
