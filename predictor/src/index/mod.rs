//! What searches read: the catalog of each stream, and the search index of each version.

mod retrieval;
mod stream_catalog;

pub use retrieval::RetrievalView;
pub(crate) use retrieval::{FreshFeatures, Retrieval};
pub use stream_catalog::CatalogView;
pub(crate) use stream_catalog::{ItemNews, StreamCatalog};
