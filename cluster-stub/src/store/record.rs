//! What the log and the snapshots say, as bytes: little-endian numbers, byte strings with their length in front, frames
//! with a checksum. Encoding and decoding only; files are the journal's and the recovery's.

use std::time::Duration;

use bytes::Bytes;
use flate2::Crc;

use super::{KeyValue, LeaseId, Revision, WatchEvent, WatchEventKind};

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The changes of one revision.
    Commit { revision: Revision, changes: Vec<Change<'a>> },
    /// A lease begins.
    LeaseGrant { id: LeaseId, ttl: Duration },
    /// A lease ends; the deletion of its keys follows in the same frame.
    LeaseRevoke { id: LeaseId },
    /// The history before `revision` is forgotten.
    Compact { revision: Revision },
}

/// One change of a [`Record::Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// A key was written.
    Put { key: &'a [u8], value: &'a [u8], lease: Option<LeaseId> },
    /// A key was deleted.
    Delete { key: &'a [u8] },
}

impl<'a> From<&'a WatchEvent> for Change<'a> {
    fn from(event: &'a WatchEvent) -> Self {
        match event.kind {
            WatchEventKind::Put => Change::Put { key: &event.kv.key, value: &event.kv.value, lease: event.kv.lease },
            WatchEventKind::Delete => Change::Delete { key: &event.kv.key },
        }
    }
}

const COMMIT: u8 = 1;
const LEASE_GRANT: u8 = 2;
const LEASE_REVOKE: u8 = 3;
const COMPACT: u8 = 4;
const PUT: u8 = 1;
const DELETE: u8 = 2;

impl Record<'_> {
    /// Appends the record to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Commit { revision, changes } => {
                out.push(COMMIT);
                put_i64(out, revision.0);
                put_u32(out, changes.len());
                for change in changes {
                    match change {
                        Change::Put { key, value, lease } => {
                            out.push(PUT);
                            put_bytes(out, key);
                            put_bytes(out, value);
                            put_i64(out, lease.map_or(0, |lease| lease.0));
                        }
                        Change::Delete { key } => {
                            out.push(DELETE);
                            put_bytes(out, key);
                        }
                    }
                }
            }
            Record::LeaseGrant { id, ttl } => {
                out.push(LEASE_GRANT);
                put_i64(out, id.0);
                put_i64(out, i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
            }
            Record::LeaseRevoke { id } => {
                out.push(LEASE_REVOKE);
                put_i64(out, id.0);
            }
            Record::Compact { revision } => {
                out.push(COMPACT);
                put_i64(out, revision.0);
            }
        }
    }

    /// Reads the records of a frame's payload. `None` if it is not a sequence of records.
    pub(super) fn decode_all(payload: &[u8]) -> Option<Vec<Record<'_>>> {
        let mut input = Reader(payload);
        let mut records = Vec::new();
        while !input.0.is_empty() {
            records.push(input.record()?);
        }
        Some(records)
    }
}

/// Reads from the front of a byte slice; `None` where it is too short or says something unknown.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn u32(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.u32()?;
        self.take(n)
    }

    fn lease(&mut self) -> Option<Option<LeaseId>> {
        self.i64().map(|id| (id != 0).then_some(LeaseId(id)))
    }

    fn record(&mut self) -> Option<Record<'a>> {
        Some(match self.u8()? {
            COMMIT => {
                let revision = Revision(self.i64()?);
                let n = self.u32()?;
                let mut changes = Vec::with_capacity(n.min(1024));
                for _ in 0..n {
                    changes.push(match self.u8()? {
                        PUT => Change::Put { key: self.bytes()?, value: self.bytes()?, lease: self.lease()? },
                        DELETE => Change::Delete { key: self.bytes()? },
                        _ => return None,
                    });
                }
                Record::Commit { revision, changes }
            }
            LEASE_GRANT => Record::LeaseGrant { id: LeaseId(self.i64()?), ttl: self.ttl()? },
            LEASE_REVOKE => Record::LeaseRevoke { id: LeaseId(self.i64()?) },
            COMPACT => Record::Compact { revision: Revision(self.i64()?) },
            _ => return None,
        })
    }

    fn ttl(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(u64::try_from(self.i64()?).ok()?))
    }

    /// A lease of a snapshot.
    pub(super) fn lease_ttl(&mut self) -> Option<(LeaseId, Duration)> {
        Some((LeaseId(self.i64()?), self.ttl()?))
    }

    /// A key of a snapshot.
    pub(super) fn key_value(&mut self) -> Option<KeyValue> {
        Some(KeyValue {
            key: Bytes::copy_from_slice(self.bytes()?),
            value: Bytes::copy_from_slice(self.bytes()?),
            create_revision: Revision(self.i64()?),
            mod_revision: Revision(self.i64()?),
            version: self.i64()?,
            lease: self.lease()?,
        })
    }
}

/// Appends a lease of a snapshot.
pub(super) fn put_lease_ttl(out: &mut Vec<u8>, id: LeaseId, ttl: Duration) {
    put_i64(out, id.0);
    put_i64(out, i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
}

/// Appends a key of a snapshot.
pub(super) fn put_key_value(out: &mut Vec<u8>, kv: &KeyValue) {
    put_bytes(out, &kv.key);
    put_bytes(out, &kv.value);
    put_i64(out, kv.create_revision.0);
    put_i64(out, kv.mod_revision.0);
    put_i64(out, kv.version);
    put_i64(out, kv.lease.map_or(0, |lease| lease.0));
}

pub(super) fn put_i64(out: &mut Vec<u8>, n: i64) {
    out.extend_from_slice(&n.to_le_bytes());
}

pub(super) fn put_u32(out: &mut Vec<u8>, n: usize) {
    let n = u32::try_from(n).expect("a request of 4 GiB does not get through the API server");
    out.extend_from_slice(&n.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Starts every frame, so that the frames after a damaged one can be found.
const FRAME_MAGIC: [u8; 4] = [0xF1, b'P', b'L', 0x9D];
/// Bytes before a frame's payload: magic, length, checksum.
pub(super) const FRAME_HEADER: usize = 12;

/// Begins a frame in an empty buffer; its payload is appended next.
pub(super) fn begin_frame(out: &mut Vec<u8>) {
    out.extend_from_slice(&FRAME_MAGIC);
    out.extend_from_slice(&[0; FRAME_HEADER - FRAME_MAGIC.len()]);
}

/// Fills in length and checksum of the frame that `frame` holds from its first byte to its last.
pub(super) fn finish_frame(frame: &mut [u8]) {
    let payload = &frame[FRAME_HEADER..];
    let len = u32::try_from(payload.len()).expect("the journal closes a frame long before 4 GiB");
    let sum = checksum(payload);
    frame[4..8].copy_from_slice(&len.to_le_bytes());
    frame[8..12].copy_from_slice(&sum.to_le_bytes());
}

/// The payload of the frame at the front of `bytes`, if it is whole and its checksum holds.
pub(super) fn frame(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(&FRAME_MAGIC)?;
    let mut header = Reader(rest);
    let len = header.u32()?;
    let sum = u32::from_le_bytes(header.take(4)?.try_into().ok()?);
    let payload = header.take(len)?;
    (checksum(payload) == sum).then_some(payload)
}

/// Whether a whole frame begins anywhere in `bytes`.
pub(super) fn holds_frame(bytes: &[u8]) -> bool {
    bytes
        .windows(FRAME_MAGIC.len())
        .enumerate()
        .any(|(at, window)| window == FRAME_MAGIC && frame(&bytes[at..]).is_some())
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}
