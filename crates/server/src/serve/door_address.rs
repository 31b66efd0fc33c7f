//! Door address: a port, or the path of a Unix socket.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use ratekeeper_policy::PortUse;
use socket2::{Domain, SockAddr, Socket, Type};

/// Start of the address of a Unix socket: `unix:/run/ratekeeper.sock`.
pub(crate) const UNIX: &str = "unix:";

/// Where a listener listens. `Display` is the form of a policy: `127.0.0.1:8080`, `unix:/run/a.sock`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DoorAddress {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket. Its callers have no address of their own.
    Unix(PathBuf),
}

impl fmt::Display for DoorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

impl DoorAddress {
    /// Returns the address of the socket; `None` if it is neither a port nor a path.
    pub(crate) fn of(socket: &Socket) -> Option<Self> {
        let local = socket.local_addr().ok()?;
        let path = || local.as_pathname().map(|path| Self::Unix(path.into()));
        local.as_socket().map(Self::Tcp).or_else(path)
    }

    /// Returns the port's address; `None` for a Unix socket.
    pub(crate) const fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns true if only programs of this machine reach it.
    pub(crate) fn is_local(&self) -> bool {
        let tcp = self.tcp();
        tcp.is_none_or(|address| address.ip().to_canonical().is_loopback())
    }

    /// Opens it; port 0 takes a free one. The file of a socket that nothing listens at is replaced.
    pub(crate) fn bind(&self, port: PortUse) -> io::Result<Socket> {
        let path = match self {
            Self::Tcp(address) => return bind_port(*address, port),
            Self::Unix(path) => path,
        };
        // A connection to any other file is refused too, and that file is not ours to remove.
        let is_stale = || {
            let file = std::fs::symlink_metadata(path);
            let is_socket = file.is_ok_and(|file| file.file_type().is_socket());
            is_socket && is_refused(path)
        };
        let bound = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale() => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)
            }
            bound => bound,
        };
        Ok(bound?.into())
    }
}

/// Returns true if no process accepts at the socket; a queue that is full is not waited for.
fn is_refused(path: &Path) -> bool {
    let asked = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    });
    asked.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Maximum number of connections that wait to be accepted, as of the standard library.
const BACKLOG: i32 = 128;

fn bind_port(address: SocketAddr, port: PortUse) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?; // as the standard library does
    socket.set_reuse_port(port == PortUse::Shared)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// The address of callers at a Unix socket: `0.0.0.0`, which no caller over TCP has.
pub(crate) const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
