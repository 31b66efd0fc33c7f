//! Policy file: its permissions. A user that can write the policy decides on the limits.

use std::path::Path;

/// Permission of all users to write (`o+w`), as in the mode of a file.
#[cfg(unix)]
const OTHERS_WRITE: u32 = 0o002;

/// Returns a warning for a policy that every user of the machine may write; `None` for any
/// other policy, and for a path that is no regular file.
#[cfg(unix)]
pub fn writable_by_all(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(path).ok()?;
    let is_open = metadata.is_file() && metadata.permissions().mode() & OTHERS_WRITE != 0;
    let path = path.display();
    is_open.then(|| {
        format!(
            "RK-W102: every user of this machine may write {path}, and so change what is limited: \
             chmod o-w {path}"
        )
    })
}

/// Permissions are not read on this system.
#[cfg(not(unix))]
pub fn writable_by_all(_path: &Path) -> Option<String> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_policy_that_everybody_may_write_is_remarked_on() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("ratekeeper.toml");
        fs::write(&path, "version = 1\n").expect("it can be written");
        for (mode, remarked) in [(0o644, false), (0o664, false), (0o666, true), (0o602, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            assert_eq!(writable_by_all(&path).is_some(), remarked, "{mode:o}");
        }
        let text = writable_by_all(&path).unwrap_or_default();
        assert!(text.contains("chmod o-w"), "{text}");
        assert_eq!(writable_by_all(directory.path()), None);
        assert_eq!(writable_by_all(&directory.path().join("none")), None);
    }
}
