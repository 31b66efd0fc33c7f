//! Policy files: reads the files that a policy names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use ratekeeper_policy::config::PolicyFiles;

/// Reads the files that a policy names, relative to `home`, the directory of the policy: lists of
/// values (`"file:NAME"`), overrides and the databases of `[geo]`. A file that cannot be read
/// becomes an error of the policy when the policy is parsed.
///
/// ```
/// use ratekeeper::core::Time;
/// use ratekeeper::policy::config::{Context, parse_file};
/// use ratekeeper::read_policy_files;
///
/// let policy = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"1/1m\"\n\
///     match = { ip = \"file:no-such-list.txt\" }";
/// let files = read_policy_files(policy, ".".as_ref());
/// let errors = parse_file(policy, &files, Context::default(), Time::ZERO).unwrap_err();
/// assert!(errors[0].message.starts_with("cannot read the list `no-such-list.txt`: "));
/// ```
pub fn read_policy_files(policy: &str, home: &Path) -> PolicyFiles {
    PolicyFiles::read(policy, |name, most| {
        let bytes = read_start(&home.join(name), most as u64 + 1);
        bytes.map_err(|error| error.to_string())
    })
}

/// Reads at most so many bytes of a file.
pub(super) fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
