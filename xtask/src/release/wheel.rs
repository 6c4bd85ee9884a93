//! The wheel `celeris-server`, which carries the binary: `pip install` puts it beside `python`.
//!
//! The format is that of <https://packaging.python.org/en/latest/specifications/binary-distribution-format/>.

use std::io::{Cursor, Write as _};

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::Release;

pub fn name(release: &Release) -> String {
    format!("celeris_server-{}-{}.whl", version(release), tag(release))
}

/// A version before a release as Python writes it: `1.0.0-rc.1` is `1.0.0rc1`.
fn version(release: &Release) -> String {
    let Some((version, before)) = release.version.split_once('-') else { return release.version.clone() };
    format!("{version}{}", before.replace('.', ""))
}

fn tag(release: &Release) -> String {
    format!("py3-none-manylinux_2_{}_{}", release.needs.glibc_of_systems(), std::env::consts::ARCH)
}

pub fn make(release: &Release) -> Result<Vec<u8>> {
    let version = version(release);
    let (scripts, info) =
        (format!("celeris_server-{version}.data/scripts"), format!("celeris_server-{version}.dist-info"));
    let text = |name: &str| {
        let file = release.files.iter().find(|file| file.path.ends_with(name));
        file.map(|file| file.bytes.clone()).unwrap_or_default()
    };
    let tags = format!("Wheel-Version: 1.0\nGenerator: celeris-xtask\nRoot-Is-Purelib: false\nTag: {}\n", tag(release));
    let files = [
        (format!("{scripts}/celeris"), 0o755, release.binary.clone()),
        (format!("{info}/METADATA"), 0o644, metadata(&version)),
        (format!("{info}/WHEEL"), 0o644, tags.into_bytes()),
        (format!("{info}/licenses/LICENSE"), 0o644, text("/LICENSE")),
    ];
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let mut record = String::new();
    for (path, mode, bytes) in &files {
        let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        record.push_str(&format!("{path},sha256={digest},{}\n", bytes.len()));
        write(&mut archive, (path, *mode), bytes)?;
    }
    let path = format!("{info}/RECORD");
    record.push_str(&format!("{path},,\n"));
    write(&mut archive, (&path, 0o644), record.as_bytes())?;
    Ok(archive.finish()?.into_inner())
}

fn write(archive: &mut ZipWriter<Cursor<Vec<u8>>>, (path, mode): (&str, u32), bytes: &[u8]) -> Result<()> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(9))
        // The earliest that the format has; installers set the time of the installation.
        .last_modified_time(DateTime::default())
        .unix_permissions(mode);
    archive.start_file(path, options)?;
    Ok(archive.write_all(bytes)?)
}

fn metadata(version: &str) -> Vec<u8> {
    format!(
        "Metadata-Version: 2.4\nName: celeris-server\nVersion: {version}\n\
         Summary: Celeris, an online-learning personalization service: the server\n\
         License-Expression: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >=3.8\n\
         Classifier: Programming Language :: Rust\nClassifier: Operating System :: POSIX :: Linux\n\
         Description-Content-Type: text/markdown\n\n\
         This package installs the command `celeris`. `celeris demo` trains a model on synthetic films, serves it, and prints the\n\
         address of its page; `celeris serve --data-dir DIR` runs a node; `celeris check --data-dir DIR` says whether it can.\n"
    )
    .into_bytes()
}
