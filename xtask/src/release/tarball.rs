//! The tarball: a folder that can be unpacked anywhere.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use super::Release;
use super::contents::File;

pub fn name(release: &Release) -> String {
    format!("{}.tar.gz", folder(release))
}

fn folder(release: &Release) -> String {
    format!("celeris-{}-{}-linux", release.version, std::env::consts::ARCH)
}

pub fn make(release: &Release) -> Result<Vec<u8>> {
    let folder = folder(release);
    let files = release.files.iter().map(|file| (format!("{folder}/{}", file.path), file));
    packed(files, release.time)
}

/// A tar archive of these files and the folders above them, all of root and of this time, compressed by gzip.
pub fn packed<'a>(files: impl IntoIterator<Item = (String, &'a File)>, time: u64) -> Result<Vec<u8>> {
    let mut files: Vec<(String, &File)> = files.into_iter().collect();
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    // Neither the time nor the name of a file.
    let mut archive = Builder::new(GzBuilder::new().write(Vec::new(), Compression::best()));
    let mut folders = BTreeSet::new();
    for (path, file) in &files {
        for folder in folders_above(path) {
            if folders.insert(folder.clone()) {
                append(&mut archive, (&folder, EntryType::Directory, 0o755), &[], time)?;
            }
        }
        append(&mut archive, (path, EntryType::Regular, file.mode), &file.bytes, time)?;
    }
    Ok(archive.into_inner()?.finish()?)
}

/// The folders of a relative path, from the outermost on.
fn folders_above(path: &str) -> Vec<String> {
    let above = Path::new(path).ancestors().skip(1).filter(|folder| !matches!(folder.to_str(), None | Some("" | ".")));
    let mut folders: Vec<String> = above.map(|folder| format!("{}/", folder.display())).collect();
    folders.reverse();
    folders
}

fn append<W: std::io::Write>(
    archive: &mut Builder<W>,
    (path, kind, mode): (&str, EntryType, u32),
    bytes: &[u8],
    time: u64,
) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes.len() as u64);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header.set_username("root")?;
    header.set_groupname("root")?;
    Ok(archive.append_data(&mut header, path, bytes)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use tar::Archive;

    use super::*;

    #[test]
    fn an_archive_depends_on_nothing_but_its_files_and_their_time() {
        let (one, two) = (File::plain("one", "1"), File { path: "two".to_owned(), mode: 0o755, bytes: b"22".to_vec() });
        let named = |file: &'static str| (format!("./a/b/{file}"), if file == "one" { &one } else { &two });
        let packed_once = packed([named("one"), named("two")], 7).unwrap();
        assert_eq!(packed_once, packed([named("two"), named("one")], 7).unwrap());
        assert_ne!(packed_once, packed([named("one"), named("two")], 8).unwrap());
        let mut archive = Archive::new(GzDecoder::new(packed_once.as_slice()));
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let header = entry.header();
            seen.push((entry.path().unwrap().display().to_string(), header.mode().unwrap(), text));
            assert_eq!((header.uid().unwrap(), header.mtime().unwrap()), (0, 7));
        }
        let paths: Vec<&str> = seen.iter().map(|(path, ..)| path.trim_start_matches("./")).collect();
        assert_eq!(paths, ["a/", "a/b/", "a/b/one", "a/b/two"]);
        assert_eq!((seen[3].1, seen[3].2.as_str()), (0o755, "22"));
    }
}
