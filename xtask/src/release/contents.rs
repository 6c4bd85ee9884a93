//! The files that tarball and package install below their prefix.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::output;

/// A file to install.
pub struct File {
    /// Relative to the prefix.
    pub path: String,
    pub mode: u32,
    pub bytes: Vec<u8>,
}

impl File {
    pub fn plain(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), mode: 0o644, bytes: bytes.into() }
    }
}

/// Where shells look for completions below `share`, in Debian.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/celeris"),
    ("fish", "share/fish/vendor_completions.d/celeris.fish"),
    ("zsh", "share/zsh/vendor-completions/_celeris"),
];

/// Binary, completions, man pages and documents; the binary itself writes completions and pages.
pub fn below_prefix(root: &Path, binary: &Path, work: &Path) -> Result<Vec<File>> {
    let mut files = vec![File { path: "bin/celeris".to_owned(), mode: 0o755, bytes: fs::read(binary)? }];
    for (shell, path) in COMPLETIONS {
        files.push(File::plain(path, output(celeris(binary).args(["completions", shell]))?));
    }
    let pages = work.join("man");
    fs::create_dir_all(&pages)?;
    output(celeris(binary).arg("man-pages").arg(&pages))?;
    for page in sorted(&pages)? {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push(File::plain(format!("share/man/man1/{name}"), fs::read(&page)?));
    }
    for name in ["CHANGELOG.md", "LICENSE", "README.md"] {
        let bytes = fs::read(root.join(name)).with_context(|| format!("cannot read {name}"))?;
        files.push(File::plain(format!("share/doc/celeris/{name}"), bytes));
    }
    Ok(files)
}

/// The configuration with every key and its default.
pub fn configuration(binary: &Path) -> Result<String> {
    output(celeris(binary).arg("config"))
}

/// The unit of systemd, if the checkout has one, for a binary in `/usr/bin`.
pub fn unit(root: &Path) -> Result<Option<String>> {
    let path = root.join("deploy/systemd/celeris.service");
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = text.replace("/usr/local/bin/celeris", "/usr/bin/celeris");
    Ok(Some(text.replace("/etc/celeris.toml", "/etc/celeris/celeris.toml")))
}

/// The binary without variables of the environment, which could be settings.
fn celeris(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env_clear();
    command
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
