//! Areas: requests that one place of a proxy serves, and the limits in force there.
//!
//! ```text
//!   nginx:  location /        general          [[limit]]  general
//!           location /login   login            [[limit]]  login    match path /login
//!                                              [[exempt]] general  match path /login
//! ```
//!
//! There a request is served by one place, with its limits; here all limits that match apply. So
//! a limit matches the places that have it, and the places within them that do not have it are
//! exempt.

use super::limits::{ImportedLimit, Matches, Writer};

/// Maximum number of areas, and of limits, of a file.
pub(super) const MAX_AREAS: usize = 500;
/// Maximum number of exemptions that a policy may have.
const MAX_EXEMPTIONS: usize = 100;

/// A place of a proxy that serves requests.
#[derive(Clone, Debug)]
pub(super) struct Area {
    /// `location /login`.
    pub(super) called: String,
    pub(super) shape: AreaShape,
    /// Number of its server.
    pub(super) server: usize,
    /// Host names of its server; `*` stands for any name.
    pub(super) names: Vec<String>,
    /// True if the first name of its server is empty, or if it has none: nginx's `$server_name`.
    pub(super) is_nameless: bool,
    /// If two areas of one server share requests, the one with the higher rank serves them.
    pub(super) rank: usize,
    /// Indexes of its limits.
    pub(super) limits: Vec<usize>,
}

impl Area {
    /// Returns true if it serves requests that the other would serve without it: nginx takes the
    /// exact name, and then the longest wildcard, before it looks at paths.
    pub(super) fn takes_from(&self, other: &Self) -> bool {
        if self.server == other.server {
            return self.rank > other.rank;
        }
        let is_above = |own: &String| {
            let has_it = |name: &String| name.eq_ignore_ascii_case(own);
            other.names.iter().any(|name| covers(name, own)) && !other.names.iter().any(has_it)
        };
        self.names.iter().any(is_above)
    }
}

/// The requests of an area. An empty list stands for any value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct AreaShape {
    pub(super) hosts: Vec<String>,
    pub(super) paths: Vec<PathRange>,
    /// Compared with those of other areas, but not written: a policy does not tell them apart.
    pub(super) ports: Vec<String>,
}

/// Paths of an area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PathRange {
    Exact(String),
    /// All paths that begin with the text.
    Prefix(String),
}

impl PathRange {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) => text,
        }
    }

    /// Returns true for the prefix of all paths.
    pub(super) fn is_any(&self) -> bool {
        matches!(self, Self::Prefix(text) if text.is_empty() || text == "/")
    }

    /// Returns true if a native pattern can express the text: it has no character of patterns.
    pub(super) fn is_plain(text: &str) -> bool {
        let odd = |c: char| c.is_control() || c.is_whitespace() || "*{};?#%\\".contains(c);
        text.starts_with('/') && !text.contains("//") && !text.contains(odd)
    }

    fn pattern(&self) -> String {
        match self {
            Self::Exact(text) => text.clone(),
            Self::Prefix(text) => match text.strip_suffix('/') {
                Some(whole) => format!("{whole}/**"),
                None => format!("{text}*/**"),
            },
        }
    }

    /// Returns true if a path is one of them.
    fn holds(&self, path: &str) -> bool {
        match self {
            Self::Exact(text) => path == text,
            Self::Prefix(text) => path.starts_with(text),
        }
    }

    fn meets(&self, other: &Self) -> bool {
        self.holds(other.text()) || other.holds(self.text())
    }
}

impl AreaShape {
    pub(super) fn matches(&self) -> Matches {
        let paths: Vec<_> = self.paths.iter().map(PathRange::pattern).collect();
        let own = [("host", self.hosts.clone()), ("path", paths)];
        let own = own.into_iter().filter(|(_, values)| !values.is_empty());
        own.map(|(field, values)| (field.to_owned(), values))
            .collect()
    }

    /// Returns true if a request may be in both.
    fn meets(&self, other: &Self) -> bool {
        self.looks_as(other) && self.ports.iter().any(|port| other.ports.contains(port))
    }

    /// Returns true if requests of both may look the same to a policy, at whatever ports.
    pub(super) fn looks_as(&self, other: &Self) -> bool {
        let same = |a: &String, b: &String| a.eq_ignore_ascii_case(b);
        meet(&self.hosts, &other.hosts, |a, b| {
            same(a, b) || covers(a, b) || covers(b, a)
        }) && meet(&self.paths, &other.paths, PathRange::meets)
    }

    /// Returns true if every request of this shape is surely in the other.
    fn is_within(&self, other: &Self) -> bool {
        fn within<T: PartialEq>(own: &[T], other: &[T]) -> bool {
            other.is_empty() || own == other
        }
        within(&self.hosts, &other.hosts) && within(&self.paths, &other.paths)
    }
}

fn meet<T>(own: &[T], others: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    let any = own.is_empty() || others.is_empty();
    any || own.iter().any(|a| others.iter().any(|b| same(a, b)))
}

/// Returns true if the wildcard `*.example.com` covers a host, or a longer wildcard.
fn covers(wildcard: &str, host: &str) -> bool {
    let end = wildcard.strip_prefix('*');
    end.is_some_and(|end| {
        host.to_ascii_lowercase()
            .ends_with(&end.to_ascii_lowercase())
    })
}

/// Writes the limits of areas, and exempts the areas that do not have them.
pub(super) fn write(areas: &[Area], limits: &[ImportedLimit], writer: &mut Writer) {
    if areas.len() > MAX_AREAS || limits.len() > MAX_AREAS {
        let line = format!(
            "not imported: the limits of more than {MAX_AREAS} places, or more limits than that; \
             a part of them would leave the other places without a limit, so import a file with fewer"
        );
        writer.unsupported(&line);
        return;
    }
    let rows = areas.iter();
    let meets = |a: &Area| areas.iter().map(|b| a.shape.meets(&b.shape)).collect();
    let meeting: Vec<Vec<bool>> = rows.map(meets).collect();
    let mut exempt: Vec<Vec<String>> = vec![Vec::new(); areas.len()];
    for (index, limit) in limits.iter().enumerate() {
        let members: Vec<usize> = (0..areas.len())
            .filter(|area| areas[*area].limits.contains(&index))
            .collect();
        let shapes = members.iter().map(|area| areas[*area].shape.clone());
        let groups = united(shapes.collect());
        let mut limit = limit.clone();
        let counted = std::mem::take(&mut limit.matches);
        if groups.len() > 1 {
            limit.lost.push(format!(
                "one set of counters is now {}, one for each of its places",
                groups.len()
            ));
        }
        let mut names = Vec::new();
        for shape in groups {
            limit.matches = shape.matches();
            limit.matches.extend(counted.iter().cloned());
            names.extend(writer.limit(&limit));
            limit.lost.clear();
        }
        if names.is_empty() {
            continue;
        }
        for other in 0..areas.len() {
            let serves = |before: usize, after: usize| {
                meeting[before][after] && areas[after].takes_from(&areas[before])
            };
            let is_outside = !members.contains(&other);
            if !is_outside || !members.iter().any(|member| serves(*member, other)) {
                continue;
            }
            let shape = &areas[other].shape;
            let arrives_elsewhere = |member: &usize| {
                let own = &areas[*member].shape;
                own.looks_as(shape) && !own.ports.iter().all(|port| shape.ports.contains(port))
            };
            let is_hidden =
                |member: &usize| serves(*member, other) && areas[*member].shape.is_within(shape);
            let inner = members.iter().find(|member| serves(other, **member));
            let why = if let Some(inner) = inner {
                format!(", because {} within it has the limit", areas[*inner].called)
            } else if members.iter().any(is_hidden) {
                ": without them it would never apply".to_owned()
            } else if members.iter().any(arrives_elsewhere) {
                ": they arrive at some of its ports only".to_owned()
            } else {
                exempt[other].extend(names.iter().cloned());
                continue;
            };
            writer.unsupported(&format!(
                "{}: also counts requests of {}{why}",
                limit.called, areas[other].called
            ));
        }
    }
    write_exemptions(areas, exempt, writer);
}

fn write_exemptions(areas: &[Area], exempt: Vec<Vec<String>>, writer: &mut Writer) {
    let mut merged: Vec<(Vec<String>, AreaShape, String)> = Vec::new();
    for (area, names) in areas.iter().zip(exempt) {
        if names.is_empty() {
            continue;
        }
        let same = |(known, shape, _): &&mut (Vec<String>, AreaShape, String)| {
            *known == names && differ_by_paths(shape, &area.shape)
        };
        match merged.iter_mut().find(same) {
            Some((_, shape, called)) => {
                shape.paths.extend(area.shape.paths.iter().cloned());
                *called = format!("{called}, {}", area.called);
            }
            None => merged.push((names, area.shape.clone(), area.called.clone())),
        }
    }
    for (number, (names, shape, called)) in merged.iter().enumerate() {
        if number >= MAX_EXEMPTIONS {
            let names = names.join(", ");
            writer.unsupported(&format!(
                "{names}: also counts requests of {called}: a policy has {MAX_EXEMPTIONS} exemptions"
            ));
            continue;
        }
        writer.exempt(names, &shape.matches(), called);
    }
}

fn differ_by_paths(a: &AreaShape, b: &AreaShape) -> bool {
    a.hosts == b.hosts && !a.paths.is_empty() && !b.paths.is_empty()
}

/// Returns as few shapes as possible for the same requests.
fn united(shapes: Vec<AreaShape>) -> Vec<AreaShape> {
    let by_paths = merged(shapes, |a, b| a.hosts == b.hosts, |shape| &mut shape.paths);
    let by_hosts = merged(
        by_paths,
        |a, b| a.paths == b.paths,
        |shape| &mut shape.hosts,
    );
    let mut kept: Vec<AreaShape> = Vec::new();
    for shape in by_hosts {
        if kept.iter().any(|known| shape.is_within(known)) {
            continue;
        }
        kept.retain(|known| !known.is_within(&shape));
        kept.push(shape);
    }
    kept
}

/// Joins shapes that are the same but for one field.
fn merged<T: Clone + PartialEq>(
    shapes: Vec<AreaShape>,
    same: impl Fn(&AreaShape, &AreaShape) -> bool,
    field: impl Fn(&mut AreaShape) -> &mut Vec<T>,
) -> Vec<AreaShape> {
    let mut kept: Vec<AreaShape> = Vec::new();
    for mut shape in shapes {
        let Some(known) = kept.iter_mut().find(|known| same(known, &shape)) else {
            kept.push(shape);
            continue;
        };
        let added = std::mem::take(field(&mut shape));
        let values = field(known);
        // An empty list is any value already.
        if added.is_empty() {
            values.clear();
        } else if !values.is_empty() {
            for value in added {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
        }
    }
    kept
}
