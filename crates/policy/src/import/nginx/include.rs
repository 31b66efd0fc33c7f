//! Include: the files of `nginx -T`, each in place of the `include` that names it.
//!
//! ```text
//!   # configuration file /etc/nginx/nginx.conf:
//!   http { include conf.d/*.conf; }                    http { limit_req_status 429; }
//!   # configuration file /etc/nginx/conf.d/a.conf:
//!   limit_req_status 429;
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::directive::{Directive, flat};
use crate::import::limits::Writer;
use crate::model::matching::glob::Glob;

/// Beginning of the line before each file, which ends with its path and a colon.
const MARK: &str = "# configuration file ";
/// Maximum depth of includes and blocks within one another.
const MAX_DEPTH: usize = 32;
/// Maximum number of directives that are included, each time that they are.
const MAX_INCLUDED: usize = 1 << 17;

/// The files of a text, by path: nginx reads those of one `include` in this order.
struct NginxFiles<'t> {
    files: BTreeMap<&'t str, Vec<Directive>>,
    unread: BTreeSet<&'t str>,
    /// Beginning of relative paths.
    folder: &'t str,
    /// Number of directives that may still be included.
    left: usize,
}

/// Returns the directives of the first file with the files that it includes, and lists the files
/// that it does not include. An `include` of other files remains.
pub(super) fn joined(text: &str, all: Vec<Directive>, writer: &mut Writer) -> Vec<Directive> {
    let marks = (1..).zip(text.lines().map(marked));
    let marks = marks.filter_map(|(line, path)| Some((line, path?)));
    let marks: Vec<(usize, &str)> = marks.collect();
    let Some((_, main)) = marks.first() else {
        return all;
    };
    let paths = marks.iter().map(|(_, path)| *path);
    let mut files = NginxFiles {
        files: paths.clone().map(|path| (path, Vec::new())).collect(),
        unread: paths.skip(1).collect(),
        folder: main.rfind('/').map_or("", |end| &main[..=end]),
        left: MAX_INCLUDED,
    };
    for directive in all {
        let next = marks.partition_point(|(line, _)| *line < directive.line);
        let (_, path) = marks[next.saturating_sub(1)];
        files.files.entry(path).or_default().push(directive);
    }
    let main = files.files.remove(main).unwrap_or_default();
    let all = files.included(main, 0);
    for path in files.unread {
        let why = "not imported: no `include` of the text names this file";
        writer.unsupported(&format!("{path}: {why}"));
    }
    all
}

/// Returns the path of a line before a file; `None` for other lines.
fn marked(line: &str) -> Option<&str> {
    let path = line.strip_prefix(MARK)?.strip_suffix(':')?;
    Some(path).filter(|path| path.contains('/') && !path.contains(' '))
}

impl NginxFiles<'_> {
    /// Returns directives with the files that they include.
    fn included(&mut self, directives: Vec<Directive>, depth: usize) -> Vec<Directive> {
        let mut all = Vec::new();
        for mut directive in directives {
            let is_include = directive.name == "include" && depth < MAX_DEPTH;
            if let Some(inner) = is_include.then(|| self.named_by(&directive)).flatten() {
                all.extend(self.included(inner, depth + 1));
                continue;
            }
            let block = directive.block.take();
            directive.block = block.map(|block| self.included(block, depth + 1));
            all.push(directive);
        }
        all
    }

    /// Returns the directives of the files that an `include` names; `None` if they are not known.
    fn named_by(&mut self, include: &Directive) -> Option<Vec<Directive>> {
        let name = include.words.first()?;
        if name.contains(['?', '[', '\\']) {
            return None;
        }
        let folder = if name.starts_with('/') {
            ""
        } else {
            self.folder
        };
        let pattern = format!("{folder}{name}");
        let glob = Glob::new(pattern.as_bytes());
        // With as many slashes, no `*` is a part with one.
        let slashes = |text: &str| text.matches('/').count();
        let is_named =
            |path: &&str| slashes(path) == slashes(&pattern) && glob.matches(path.as_bytes());
        let paths = self.files.keys().copied();
        let found: Vec<&str> = paths.filter(is_named).collect();
        // nginx accepts a pattern without files.
        if found.is_empty() && !name.contains('*') {
            return None;
        }
        self.unread.retain(|path| !found.contains(path));
        let files = found.iter().flat_map(|path| self.files[path].clone());
        let directives: Vec<Directive> = files.collect();
        self.left = self.left.checked_sub(flat(&directives).len())?;
        Some(directives)
    }
}
