//! The Debian package: an `ar` archive of the package's description and of its files (deb(5)).

use std::path::Path;

use anyhow::{Result, bail};

use super::contents::{self, File};
use super::{Release, tarball};

/// The file that the administrator edits, and upgrades leave alone.
const CONFIGURATION: &str = "etc/celeris/celeris.toml";

/// Makes the user and the folder of the data. Nothing starts by itself: a node without keys should be configured first.
const AFTER_INSTALLATION: &str = r#"#!/bin/sh
set -e
if [ "$1" = configure ]; then
    if ! getent passwd celeris >/dev/null; then
        useradd --system --user-group --no-create-home --home-dir /var/lib/celeris --shell /usr/sbin/nologin celeris
    fi
    if [ ! -d /var/lib/celeris ]; then
        install -d -m 0700 -o celeris -g celeris /var/lib/celeris
    fi
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload
        # Of an upgrade: the running node is the old binary.
        [ -z "$2" ] || systemctl try-restart celeris.service
    fi
fi
"#;

const BEFORE_REMOVAL: &str = r#"#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now celeris.service || true
fi
"#;

/// The data stays even if the package is purged: it is the only copy of what users have said.
const AFTER_REMOVAL: &str = r#"#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if [ "$1" = purge ] && [ -d /var/lib/celeris ]; then
    echo "celeris: the data is left in /var/lib/celeris" >&2
fi
"#;

pub fn name(release: &Release) -> String {
    format!("celeris_{}_{}.deb", version(release), architecture().unwrap_or("unknown"))
}

/// Debian's name of this machine's architecture.
fn architecture() -> Result<&'static str> {
    Ok(match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("the package for {other} has no name here: add it to xtask/src/release/deb.rs"),
    })
}

/// A version before a release, as in `1.0.0-rc.1`, sorts before it.
fn version(release: &Release) -> String {
    release.version.replacen('-', "~", 1)
}

pub fn make(release: &Release, binary: &Path) -> Result<Vec<u8>> {
    let mut files: Vec<File> = Vec::new();
    for file in &release.files {
        let File { path, mode, bytes } = file;
        files.push(match path.strip_prefix("share/doc/celeris/LICENSE") {
            Some(_) => File::plain("usr/share/doc/celeris/copyright", copyright(bytes)),
            None if path.starts_with("share/man/") => File::plain(format!("usr/{path}.gz"), gzip(bytes)?),
            None => File { path: format!("usr/{path}"), mode: *mode, bytes: bytes.clone() },
        });
    }
    files.push(File::plain(CONFIGURATION, contents::configuration(binary)?));
    match contents::unit(&release.root)? {
        Some(unit) => files.push(File::plain("usr/lib/systemd/system/celeris.service", unit)),
        None => eprintln!("the package has no unit for systemd: there is no deploy/systemd/celeris.service"),
    }
    let data = tarball::packed(files.iter().map(|file| (format!("./{}", file.path), file)), release.time)?;
    let installed = files.iter().map(|file| file.bytes.len().div_ceil(1024)).sum::<usize>();
    let sums: String = files.iter().map(|file| format!("{}  {}\n", md5(&file.bytes), file.path)).collect();
    let script = |path: &str, text: &str| File { path: path.to_owned(), mode: 0o755, bytes: text.into() };
    let description = [
        File::plain("control", control(release, installed)?),
        File::plain("conffiles", format!("/{CONFIGURATION}\n")),
        File::plain("md5sums", sums),
        script("postinst", AFTER_INSTALLATION),
        script("prerm", BEFORE_REMOVAL),
        script("postrm", AFTER_REMOVAL),
    ];
    let description = tarball::packed(description.iter().map(|file| (format!("./{}", file.path), file)), release.time)?;
    let members = [("debian-binary", b"2.0\n".as_slice()), ("control.tar.gz", &description), ("data.tar.gz", &data)];
    Ok(archive(&members, release.time))
}

fn control(release: &Release, installed: usize) -> Result<String> {
    let (version, architecture) = (version(release), architecture()?);
    // The release of GCC whose libstdc++ has the symbols; packages of it are named by GCC's version.
    let gcc = match release.needs.libstdcxx {
        0..=28 => "9",
        29 => "11",
        30 => "12",
        31..=32 => "13.1",
        33 => "14",
        _ => "15",
    };
    let glibc = release.needs.glibc;
    Ok(format!(
        "Package: celeris\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: Celeris contributors <celeris@localhost>\n\
         Installed-Size: {installed}\nDepends: libc6 (>= 2.{glibc}), libgcc-s1, libstdc++6 (>= {gcc}), passwd\n\
         Section: net\nPriority: optional\n\
         Description: online-learning personalization service\n \
         Predicts how much each user will like each item, over HTTP, and learns from\n \
         every observation as it arrives. One binary and one data directory.\n"
    ))
}

fn copyright(licence: &[u8]) -> Vec<u8> {
    let head = b"Celeris is licensed under the Apache License, Version 2.0. The libraries that it links have\n\
        licences of their own, which the SBOM of the release lists.\n\n";
    [head.as_slice(), licence].concat()
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    use std::io::Write as _;
    let mut writer = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::best());
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

fn md5(bytes: &[u8]) -> String {
    use md5::Digest as _;
    super::hex(&md5::Md5::digest(bytes))
}

/// An archive in the common format of `ar`, whose members have short names.
fn archive(members: &[(&str, &[u8])], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        archive.extend(format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len()).bytes());
        archive.extend_from_slice(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_begin_at_even_bytes_with_headers_of_sixty() {
        let archive = archive(&[("debian-binary", b"2.0\n"), ("odd", b"123"), ("last", b"")], 1_700_000_000);
        let header = |at: usize| String::from_utf8_lossy(&archive[at..at + 60]).into_owned();
        assert_eq!(header(8), "debian-binary   1700000000  0     0     100644  4         `\n");
        assert_eq!(header(8 + 60 + 4), "odd             1700000000  0     0     100644  3         `\n");
        assert_eq!(header(8 + 60 + 4 + 60 + 4), "last            1700000000  0     0     100644  0         `\n");
        assert_eq!(archive.len(), 8 + 3 * 60 + 4 + 4);
    }
}
