//! Metrics: `GET /metrics`, read from the service at the moment of the scrape.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::Full;

use crate::context::ServiceContext;
use crate::doors::{put_field, text};
use crate::observe::metrics::{Coding, Format, MetricSources, MetricValues};
use crate::serve::listener::Reply;

/// `GET /metrics`, in the format and the coding that the request accepts.
pub(super) async fn metrics(shared: &Arc<ServiceContext>, headers: &HeaderMap) -> Response<Reply> {
    let format = Format::accepted(headers);
    let coding = Coding::accepted(headers);
    let written = shared.apart(move |shared| coding.written(format.written(&read(shared))));
    match written.await {
        Some(body) => response(format, coding, body),
        None => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "writing the metrics failed\n",
        ),
    }
}

fn response(format: Format, coding: Coding, body: Bytes) -> Response<Reply> {
    let mut response = Response::new(Full::new(body));
    put_field(&mut response, header::CONTENT_TYPE, format.content_type());
    if let Some(coding) = coding.header() {
        put_field(&mut response, header::CONTENT_ENCODING, coding);
    }
    response
}

/// Reads all metrics of the service.
pub(crate) fn read(shared: &ServiceContext) -> Vec<MetricValues> {
    let sources = MetricSources {
        keeper: &shared.keeper,
        observers: &shared.observers,
        hold: &shared.hold,
        state: shared.state.as_ref().map(|folder| *folder.levels.lock()),
    };
    sources.list()
}
