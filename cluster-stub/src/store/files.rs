//! The files of a data directory: names, creation with the right permissions, lock, removal. Not what is in them.
//!
//! ```text
//! DIR/lock                        held while the store is open; not empty once there was a log
//! DIR/log-<first revision>        changes from that revision on, up to the next log file
//! DIR/snapshot-<revision>         every key at that revision; logs that begin at or below it are obsolete
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::Revision;

/// First bytes of a log file; the digit is the format's version.
pub(super) const SEGMENT_MAGIC: &[u8; 8] = b"plimlog1";
/// What stands in the lock of a directory that has had a log.
pub(super) const LOCK_MARK: &[u8] = b"plimsoll store\n";
/// First bytes of a snapshot.
pub(super) const SNAPSHOT_MAGIC: &[u8; 8] = b"plimsnp1";

const SEGMENT: &str = "log-";
const SNAPSHOT: &str = "snapshot-";

pub(super) fn segment_path(dir: &Path, first: Revision) -> PathBuf {
    dir.join(format!("{SEGMENT}{:016x}", first.0))
}

pub(super) fn snapshot_path(dir: &Path, revision: Revision) -> PathBuf {
    dir.join(format!("{SNAPSHOT}{:016x}", revision.0))
}

/// The log files and the snapshots of a directory, each ascending by revision.
pub(super) fn list(dir: &Path) -> io::Result<(Vec<Revision>, Vec<Revision>)> {
    let (mut segments, mut snapshots) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let revision = |hex: &str| i64::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 16).map(Revision);
        segments.extend(name.strip_prefix(SEGMENT).and_then(revision));
        snapshots.extend(name.strip_prefix(SNAPSHOT).and_then(revision));
    }
    segments.sort_unstable();
    snapshots.sort_unstable();
    Ok((segments, snapshots))
}

/// Removes what a snapshot at `revision` makes obsolete.
pub(super) fn remove_before(dir: &Path, revision: Revision) -> io::Result<()> {
    let (segments, snapshots) = list(dir)?;
    for old in segments.into_iter().filter(|first| *first <= revision) {
        fs::remove_file(segment_path(dir, old))?;
    }
    for old in snapshots.into_iter().filter(|at| *at < revision) {
        fs::remove_file(snapshot_path(dir, old))?;
    }
    sync_dir(dir)
}

/// Creates the directory and its parents; only the owner may enter one that did not exist.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Options for a file that only its owner may read.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a file that begins with `magic`, durable together with its name, open for appending. It has its name only when it
/// has its beginning, so that an empty file is never one that was being created.
pub(super) fn create(path: &Path, magic: &[u8; 8]) -> io::Result<File> {
    let unfinished = path.with_extension("unfinished");
    let mut file = private().create(true).truncate(true).write(true).open(&unfinished)?;
    file.write_all(magic)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))?;
    Ok(file)
}

/// Makes created, renamed and removed names durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    // Elsewhere a directory cannot be opened, and the file system orders names itself.
    #[cfg(unix)]
    File::open(dir)?.sync_all()?;
    Ok(())
}
