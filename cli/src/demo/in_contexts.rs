//! The part of the demo's model by which rankings depend on device and hour.

use celeris_datasets::synthetic::{DEVICES, HOUR_EDGES};
use celeris_manager::{FeaturePart, FeatureParts, FeatureSource};
use celeris_pipelines::PipelineSpec;
use serde_json::json;

/// The name of the pipeline, and of the part that it computes.
const NAME: &str = "moment";

/// Hash bits of a cross. With 4,096 columns, few of the hundred combinations collide.
const HASH_BITS: u32 = 12;

/// A linear model of the combinations of genres with device and part of the day.
pub(super) fn pipeline() -> PipelineSpec {
    let cross = |other: &str| json!({"op": "cross", "inputs": ["genres", other], "hash_bits": HASH_BITS});
    let declared = json!({"name": NAME, "output": "liking", "nodes": {
        "genres": {"op": "multi_hot", "input": "item.genres", "fit": {"min_count": 1}},
        "device": {"op": "one_hot", "input": "context.device", "categories": DEVICES},
        "hours": {"op": "bucketize", "input": "context.hour", "edges": HOUR_EDGES},
        "by_device": cross("device"),
        "by_hours": cross("hours"),
        "both": {"op": "concat", "inputs": ["by_device", "by_hours"]},
        "liking": {"op": "linear", "input": "both", "fit": "label"},
    }});
    serde_json::from_value(declared).expect("it is a declaration")
}

/// The factors, and the part of the pipeline.
pub(super) fn features() -> FeatureParts {
    let part = |part: &str, from, pipeline| FeaturePart { part: part.to_owned(), from, pipeline, dim: None };
    FeatureParts(vec![part("factors", Some(FeatureSource::Table), None), part(NAME, None, Some(NAME.to_owned()))])
}
