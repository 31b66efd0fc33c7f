//! Request: facts in the form that rules compare, each converted at most once.

use std::cell::OnceCell;
use std::net::IpAddr;

use crate::http::path::{Normal, Readings};
use crate::model::client::geo::AsnText;
use crate::{Asn, BodyField, BodyValue, Country, Facts, Geo, model::matching::pattern};

/// Facts in the forms that rules compare and count.
pub(crate) struct RequestFacts<'a> {
    pub(crate) facts: &'a Facts<'a>,
    /// IPv4-mapped IPv6 is IPv4.
    pub(crate) ip: Option<IpAddr>,
    readings: OnceCell<Readings<'a>>,
    host: OnceCell<Normal<'a>>,
    method: OnceCell<Normal<'a>>,
    geo: Option<&'a Geo>,
    /// Empty until the country is asked for.
    pub(crate) country: OnceCell<Country>,
    network: OnceCell<AsnText>,
}

impl<'a> RequestFacts<'a> {
    pub(crate) fn new(facts: &'a Facts<'a>) -> Self {
        Self {
            facts,
            ip: facts.ip.map(crate::http::network::address),
            readings: OnceCell::new(),
            host: OnceCell::new(),
            method: OnceCell::new(),
            geo: None,
            country: OnceCell::new(),
            network: OnceCell::new(),
        }
    }

    /// Sets the source of the country and the network, unless the facts have them.
    pub(crate) fn located_by(self, geo: Option<&'a Geo>) -> Self {
        Self { geo, ..self }
    }

    /// Returns the path as each kind of server reads it.
    pub(crate) fn readings(&self) -> &Readings<'a> {
        self.readings.get_or_init(|| Readings::of(self.facts.path))
    }

    /// Returns the host in lower case, without port and root dot; empty if unknown.
    pub(crate) fn host(&self) -> &[u8] {
        let normal = || {
            let host = pattern::without_port(self.facts.host.as_bytes());
            if host.iter().any(u8::is_ascii_uppercase) {
                Normal::Changed(host.iter().map(u8::to_ascii_lowercase).collect())
            } else {
                Normal::Borrowed(host)
            }
        };
        self.host.get_or_init(normal).as_bytes()
    }

    /// Returns the method in upper case; empty if unknown.
    pub(crate) fn method(&self) -> &[u8] {
        let normal = || {
            let method = self.facts.method.as_bytes();
            if method.iter().any(u8::is_ascii_lowercase) {
                Normal::Changed(method.iter().map(u8::to_ascii_uppercase).collect())
            } else {
                Normal::Borrowed(method)
            }
        };
        self.method.get_or_init(normal).as_bytes()
    }

    /// Returns true if an address was looked up.
    #[cfg(test)]
    pub(crate) fn is_located(&self) -> bool {
        self.country.get().is_some() || self.network.get().is_some()
    }

    /// Returns the country, looked up once.
    pub(crate) fn country(&self) -> Country {
        let found = || match (self.facts.country, self.geo) {
            (Some(known), _) => known,
            (None, Some(geo)) => geo.country(self.ip),
            (None, None) => Country::UNKNOWN,
        };
        *self.country.get_or_init(found)
    }

    /// Returns the number of the network as text, `AS3320`, looked up once.
    pub(crate) fn network(&self) -> &[u8] {
        let found = || match (self.facts.network, self.geo) {
            (Some(known), _) => known.text(),
            (None, Some(geo)) => geo.network(self.ip).text(),
            (None, None) => Asn::UNKNOWN.text(),
        };
        self.network.get_or_init(found)
    }

    /// Returns a claim of the request's verified token, unless empty.
    pub(crate) fn claim(&self, name: &str) -> Option<&'a str> {
        let claim = self.facts.claims?.claim(name);
        claim.filter(|value| !value.is_empty())
    }

    /// Returns the value of a field of the body: that of an attribute with its name, else of the
    /// body. A field of a form that the query names, too, is ambiguous.
    pub(crate) fn body(&self, field: &BodyField) -> BodyValue<&'a str> {
        if let Some(stated) = self.attribute(&field.text) {
            return BodyValue::Text(stated);
        }
        match self.facts.body.map(|body| body.value(field)) {
            Some(BodyValue::Text(text)) => {
                let mut read = BodyValue::Text(text);
                field.each_in_query(self.facts, |_| read = BodyValue::Ambiguous);
                read
            }
            read => read.unwrap_or(BodyValue::Absent),
        }
    }

    /// Returns the attribute of that name, unless empty.
    pub(crate) fn attribute(&self, name: &str) -> Option<&'a str> {
        self.facts.attribute(name).filter(|value| !value.is_empty())
    }
}
