//! The materialised feature function: a table from items to offset and features.

use celeris_kernel as kernel;
use celeris_model::{ItemId, ModelError};

use crate::huge::HugeFloats;
use crate::slots::Slots;

/// Offset and features of one item.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ItemFeatures<'a> {
    /// The expected label of the item for a user with zero weights.
    pub offset: f32,
    /// `f_i`, length `dim`, the last entry 1.
    pub features: &'a [f32],
    /// `Lambda y_i` for the item's choice vector `y_i`, length `dim`; empty in a version without choice vectors.
    pub choice: &'a [f32],
    /// What the uncertainty of offset and features adds to the variance of a score, for a user drawn from the prior; 0 in a
    /// version that does not know.
    pub variance: f32,
}

/// Default offset and features of an item unknown to the version.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdItem {
    pub offset: f32,
    /// Length `dim`, the last entry 1.
    pub features: Vec<f32>,
}

impl ColdItem {
    /// The default of an untrained version: offset 0 and no feature but the constant.
    #[must_use]
    pub fn blank(dim: usize) -> Self {
        let mut features = vec![0.0; dim];
        if let Some(constant) = features.last_mut() {
            *constant = 1.0;
        }
        Self { offset: 0.0, features }
    }
}

/// The shared feature parameters of one version.
#[derive(Debug, Clone)]
pub struct Theta {
    dim: usize,
    items: Vec<ItemId>,
    slots: Slots,
    offsets: Vec<f32>,
    /// Row-major, `items.len() x dim`.
    features: HugeFloats,
    /// Row-major, `items.len() x dim`: `Lambda y_i`; empty in a version without choice vectors.
    choices: HugeFloats,
    /// Length `items.len()`, see [`ItemFeatures::variance`]; empty in a version that does not know.
    variances: Vec<f32>,
    /// That of an unknown item.
    cold_variance: f32,
    cold_item: ColdItem,
}

impl PartialEq for Theta {
    /// Ignores `slots`, which is a function of the items.
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
            && self.offsets == other.offsets
            && self.features == other.features
            && self.choices == other.choices
            && self.variances == other.variances
            && self.cold_variance == other.cold_variance
            && self.cold_item == other.cold_item
    }
}

impl Theta {
    /// A table of `items` with their `offsets` and row-major `features` of `items.len() * dim`
    /// entries.
    ///
    /// # Errors
    /// `DimMismatch`, `NonFinite`, or `OutOfRange` if an item occurs twice or a row does not end in
    /// the constant 1.
    pub fn new(
        items: Vec<ItemId>,
        offsets: Vec<f32>,
        features: Vec<f32>,
        cold_item: ColdItem,
    ) -> Result<Self, ModelError> {
        let dim = cold_item.features.len();
        let expect = |what, expected, received| {
            if expected == received { Ok(()) } else { Err(ModelError::DimMismatch { what, expected, received }) }
        };
        expect("item offsets", items.len(), offsets.len())?;
        expect("item features", items.len() * dim, features.len())?;
        if !offsets.iter().chain([&cold_item.offset]).all(|x| x.is_finite()) {
            return Err(ModelError::NonFinite { what: "item offset" });
        }
        for row in features.chunks_exact(dim.max(1)).chain([cold_item.features.as_slice()]) {
            check_features(row, dim)?;
        }
        let mut slots = Slots::with_capacity(items.len());
        for end in 1..=items.len() {
            if !slots.add_last(&items[..end]) {
                return Err(ModelError::OutOfRange { what: "occurrences of an item", range: "1", value: 2.0 });
            }
        }
        Ok(Self {
            dim,
            items,
            slots,
            offsets,
            features: features.into(),
            choices: Vec::new().into(),
            variances: Vec::new(),
            cold_variance: 0.0,
            cold_item,
        })
    }

    /// The same table with choice vectors times `Lambda`, row-major `items().len() x dim`; an empty table has none.
    ///
    /// # Errors
    /// `DimMismatch` or `NonFinite`.
    pub fn with_choices(self, choices: Vec<f32>) -> Result<Self, ModelError> {
        let (expected, received) = (self.items.len() * self.dim, choices.len());
        if received != 0 && received != expected {
            return Err(ModelError::DimMismatch { what: "choice vectors", expected, received });
        }
        if !choices.iter().all(|entry| entry.is_finite()) {
            return Err(ModelError::NonFinite { what: "choice vectors" });
        }
        Ok(Self { choices: choices.into(), ..self })
    }

    /// The same table with the variance that each item, and an unknown one, adds to a score; an empty list stands for none.
    ///
    /// # Errors
    /// `DimMismatch`, or `OutOfRange` for a negative variance or one that is not finite.
    pub fn with_variances(self, variances: Vec<f32>, cold_variance: f32) -> Result<Self, ModelError> {
        let (expected, received) = (self.items.len(), variances.len());
        if received != 0 && received != expected {
            return Err(ModelError::DimMismatch { what: "variances of items", expected, received });
        }
        let wrong = variances.iter().chain([&cold_variance]).find(|variance| !is_variance(**variance));
        if let Some(value) = wrong.map(|variance| f64::from(*variance)) {
            return Err(ModelError::OutOfRange { what: "variance of an item", range: "from 0 to 1e14", value });
        }
        Ok(Self { variances, cold_variance, ..self })
    }

    /// The variances of the items; empty in a version that does not know.
    #[must_use]
    pub fn variances(&self) -> &[f32] {
        &self.variances
    }

    /// The table of an untrained version: no items, and a blank default.
    #[must_use]
    pub fn untrained(dim: usize) -> Self {
        Self {
            dim,
            items: Vec::new(),
            slots: Slots::default(),
            offsets: Vec::new(),
            features: Vec::new().into(),
            choices: Vec::new().into(),
            variances: Vec::new(),
            cold_variance: 0.0,
            cold_item: ColdItem::blank(dim),
        }
    }

    /// The length of a feature vector.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    #[must_use]
    pub fn items(&self) -> &[ItemId] {
        &self.items
    }

    /// Default offset and features of an unknown item.
    #[must_use]
    pub fn cold_item(&self) -> ItemFeatures<'_> {
        ItemFeatures {
            offset: self.cold_item.offset,
            features: &self.cold_item.features,
            choice: &[],
            variance: self.cold_variance,
        }
    }

    /// Offset and features of `item`, if it was trained.
    #[must_use]
    pub fn get(&self, item: &ItemId) -> Option<ItemFeatures<'_>> {
        self.slot(item).map(|slot| self.row(slot as usize))
    }

    /// The row index of `item`, if it was trained.
    #[must_use]
    pub fn slot(&self, item: &ItemId) -> Option<u32> {
        self.slots.get(item, &self.items)
    }

    /// The row indices of several items; faster than one by one if the table exceeds the
    /// processor's caches.
    #[must_use]
    pub fn slots<'w>(&self, wanted: impl IntoIterator<Item = &'w ItemId, IntoIter: Clone>) -> Vec<Option<u32>> {
        let slots = self.slots.get_all(wanted.into_iter(), &self.items);
        for slot in slots.iter().flatten() {
            kernel::prefetch(self.row(*slot as usize).features);
        }
        slots
    }

    /// Size in memory, in bytes: features, offsets, ids and the hash table.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ids: usize = self.items.iter().map(ItemId::heap_bytes).sum();
        let numbers = size_of_val(&*self.features) + size_of_val(&*self.choices) + size_of_val(&*self.offsets);
        let arrays = numbers + size_of_val(&*self.variances) + size_of_val(&*self.items);
        size_of::<Self>() + arrays + ids + self.slots.bytes()
    }

    /// The row at `slot`, below `items().len()`.
    #[must_use]
    pub fn row(&self, slot: usize) -> ItemFeatures<'_> {
        let row = slot * self.dim..(slot + 1) * self.dim;
        let choice = self.choices.get(row.clone()).unwrap_or_default();
        let variance = self.variances.get(slot).copied().unwrap_or_default();
        ItemFeatures { offset: self.offsets[slot], features: &self.features[row], choice, variance }
    }

    /// The offsets, in the order of the items.
    #[must_use]
    pub fn offsets(&self) -> &[f32] {
        &self.offsets
    }

    /// The features of all items, row-major `items().len() x dim`.
    #[must_use]
    pub fn features(&self) -> &[f32] {
        &self.features
    }

    /// The table's own copy of an id, so that histories share one allocation per item.
    #[must_use]
    pub fn intern(&self, item: &ItemId) -> Option<&ItemId> {
        self.slot(item).map(|slot| &self.items[slot as usize])
    }
}

/// The largest magnitude of a feature. Trained features have unit RMS; features given by callers
/// should be scaled alike.
pub const FEATURE_ABS_MAX: f32 = 1e4;

/// The largest magnitude of an entry of a choice vector, as of a mean weight.
pub const CHOICE_ABS_MAX: f32 = 1e7;

/// The largest variance that an item adds to a score: that of an offset at its bound.
pub const VARIANCE_MAX: f32 = 1e14;

/// Whether an item can add this variance to a score: from 0 to [`VARIANCE_MAX`].
#[must_use]
pub fn is_variance(value: f32) -> bool {
    (0.0..=VARIANCE_MAX).contains(&value)
}

/// The largest magnitude of an item's offset: ten times that of a label.
pub const OFFSET_ABS_MAX: f32 = 1e7;

/// Checks one feature vector: length, finiteness, bound, and the constant 1 at the end.
///
/// # Errors
/// `DimMismatch`, `NonFinite` or `OutOfRange`.
pub fn check_features(features: &[f32], dim: usize) -> Result<(), ModelError> {
    if features.len() != dim {
        return Err(ModelError::DimMismatch { what: "features", expected: dim, received: features.len() });
    }
    if !features.iter().all(|x| x.is_finite()) {
        return Err(ModelError::NonFinite { what: "features" });
    }
    if let Some(worst) = features.iter().find(|x| x.abs() > FEATURE_ABS_MAX) {
        return Err(ModelError::OutOfRange {
            what: "features",
            range: "between -1e4 and 1e4",
            value: f64::from(*worst),
        });
    }
    match features.last() {
        Some(constant) if (constant - 1.0).abs() <= f32::EPSILON => Ok(()),
        Some(other) => Err(ModelError::OutOfRange {
            what: "the last entry of features",
            range: "the constant 1",
            value: f64::from(*other),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn item(text: &str) -> ItemId {
        ItemId::new(text).unwrap()
    }

    #[test]
    fn rows_are_found_by_item() {
        let theta = Theta::new(
            vec![item("a"), item("b")],
            vec![0.5, -0.5],
            vec![1.0, 2.0, 1.0, 3.0, 4.0, 1.0],
            ColdItem::blank(3),
        )
        .unwrap();
        let row = theta.get(&item("b")).unwrap();
        assert_eq!((row.offset, row.features), (-0.5, &[3.0, 4.0, 1.0][..]));
        assert_eq!(theta.get(&item("c")), None);
    }

    #[test]
    fn batched_look_ups_equal_single_ones() {
        let items: Vec<ItemId> = (0..5_000).map(|k| item(&format!("item {k}"))).collect();
        let features = [1.0].repeat(items.len());
        let theta = Theta::new(items.clone(), vec![0.0; items.len()], features, ColdItem::blank(1)).unwrap();
        let wanted: Vec<ItemId> = (0..9_000).rev().map(|k| item(&format!("item {}", k % 7_000))).collect();
        let expected: Vec<Option<u32>> =
            (0..9_000).rev().map(|k| Some(k % 7_000).filter(|slot| *slot < 5_000)).collect();
        assert_eq!(theta.slots(&wanted), expected);
        assert_eq!(wanted.iter().map(|item| theta.slot(item)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn inconsistent_tables_are_rejected() {
        let new = |items: &[&str], offsets: &[f32], features: &[f32]| {
            let items = items.iter().map(|text| item(text)).collect();
            Theta::new(items, offsets.to_vec(), features.to_vec(), ColdItem::blank(2))
        };
        assert!(new(&["a"], &[0.0], &[2.0, 1.0]).is_ok());
        assert!(matches!(new(&["a"], &[], &[2.0, 1.0]), Err(ModelError::DimMismatch { .. })));
        assert!(matches!(new(&["a"], &[0.0], &[2.0]), Err(ModelError::DimMismatch { .. })));
        assert!(matches!(new(&["a"], &[f32::NAN], &[2.0, 1.0]), Err(ModelError::NonFinite { .. })));
        assert!(matches!(new(&["a"], &[0.0], &[f32::INFINITY, 1.0]), Err(ModelError::NonFinite { .. })));
        assert!(matches!(new(&["a"], &[0.0], &[2.0, 0.0]), Err(ModelError::OutOfRange { .. })));
        assert!(matches!(new(&["a", "a"], &[0.0; 2], &[2.0, 1.0, 2.0, 1.0]), Err(ModelError::OutOfRange { .. })));
    }
}
