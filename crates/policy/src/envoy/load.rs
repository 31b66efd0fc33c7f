//! Load: files to a configuration, with every error of every file.
//!
//! ```text
//!   file --yaml--> tables --read--> descriptors --> tree of its domain
//!                   |                  |
//!                   +--- findings -----+--> refused: all errors, file by file
//! ```
//!
//! A configuration is accepted whole or not at all.

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::Origin;

use super::grant::{grant, replaces};
use super::read::{CheckedTable, TablePlace};
use super::rule::LevelName;
use super::tree::{DescriptorLevel, TreeNode, WantedValue};
use super::yaml;
use super::{Domain, EnvoyConfig, EnvoyRule, EnvoySettings, RuleId};
use crate::config::{Diagnostic, Findings, Spot, Text, codes, error, sha, shown};

/// Maximum number of domains of a configuration.
const MAX_DOMAINS: usize = 1_000;

/// One file of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct File<'t> {
    /// Name of the file in findings.
    pub name: &'t str,
    /// Its text.
    pub text: &'t str,
}

/// The result of loading files.
#[derive(Clone, Debug)]
pub struct LoadedConfig {
    /// The configuration.
    pub config: EnvoyConfig,
    /// By file, as given: the configuration runs, but these deserve a look.
    pub warnings: Vec<Vec<Diagnostic>>,
}

/// Reads a configuration; `origin` is where the zero of the clock lies.
///
/// ```
/// use ratekeeper_core::Origin;
/// use ratekeeper_policy::envoy::{File, EnvoySettings, load};
///
/// let text = "
/// domain: shop
/// descriptors:
///   - key: user
///     rate_limit: { unit: minute, requests_per_unit: 5 }
/// ";
/// let file = File { name: "shop.yaml", text };
/// let loaded = load(&[file], EnvoySettings::default(), Origin::UNIX).unwrap();
/// assert_eq!(&*loaded.config.rules()[0].path, "shop.user");
///
/// let file = File { name: "shop.yaml", text: "domain: shop\ndescriptors: [{ kye: user }]\n" };
/// let errors = load(&[file], EnvoySettings::default(), Origin::UNIX).unwrap_err();
/// assert_eq!((errors[0][0].code, errors[0][0].line, errors[0][0].column), ("RK0103", 2, 17));
/// ```
///
/// # Errors
/// All findings of all files, by file as given, if any of them is an error.
pub fn load(
    files: &[File<'_>],
    settings: EnvoySettings,
    origin: Origin,
) -> Result<LoadedConfig, Vec<Vec<Diagnostic>>> {
    let mut loader = Loader {
        config: EnvoyConfig::new(settings, origin),
        owners: HashMap::new(),
    };
    let mut errors = false;
    let mut findings = Vec::with_capacity(files.len());
    for file in files {
        let out = Findings::new(file.text);
        loader.file(file, &out);
        errors |= out.has_errors();
        findings.push(out.finish());
    }
    if errors {
        return Err(findings);
    }
    for counter in loader.config.limits_mut() {
        counter.outage = settings.outage;
    }
    loader.config.sha = sha(files.iter().map(|file| file.text)).into();
    Ok(LoadedConfig {
        config: loader.config,
        warnings: findings,
    })
}

struct Loader {
    config: EnvoyConfig,
    /// The file that described each domain first.
    owners: HashMap<Box<str>, String>,
}

/// The way from the top of a domain to a descriptor.
#[derive(Clone, Debug)]
struct DescriptorPath {
    /// `domain.key_value.key`
    path: String,
    levels: Vec<LevelName>,
}

/// Descriptors of one level in this file, with their places.
type SeenDescriptors<'n> = HashMap<(&'n str, &'n str), Spot<'n>>;

impl Loader {
    fn file(&mut self, file: &File<'_>, out: &Findings<'_>) {
        let Some(node) = yaml::parse(file.text, out) else {
            return;
        };
        let Some(root) = CheckedTable::new(&node, TablePlace::File) else {
            return;
        };
        let domain = root.text("domain");
        if root.lacks("domain") {
            let at = root.place_of("domain");
            let message = "the file has no domain";
            let label = "no `domain` here";
            error(codes::ENVOY_NO_DOMAIN, at, message, label)
                .help("write domain: NAME, as in the rate limit filter of Envoy");
        }
        let (name, mut top) = match domain {
            Some(domain) => (domain.value, self.domain(domain, file.name)),
            None => ("", None),
        };
        let way = DescriptorPath {
            path: name.to_owned(),
            levels: Vec::new(),
        };
        let mut scratch = DescriptorLevel::default();
        let level = top.as_mut().map_or(&mut scratch, |domain| &mut domain.top);
        self.level(&root, &way, level);
        if let Some(domain) = top {
            self.config.domains.insert(name.into(), domain);
        }
    }

    /// Takes the domain of a file out, to be added to; `None` if the file may not add to it.
    fn domain(&mut self, name: Text<'_>, file: &str) -> Option<Domain> {
        if let Some(first) = self.owners.get(name.value)
            && !self.config.settings.merge_domains
        {
            let message = format!("the domain `{}` is described twice", shown(name.value));
            let label = format!("described in {} already", shown(first));
            error(codes::ENVOY_DOMAIN_TWICE, name.at, message, label)
                .help("put both into one file, or set merge_domains = true under [envoy]");
            return None;
        }
        self.owners
            .entry(name.value.into())
            .or_insert_with(|| file.to_owned());
        if self.owners.len() > MAX_DOMAINS {
            let message = format!("there are more than {MAX_DOMAINS} domains");
            let label = "one too many";
            error(codes::ENVOY_BOUNDS, name.at, message, label)
                .help("distinguish callers by the first key of their descriptors");
            return None;
        }
        let known = self.config.domains.remove(name.value);
        Some(known.unwrap_or_else(|| Domain::new(name.value, self.config.origin)))
    }

    /// Adds the descriptors of a table to a level.
    fn level(&mut self, of: &CheckedTable<'_>, way: &DescriptorPath, level: &mut DescriptorLevel) {
        let mut seen = SeenDescriptors::new();
        for table in of.tables("descriptors", TablePlace::Descriptor) {
            self.descriptor(&table, way, level, &mut seen);
        }
    }

    fn descriptor<'n>(
        &mut self,
        table: &CheckedTable<'n>,
        way: &DescriptorPath,
        level: &mut DescriptorLevel,
        seen: &mut SeenDescriptors<'n>,
    ) {
        let key = table.text("key");
        if table.lacks("key") {
            let at = table.place_of("key");
            let message = "a descriptor has no key";
            let label = "no `key` here";
            error(codes::ENVOY_NO_KEY, at, message, label)
                .help("write key: NAME, as in the descriptors of the calls");
        }
        let value = table.text("value");
        let [key_text, value_text] = [key, value].map(|it| it.map_or("", |it| it.value));
        let wanted = WantedValue::new(value_text);
        let way = way.down(table, key_text, wanted);
        let mut node = TreeNode {
            rule: self.rule(table, &way),
            below: DescriptorLevel::default(),
        };
        self.level(table, &way, &mut node.below);
        if key.is_none() {
            return;
        }
        let at = table.place_of("key");
        let first = seen.insert((key_text, value_text), at);
        if first.is_none() && level.add(key_text, wanted, node) {
            return;
        }
        let message = format!("the descriptor `{}` is defined twice", shown(&way.path));
        let label = match first {
            Some(_) => "the same key and value again",
            None => "another file of this domain defines it already",
        };
        let mut finding = error(codes::ENVOY_DESCRIPTOR_TWICE, at, message, label);
        finding.help("merge the two into one");
        if let Some(first) = first {
            finding.related(first);
        }
    }

    fn rule(&mut self, table: &CheckedTable<'_>, way: &DescriptorPath) -> Option<Arc<EnvoyRule>> {
        let shadow = table.flag("shadow_mode");
        let quota = table.flag("quota_mode");
        let detailed = table.flag("detailed_metric");
        let metadata = table.free("metadata");
        let limit = table.field("rate_limit")?;
        let limit = CheckedTable::new(limit, TablePlace::RateLimit)?;
        let grant = grant(&limit);
        let name = limit.text("name");
        let replaces = replaces(&limit, name);
        let levels = way.levels.iter().map(|level| match level {
            LevelName::Written(_) if detailed => LevelName::Requested,
            level => level.clone(),
        });
        let rule = Arc::new(EnvoyRule {
            id: RuleId(self.config.rules.len()),
            path: way.path.as_str().into(),
            limit: grant?,
            name: name.map(|name| name.value.into()),
            replaces,
            shadow,
            quota,
            metadata,
            levels: levels.collect(),
        });
        self.config.rules.push(Arc::clone(&rule));
        Some(rule)
    }
}

impl DescriptorPath {
    /// Returns the way to a descriptor one level further down.
    fn down(&self, table: &CheckedTable<'_>, key: &str, wanted: WantedValue<'_>) -> Self {
        let written = match wanted {
            WantedValue::Any => key.to_owned(),
            WantedValue::Exact(value) | WantedValue::Like(value) => format!("{key}_{value}"),
        };
        let is_shared = table.flag("share_threshold");
        if is_shared && !matches!(wanted, WantedValue::Like(_)) {
            let at = table.place_of("share_threshold");
            let message = "`share_threshold` without a wildcard shares nothing";
            error(codes::ENVOY_SHARE, at, message, "the value has no `*`")
                .help("write a value with a `*`, or leave share_threshold out");
        }
        let by_value = table.flag("value_to_metric");
        let mut down = self.clone();
        down.path.push('.');
        down.path.push_str(&written);
        let written = written.into();
        down.levels.push(match wanted {
            WantedValue::Exact(_) => LevelName::Fixed(written),
            WantedValue::Like(pattern) if is_shared => LevelName::Shared {
                written,
                pattern: pattern.into(),
            },
            _ if by_value => LevelName::Requested,
            _ => LevelName::Written(written),
        });
        down
    }
}
