//! The file system of the data directory: its kind, its space, and what a sync costs.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use celeris_storage::{DiskSpace, StorageOptions};
use rustix::fs::statfs;

use super::finding::Findings;

/// The kinds, by the number that Linux gives them, on which a sync does not do what it says or locks may not work.
const UNFIT: [(u32, &str, &str); 7] = [
    (0x0102_1994, "tmpfs", "is memory: everything is gone after a restart of the machine"),
    (0x8584_58f6, "ramfs", "is memory: everything is gone after a restart of the machine"),
    (0x0000_6969, "NFS", "may lose locks and acknowledged writes when the server restarts"),
    (0xfe53_4d42, "SMB", "may lose locks and acknowledged writes when the server restarts"),
    (0xff53_4d42, "CIFS", "may lose locks and acknowledged writes when the server restarts"),
    (0x6573_5546, "FUSE", "syncs and locks only if its program does"),
    (0x794c_7630, "overlayfs", "is the layer of a container: everything is gone with the container"),
];

/// Shares of a file system that are little: what is left for the log to grow.
const LITTLE: u64 = 10;

/// Syncs that are measured.
const SYNCS: usize = 9;

/// A sync that takes longer is felt: each observation waits for one.
const SLOW: Duration = Duration::from_millis(30);

pub fn check(dir: &Path, findings: &mut Findings) {
    // A directory that does not exist yet is created in the nearest one that does.
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let Some(existing) = absolute.ancestors().find(|path| path.is_dir()) else { return };
    check_kind(existing, findings);
    check_space(existing, findings);
    check_sync(existing, findings);
}

fn check_kind(dir: &Path, findings: &mut Findings) {
    let Ok(found) = statfs(dir) else { return };
    // The numbers have 32 bits; the type has more on some architectures.
    let found = found.f_type as u32;
    let Some((_, name, fault)) = UNFIT.iter().find(|(number, ..)| *number == found) else {
        findings.ok("file system", format!("{} is on a local file system that syncs", dir.display()));
        return;
    };
    let what = format!("{} is on {name}, which {fault}", dir.display());
    findings.warning(
        "file system",
        what,
        "keep the data directory on a local disk (ext4, XFS), in a container on a volume",
    );
}

fn check_space(dir: &Path, findings: &mut Findings) {
    let Ok(DiskSpace { free, total }) = DiskSpace::of(dir) else { return };
    let options = StorageOptions::default();
    let reserve = options.disk_reserve_bytes.min(total / 8);
    let needed = reserve + options.write_buffer_bytes as u64;
    let size = |bytes| ByteSize::b(bytes).display().iec();
    let what = format!("{} of {} are free, and {} of them stay free", size(free), size(total), size(reserve));
    if free < needed {
        let what = format!("{what}: a node accepts no observations with less than {} free", size(needed));
        findings.problem("disk space", what, "make space, or choose a larger disk (`celeris estimate-size`)");
    } else if free < total / LITTLE {
        findings.warning(
            "disk space",
            what,
            "watch it, and make space before the log needs it (`celeris estimate-size`)",
        );
    } else {
        findings.ok("disk space", what);
    }
}

fn check_sync(dir: &Path, findings: &mut Findings) {
    match time_of_sync(dir) {
        Ok(time) if time > SLOW => findings.warning(
            "sync",
            format!("a sync takes {:.1} ms, and every observation waits for one", time.as_secs_f64() * 1e3),
            "use a disk with a cache that survives a loss of power, or send observations as streams, which share syncs",
        ),
        Ok(time) => findings.ok("sync", format!("a sync takes {:.2} ms", time.as_secs_f64() * 1e3)),
        Err(error) => findings.problem(
            "data directory",
            format!("{} cannot be written: {error}", dir.display()),
            "give it to the user of the node (`chown`), and mount its file system for writing; run this as that user",
        ),
    }
}

/// The median of some syncs of a page.
fn time_of_sync(dir: &Path) -> io::Result<Duration> {
    let path = dir.join(format!(".celeris-check-{}", std::process::id()));
    let timed = File::options().create_new(true).write(true).open(&path).and_then(|mut file| {
        let mut times = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            let started = Instant::now();
            file.write_all(&[0; 4096])?;
            file.sync_data()?;
            times.push(started.elapsed());
        }
        times.sort();
        Ok(times[SYNCS / 2])
    });
    // It may not have been created.
    let _ = std::fs::remove_file(&path);
    timed
}
