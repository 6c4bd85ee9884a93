//! A small file system, to be filled.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use celeris_skip::{Need, unless};

use crate::data_dir;

/// The file that fills it.
const FILLER: &str = "filler";

/// A file system in memory in the place of a folder. Unmounted on drop.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Moves a folder to a file system of this size, mounted in its place; nothing has it open. `None`, and
    /// the test is skipped, where this process may not mount.
    ///
    /// # Panics
    /// If the files do not fit.
    #[must_use]
    pub fn in_place_of(folder: &Path, mebibytes: u32) -> Option<Self> {
        let aside = folder.with_extension("aside");
        fs::rename(folder, &aside).expect("both are in one folder");
        fs::create_dir(folder).expect("the folder above is ours");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m,mode=0700"), "celeris-test"]).arg(folder);
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        let disk = unless(Need::Mount, is_mounted.then_some(()), "a small file system cannot be mounted here");
        if disk.is_none() {
            fs::remove_dir(folder).expect("it is empty");
            fs::rename(&aside, folder).expect("both are in one folder");
        }
        disk?;
        let disk = Self(folder.to_owned());
        data_dir::copy(&aside, folder);
        fs::remove_dir_all(&aside).expect("it is ours");
        Some(disk)
    }

    /// Writes a file until nothing more fits.
    ///
    /// # Panics
    /// If the file cannot be created.
    pub fn fill(&self) {
        let mut filler = File::create(self.0.join(FILLER)).expect("a file can be created");
        let bytes = vec![0; 64 << 10];
        while filler.write_all(&bytes).is_ok() {}
        while filler.write_all(&[0; 64]).is_ok() {}
    }

    /// Removes that file.
    ///
    /// # Panics
    /// If there is none.
    pub fn make_room(&self) {
        fs::remove_file(self.0.join(FILLER)).expect("the disk was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: processes that still run keep what they have open.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
