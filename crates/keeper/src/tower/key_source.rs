//! Key source: finds the key of a request.
//!
//! ```text
//!   request --> by_address, by_header, .. --> key --> the limit of that key
//!                     \
//!                      '-> no key --> .or(another source)
//!                                 \-> .or_shared(): one count for all such requests
//!                                  \-> else refused: 400 or 500
//! ```
//!
//! A tuple of sources counts by all of them together. Sources have types with names, so that a
//! layer can be a field of a struct and the return type of a function.

pub(super) mod by_address;
pub(super) mod by_part;
pub(super) mod no_key;
pub(super) mod peer;

use smallvec::SmallVec;

use super::head::RequestHead;
use crate::LimitKey;
use no_key::NoKey;

/// Finds the key of a request, for [`RateLimitLayer::keyed`](super::RateLimitLayer::keyed).
///
/// | source | counts by | if it is missing |
/// |---|---|---|
/// | [`by_address`](super::by_address), [`by_address_from`](super::by_address_from) | the client's address, behind trusted proxies if you name them | 500: the server did not provide it |
/// | [`by_header`](super::by_header) | the value of a header field; two different ones are refused | 400: the client did not send it |
/// | [`by_path`](super::by_path) | the path, in one spelling | never |
/// | [`by_extension`](super::by_extension) | a value that an outer layer put into the extensions: a user, a claim | 500 |
/// | `(A, B)`, `(A, B, C)` | all of these together | as that part |
/// | a closure of [`RequestHead`] that returns an `Option` | the key that it returns | such requests share one count |
/// | [`or`](Self::or), [`or_shared`](Self::or_shared) | another source, or one count for all | |
///
/// Implement it for a type of your own where a layer needs a type with a name:
///
/// ```
/// use ratekeeper::LimitKey;
/// use ratekeeper::tower::{Keyed, KeySource, NoKey, RateLimitLayer, RequestHead};
///
/// #[derive(Clone)]
/// struct ByTenant;
///
/// impl KeySource for ByTenant {
///     fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
///         let host = head.uri.host().and_then(|host| host.split('.').next());
///         host.map(str::to_owned).ok_or(NoKey::NotSent("host".into()))
///     }
/// }
///
/// struct Server {
///     limit: RateLimitLayer<Keyed<ByTenant>>,
/// }
/// let limiter = ratekeeper::KeyedLimiter::per("100/1m")?;
/// let server = Server { limit: RateLimitLayer::keyed(limiter, ByTenant) };
/// assert_eq!(server.limit.counts().passed, 0);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub trait KeySource: Clone + Send + Sync + 'static {
    /// Returns the key of the request.
    ///
    /// # Errors
    /// [`NoKey`], if it has none: the request is refused, or shares a count.
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey>;

    /// Counts a request without this key by `other`. The keys of both are different, even if their
    /// bytes are equal.
    ///
    /// ```
    /// use http::HeaderName;
    /// use ratekeeper::tower::{KeySource, Peer, by_address, by_header};
    ///
    /// let key = by_header(HeaderName::from_static("x-api-key")).or(by_address::<Peer>());
    /// ```
    fn or<B: KeySource>(self, other: B) -> KeyOr<Self, B> {
        KeyOr(self, other)
    }

    /// Counts all requests without this key together.
    ///
    /// ```
    /// use http::{HeaderName, Request};
    /// use ratekeeper::tower::{KeySource, NoKey, by_header};
    ///
    /// let key = by_header(HeaderName::from_static("x-api-key")).or_shared();
    /// let request = Request::new(());
    /// assert_eq!(key.key((&request).into()).err(), Some(NoKey::Shared));
    /// ```
    fn or_shared(self) -> KeyOrShared<Self> {
        KeyOrShared(self)
    }
}

/// A function of the request; requests without a key share one count.
impl<F, K> KeySource for F
where
    F: Fn(RequestHead<'_>) -> Option<K> + Clone + Send + Sync + 'static,
    K: LimitKey,
{
    #[inline]
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
        self(head).ok_or(NoKey::Shared)
    }
}

impl<A: KeySource, B: KeySource> KeySource for (A, B) {
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
        Ok((self.0.key(head)?, self.1.key(head)?))
    }
}

impl<A: KeySource, B: KeySource, C: KeySource> KeySource for (A, B, C) {
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
        Ok((self.0.key(head)?, self.1.key(head)?, self.2.key(head)?))
    }
}

/// One source, or another; made by [`KeySource::or`].
///
/// ```
/// use http::{HeaderName, Request};
/// use ratekeeper::tower::{ByHeader, KeyOr, KeySource, by_header};
///
/// let header = |name| by_header(HeaderName::from_static(name));
/// let key: KeyOr<ByHeader, ByHeader> = header("x-user").or(header("x-api-key"));
/// let request = Request::get("/").header("x-api-key", "k1").body(()).unwrap();
/// assert!(key.key((&request).into()).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct KeyOr<A, B>(A, B);

impl<A: KeySource, B: KeySource> KeySource for KeyOr<A, B> {
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
        match self.0.key(head) {
            Ok(key) => Ok(Either::First(key)),
            Err(_) => self.1.key(head).map(Either::Second),
        }
    }
}

/// The key of one of two sources. A mark before its bytes keeps them apart: a client that chooses
/// a header must not be counted as the address with those bytes.
enum Either<A, B> {
    First(A),
    Second(B),
}

impl<A: LimitKey, B: LimitKey> LimitKey for Either<A, B> {
    fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
        let mut bytes = SmallVec::<[u8; 64]>::new();
        match self {
            Self::First(key) => {
                bytes.push(1);
                bytes.extend_from_slice(key.key_bytes().as_ref());
            }
            Self::Second(key) => {
                bytes.push(2);
                bytes.extend_from_slice(key.key_bytes().as_ref());
            }
        }
        bytes
    }
}

/// One source, or one count for all requests without its key; made by [`KeySource::or_shared`].
///
/// ```
/// use http::{HeaderName, Request};
/// use ratekeeper::tower::{ByHeader, KeyOrShared, KeySource, NoKey, by_header};
///
/// let by_token = by_header(HeaderName::from_static("x-api-key"));
/// let key: KeyOrShared<ByHeader> = by_token.or_shared();
/// let request = Request::new(());
/// assert_eq!(key.key((&request).into()).err(), Some(NoKey::Shared));
/// ```
#[derive(Clone, Debug)]
pub struct KeyOrShared<A>(A);

impl<A: KeySource> KeySource for KeyOrShared<A> {
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
        self.0.key(head).map_err(|_| NoKey::Shared)
    }
}
