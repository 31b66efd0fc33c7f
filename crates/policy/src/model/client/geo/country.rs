//! Country: the two letters of ISO 3166-1, and the continent that they are in.
//!
//! ```text
//!   "NO" "no"       Norway, in EU
//!   "XK"            Kosovo: not assigned by ISO, used by every database
//!   "ZZ"            unknown: an address that no database has
//! ```

use std::fmt;

use crate::ValueError;

/// The countries of each continent: the codes that ISO 3166-1 assigns, and XK. Source: `GeoNames`
/// (`countryInfo.txt`), the source of the continents in `MaxMind`'s databases. Sorted, to be
/// searched, with a space behind each.
const CONTINENTS: [(&str, &str); 7] = [
    (
        "AF",
        "AO BF BI BJ BW CD CF CG CI CM CV DJ DZ EG EH ER ET GA GH GM GN GQ GW KE KM LR LS LY \
         MA MG ML MR MU MW MZ NA NE NG RE RW SC SD SH SL SN SO SS ST SZ TD TG TN TZ UG YT ZA \
         ZM ZW ",
    ),
    ("AN", "AQ BV GS HM TF "),
    (
        "AS",
        "AE AF AM AZ BD BH BN BT CC CN GE HK ID IL IN IO IQ IR JO JP KG KH KP KR KW KZ LA LB \
         LK MM MN MO MV MY NP OM PH PK PS QA SA SG SY TH TJ TM TR TW UZ VN YE ",
    ),
    (
        "EU",
        "AD AL AT AX BA BE BG BY CH CY CZ DE DK EE ES FI FO FR GB GG GI GR HR HU IE IM IS IT \
         JE LI LT LU LV MC MD ME MK MT NL NO PL PT RO RS RU SE SI SJ SK SM UA VA XK ",
    ),
    (
        "NA",
        "AG AI AW BB BL BM BQ BS BZ CA CR CU CW DM DO GD GL GP GT HN HT JM KN KY LC MF MQ MS \
         MX NI PA PM PR SV SX TC TT US VC VG VI ",
    ),
    (
        "OC",
        "AS AU CK CX FJ FM GU KI MH MP NC NF NR NU NZ PF PG PN PW SB TK TL TO TV UM VU WF WS ",
    ),
    ("SA", "AR BO BR CL CO EC FK GF GY PE PY SR UY VE "),
];

/// Codes that people try, and what to write instead.
const MISTAKEN: [(&str, &str); 12] = [
    ("UK", "write \"GB\", the code of the United Kingdom"),
    ("EL", "write \"GR\", the code of Greece"),
    ("EN", "write \"GB\": EN is a language"),
    ("JA", "write \"JP\": JA is a language"),
    ("SU", "write the countries of today, such as \"RU\""),
    ("YU", "write the countries of today, such as \"RS\""),
    (
        "EU",
        "match the continent instead: continent = \"EU\"; for the Union, list its members",
    ),
    ("XX", "write \"ZZ\" for unknown addresses"),
    ("T1", "Tor is no country: its exits are unknown, \"ZZ\""),
    ("USA", "write \"US\""),
    ("GBR", "write \"GB\""),
    ("GER", "write \"DE\""),
];

/// A country: a code that ISO 3166-1 assigns, XK for Kosovo, or unknown.
///
/// ```
/// use ratekeeper_policy::Country;
/// let norway = Country::parse("no").unwrap();
/// assert_eq!((norway.code(), norway.continent()), ("NO", "EU"));
/// assert_eq!(Country::UNKNOWN.code(), "ZZ");
/// let error = Country::parse("UK").unwrap_err();
/// assert_eq!(error.help, "write \"GB\", the code of the United Kingdom");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Country {
    code: &'static str,
    continent: &'static str,
}

impl Country {
    /// The country of an address that no database has, on the continent `ZZ`.
    pub const UNKNOWN: Self = Self {
        code: "ZZ",
        continent: "ZZ",
    };

    /// Returns the country with that code, in upper or lower case, or [`UNKNOWN`](Self::UNKNOWN)
    /// for `ZZ`.
    ///
    /// # Errors
    /// If there is no such country.
    pub fn parse(code: &str) -> Result<Self, ValueError> {
        let upper = code.to_ascii_uppercase();
        if upper == Self::UNKNOWN.code {
            return Ok(Self::UNKNOWN);
        }
        Self::assigned(upper.as_bytes()).ok_or_else(|| mistaken(code, &upper))
    }

    /// Returns the country with that code, in upper case.
    pub(crate) fn assigned(code: &[u8]) -> Option<Self> {
        CONTINENTS.iter().find_map(|(continent, codes)| {
            let (known, _) = codes.as_bytes().as_chunks::<3>();
            let at = known.binary_search_by(|known| known[..2].cmp(code)).ok()?;
            let code = codes.get(3 * at..3 * at + 2)?;
            Some(Self { code, continent })
        })
    }

    /// Returns the two letters, in upper case.
    pub const fn code(self) -> &'static str {
        self.code
    }

    /// Returns the continent: AF, AN, AS, EU, NA, OC or SA; ZZ if the country is unknown.
    pub const fn continent(self) -> &'static str {
        self.continent
    }
}

/// Returns the code of a continent, in upper case.
///
/// # Errors
/// If there is no such continent.
pub(crate) fn parse_continent(code: &str) -> Result<&'static str, ValueError> {
    let upper = code.to_ascii_uppercase();
    let mut known = CONTINENTS.iter().map(|(continent, _)| *continent);
    let known = known.find(|continent| *continent == upper);
    let known = known.or((upper == Country::UNKNOWN.code).then_some(Country::UNKNOWN.continent));
    known.ok_or_else(|| {
        let help = match Country::assigned(upper.as_bytes()) {
            Some(country) => format!("match the country instead: country = \"{}\"", country.code),
            None => "write AF, AN (Antarctica), AS, EU, NA, OC or SA, or ZZ for unknown".to_owned(),
        };
        ValueError::new(format!("`{code}` is not the code of a continent"), help)
    })
}

fn mistaken(code: &str, upper: &str) -> ValueError {
    let hint = MISTAKEN.iter().find(|(tried, _)| *tried == upper);
    let help = hint.map_or(
        "write the two letters of ISO 3166-1, such as \"NO\", or \"ZZ\" for unknown",
        |(_, instead)| *instead,
    );
    ValueError::new(format!("`{code}` is not the code of a country"), help)
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_assigned_code_is_on_one_continent() {
        let codes = CONTINENTS
            .iter()
            .flat_map(|(_, codes)| codes.split_terminator(' '));
        let codes: Vec<_> = codes.collect();
        // ISO 3166-1 assigns 249 codes; XK is the one more.
        assert_eq!(codes.len(), 250);
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), 250);
        let is_code = |code: &&str| code.len() == 2 && code.bytes().all(|b| b.is_ascii_uppercase());
        assert!(codes.iter().all(is_code));
        for (tried, _) in MISTAKEN {
            assert!(!codes.contains(&tried), "{tried}");
        }
        for (continent, codes) in CONTINENTS {
            for code in codes.split_terminator(' ') {
                let found = Country::parse(code).unwrap();
                assert_eq!((found.code(), found.continent()), (code, continent));
            }
        }
    }

    #[test]
    fn wrong_codes_are_refused_with_the_right_one() {
        for (code, help) in [
            ("UK", "\"GB\""),
            ("uk", "\"GB\""),
            ("EU", "continent = \"EU\""),
            ("XX", "\"ZZ\""),
            ("T1", "Tor"),
            ("NOR", "two letters"),
            ("N", "two letters"),
            ("*", "two letters"),
            ("N\u{d8}", "two letters"),
        ] {
            let error = Country::parse(code).unwrap_err();
            assert!(error.help.contains(help), "{code}: {}", error.help);
        }
        for (code, help) in [("NO", "country = \"NO\""), ("XX", "AF"), ("Europe", "AF")] {
            let error = parse_continent(code).unwrap_err();
            assert!(error.help.contains(help), "{code}: {}", error.help);
        }
        assert_eq!(parse_continent("eu").unwrap(), "EU");
    }
}
