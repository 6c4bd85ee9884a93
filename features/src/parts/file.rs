//! The files of parts in a version directory: `parts.json` with `format` and the [`PartSpec`]s, the objects that their
//! pipelines name, and the attributes of the items of the table, from which the parts were computed. A version is whole by
//! itself: it serves the same after its pipelines were declared again or deleted.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use celeris_formats::attributes::{attributes_table, read_attributes};
use celeris_formats::version_dir::{PART_ATTRIBUTES_FILE, PARTS_FILE, object_file};
use celeris_formats::{FormatError, Manifest, ParquetFile, RecordBatch, checked_file, part_moments};
use celeris_model::ItemId;
use celeris_pipelines::{Catalog, Object, ObjectId, Objects};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{OUTPUT_ABS_MAX, PartSpec, Parts};
use crate::error::FeaturesError;

/// The format that this program writes and reads.
const FORMAT: u32 = 2;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    parts: Vec<PartSpec>,
}

/// The files of parts, by name.
#[derive(Debug, Clone)]
pub struct PartsFiles {
    pub texts: Vec<(String, Vec<u8>)>,
    pub tables: Vec<(&'static str, Vec<RecordBatch>)>,
}

impl PartsFiles {
    /// The files of parts whose pipelines name these objects, for a table of these items; `moments` if parts depend on item
    /// and context.
    #[must_use]
    pub fn of<'a>(
        parts: Vec<PartSpec>,
        objects: impl IntoIterator<Item = &'a Arc<Object>>,
        items: impl IntoIterator<Item = (&'a ItemId, &'a Map<String, Value>)>,
        moments: Option<ItemMoments<'_>>,
    ) -> Self {
        let text = serde_json::to_vec_pretty(&File { format: FORMAT, parts });
        let mut texts = vec![(PARTS_FILE.to_owned(), text.expect("names and finite numbers always serialise"))];
        let object = |object: &Arc<Object>| (object_file(&object.id().hex()), object.content().encode());
        texts.extend(objects.into_iter().map(object));
        let mut tables = vec![(PART_ATTRIBUTES_FILE, vec![attributes_table(items)])];
        tables
            .extend(moments.map(|of| (part_moments::FILE, vec![part_moments::table(of.items, of.moments, of.width)])));
        Self { texts, tables }
    }
}

/// The moments of all items of a table ([`Parts::moments`]).
#[derive(Debug, Clone, Copy)]
pub struct ItemMoments<'a> {
    pub items: &'a [ItemId],
    /// Row-major `items x width`.
    pub moments: &'a [f32],
    pub width: usize,
}

/// Reads the parts of a version directory whose checksums have been verified, for a table of `items`; `None` if it has
/// none. Objects and stages are shared with what is in memory.
///
/// # Errors
/// [`FeaturesError`], naming the file and the problem.
pub(crate) fn read_parts(
    dir: &Path,
    manifest: &Manifest,
    items: &[ItemId],
    shared: (&Objects, &Catalog),
) -> Result<Option<Parts>, FeaturesError> {
    let Some(path) = checked_file(dir, manifest, PARTS_FILE)? else { return Ok(None) };
    let error = |problem: String| FormatError::Manifest { path: path.clone(), problem };
    let text = fs::read(&path).map_err(|source| FormatError::Io { path: path.clone(), source })?;
    let file: File = serde_json::from_slice(&text).map_err(|source| error(source.to_string()))?;
    if file.format != FORMAT {
        return Err(error(format!("has format {}, this program reads {FORMAT}", file.format)).into());
    }
    // Held until the parts are compiled.
    let mut objects = Vec::new();
    for id in file.parts.iter().flat_map(|part| part.pipeline.objects()) {
        objects.push(read_object(dir, manifest, id, shared.0)?);
    }
    let parts = Parts::compile(&file.parts, manifest.dim, shared)?;
    let Some(path) = checked_file(dir, manifest, PART_ATTRIBUTES_FILE)? else {
        return Err(error(format!("needs {PART_ATTRIBUTES_FILE} beside it")).into());
    };
    let attributes = read_attributes(&path, items)?;
    let moments = read_moments(dir, manifest, items, parts.moments_width())?;
    Ok(Some(parts.with_rows(attributes.iter().map(Option::as_ref), &moments)))
}

/// The moments of the items, row-major `items x width`.
fn read_moments(dir: &Path, manifest: &Manifest, items: &[ItemId], width: usize) -> Result<Vec<f32>, FeaturesError> {
    if width == 0 {
        return Ok(Vec::new());
    }
    let path = dir.join(part_moments::FILE);
    let problem = |problem: &str| FormatError::Manifest { path: path.clone(), problem: problem.to_owned() };
    if checked_file(dir, manifest, part_moments::FILE)?.is_none() {
        return Err(problem("is missing, and a part depends on item and context").into());
    }
    let (mut names, mut moments) = (Vec::new(), Vec::new());
    let mut file = ParquetFile::open(&path)?;
    while let Some(batch) = file.next_batch()? {
        let (of_rows, values) = part_moments::read_rows(&batch, width)?;
        let is_valid = |value: &f32| value.is_finite() && value.abs() <= OUTPUT_ABS_MAX;
        if let Some(wrong) = values.iter().position(|value| !is_valid(value)) {
            let expected = format!("numbers are finite and at most {OUTPUT_ABS_MAX:e}");
            return Err(batch.value_error(wrong / width, part_moments::MOMENTS, &expected).into());
        }
        names.extend(of_rows);
        moments.extend(values);
    }
    if names != items {
        return Err(problem("does not have the items of the table, in its order").into());
    }
    Ok(moments)
}

fn read_object(dir: &Path, manifest: &Manifest, id: ObjectId, objects: &Objects) -> Result<Arc<Object>, FeaturesError> {
    let name = object_file(&id.hex());
    let path = dir.join(&name);
    let problem = |problem: String| FormatError::Manifest { path: path.clone(), problem };
    if !manifest.files.contains_key(&name) {
        return Err(problem("is missing, and a part needs it".to_owned()).into());
    }
    let bytes = fs::read(&path).map_err(|source| FormatError::Io { path: path.clone(), source })?;
    if ObjectId::of(&bytes) != id {
        return Err(problem("does not have the checksum of its name".to_owned()).into());
    }
    Ok(objects.insert(&bytes).map_err(|error| problem(error.to_string()))?)
}
