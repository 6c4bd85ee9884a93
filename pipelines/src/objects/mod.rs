//! Objects: the learnt or large parameters of operators, stored apart from declarations and named by the SHA-256 of their
//! bytes, so that pipelines share them (PRETZEL, section 4.1.3).
//!
//! Each kind has one canonical encoding: a header of four bytes of magic, kind and format, then fixed-width
//! little-endian numbers and counted strings. Equal objects have equal bytes, and decoding checks everything.

mod codec;
mod dictionary;
mod index;
mod store;
mod tables;

use std::sync::Arc;

use crate::attributes::AttributeEncoder;
use crate::error::PipelineError;
use crate::limits::OBJECT_BYTES_MAX;
use crate::networks::Network;
use crate::trees::TreeEnsemble;

pub use crate::ids::{Kind, ObjectId};
pub use codec::{Decoder, Encoder};
pub use dictionary::{Dictionary, StringsIndex, WordsIndex};
pub use store::{Loader, ObjectFacts, Objects};
pub use tables::{Centroids, Components, EmbeddingTable, Idf, Moments, Weights};

/// The first bytes of every object.
const MAGIC: [u8; 4] = *b"CELO";

/// A decoded object.
#[derive(Debug, Clone)]
pub enum Content {
    Dictionary(Arc<Dictionary>),
    Weights(Arc<Weights>),
    Idf(Arc<Idf>),
    Moments(Arc<Moments>),
    Centroids(Arc<Centroids>),
    Components(Arc<Components>),
    Embedding(Arc<EmbeddingTable>),
    Trees(Arc<TreeEnsemble>),
    Onnx(Arc<Network>),
    Attributes(Arc<AttributeEncoder>),
}

/// An object with its name.
#[derive(Debug, Clone)]
pub struct Object {
    id: ObjectId,
    /// Length of its encoding.
    bytes: usize,
    content: Content,
}

impl Object {
    /// # Errors
    /// [`PipelineError::Object`] for bytes that are not the canonical form of an object within the limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, PipelineError> {
        Self::decode_named(ObjectId::of(bytes), bytes)
    }

    /// As [`Object::decode`]; the caller guarantees that `id` is the sum of the bytes.
    fn decode_named(id: ObjectId, bytes: &[u8]) -> Result<Self, PipelineError> {
        if bytes.len() > OBJECT_BYTES_MAX {
            return Err(PipelineError::object(format!("has {} bytes, the maximum is {OBJECT_BYTES_MAX}", bytes.len())));
        }
        let mut decoder = Decoder::new(bytes);
        if decoder.take(MAGIC.len())? != MAGIC {
            return Err(PipelineError::object("does not begin as one; objects are written by a fit or an import"));
        }
        let [number, format] = [decoder.byte()?, decoder.byte()?];
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == number);
        let kind = kind.ok_or_else(|| PipelineError::object(format!("has the unknown kind {number}")))?;
        if format != kind.format() {
            return Err(PipelineError::object(format!("is a {kind} of the unknown format {format}")));
        }
        let content = match kind {
            Kind::Dictionary => Content::Dictionary(Arc::new(Dictionary::read(&mut decoder)?)),
            Kind::Weights => Content::Weights(Arc::new(Weights::read(&mut decoder)?)),
            Kind::Idf => Content::Idf(Arc::new(Idf::read(&mut decoder)?)),
            Kind::Moments => Content::Moments(Arc::new(Moments::read(&mut decoder)?)),
            Kind::Centroids => Content::Centroids(Arc::new(Centroids::read(&mut decoder)?)),
            Kind::Components => Content::Components(Arc::new(Components::read(&mut decoder)?)),
            Kind::Embedding => Content::Embedding(Arc::new(EmbeddingTable::read(&mut decoder)?)),
            Kind::Trees => {
                let trees = TreeEnsemble::decode(decoder.rest());
                Content::Trees(Arc::new(trees.map_err(|error| PipelineError::object(error.to_string()))?))
            }
            Kind::Onnx => {
                let network = Network::new(decoder.rest().to_vec());
                Content::Onnx(Arc::new(network.map_err(|error| PipelineError::object(error.to_string()))?))
            }
            Kind::Attributes => {
                let encoder = AttributeEncoder::decode(decoder.rest());
                Content::Attributes(Arc::new(encoder.map_err(PipelineError::object)?))
            }
        };
        decoder.end()?;
        Ok(Self { id, bytes: bytes.len(), content })
    }

    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Length of its encoding; its decoded form takes about as much, dictionaries up to four times as much.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        self.bytes
    }
}

impl Content {
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Dictionary(_) => Kind::Dictionary,
            Self::Weights(_) => Kind::Weights,
            Self::Idf(_) => Kind::Idf,
            Self::Moments(_) => Kind::Moments,
            Self::Centroids(_) => Kind::Centroids,
            Self::Components(_) => Kind::Components,
            Self::Embedding(_) => Kind::Embedding,
            Self::Trees(_) => Kind::Trees,
            Self::Onnx(_) => Kind::Onnx,
            Self::Attributes(_) => Kind::Attributes,
        }
    }

    /// The canonical bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut encoder = Encoder::default();
        encoder.raw(&MAGIC);
        encoder.raw(&[self.kind() as u8, self.kind().format()]);
        match self {
            Self::Dictionary(dictionary) => dictionary.write(&mut encoder),
            Self::Weights(weights) => weights.write(&mut encoder),
            Self::Idf(idf) => idf.write(&mut encoder),
            Self::Moments(moments) => moments.write(&mut encoder),
            Self::Centroids(centroids) => centroids.write(&mut encoder),
            Self::Components(components) => components.write(&mut encoder),
            Self::Embedding(table) => table.write(&mut encoder),
            Self::Trees(trees) => encoder.raw(&trees.encode()),
            Self::Onnx(network) => encoder.raw(network.bytes()),
            Self::Attributes(rules) => encoder.raw(&rules.encoded()),
        }
        encoder.into_bytes()
    }
}
