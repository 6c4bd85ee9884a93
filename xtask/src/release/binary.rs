//! The binary: built without the fault points of the tests, stripped, and what it needs of a system.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;

use super::output;
use crate::deps::SERVER;

/// The variable that configures fault points, which a binary with them reads.
const FAULT_POINTS: &[u8] = b"FAILPOINTS";

/// The least second numbers of glibc (of manylinux, PEP 600) whose systems have these versions of libstdc++.
const LIBSTDCXX_OF_GLIBC: [(u32, u32); 8] =
    [(17, 19), (24, 22), (27, 24), (28, 25), (31, 28), (34, 29), (35, 30), (39, 33)];

/// Builds the server alone, and returns the path of the binary. Set `ROCKSDB_LIB_DIR` by `scripts/rocksdb`, or RocksDB is
/// compiled again: the features of its build's dependencies differ from those of the workspace.
pub fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["build", "--release", "--locked", "--package", SERVER, "--bin", "celeris"];
    let mut command = Command::new(cargo);
    command.args(arguments).arg("--message-format=json-render-diagnostics").current_dir(root);
    let built = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(built.status.success(), "cargo build failed");
    let messages = Message::parse_stream(built.stdout.as_slice());
    let executables = messages.filter_map(|message| match message {
        Ok(Message::CompilerArtifact(artifact)) => artifact.executable,
        _ => None,
    });
    executables.last().map(Into::into).context("cargo has built no binary")
}

/// Writes the binary without symbols.
pub fn strip(from: &Path, to: &Path) -> Result<()> {
    output(Command::new("strip").args(["--strip-all", "--remove-section=.comment", "-o"]).arg(to).arg(from)).map(drop)
}

pub fn has_fault_points(binary: &[u8]) -> bool {
    binary.windows(FAULT_POINTS.len()).any(|window| window == FAULT_POINTS)
}

/// The newest versions of symbols that a binary asks of the system's libraries.
#[derive(Debug, PartialEq, Eq)]
pub struct Needs {
    /// 34 for `GLIBC_2.34`.
    pub glibc: u32,
    /// 30 for `GLIBCXX_3.4.30`; 0 if there are none.
    pub libstdcxx: u32,
}

impl Needs {
    pub fn of(binary: &Path) -> Result<Self> {
        let text =
            output(Command::new("objdump").arg("-p").arg(binary)).context("objdump is in the package binutils")?;
        Self::read(&text).with_context(|| format!("{} names no version of glibc", binary.display()))
    }

    fn read(text: &str) -> Option<Self> {
        let newest = |prefix: &str| {
            let versions = text.split_whitespace().filter_map(|word| word.strip_prefix(prefix));
            // `GLIBC_2.2.5` is older than every second number that is asked for alone.
            versions.filter_map(|version| version.split('.').next()?.parse::<u32>().ok()).max()
        };
        Some(Self { glibc: newest("GLIBC_2.")?, libstdcxx: newest("GLIBCXX_3.4.").unwrap_or(0) })
    }

    /// The second number of the oldest glibc on whose systems the binary runs, libstdc++ included.
    pub fn glibc_of_systems(&self) -> u32 {
        let of_libstdcxx = LIBSTDCXX_OF_GLIBC.iter().find(|(_, libstdcxx)| *libstdcxx >= self.libstdcxx);
        // One that is newer than the table.
        let (of_libstdcxx, _) = of_libstdcxx.unwrap_or(&(41, 0));
        self.glibc.max(*of_libstdcxx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    #[test]
    fn the_newest_symbols_count() {
        let text = "Version References:\n  required from libc.so.6:\n    0x09691a75 0x00 17 GLIBC_2.2.5\n    0x1 0x00 3 GLIBC_2.34\n\
                    \x20   0x2 0x00 4 GLIBC_2.9\n  required from libstdc++.so.6:\n    0x3 0x00 2 GLIBCXX_3.4.30\n    0x4 0x0 1 GLIBCXX_3.4\n";
        let needs = Needs::read(text).unwrap();
        assert_eq!(needs, Needs { glibc: 34, libstdcxx: 30 });
        assert_eq!(needs.glibc_of_systems(), 35, "libstdc++ 3.4.30 comes with systems of glibc 2.35");
        assert_eq!(Needs { glibc: 36, libstdcxx: 0 }.glibc_of_systems(), 36);
        assert_eq!(Needs { glibc: 17, libstdcxx: 99 }.glibc_of_systems(), 41);
        assert_eq!(Needs::read("no versions"), None);
    }
}
