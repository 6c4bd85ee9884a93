//! The baseline `implicit`, in the environment made by `cargo xtask peers`.

use anyhow::Context;
use celeris_datasets::{Rating, TemporaryFolder};

use crate::peers::data::{Data, write_job};
use crate::peers::judge::Vectors;
use crate::peers::trainers::{PeerSettings, Peers};

/// The trained factors of the library.
pub struct Factors {
    pub items: Vectors,
    pub users: Vectors,
}

/// The library, with a folder for its files.
pub struct Peer {
    peers: Peers,
    folder: TemporaryFolder,
}

impl Peer {
    /// Finds the library; prints a message and returns `None` if it is not installed.
    ///
    /// # Errors
    /// If no temporary folder can be created.
    pub fn find() -> anyhow::Result<Option<Self>> {
        let Some(peers) = Peers::find() else { return Ok(None) };
        let folder = TemporaryFolder::new().context("no temporary folder")?;
        Ok(Some(Self { peers, folder }))
    }

    /// Trains factors on these ratings.
    ///
    /// # Errors
    /// If it fails, with the last lines of its output.
    pub fn train(&self, known: &[Rating], settings: PeerSettings) -> anyhow::Result<Factors> {
        let folder = self.folder.path();
        let data = Data { name: "ranking", train: known.to_vec(), test: Vec::new() };
        let job = write_job(folder, &data, known.len(), settings.factors)?;
        let file = folder.join("job.json");
        std::fs::write(&file, serde_json::to_vec(&job)?)?;
        self.peers.implicit(&file, settings, folder)?;
        Ok(Factors {
            items: Vectors::of_items(folder, settings.factors)?,
            users: Vectors::of_users(folder, settings.factors)?,
        })
    }
}
