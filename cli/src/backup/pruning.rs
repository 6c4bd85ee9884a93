//! Removes old backups, and the files that no backup needs any more.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use bytesize::ByteSize;

use super::place::Place;
use crate::Failure;
use crate::models::print;

/// Between two renewals of the mark.
const MARK_EVERY: Duration = Duration::from_secs(60);

/// What writers have left that were killed is removed after this time.
const UNFINISHED_AGE: Duration = Duration::from_secs(24 * 3600);

pub fn run(place: &Place, keep: usize) -> Result<(), Failure> {
    let mark = place.at_pruning()?;
    if !place.is_pruned()? {
        // One that a process has left.
        mark.delete()?;
    }
    if !mark.put_if_absent("")? {
        return Err(Failure::other(format!("{}: files are being removed already; try again later", place.name())));
    }
    let pruned = prune(place, keep);
    mark.delete()?;
    print(&pruned?)
}

fn prune(place: &Place, keep: usize) -> Result<String, Failure> {
    for (name, is_over) in place.making()? {
        if !is_over {
            return Err(Failure::other(format!(
                "{}: a backup is being made, or was interrupted in the last hour (making/{name}); try again later",
                place.name()
            )));
        }
        place.at_making(&name)?.delete()?;
    }
    // All must be readable: what none of them needs is removed.
    let mut of_stores: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for manifest in place.manifests()? {
        of_stores.entry(manifest.store.clone()).or_default().push(manifest);
    }
    let (mut needed, mut removed, mut kept) = (HashSet::new(), 0, 0);
    for manifests in of_stores.into_values() {
        let old = manifests.len().saturating_sub(keep);
        for (number, manifest) in manifests.into_iter().enumerate() {
            if number < old {
                place.at_manifest(&manifest.id)?.delete()?;
                removed += 1;
            } else {
                needed.extend(manifest.files.into_iter().map(|file| file.sha256));
                kept += 1;
            }
        }
    }
    let (mut files, mut bytes) = (0, 0);
    let mut marked = Instant::now();
    for (sha256, length) in place.files()? {
        if needed.contains(&sha256) {
            continue;
        }
        if marked.elapsed() > MARK_EVERY {
            place.at_pruning()?.put("")?;
            marked = Instant::now();
        }
        place.at_file(&sha256)?.delete()?;
        files += 1;
        bytes += length;
    }
    place.location().remove_unfinished(UNFINISHED_AGE)?;
    let bytes = ByteSize(bytes).display().si();
    Ok(format!("{}: removed {removed} backups and {files} files, {bytes}; {kept} backups are left\n", place.name()))
}
