//! An HTTP/2 connection as one task: it reads and writes the frames and runs what the library would start a task for with
//! each request; what all of them write in one turn goes out in one piece. Knows nothing of what is asked and answered.
//!
//! A package of its own because the client and the offline API server, which do not know each other, both need it.

mod gathered;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use hyper::rt::Executor;
use tokio::io::AsyncWrite;

pub use gathered::{Gathered, Outbox, gather};

/// Takes the place of an executor that starts tasks: hands futures to the [`Driver`] of their connection.
#[derive(Clone, Default)]
pub struct Spawned(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

impl std::fmt::Debug for Spawned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawned").finish_non_exhaustive()
    }
}

impl Spawned {
    fn take(&self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F> Executor<F> for Spawned
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(future.boxed());
    }
}

/// Runs a connection together with what it spawned. Its streams end with it.
#[derive(Debug)]
pub struct Driver<S> {
    spawned: Spawned,
    open: FuturesUnordered<BoxFuture<'static, ()>>,
    outbox: Outbox<S>,
}

impl<S: AsyncWrite + Unpin> Driver<S> {
    /// For the connection that spawns into `spawned` and writes into what `outbox` belongs to.
    pub fn new(spawned: Spawned, outbox: Outbox<S>) -> Self {
        Self { spawned, open: FuturesUnordered::new(), outbox }
    }

    /// Goes on with the connection, with what it spawned, and with writing, as far as they get now.
    pub fn poll<C: Future>(&mut self, mut connection: Pin<&mut C>, context: &mut Context<'_>) -> Poll<C::Output> {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(context) {
                // The last frames say why; a peer that has gone does not read them.
                let _ = self.outbox.poll_flush(context);
                return Poll::Ready(ended);
            }
            let goes_on = self.poll_open(context);
            if goes_on {
                continue;
            }
            match self.outbox.poll_flush(context) {
                // The connection is told when it is looked at again.
                Poll::Ready(Err(_)) => context.waker().wake_by_ref(),
                Poll::Ready(Ok(())) | Poll::Pending => {}
            }
            return Poll::Pending;
        }
    }

    /// Goes on with what is still open when the connection takes no more requests, until all of it has ended.
    pub fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.poll_open(context) {}
        let flushed = self.outbox.poll_flush(context);
        if self.open.is_empty() && flushed.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Runs what is spawned; whether something began or ended, so that there may be more to do.
    fn poll_open(&mut self, context: &mut Context<'_>) -> bool {
        let new = self.spawned.take();
        let mut moved = !new.is_empty();
        self.open.extend(new);
        while let Poll::Ready(Some(())) = self.open.poll_next_unpin(context) {
            moved = true;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::AsyncReadExt as _;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_spawned_runs_with_the_connection_and_writes_in_one_piece() {
        let (near, mut far) = tokio::io::duplex(64);
        let (mut gathered, outbox) = gather(near);
        let spawned = Spawned::default();
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let (inner, done) = (spawned.clone(), Arc::clone(&done));
            spawned.execute(async move {
                let again = Arc::clone(&done);
                inner.execute(async move {
                    again.fetch_add(1, Ordering::Relaxed);
                });
                tokio::task::yield_now().await;
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let mut driver = Driver::new(spawned, outbox);
        let counted = Arc::clone(&done);
        let mut connection = Box::pin(async move {
            while counted.load(Ordering::Relaxed) < 6 {
                gathered.write_all(b"x").await?;
                gathered.flush().await?;
                tokio::task::yield_now().await;
            }
            gathered.write_all(b"end").await
        });
        poll_fn(|context| driver.poll(connection.as_mut(), context)).await.expect("the other end is there");
        poll_fn(|context| driver.poll_rest(context)).await;
        drop((driver, connection));
        let mut got = String::new();
        far.read_to_string(&mut got).await.expect("text");
        assert!(got.ends_with("xend"), "{got}");
    }
}
