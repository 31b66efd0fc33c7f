//! Actix: the layer around services of actix-web, whose requests and bodies have types of their own.
//!
//! ```text
//!   ServiceRequest --> slot;  its head, copied --> gate --passes--> service takes it from the slot
//!                                                    \--refused--> the slot still has it: answered
//! ```
//!
//! actix-web needs a request to be the only one of its kind while it is served, so that it waits in a
//! slot, and not in a copy, until the limits have decided.

use std::cell::RefCell;
use std::future::{Future, Ready, ready};
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{self, ServiceRequest, ServiceResponse, Transform};
use actix_web::http as actix_http;
use actix_web::{Error, HttpMessage as _, HttpRequest, HttpResponse};
use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer as _;
use tower_service::Service;

use super::RateLimitLayer;
use super::body::LimitedBody;
use super::gate::Gate;
use super::key_source::peer::Peer;
use super::service::RateLimited;

/// A layer as a middleware of actix-web; made by
/// [`for_actix`](RateLimitLayer::for_actix). Clones share the counts of the layer.
///
/// ```
/// use ratekeeper::KeyedLimiter;
/// use ratekeeper::tower::{ByAddress, ForActix, Keyed, Peer, RateLimitLayer, by_address};
///
/// fn per_address() -> Result<ForActix<Keyed<ByAddress>>, ratekeeper::core::Error> {
///     let limiter = KeyedLimiter::per("100/1m")?;
///     Ok(RateLimitLayer::keyed(limiter, by_address::<Peer>()).for_actix())
/// }
/// let app = actix_web::App::new().wrap(per_address()?);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Clone)]
pub struct ForActix<G> {
    layer: RateLimitLayer<G>,
    copies: Vec<CopyExtension>,
}

/// Copies an extension of a request.
type CopyExtension = fn(&ServiceRequest, &mut Extensions);

impl<G: Gate> RateLimitLayer<G> {
    /// Returns these limits as a middleware of actix-web. The address of the connection is found as
    /// [`Peer`], so the source of addresses is `by_address::<Peer>()`. Make it once, outside of the
    /// function that builds an `App`, because each worker calls that.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::tower::{Peer, RateLimitLayer, by_address};
    /// use actix_web::{App, HttpServer, web};
    ///
    /// let limiter = KeyedLimiter::per("100/1m")?;
    /// let limit = RateLimitLayer::keyed(limiter, by_address::<Peer>()).for_actix();
    /// let app = move || App::new().wrap(limit.clone()).route("/", web::get().to(async || "hello"));
    /// let server = HttpServer::new(app);
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn for_actix(&self) -> ForActix<G> {
        let copies = Vec::new();
        let layer = self.clone();
        ForActix { layer, copies }
    }
}

impl<G> ForActix<G> {
    /// Shows the extension `T` of a request to the limits, for
    /// [`by_extension`](super::by_extension): a user or a claim that an outer middleware has found.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::tower::{RateLimitLayer, by_extension};
    ///
    /// #[derive(Clone)]
    /// struct Claims { subject: String }
    ///
    /// let subject = by_extension(|claims: &Claims| &*claims.subject);
    /// let limit = RateLimitLayer::keyed(KeyedLimiter::per("100/1m")?, subject);
    /// let limit = limit.for_actix().with_extension::<Claims>();
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    #[must_use]
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self) -> Self {
        self.copies.push(|request, extensions| {
            if let Some(extension) = request.extensions().get::<T>() {
                extensions.insert(extension.clone());
            }
        });
        self
    }
}

impl<S, B, G> Transform<S, ServiceRequest> for ForActix<G>
where
    S: dev::Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    S::Future: 'static,
    B: MessageBody + 'static,
    G: Gate,
{
    type Response = ServiceResponse<LimitedBody<ActixBody<B>>>;
    type Error = Error;
    type Transform = ActixLimited<S, G>;
    type InitError = ();
    type Future = Ready<Result<ActixLimited<S, G>, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        let inner = Rc::new(service);
        let limited = self.layer.layer(Inner(Rc::clone(&inner)));
        let copies = self.copies.clone();
        ready(Ok(ActixLimited {
            inner,
            limited,
            copies,
        }))
    }
}

/// A service of actix-web behind limits; made by [`ForActix`].
///
/// ```
/// use actix_web::Error;
/// use actix_web::dev::{Service, ServiceRequest};
/// use ratekeeper::tower::{ActixLimited, Single};
///
/// /// A limited service is a service with the same errors.
/// fn limited<S>(service: ActixLimited<S, Single>) -> impl Service<ServiceRequest, Error = Error>
/// where
///     ActixLimited<S, Single>: Service<ServiceRequest, Error = Error>,
/// {
///     service
/// }
/// ```
pub struct ActixLimited<S, G> {
    inner: Rc<S>,
    limited: RateLimited<Inner<S>, G>,
    copies: Vec<CopyExtension>,
}

impl<S, B, G> dev::Service<ServiceRequest> for ActixLimited<S, G>
where
    S: dev::Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    S::Future: 'static,
    B: MessageBody + 'static,
    G: Gate,
{
    type Response = ServiceResponse<LimitedBody<ActixBody<B>>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let mut head = head_of(&request);
        for copy in &self.copies {
            copy(&request, head.extensions_mut());
        }
        let slot = Slot::default();
        *slot.0.borrow_mut() = Held::Asked(Box::new(request));
        let response = self.limited.clone().call(head.map(|()| slot.clone()));
        Box::pin(async move {
            let response = response.await?;
            Ok(slot.answer(response))
        })
    }
}

/// Returns the head of a request in the types of the gate.
fn head_of(request: &ServiceRequest) -> Request<()> {
    let mut head = Request::new(());
    // Both crates read them by one grammar, so that no conversion fails.
    *head.method_mut() =
        Method::from_bytes(request.method().as_str().as_bytes()).unwrap_or_default();
    *head.uri_mut() = Uri::try_from(request.uri().to_string()).unwrap_or_default();
    *head.headers_mut() = fields_of(request.headers());
    if let Some(address) = request.peer_addr() {
        head.extensions_mut().insert(Peer(address));
    }
    head
}

fn fields_of(fields: &actix_http::header::HeaderMap) -> HeaderMap {
    let converted = fields.iter().filter_map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    });
    let mut map = HeaderMap::with_capacity(fields.len());
    for (name, value) in converted {
        map.append(name, value);
    }
    map
}

/// The place of a request until it is served, and of its answer's head after that.
#[derive(Clone, Default)]
struct Slot(Rc<RefCell<Held>>);

#[derive(Default)]
enum Held {
    Asked(Box<ServiceRequest>),
    #[default]
    Nothing,
    Answered(HttpRequest, HttpResponse<()>),
}

impl Slot {
    fn take(&self) -> Held {
        mem::take(&mut *self.0.borrow_mut())
    }

    /// Returns the answer to the request with the status, the fields and the body of `response`.
    fn answer<B>(&self, response: Response<B>) -> ServiceResponse<B> {
        let (parts, body) = response.into_parts();
        let (request, mut answer) = match self.take() {
            Held::Answered(request, answer) => (request, answer),
            Held::Asked(request) => (request.into_parts().0, {
                let status = actix_http::StatusCode::from_u16(parts.status.as_u16());
                HttpResponse::new(status.unwrap_or_default()).drop_body()
            }),
            Held::Nothing => unreachable!("a request is refused or served"),
        };
        let fields = answer.headers_mut();
        fields.clear();
        for (name, value) in &parts.headers {
            let name = actix_http::header::HeaderName::from_bytes(name.as_str().as_bytes());
            let value = actix_http::header::HeaderValue::from_bytes(value.as_bytes());
            if let (Ok(name), Ok(value)) = (name, value) {
                fields.append(name, value);
            }
        }
        ServiceResponse::new(request, answer.set_body(body))
    }
}

/// The service inside, in the types of the gate.
struct Inner<S>(Rc<S>);

impl<S> Clone for Inner<S> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<S, B> Service<Request<Slot>> for Inner<S>
where
    S: dev::Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    S::Future: 'static,
    B: MessageBody + 'static,
{
    type Response = Response<ActixBody<B>>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Error>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Slot>) -> Self::Future {
        let slot = request.into_body();
        let Held::Asked(request) = slot.take() else {
            unreachable!("a request is served once");
        };
        let serving = self.0.call(*request);
        Box::pin(async move {
            let (request, answer) = serving.await?.into_parts();
            let (answer, body) = answer.into_parts();
            let status = http::StatusCode::from_u16(answer.status().as_u16());
            let status = status.unwrap_or_default();
            let is_connection = status == http::StatusCode::SWITCHING_PROTOCOLS;
            let mut response = Response::new(ActixBody {
                body,
                is_connection,
            });
            *response.status_mut() = status;
            *response.headers_mut() = fields_of(answer.headers());
            #[cfg(feature = "policy")]
            if let Some(report) = answer.extensions().get::<crate::Report>() {
                response.extensions_mut().insert(report.clone());
            }
            *slot.0.borrow_mut() = Held::Answered(request, answer);
            Ok(response)
        })
    }
}

pin_project! {
    /// A body of actix-web.
    ///
    /// ```
    /// use actix_web::dev::ServiceResponse;
    /// use ratekeeper::tower::{ActixBody, LimitedBody};
    ///
    /// /// The response of a limited service that sends texts.
    /// type Limited = ServiceResponse<LimitedBody<ActixBody<String>>>;
    /// ```
    pub struct ActixBody<B> {
        #[pin]
        body: B,
        // Of a connection that was upgraded, which ends its request.
        is_connection: bool,
    }
}

impl<B: MessageBody> Body for ActixBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let next = ready!(self.project().body.poll_next(context));
        Poll::Ready(next.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_connection || self.body.size().is_eof()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size() {
            BodySize::None => SizeHint::with_exact(0),
            BodySize::Sized(bytes) => SizeHint::with_exact(bytes),
            BodySize::Stream => SizeHint::default(),
        }
    }
}

impl<B: MessageBody> MessageBody for LimitedBody<ActixBody<B>> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        match (self.inner(), self.size_hint().exact()) {
            (Some(served), _) => served.body.size(),
            (None, Some(bytes)) => BodySize::Sized(bytes),
            (None, None) => BodySize::Stream,
        }
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, B::Error>>> {
        loop {
            let next = match ready!(self.as_mut().poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => Some(Ok(data)),
                    Err(_trailers) => continue, // actix-web sends none
                },
                Some(Err(error)) => Some(Err(error)),
                None => None,
            };
            return Poll::Ready(next);
        }
    }
}

debug_fields!([G] ForActix<G> {});

debug_fields!([S, G] ActixLimited<S, G> {});

debug_fields!([B] ActixBody<B> {});
