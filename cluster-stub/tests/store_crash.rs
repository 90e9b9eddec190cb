//! The durable store after a crash, a damaged disk, a second process: what was acknowledged is there, the rest is an
//! error that names the file.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cluster_stub::store::durable::DurableStore;
use cluster_stub::store::recovery::OpenError;
use cluster_stub::store::{Op, RangeRequest, Revision, Store, StoreError, TxnRequest, WatchItem, WatchRequest};
use futures::StreamExt;

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn both(i: usize) -> TxnRequest {
    let success = vec![Op::put(format!("left/{i}"), vec![b'l'; i]), Op::put(format!("right/{i}"), vec![b'r'; i])];
    TxnRequest { success, ..TxnRequest::default() }
}

fn log_file(dir: &Path) -> PathBuf {
    let mut logs: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    logs.retain(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log-"));
    assert_eq!(logs.len(), 1, "a short history is one file");
    logs.pop().unwrap()
}

/// Length of a log's beginning: a log has its name only when it has that.
const MAGIC_LEN: usize = 8;

/// Opens a log that was cut off after `cut` bytes, when `n` writes had been acknowledged.
async fn check_cut(log_name: &Path, log: &[u8], cut: usize, n: usize) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(log_name.file_name().unwrap()), &log[..cut]).unwrap();
    let store = DurableStore::open(dir.path()).unwrap();
    let kvs = store.range(RangeRequest::prefix("")).await.unwrap().kvs;
    assert_eq!(kvs.len(), 2 * n, "cut at {cut} of {}", log.len());
    for i in 0..n {
        assert!(kvs.iter().any(|kv| kv.key == format!("left/{i}") && kv.value.len() == i));
        assert!(kvs.iter().any(|kv| kv.key == format!("right/{i}") && kv.value.len() == i));
    }
    // It goes on as if nothing had happened, also over the next restart.
    let wrote = store.txn(both(99)).await.unwrap().revision;
    assert_eq!(wrote, Revision(n as i64 + 2));
    drop(store);
    let store = DurableStore::open(dir.path()).unwrap();
    assert_eq!(store.range(RangeRequest::prefix("")).await.unwrap().count, 2 * n as u64 + 2);
}

#[test]
fn log_cut_at_every_byte_keeps_every_acknowledged_write_and_no_half_of_another() {
    let dir = tempfile::tempdir().unwrap();
    // How long the log was when write number i was acknowledged.
    let acknowledged: Vec<usize> = run(async {
        let store = DurableStore::open(dir.path()).unwrap();
        let mut acknowledged = Vec::new();
        for i in 0..6 {
            store.txn(both(i)).await.unwrap();
            acknowledged.push(fs::read(log_file(dir.path())).unwrap().len());
        }
        acknowledged
    });
    let name = log_file(dir.path());
    let log = fs::read(&name).unwrap();
    // The time goes into waiting for the disk, so more threads than processors help.
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (name, log, acknowledged) = (&name, &log, &acknowledged);
            scope.spawn(move || {
                for cut in (MAGIC_LEN + thread..=log.len()).step_by(16) {
                    run(check_cut(name, log, cut, acknowledged.iter().filter(|len| **len <= cut).count()));
                }
            });
        }
    });
}

/// The log of a store in `dir` that took one change and was closed.
async fn log_of_one_write(dir: &Path) -> PathBuf {
    let store = DurableStore::open(dir).unwrap();
    store.txn(both(1)).await.unwrap();
    drop(store);
    log_file(dir)
}

#[test]
fn emptied_or_removed_log_is_refused_and_starts_no_new_store() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let log = log_of_one_write(dir.path()).await;
        let whole = fs::read(&log).unwrap();
        let refused = || DurableStore::open(dir.path()).unwrap_err().to_string();
        for cut in 0..MAGIC_LEN {
            fs::write(&log, &whole[..cut]).unwrap();
            let text = refused();
            assert!(text.contains(log.to_str().unwrap()) && text.contains("want \"plimlog1\""), "{cut} bytes: {text}");
        }
        fs::remove_file(&log).unwrap();
        let text = refused();
        assert!(text.contains(log.to_str().unwrap()) && text.contains("missing"), "{text}");
        assert!(!log.exists(), "nothing was begun");
        fs::write(&log, &whole).unwrap();
        let store = DurableStore::open(dir.path()).unwrap();
        assert_eq!(store.range(RangeRequest::prefix("")).await.unwrap().count, 2);
    });
}

#[test]
fn torn_tail_of_zeros_is_cut_off() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let store = DurableStore::open(dir.path()).unwrap();
        store.txn(both(1)).await.unwrap();
        drop(store);
        let log = OpenOptions::new().write(true).open(log_file(dir.path())).unwrap();
        log.set_len(log.metadata().unwrap().len() + 4096).unwrap();
        let store = DurableStore::open(dir.path()).unwrap();
        assert_eq!(store.range(RangeRequest::prefix("")).await.unwrap().count, 2);
    });
}

#[test]
fn damage_before_acknowledged_writes_is_an_error_and_not_a_loss() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let store = DurableStore::open(dir.path()).unwrap();
        for i in 0..5 {
            store.txn(both(i)).await.unwrap();
        }
        drop(store);
        let log = log_file(dir.path());
        let whole = fs::read(&log).unwrap();
        for at in [0, 8, 12, 16, 40] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            fs::write(&log, &damaged).unwrap();
            let error = DurableStore::open(dir.path()).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, OpenError::Corrupt { .. }), "byte {at}: {text}");
            assert!(text.contains(log.to_str().unwrap()) && text.contains("want"), "byte {at}: {text}");
        }
        fs::write(&log, &whole).unwrap();
        DurableStore::open(dir.path()).unwrap();
    });
}

#[test]
fn missing_log_file_is_an_error() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let log = log_of_one_write(dir.path()).await;
        fs::rename(&log, log.with_file_name(format!("log-{:016x}", 7))).unwrap();
        let text = DurableStore::open(dir.path()).unwrap_err().to_string();
        assert!(
            text.ends_with("found a log from revision 7 on, want revision 2, which continues what was read before"),
            "{text}"
        );
    });
}

#[test]
fn history_survives_a_restart_and_stays_watchable() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let store = DurableStore::open(dir.path()).unwrap();
        for i in 0..5 {
            store.txn(both(i)).await.unwrap();
        }
        store.compact(Revision(3)).await.unwrap();
        drop(store);
        let store = DurableStore::open(dir.path()).unwrap();
        let mut watch = store.watch(WatchRequest::prefix("left", Some(Revision(4))));
        let Some(Ok(WatchItem::Events { events, .. })) = watch.next().await else { panic!("no events") };
        assert_eq!(events.len(), 3);
        let gone = store.range(RangeRequest::prefix("").at(Revision(2))).await;
        assert!(matches!(gone, Err(StoreError::Compacted { .. })), "{gone:?}");
    });
}

#[test]
fn leases_survive_a_restart() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let store = DurableStore::open(dir.path()).unwrap();
        let lease = store.lease_grant(Duration::from_secs(3600)).await.unwrap();
        let gone = store.lease_grant(Duration::from_secs(3600)).await.unwrap();
        store.txn(TxnRequest::create("a", "1", Some(lease))).await.unwrap();
        store.txn(TxnRequest::create("b", "1", Some(gone))).await.unwrap();
        store.lease_revoke(gone).await.unwrap();
        drop(store);
        let store = DurableStore::open(dir.path()).unwrap();
        assert_eq!(store.lease_keep_alive(lease).await.unwrap(), Duration::from_secs(3600));
        assert!(matches!(store.lease_keep_alive(gone).await, Err(StoreError::LeaseNotFound(_))));
        store.lease_revoke(lease).await.unwrap();
        assert_eq!(store.range(RangeRequest::prefix("")).await.unwrap().count, 0);
    });
}

#[test]
fn writers_that_wait_together_share_a_sync_and_all_survive() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    runtime.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(DurableStore::open(dir.path()).unwrap());
        let writers: Vec<_> = (0..500)
            .map(|i| {
                let store = store.clone();
                tokio::spawn(async move { store.txn(TxnRequest::create(format!("k{i}"), "v", None)).await })
            })
            .collect();
        let mut revisions = Vec::new();
        for writer in writers {
            revisions.push(writer.await.unwrap().unwrap().revision.0);
        }
        revisions.sort_unstable();
        assert_eq!(revisions, (2..502).collect::<Vec<_>>());
        drop(store);
        let store = DurableStore::open(dir.path()).unwrap();
        assert_eq!(store.range(RangeRequest::prefix("k")).await.unwrap().count, 500);
    });
}

#[test]
fn long_log_is_replaced_by_a_snapshot() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let store = DurableStore::open(dir.path()).unwrap();
        let lease = store.lease_grant(Duration::from_secs(3600)).await.unwrap();
        let megabyte = vec![b'x'; 1 << 20];
        for i in 0..80 {
            let key = format!("k{}", i % 3);
            let success = vec![Op::Put { key: key.into(), value: megabyte.clone().into(), lease: Some(lease) }];
            store.txn(TxnRequest { success, ..TxnRequest::default() }).await.unwrap();
        }
        let newest = store.revision().await.unwrap();
        drop(store);
        let size: u64 = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
        assert!(size < 40 << 20, "three keys and the log since the snapshot take {size} bytes");
        let store = DurableStore::open(dir.path()).unwrap();
        assert_eq!(store.revision().await.unwrap(), newest);
        let kvs = store.range(RangeRequest::prefix("k")).await.unwrap().kvs;
        assert_eq!(kvs.iter().map(|kv| kv.version).sum::<i64>(), 80);
        assert!(kvs.iter().all(|kv| kv.value == megabyte && kv.lease == Some(lease)));
    });
}

#[test]
fn second_store_in_the_same_directory_is_refused() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let first = DurableStore::open(dir.path()).unwrap();
        let error = DurableStore::open(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::Locked { .. }), "{error}");
        assert!(error.to_string().contains(dir.path().to_str().unwrap()));
        drop(first);
        DurableStore::open(dir.path()).unwrap();
    });
}

#[test]
fn files_are_private_and_a_file_in_the_way_is_named() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("deep/data");
        drop(DurableStore::open(&data).unwrap());
        assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
        for file in fs::read_dir(&data).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        let occupied = dir.path().join("file");
        fs::write(&occupied, "").unwrap();
        let text = DurableStore::open(&occupied).unwrap_err().to_string();
        assert!(text.contains(occupied.to_str().unwrap()), "{text}");
    });
}
