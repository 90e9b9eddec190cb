//! What a failed API call means: the text for people, and whether trying again can help.

use std::error::Error as _;
use std::time::Duration;

/// What the caller of a failed request should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The object is not there (any more).
    NotFound,
    /// Somebody else changed or made it first.
    Conflict,
    /// It may work later; the server may have said when. The request may or may not have been carried out.
    TryAgain(Option<Duration>),
    /// It will fail every time: bad request, no permission.
    Final,
}

/// Sorts a failure. Statuses of 408, 429 and 5xx and everything that happened on the wire can be tried again.
pub(crate) fn verdict(error: &kube::Error) -> Verdict {
    match error {
        kube::Error::Api(status) => match status.code {
            404 => Verdict::NotFound,
            409 => Verdict::Conflict,
            408 | 429 | 500..=599 => {
                let after =
                    status.details.as_ref().map(|details| details.retry_after_seconds).filter(|&seconds| seconds > 0);
                Verdict::TryAgain(after.map(|seconds| Duration::from_secs(seconds.into())))
            }
            _ => Verdict::Final,
        },
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) | kube::Error::TlsRequired => Verdict::Final,
        _ => Verdict::TryAgain(None),
    }
}

/// The failure in one line: the server's own message where there is one, otherwise the innermost causes.
pub(crate) fn describe(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return if status.message.is_empty() {
            format!("the server answered {} {}", status.code, status.reason)
        } else {
            status.message.clone()
        };
    }
    let mut texts: Vec<String> = Vec::new();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        // Wrappers repeat what they wrap; keep the most specific wording of each.
        if let Some(last) = texts.last_mut()
            && (last.contains(&text) || text.contains(last.as_str()))
        {
            if text.len() < last.len() {
                *last = text;
            }
        } else {
            texts.push(text);
        }
        cause = inner.source();
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn status(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, message: format!("m{code}"), ..Status::default() }))
    }

    #[test]
    fn statuses_are_sorted_by_what_helps() {
        for (code, want) in [
            (404, Verdict::NotFound),
            (409, Verdict::Conflict),
            (403, Verdict::Final),
            (422, Verdict::Final),
            (429, Verdict::TryAgain(None)),
            (500, Verdict::TryAgain(None)),
            (504, Verdict::TryAgain(None)),
        ] {
            assert_eq!(verdict(&status(code)), want, "{code}");
        }
    }

    #[test]
    fn the_servers_message_is_the_description() {
        assert_eq!(describe(&status(403)), "m403");
    }

    #[test]
    fn failures_on_the_wire_can_be_tried_again_and_name_their_cause() {
        let cause = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        let error = kube::Error::Service(Box::new(cause));
        assert_eq!(verdict(&error), Verdict::TryAgain(None));
        assert_eq!(describe(&error), "connection refused");
    }
}
