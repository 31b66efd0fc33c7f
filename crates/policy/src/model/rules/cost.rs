//! Cost: the number of permits that a request takes under a rule.

use ratekeeper_core::Permits;

use crate::{BodyField, BodyValue, Facts, Matcher, RequestFacts, Unit};

/// Cost of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The cost in the facts, 1 if there is none. The default.
    Request,
    /// Always the same, whatever the caller sets; nothing for a descriptor that only looks.
    Fixed(Permits),
    /// The value of an attribute; 1 if it is missing or no whole number. With a unit, a decimal
    /// number, in the smallest part of the unit: rounded up if it has more decimals; one whole of
    /// the unit if it is missing or no number.
    Attribute(String, Option<Unit>),
    /// The value of the body, a decimal number, rounded up. An absent one and 0 are 1, because the
    /// client writes the body, and would pass a spent limit by a 0.
    Body(BodyField, Option<Unit>),
    /// The highest of the prices whose requests it is one of, whatever the caller sets.
    Priced(PriceList),
}

/// Prices of some requests, the highest first, and the price of all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriceList {
    /// Prices above the usual one.
    pub higher: Vec<Price>,
    /// Cost of a request that none of the prices is for.
    pub usual: Permits,
}

/// The price of some requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    /// The requests. Where servers disagree about one, it has the price.
    pub matcher: Matcher,
    /// Cost of each.
    pub is: Permits,
}

impl Cost {
    /// Returns the cost of a request that none of the prices is for, with the cost that its caller
    /// states, if it does.
    pub fn usual(&self, stated: Option<Permits>) -> Permits {
        let unstated = match self {
            Self::Fixed(cost) => return *cost,
            Self::Priced(prices) => prices.usual,
            Self::Attribute(_, unit) | Self::Body(_, unit) => one(unit.as_ref()),
            Self::Request => Permits::ONE,
        };
        stated.unwrap_or(unstated)
    }

    /// Returns the lowest cost of a request, except one that looks; 1 if its caller states it.
    pub fn least(&self) -> Permits {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Priced(prices) => prices.usual,
            Self::Request | Self::Attribute(..) | Self::Body(..) => Permits::ONE,
        }
    }

    /// Returns the highest cost that the policy itself states.
    pub(crate) fn highest(&self) -> Option<Permits> {
        match self {
            Self::Fixed(cost) => Some(*cost),
            Self::Priced(prices) => Some(prices.higher.first().map_or(prices.usual, |it| it.is)),
            Self::Request | Self::Attribute(..) | Self::Body(..) => None,
        }
    }

    /// Returns the prices of some requests; empty if all are priced alike.
    pub fn prices(&self) -> &[Price] {
        match self {
            Self::Priced(prices) => &prices.higher,
            _ => &[],
        }
    }

    /// Returns the cost of a request; `None` if its body states two, or one that an application
    /// may read as any number.
    pub(crate) fn of(&self, request: &RequestFacts<'_>) -> Option<Permits> {
        let facts = request.facts;
        Some(match self {
            Self::Request => facts.cost.unwrap_or(Permits::ONE),
            Self::Fixed(_) | Self::Priced(_) if looks(facts) => Permits::ZERO,
            Self::Fixed(cost) => *cost,
            Self::Priced(prices) => {
                let mut higher = prices.higher.iter();
                let price = higher.find(|price| price.matcher.holds(request));
                price.map_or(prices.usual, |price| price.is)
            }
            Self::Attribute(name, unit) => {
                let stated = facts.attribute(name);
                let cost = stated.and_then(|text| amount(text, unit.as_ref()));
                cost.unwrap_or(one(unit.as_ref()))
            }
            Self::Body(field, unit) => return of_body(field, unit.as_ref(), request),
        })
    }
}

/// Returns the largest cost that a body states, or, for a field of a form that is not in the body,
/// the query; `None` if it states two, or no number.
fn of_body(field: &BodyField, unit: Option<&Unit>, request: &RequestFacts<'_>) -> Option<Permits> {
    let whole = Unit::new("", 0);
    let unit = unit.unwrap_or(&whole);
    let read = |text: &str| match unit.permits(text) {
        Some(Permits::ZERO) => Some(unit.one()),
        None if text.is_empty() => Some(unit.one()),
        cost => cost,
    };
    match request.body(field) {
        BodyValue::Text(text) => read(text),
        BodyValue::Other | BodyValue::Ambiguous => None,
        BodyValue::Absent => {
            let mut largest = Some(unit.one());
            field.each_in_query(request.facts, |value| {
                let cost = std::str::from_utf8(value.strict).ok().and_then(read);
                largest = largest.zip(cost).map(|(a, b)| a.max(b));
            });
            largest
        }
    }
}

/// Returns true for a descriptor with a cost of 0, which is charged nothing under any rule.
fn looks(facts: &Facts<'_>) -> bool {
    facts.descriptor.is_some() && facts.cost == Some(Permits::ZERO)
}

/// Returns one whole of a unit; one permit without a unit.
fn one(unit: Option<&Unit>) -> Permits {
    unit.map_or(Permits::ONE, Unit::one)
}

/// Returns the permits of a text: a whole number, or a decimal number of the unit, rounded up;
/// `None` if it is neither. A number beyond the countable range counts as its end.
pub(crate) fn amount(text: &str, unit: Option<&Unit>) -> Option<Permits> {
    if let Some(unit) = unit {
        return unit.permits(text);
    }
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().map_or(Permits::MAX, Permits::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_request_has_the_usual_cost() {
        let usd = || Unit::new("USD", 2);
        let field = || BodyField::parse("json:/amount").unwrap();
        let priced = PriceList {
            higher: Vec::new(),
            usual: Permits::new(5),
        };
        for (cost, unstated, stated) in [
            (Cost::Request, 1, 7),
            (Cost::Fixed(Permits::new(3)), 3, 3),
            (Cost::Priced(priced), 5, 7),
            (Cost::Attribute("n".into(), None), 1, 7),
            (Cost::Attribute("n".into(), Some(usd())), 100, 7),
            (Cost::Body(field(), None), 1, 7),
            (Cost::Body(field(), Some(usd())), 100, 7),
        ] {
            assert_eq!(cost.usual(None).get(), unstated, "{cost:?}");
            assert_eq!(cost.usual(Some(Permits::new(7))).get(), stated, "{cost:?}");
        }
    }

    #[test]
    fn attributes_that_are_whole_numbers_are_costs() {
        let cost = Cost::Attribute("n".into(), None);
        for (text, expected) in [
            ("0", 0),
            ("7", 7),
            ("007", 7),
            ("4294967296", 1 << 32),
            ("9007199254740991", Permits::MAX.get() - 1),
            ("9007199254740993", u64::MAX),
            ("99999999999999999999999999", u64::MAX),
            ("", 1),
            ("-1", 1),
            ("+1", 1),
            ("1.5", 1),
            ("1e3", 1),
            (" 7", 1),
            ("seven", 1),
        ] {
            let facts = Facts {
                attributes: &[("n", text)],
                cost: Some(Permits::new(9)),
                ..Facts::default()
            };
            let cost = cost.of(&RequestFacts::new(&facts));
            assert_eq!(cost, Some(Permits::new(expected)), "{text:?}");
        }
        let none = Facts::default();
        assert_eq!(cost.of(&RequestFacts::new(&none)), Some(Permits::ONE));
    }
}
