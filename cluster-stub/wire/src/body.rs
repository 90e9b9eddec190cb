//! The body type of responses: whole bytes or a stream (watch, logs). Request bodies arrive as whole `Bytes`.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{Stream, StreamExt};
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tokio_util::sync::CancellationToken;

/// The error of a streamed body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A response body. `From<Bytes>`, `From<String>`, `From<Vec<u8>>` and `From<&'static str>` make a whole one.
pub struct Body(Kind);

enum Kind {
    Once(Option<Bytes>),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

impl Body {
    /// A body without bytes.
    #[must_use]
    pub fn empty() -> Self {
        Body(Kind::Once(None))
    }

    /// A body whose chunks come one by one, each sent as soon as it is there; an error ends the connection.
    pub fn stream<S, E>(chunks: S) -> Self
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let frames = chunks.map(|chunk| chunk.map(Frame::data).map_err(Into::into));
        Body(Kind::Stream(StreamBody::new(frames).boxed_unsync()))
    }
}

impl Body {
    /// The same body, but a stream ends (as if it were complete) once `stop` is cancelled.
    #[must_use]
    pub fn until(self, stop: &CancellationToken) -> Self {
        let Kind::Stream(stream) = self.0 else { return self };
        let frames = stream.into_data_stream().take_until(stop.clone().cancelled_owned());
        Body::stream(frames)
    }
}

impl Default for Body {
    fn default() -> Self {
        Body::empty()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Once(bytes) => write!(f, "Body({} bytes)", bytes.as_ref().map_or(0, Bytes::len)),
            Kind::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body(Kind::Once((!bytes.is_empty()).then_some(bytes)))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Body::from(Bytes::from(bytes))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Body::from(Bytes::from(text))
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Body::from(Bytes::from_static(text.as_bytes()))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut self.0 {
            Kind::Once(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Kind::Stream(stream) => Pin::new(stream).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Once(bytes) => bytes.is_none(),
            Kind::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Once(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Kind::Stream(stream) => stream.size_hint(),
        }
    }
}
