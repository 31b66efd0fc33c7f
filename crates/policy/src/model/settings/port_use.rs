//! Port use: how many processes may listen at a port.

/// Processes that may listen at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PortUse {
    /// One.
    #[default]
    Alone,
    /// All that say the same, of one user: the system gives each connection to one of them.
    Shared,
}
