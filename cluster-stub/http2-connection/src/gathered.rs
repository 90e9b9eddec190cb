//! A stream that keeps what is written until its connection's turn is over: many frames then cost one record of TLS and one
//! call of the system.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes above which nothing more is taken before some of it is written.
const LIMIT: usize = 128 * 1024;

/// Splits `stream` into the stream for a connection and what writes its bytes.
pub fn gather<S>(stream: S) -> (Gathered<S>, Outbox<S>) {
    let shared = Shared(Arc::new(Mutex::new(Inner { stream, waiting: BytesMut::new(), failed: None })));
    (Gathered(shared.clone()), Outbox(shared))
}

/// The stream: reads as the one inside, and flushing it only says that its [`Outbox`] is to.
#[derive(Debug)]
pub struct Gathered<S>(Shared<S>);

/// Writes what a [`Gathered`] has kept.
#[derive(Debug)]
pub struct Outbox<S>(Shared<S>);

/// Both are used by one task, so that the lock is always free.
#[derive(Debug)]
struct Shared<S>(Arc<Mutex<Inner<S>>>);

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<S> {
    stream: S,
    waiting: BytesMut,
    failed: Option<io::ErrorKind>,
}

impl<S> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncWrite + Unpin> Inner<S> {
    /// Writes what waits; what cannot be written fails everything after it.
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(kind) = self.failed {
            return Poll::Ready(Err(kind.into()));
        }
        let written = self.write(context);
        if let Poll::Ready(Err(error)) = &written {
            self.failed = Some(error.kind());
        }
        written
    }

    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let n_written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.waiting))?;
            if n_written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(n_written);
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }
}

impl<S: AsyncWrite + Unpin> Outbox<S> {
    /// Writes as much as the stream takes now; ready when nothing is left.
    ///
    /// # Errors
    /// The stream fails. The [`Gathered`] fails with it from then on.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.lock().drain(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        if let Some(kind) = inner.failed {
            return Poll::Ready(Err(kind.into()));
        }
        Pin::new(&mut inner.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.lock();
        if inner.failed.is_some() || inner.waiting.len() >= LIMIT {
            ready!(inner.drain(context))?;
        }
        inner.waiting.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match self.0.lock().failed {
            Some(kind) => Err(kind.into()),
            None => Ok(()),
        })
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.drain(context))?;
        Pin::new(&mut inner.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Counts writes.
    #[derive(Default)]
    struct Sink {
        writes: Vec<Vec<u8>>,
        fails: bool,
    }

    impl AsyncWrite for Sink {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.fails {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            self.writes.push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn many_writes_are_one() {
        let (mut stream, mut outbox) = gather(Sink::default());
        for part in ["a", "b", "c"] {
            stream.write_all(part.as_bytes()).await.expect("it is kept");
            stream.flush().await.expect("it is kept");
        }
        assert!(stream.0.lock().stream.writes.is_empty());
        poll_fn(|context| outbox.poll_flush(context)).await.expect("the sink takes it");
        stream.write_all(b"d").await.expect("it is kept");
        stream.shutdown().await.expect("the sink takes it");
        assert_eq!(stream.0.lock().stream.writes, [b"abc".to_vec(), b"d".to_vec()]);
    }

    #[tokio::test]
    async fn above_the_limit_it_writes_at_once() {
        let (mut stream, _outbox) = gather(Sink::default());
        let large = vec![0; LIMIT];
        stream.write_all(&large).await.expect("it is kept");
        stream.write_all(b"x").await.expect("the sink takes the first");
        let inner = stream.0.lock();
        assert_eq!((inner.stream.writes.len(), inner.waiting.len()), (1, 1));
    }

    #[tokio::test]
    async fn a_failure_is_told_to_the_connection() {
        let (mut stream, mut outbox) = gather(Sink { fails: true, ..Sink::default() });
        stream.write_all(b"x").await.expect("it is kept");
        let failed = poll_fn(|context| outbox.poll_flush(context)).await.expect_err("the sink fails");
        assert_eq!(failed.kind(), io::ErrorKind::BrokenPipe);
        assert!(stream.write_all(b"y").await.is_err() && stream.flush().await.is_err());
    }

    #[tokio::test]
    async fn reading_goes_through() {
        let (near, mut far) = tokio::io::duplex(16);
        let (mut stream, _outbox) = gather(near);
        far.write_all(b"hello").await.expect("there is room");
        let mut got = [0; 5];
        stream.read_exact(&mut got).await.expect("five bytes");
        assert_eq!(&got, b"hello");
    }
}
