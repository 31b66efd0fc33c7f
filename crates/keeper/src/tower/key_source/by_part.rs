//! By part: keys that are in the request itself, or that an outer layer has left there.

use std::any::type_name;
use std::fmt;

use http::HeaderName;
use ratekeeper_policy::normal_path;

use super::KeySource;
use super::no_key::NoKey;
use crate::LimitKey;
use crate::tower::head::RequestHead;

/// A header field as a key; made by [`by_header`].
///
/// ```
/// use http::HeaderName;
/// use ratekeeper::tower::{ByHeader, by_header};
/// const TOKEN: ByHeader = by_header(HeaderName::from_static("x-api-key"));
/// assert_eq!(TOKEN, by_header(HeaderName::from_static("x-api-key")));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByHeader(HeaderName);

/// Counts by the value of a header field, kept as it is. A request without it, with an empty one, or
/// with two different ones, of which the service may read either, is refused with 400.
///
/// ```
/// use http::{HeaderName, Request};
/// use ratekeeper::tower::{KeySource, by_header};
///
/// let key = by_header(HeaderName::from_static("x-api-key"));
/// let request = Request::builder().header("x-api-key", "k1").body(()).unwrap();
/// assert!(key.key((&request).into()).is_ok());
/// let request = Request::builder().header("x-api-key", "k1").header("x-api-key", "k2");
/// assert!(key.key((&request.body(()).unwrap()).into()).is_err());
/// ```
pub const fn by_header(name: HeaderName) -> ByHeader {
    ByHeader(name)
}

impl KeySource for ByHeader {
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
        let mut values = head.headers.get_all(&self.0).iter();
        let value = values.next().map(http::HeaderValue::as_bytes);
        let value = value
            .filter(|value| !value.is_empty() && values.all(|other| other.as_bytes() == *value));
        value.ok_or_else(|| NoKey::NotSent(format!("header `{}`", self.0).into()))
    }
}

/// The path as a key; made by [`by_path`].
///
/// ```
/// use ratekeeper::tower::{ByPath, by_path};
/// assert_eq!(by_path(), ByPath);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByPath;

/// Counts by the path, as the key `path` of a policy does: all spellings of one path are one key.
/// In a tuple, each client has a limit for each path.
///
/// ```
/// use http::Request;
/// use ratekeeper::LimitKey;
/// use ratekeeper::tower::{KeySource, by_path};
///
/// let request = Request::get("//%6cogin/?x=1").body(()).unwrap();
/// let key = by_path();
/// let key = key.key((&request).into()).unwrap();
/// assert_eq!(key.key_bytes().as_ref(), b"/login");
/// ```
pub const fn by_path() -> ByPath {
    ByPath
}

impl KeySource for ByPath {
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
        Ok(PathKey(head.uri.path()))
    }
}

/// A path; its key is the normal form.
struct PathKey<'a>(&'a str);

impl LimitKey for PathKey<'_> {
    fn key_bytes(&self) -> impl AsRef<[u8]> + Send {
        normal_path(self.0)
    }
}

/// A value in the extensions of the request as a key; made by [`by_extension`].
///
/// ```
/// use http::Request;
/// use ratekeeper::tower::{ByExtension, KeySource, by_extension};
///
/// #[derive(Clone)]
/// struct User(String);
///
/// let by_user: ByExtension<User, str> = by_extension(|user: &User| &*user.0);
/// let request = Request::new(());
/// assert!(by_user.key((&request).into()).is_err(), "no outer layer has put a user there");
/// ```
pub struct ByExtension<T, K: ?Sized>(fn(&T) -> &K);

/// Counts by a value of the extension `T`, which an outer layer has put there: a user, a claim. A
/// request without the extension is refused with 500; name the key of anonymous requests by
/// [`or`](KeySource::or).
///
/// ```
/// use http::Request;
/// use ratekeeper::tower::{KeySource, by_extension};
///
/// #[derive(Clone)]
/// struct Claims { subject: String }
///
/// let key = by_extension(|claims: &Claims| &*claims.subject);
/// let mut request = Request::new(());
/// request.extensions_mut().insert(Claims { subject: "ann".into() });
/// assert!(key.key((&request).into()).is_ok());
/// ```
pub fn by_extension<T, K>(value: fn(&T) -> &K) -> ByExtension<T, K>
where
    T: Send + Sync + 'static,
    K: LimitKey + ?Sized + 'static,
{
    ByExtension(value)
}

impl<T, K> KeySource for ByExtension<T, K>
where
    T: Send + Sync + 'static,
    K: LimitKey + ?Sized + 'static,
{
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
        head.extensions.get::<T>().map(self.0).ok_or_else(|| {
            let reason = format!(
                "no outer layer put `{}` into the extensions of the request; hint: add the layer \
                 that does so around this one (in axum, after it; in actix-web, show the extension by \
                 `with_extension`)",
                type_name::<T>()
            );
            NoKey::NotProvided(reason.into())
        })
    }
}

impl<T, K: ?Sized> Clone for ByExtension<T, K> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<T, K: ?Sized> fmt::Debug for ByExtension<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByExtension")
            .field(&type_name::<T>())
            .finish()
    }
}
