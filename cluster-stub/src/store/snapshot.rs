//! Snapshots: every live key and lease at one revision in one file, written beside the log and renamed when complete.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use super::files::{self, SNAPSHOT_MAGIC};
use super::record::{self, FRAME_HEADER, Reader};
use super::{KeyValue, LeaseId, Revision};

/// Payload bytes after which a frame is closed.
const FRAME_BYTES: usize = 1 << 20;

/// What a snapshot holds.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) revision: Revision,
    pub(super) leases: Vec<(LeaseId, Duration)>,
    pub(super) kvs: Vec<KeyValue>,
}

/// Writes `snapshot` into `dir` and returns its size in bytes. Until it is complete it has another name.
pub(super) fn write(dir: &Path, snapshot: &Snapshot) -> io::Result<u64> {
    let path = files::snapshot_path(dir, snapshot.revision);
    let unfinished = path.with_extension("unfinished");
    let file = files::private().create(true).truncate(true).write(true).open(&unfinished)?;
    let mut out = BufWriter::new(file);
    out.write_all(SNAPSHOT_MAGIC)?;
    let mut buffer = Vec::new();
    record::begin_frame(&mut buffer);
    record::put_i64(&mut buffer, snapshot.revision.0);
    record::put_u32(&mut buffer, snapshot.leases.len());
    record::put_u32(&mut buffer, snapshot.kvs.len());
    for (id, ttl) in &snapshot.leases {
        record::put_lease_ttl(&mut buffer, *id, *ttl);
    }
    flush(&mut out, &mut buffer)?;
    for kv in &snapshot.kvs {
        if buffer.is_empty() {
            record::begin_frame(&mut buffer);
        }
        record::put_key_value(&mut buffer, kv);
        if buffer.len() >= FRAME_BYTES {
            flush(&mut out, &mut buffer)?;
        }
    }
    flush(&mut out, &mut buffer)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    fs::rename(&unfinished, &path)?;
    files::sync_dir(dir)?;
    Ok(bytes)
}

fn flush(out: &mut impl Write, buffer: &mut Vec<u8>) -> io::Result<()> {
    if !buffer.is_empty() {
        record::finish_frame(buffer);
        out.write_all(buffer)?;
        buffer.clear();
    }
    Ok(())
}

/// Reads a snapshot's bytes; the error is the offset at which they stop making sense.
pub(super) fn read(bytes: &[u8]) -> Result<Snapshot, usize> {
    let mut offset = SNAPSHOT_MAGIC.len();
    if !bytes.starts_with(SNAPSHOT_MAGIC) {
        return Err(0);
    }
    let head = record::frame(&bytes[offset..]).ok_or(offset)?;
    let (revision, n_kvs, leases) = header(head).ok_or(offset)?;
    offset += FRAME_HEADER + head.len();
    let mut kvs = Vec::new();
    while offset < bytes.len() {
        let payload = record::frame(&bytes[offset..]).ok_or(offset)?;
        let mut input = Reader(payload);
        while !input.0.is_empty() {
            kvs.push(input.key_value().ok_or(offset)?);
        }
        offset += FRAME_HEADER + payload.len();
    }
    if kvs.len() == n_kvs { Ok(Snapshot { revision, leases, kvs }) } else { Err(offset) }
}

fn header(payload: &[u8]) -> Option<(Revision, usize, Vec<(LeaseId, Duration)>)> {
    let mut input = Reader(payload);
    let revision = Revision(input.i64()?);
    let (n_leases, n_kvs) = (input.u32()?, input.u32()?);
    let leases = (0..n_leases).map(|_| input.lease_ttl()).collect::<Option<Vec<_>>>()?;
    Some((revision, n_kvs, leases))
}
