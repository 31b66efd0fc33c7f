//! hyper: a service without a framework, which sets the client's address itself.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use ratekeeper::KeyedLimiter;
use ratekeeper::policy::{ClientIp, network};
use ratekeeper::tower::{Peer, RateLimitLayer, by_address};
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;

use super::client::Client;

/// Adds an extension with the address of the connection to its requests.
#[derive(Clone)]
pub(crate) struct Connected<T, S> {
    pub(crate) peer: T,
    pub(crate) inner: S,
}

impl<T, S> Service<Request<Incoming>> for Connected<T, S>
where
    T: Clone + Send + Sync + 'static,
    S: Service<Request<Incoming>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> S::Future {
        request.extensions_mut().insert(self.peer.clone());
        self.inner.call(request)
    }
}

#[derive(Clone)]
pub(crate) struct Hello;

impl Service<Request<Incoming>> for Hello {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        std::future::ready(Ok(Response::new(Full::from("hello"))))
    }
}

#[tokio::test]
async fn addresses_are_those_of_connections_or_of_trusted_proxies() {
    for (trusted, expected) in [
        (None, [200, 200, 429, 429, 429]),
        (Some("127.0.0.0/8"), [200, 200, 200, 200, 429]),
    ] {
        let client_ip = ClientIp {
            trusted_proxies: Vec::from_iter(trusted.map(|it| network(it).unwrap())),
            ..ClientIp::default()
        };
        let address = by_address::<Peer>().behind(client_ip);
        let layer = RateLimitLayer::keyed(KeyedLimiter::per("2/24h").unwrap(), address);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                let inner = layer.layer(Hello); // anew for each connection
                let peer = Peer(peer);
                let service = TowerToHyperService::new(Connected { peer, inner });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        let clients = [
            "192.0.2.1",
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.2",
            "192.0.2.1",
        ];
        let mut statuses = Vec::new();
        for client in clients {
            let mut connection = Client::connect(address).await;
            let forwarded = format!("x-forwarded-for: spoofed, {client}\r\n");
            connection.send("/", &forwarded).await;
            statuses.push(connection.answer().await.status);
        }
        assert_eq!(statuses, expected, "{trusted:?}");
    }
}
