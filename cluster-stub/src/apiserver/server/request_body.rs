//! Reads a request's body whole, within limits of size and time.

use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;

use crate::apiserver::status::ApiError;

/// Largest body, bytes. Upstream v1.36.2: apiserver/pkg/server/config.go MaxRequestBodyBytes.
const LIMIT: usize = 3 * 1024 * 1024;
/// How much of a body that is too large is read before it is refused, bytes.
const DISCARDED: usize = 4 * LIMIT;
/// How long a client may take to send its body.
const TIMEOUT: Duration = Duration::from_secs(60);

/// All bytes of `body`, or the refusal.
pub(super) async fn read<B>(body: B) -> Result<Bytes, ApiError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let too_large = || ApiError::too_large(format_args!("limit is {LIMIT}"));
    let declared = body.size_hint().lower();
    let collect = async {
        let mut body = pin!(body);
        let mut all = BytesMut::new();
        let mut discarded = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ApiError::bad_request(format!("cannot read the body: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if all.is_empty() && data.len() as u64 == declared && data.len() <= LIMIT {
                return Ok(data);
            }
            if discarded > 0 || declared > LIMIT as u64 || all.len() + data.len() > LIMIT {
                // A client that is still sending reads no answer: the rest is taken, within reason, and thrown away.
                discarded += data.len();
                if discarded > DISCARDED {
                    break;
                }
                continue;
            }
            all.extend_from_slice(&data);
        }
        if discarded > 0 { Err(too_large()) } else { Ok(all.freeze()) }
    };
    match tokio::time::timeout(TIMEOUT, collect).await {
        Ok(read) => read,
        Err(_) => Err(ApiError::timeout("the body did not arrive in time", 1)),
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::Full;

    use super::*;
    use crate::apiserver::server::Body;

    fn chunks(sizes: &[usize]) -> Body {
        let chunks: Vec<_> = sizes.iter().map(|n| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; *n]))).collect();
        Body::stream(stream::iter(chunks))
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_the_limit() {
        assert_eq!(read(Full::new(Bytes::from_static(b"abc"))).await.unwrap(), "abc");
        assert_eq!(read(Body::empty()).await.unwrap(), "");
        assert_eq!(read(chunks(&[1, 2, 3])).await.unwrap().len(), 6);
        assert_eq!(read(chunks(&[LIMIT - 1, 1])).await.unwrap().len(), LIMIT);
        for body in [chunks(&[LIMIT, 1]), Body::from(vec![0; LIMIT + 1])] {
            let error = read(body).await.unwrap_err();
            assert_eq!((error.code(), error.message()), (413, "Request entity too large: limit is 3145728"));
        }
    }
}
