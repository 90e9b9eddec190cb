//! Opening a data directory: lock it, read the newest snapshot, replay the log, cut off a tail that was never
//! acknowledged. Anything else that is wrong is an error that names the file and what was expected in it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::Revision;
use super::files::{self, LOCK_MARK, SEGMENT_MAGIC, SNAPSHOT_MAGIC};
use super::journal::{Journal, Segment};
use super::mvcc::Mvcc;
use super::record::{self, FRAME_HEADER, Record};
use super::snapshot;

/// Why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system refused.
    #[error("data directory {dir}: cannot {action} {path}", dir = dir.display(), path = path.display())]
    Io {
        /// The data directory.
        dir: PathBuf,
        /// What was tried, a verb.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another store has the directory open.
    #[error("data directory {dir} is in use by another process, want a directory of its own", dir = dir.display())]
    Locked {
        /// The data directory.
        dir: PathBuf,
    },
    /// The log is gone, and what was acknowledged with it.
    #[error(
        "{path}: the log of the store is missing, although the files beside it say that there was one; \
         put it back, or remove the directory to start a new cluster",
        path = path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file does not hold what it should.
    #[error("{path}: at byte {offset}: found {found}, want {expected}", path = path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is there.
        found: String,
        /// What should be there.
        expected: String,
    },
}

/// Opens `dir`, creating it if need be.
pub(super) fn open(dir: &Path) -> Result<(Mvcc, Journal), OpenError> {
    let io = |action, path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { dir: dir.to_owned(), action, path, source }
    };
    files::create_dir(dir).map_err(io("create", dir))?;
    let lock_path = dir.join("lock");
    let lock = files::private().create(true).truncate(false).read(true).write(true).open(&lock_path);
    let mut lock = lock.map_err(io("open", &lock_path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => return Err(io("lock", &lock_path)(source)),
    }
    let (segments, snapshots) = files::list(dir).map_err(io("read", dir))?;
    let mut state = Mvcc::new();
    if let Some(revision) = snapshots.last() {
        let path = files::snapshot_path(dir, *revision);
        let bytes = fs::read(&path).map_err(io("read", &path))?;
        state = read_snapshot(&path, &bytes, *revision)?;
    }
    let from = state.applied().next();
    let log: Vec<Revision> = segments.into_iter().filter(|first| snapshots.is_empty() || *first >= from).collect();
    let has_mark = lock.metadata().map_err(io("read", &lock_path))?.len() > 0;
    if log.is_empty() && (has_mark || !snapshots.is_empty()) {
        // A log is begun before the snapshot that it follows is written: there is always one.
        return Err(OpenError::Missing { path: files::segment_path(dir, from) });
    }
    let mut log_bytes = 0;
    let mut segment = None;
    for (i, first) in log.iter().enumerate() {
        let path = files::segment_path(dir, *first);
        let mut file = files::private().read(true).write(true).open(&path).map_err(io("open", &path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read", &path))?;
        if *first != state.applied().next() {
            return Err(corrupt(&path, 0, format!("a log from revision {first} on"), continues(&state)));
        }
        let whole = replay(&path, &bytes, &mut state, i + 1 == log.len())?;
        cut(&mut file, whole, bytes.len()).map_err(io("cut the tail of", &path))?;
        log_bytes += whole as u64;
        segment = Some(Segment { file, path, first: *first });
    }
    let segment = match segment {
        Some(segment) => segment,
        None => {
            let path = files::segment_path(dir, from);
            let file = files::create(&path, SEGMENT_MAGIC).map_err(io("create", &path))?;
            Segment { file, path, first: from }
        }
    };
    if !has_mark {
        let marked = io::Write::write_all(&mut lock, LOCK_MARK).and_then(|()| lock.sync_all());
        marked.map_err(io("write", &lock_path))?;
    }
    if let Some(revision) = snapshots.last() {
        files::remove_before(dir, *revision).map_err(io("remove an obsolete file of", dir))?;
    }
    Ok((state, Journal::new(dir, segment, lock, log_bytes)))
}

fn read_snapshot(path: &Path, bytes: &[u8], revision: Revision) -> Result<Mvcc, OpenError> {
    match snapshot::read(bytes) {
        Ok(snapshot) if snapshot.revision == revision => Ok(Mvcc::restore(revision, snapshot.leases, snapshot.kvs)),
        Ok(snapshot) => {
            let found = format!("revision {}", snapshot.revision);
            Err(corrupt(path, SNAPSHOT_MAGIC.len(), found, format!("revision {revision} as in the file's name")))
        }
        Err(0) => Err(corrupt(path, 0, start_of(bytes), format!("{:?}", SNAPSHOT_MAGIC.escape_ascii().to_string()))),
        Err(offset) => Err(corrupt(path, offset, "damaged data".to_owned(), "a frame with its checksum".to_owned())),
    }
}

/// Replays one log file into `state` and returns how many of its bytes are whole.
fn replay(path: &Path, bytes: &[u8], state: &mut Mvcc, is_last: bool) -> Result<usize, OpenError> {
    if !bytes.starts_with(SEGMENT_MAGIC) {
        return Err(corrupt(path, 0, start_of(bytes), format!("{:?}", SEGMENT_MAGIC.escape_ascii().to_string())));
    }
    let mut offset = SEGMENT_MAGIC.len();
    while offset < bytes.len() {
        let Some(payload) = record::frame(&bytes[offset..]) else {
            // Only the last frame can be torn by a crash: each is synced before the next is written. A whole frame
            // after a damaged one means that acknowledged data has been damaged.
            if is_last && !record::holds_frame(&bytes[offset..]) {
                break;
            }
            return Err(corrupt(path, offset, "damaged data".to_owned(), "a frame with its checksum".to_owned()));
        };
        let unknown = || corrupt(path, offset, "an unknown record".to_owned(), "a record of this version".to_owned());
        for record in Record::decode_all(payload).ok_or_else(unknown)? {
            match record {
                Record::Commit { revision, changes } => {
                    if revision != state.applied().next() {
                        let found = format!("a change of revision {revision}");
                        return Err(corrupt(path, offset, found, continues(state)));
                    }
                    state.replay(revision, &changes);
                }
                Record::LeaseGrant { id, ttl } => state.grant(id, ttl),
                Record::LeaseRevoke { id } => state.forget_lease(id),
                Record::Compact { revision } => {
                    // Compacting again what a snapshot has compacted changes nothing.
                    if state.compact(revision, state.applied()).is_ok() {
                        while !state.sweep(usize::MAX) {}
                    }
                }
            }
        }
        offset += FRAME_HEADER + payload.len();
    }
    Ok(offset)
}

/// Cuts the file to its first `whole` bytes, of `len`, and positions it there.
fn cut(file: &mut File, whole: usize, len: usize) -> io::Result<()> {
    if whole < len {
        file.set_len(whole as u64)?;
        file.sync_all()?;
    }
    file.seek(SeekFrom::End(0))?;
    Ok(())
}

fn continues(state: &Mvcc) -> String {
    format!("revision {}, which continues what was read before", state.applied().next())
}

fn start_of(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "an empty file".to_owned();
    }
    format!("{:?}", bytes[..bytes.len().min(8)].escape_ascii().to_string())
}

fn corrupt(path: &Path, offset: usize, found: String, expected: String) -> OpenError {
    OpenError::Corrupt { path: path.to_owned(), offset: offset as u64, found, expected }
}
