//! No reporter: without the feature `policy`, no response corrects a charge.

use http::Response;
use http_body::Frame;

/// Receives the result of a request. There is none.
#[derive(Debug)]
pub(super) enum Reporter {}

/// Charges that the body of a response settles. There are none.
#[derive(Debug)]
pub(super) enum ResponseCosts {}

impl Reporter {
    pub(super) fn receive_response<R>(self, _: &mut Response<R>) -> Option<Box<ResponseCosts>> {
        match self {}
    }
}

pub(super) fn settle(_: &mut Option<Box<ResponseCosts>>) {}

pub(super) fn read<D, E>(_: &mut Option<Box<ResponseCosts>>, _: Option<&Result<Frame<D>, E>>) {}
