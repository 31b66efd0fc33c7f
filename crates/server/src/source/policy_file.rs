//! Policy file: its permissions. A user that can write the policy decides on the limits.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Permission of all users to write (`o+w`), as in the mode of a file.
const OTHERS_WRITE: u32 = 0o002;

/// Returns a warning for a policy that every user of the machine may write; `None` for any
/// other policy, and for a path that is no regular file.
pub fn writable_by_all(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let is_open = metadata.is_file() && metadata.permissions().mode() & OTHERS_WRITE != 0;
    let path = path.display();
    is_open.then(|| {
        format!(
            "RK-W102: every user of this machine may write {path}, and so change the limits; run \
             chmod o-w {path}"
        )
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_policy_that_every_user_may_write_is_reported() {
        let directory = tempfile::tempdir().expect("a temporary directory can be created");
        let path = directory.path().join("ratekeeper.toml");
        fs::write(&path, "version = 1\n").expect("the file can be written");
        for (mode, reported) in [(0o644, false), (0o664, false), (0o666, true), (0o602, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
                .expect("the file belongs to this user");
            assert_eq!(writable_by_all(&path).is_some(), reported, "{mode:o}");
        }
        let text = writable_by_all(&path).unwrap_or_default();
        assert!(text.contains("chmod o-w"), "{text}");
        assert_eq!(writable_by_all(directory.path()), None);
        assert_eq!(writable_by_all(&directory.path().join("none")), None);
    }
}
