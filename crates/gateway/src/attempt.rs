//! Attempt: one try to send a request, and whether it may be sent again.

use http::Request;

use crate::address::ConnectionOrigin;
use crate::error::{ForwardError, UpstreamFailure};
use crate::outgoing::Form;
use crate::upload::UploadBody;

pub(crate) type UpstreamRequest = Request<UploadBody>;

/// Why a request has no response.
pub(crate) enum SendError {
    /// It was not sent.
    Unsent(Box<UpstreamRequest>),
    /// The upstream closes the connection, and has not begun to process it.
    GoAway,
    /// The upstream refuses the stream, and has not begun to process it.
    Refused,
    /// It may have been sent, and no byte of a response came.
    Broken(UpstreamFailure),
    /// It is not to be sent again.
    End(ForwardError),
}

impl SendError {
    /// Returns true if the address has not begun to process the request, and may be asked again.
    pub(crate) fn is_unprocessed(&self, form: &Form) -> bool {
        match self {
            Self::GoAway | Self::Refused => true,
            // It waited for a stream of a connection that others used up.
            Self::Unsent(_) => *form != Form::Http1,
            Self::Broken(_) | Self::End(_) => false,
        }
    }

    /// Returns true if the address failed. A connection that was idle may have been closed meanwhile,
    /// as servers do, and the client may be at fault.
    pub(crate) fn is_fault(&self, came: ConnectionOrigin) -> bool {
        match self {
            Self::Broken(UpstreamFailure::Reset) => came == ConnectionOrigin::New,
            Self::Broken(_) => true,
            Self::End(error) => error.failure().is_some(),
            Self::Unsent(_) | Self::GoAway | Self::Refused => false,
        }
    }
}

/// Returns why an upstream did not begin to process a request, if it says so (RFC 9113, sections
/// 6.8 and 8.7). Only streams that a GOAWAY does not cover end by it.
pub(crate) fn unprocessed(error: &hyper::Error) -> Option<SendError> {
    let error: &h2::Error = std::error::Error::source(error)?.downcast_ref()?;
    if !error.is_remote() {
        return None;
    }
    if error.is_go_away() {
        return Some(SendError::GoAway);
    }
    (error.reason() == Some(h2::Reason::REFUSED_STREAM)).then_some(SendError::Refused)
}
