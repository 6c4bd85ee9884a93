//! The same lists by the library `implicit`, in the environment that `cargo xtask peers` makes.

use anyhow::Context;
use celeris_datasets::Rating;
use celeris_features::version_dir::ITEM_FEATURES_FILE;
use celeris_retrain::USER_WEIGHTS_FILE;

use crate::peers::data::{Data, write_job};
use crate::peers::judge::Vectors;
use crate::peers::trainers::{Asked, Peers};
use crate::temporary_folder::TemporaryFolder;

/// What the library has learnt.
pub struct Factors {
    pub items: Vectors,
    pub users: Vectors,
}

/// The library.
pub struct Peer {
    peers: Peers,
    folder: TemporaryFolder,
}

impl Peer {
    /// `None`, saying so, where the library is not installed.
    ///
    /// # Errors
    /// Where there is no place for a temporary folder.
    pub fn find() -> anyhow::Result<Option<Self>> {
        let Some(peers) = Peers::find() else { return Ok(None) };
        let folder = TemporaryFolder::new().context("no temporary folder")?;
        Ok(Some(Self { peers, folder }))
    }

    /// Its factors of these ratings.
    ///
    /// # Errors
    /// Where it fails, with what it said last.
    pub fn train(&self, known: &[Rating], asked: Asked) -> anyhow::Result<Factors> {
        let folder = self.folder.path();
        let data = Data { name: "ranking", train: known.to_vec(), test: Vec::new() };
        let job = write_job(folder, &data, known.len(), asked.factors)?;
        let file = folder.join("job.json");
        std::fs::write(&file, serde_json::to_vec(&job)?)?;
        self.peers.implicit(&file, asked, folder)?;
        let table = |file, id, vector| Vectors::read(&folder.join(file), id, vector, asked.factors);
        Ok(Factors {
            items: table(ITEM_FEATURES_FILE, "item", "features")?,
            users: table(USER_WEIGHTS_FILE, "user", "weights")?,
        })
    }
}
