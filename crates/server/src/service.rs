//! Service: opens the doors, runs until told to stop, and leaves nothing half done.
//!
//! ```text
//!   start: policy -> keeper -> doors open -> ready
//!   stop:  not ready -> http accepts no more -> in flight finish (10 s) -> admin closes
//! ```

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ratekeeper::{Clock, Keeper, SystemClock};
use ratekeeper_policy::Listen as ListenSettings;
use ratekeeper_store::{MemoryConfig, MemoryStore};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::admin::AdminDoor;
use crate::config::{DEFAULT_ADMIN, DEFAULT_HTTP};
use crate::doors::HttpDoor;
use crate::envoy_files::Source;
use crate::listener::{accept, bind};
use crate::reload;
use crate::shared::{Shared, Token};
use crate::watch::Watcher;
use crate::workers::Workers;
use crate::{Config, Door, Event, Listen, StartError, Trigger};

/// Connections at the http door; further ones wait in the kernel's queue.
const MAX_HTTP_CONNECTIONS: u32 = 10_000;
/// Connections at the admin door.
const MAX_ADMIN_CONNECTIONS: u32 = 100;
/// How long requests in flight may take once the service stops.
const DRAIN: Duration = Duration::from_secs(10);
/// How often the store takes a step in forgetting idle keys.
const SWEEP: Duration = Duration::from_millis(100);

/// A running service. Dropping it stops it.
///
/// # Examples
/// See the [crate](crate).
#[derive(Debug)]
pub struct Service {
    http: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    stop: mpsc::Sender<()>,
    main: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the service; when this returns, its doors are open and ready.
    ///
    /// # Errors
    /// When the policy has errors, an address is taken, or the system refuses something.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        Self::start_with(config, SystemClock::new())
    }

    /// Starts the service on another clock: tests run in virtual time.
    ///
    /// # Errors
    /// As [`Service::start`].
    pub fn start_with<C: Clock + 'static>(config: &Config, clock: C) -> Result<Self, StartError> {
        let token = match &config.admin_token {
            Some(text) => Some(Token::new(text).ok_or(StartError::Token)?),
            None => None,
        };
        let (loaded, last_seen) = reload::load_first(config, &clock)?;
        let settings = &loaded.policy.settings;
        let policy = config.policy.clone();
        let envoy_files = Source::new(config.envoy_config.clone(), policy.as_deref());
        let envoy = envoy_files.first(settings, clock.origin())?;
        let (http, admin) = addresses(config, &settings.listen)?;
        if let Some(address) = admin
            && !address.ip().to_canonical().is_loopback()
            && token.is_none()
        {
            return Err(StartError::AdminExposed(address));
        }
        let budget_bytes = config
            .memory_budget
            .or(settings.memory_budget)
            .unwrap_or(MemoryConfig::default().budget_bytes);
        let http = http.map(|at| bind(Door::Http, at)).transpose()?;
        let admin = admin.map(|at| bind(Door::Admin, at)).transpose()?;

        let store = MemoryStore::new(MemoryConfig { budget_bytes });
        let shared = Arc::new(Shared::new(
            Keeper::new(loaded.policy, store, clock),
            (policy, envoy_files),
            last_seen,
            token,
            config.sink.clone(),
        ));
        let mut notices = loaded.notices;
        if let Some((envoy, warnings)) = envoy {
            shared.keeper.install_envoy(envoy);
            notices.extend(warnings);
        }
        for warning in notices {
            shared.sink.emit(&Event::Notice(warning));
        }
        Self::open(config, shared, http, admin)
    }

    fn open<C: Clock + 'static>(
        config: &Config,
        shared: Arc<Shared<C>>,
        http: Option<StdListener>,
        admin: Option<StdListener>,
    ) -> Result<Self, StartError> {
        let failed = |error: std::io::Error| StartError::Thread(error.to_string());
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let signals = if config.signals {
            Some(Signals::listen(&runtime).map_err(failed)?)
        } else {
            None
        };
        let workers = Workers::start(config.workers)?;
        let local = |listener: &Option<StdListener>| {
            let listener = listener.as_ref();
            listener.and_then(|listener| listener.local_addr().ok())
        };
        let (http_address, admin_address) = (local(&http), local(&admin));
        announce(&shared, http_address, admin_address);
        let watcher = config.watch.then(|| Watcher::start(Arc::clone(&shared)));
        let (stop, stopped) = mpsc::channel(1);
        let run = Run {
            shared,
            http,
            admin,
            workers,
            signals,
            stopped,
            watcher,
        };
        let main = std::thread::Builder::new()
            .name("ratekeeper".into())
            .spawn(move || runtime.block_on(run.run()))
            .map_err(failed)?;
        Ok(Self {
            http: http_address,
            admin: admin_address,
            stop,
            main: Some(main),
        })
    }

    /// Where a door listens; none if it is off.
    pub fn address(&self, door: Door) -> Option<SocketAddr> {
        match door {
            Door::Http => self.http,
            Door::Admin => self.admin,
        }
    }

    /// Tells the service to stop, and does not wait for it.
    pub fn stop(&self) {
        let _ = self.stop.try_send(()); // full: told already; closed: ended already
    }

    /// Waits until the service ends: by a signal, or because [`stop`](Self::stop) was called.
    pub fn wait(mut self) {
        self.join();
    }

    /// Stops the service and waits for its end.
    pub fn shutdown(self) {
        self.stop();
        self.wait();
    }

    fn join(&mut self) {
        if let Some(main) = self.main.take() {
            let _ = main.join(); // a panic there has been printed already
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.main.is_some() {
            self.stop();
            self.join();
        }
    }
}

/// The addresses of the doors: command line, else policy, else default.
fn addresses(
    config: &Config,
    policy: &ListenSettings,
) -> Result<(Option<SocketAddr>, Option<SocketAddr>), StartError> {
    let choose = |door, own: &Option<Listen>, policy: &Option<String>, default| {
        let policy = || policy.as_deref().map(Listen::parse);
        let listen = own.clone().or_else(policy);
        listen
            .unwrap_or_else(|| Listen::parse(default))
            .resolve(door)
    };
    let http = choose(Door::Http, &config.http, &policy.http, DEFAULT_HTTP)?;
    let admin = choose(Door::Admin, &config.admin, &policy.admin, DEFAULT_ADMIN)?;
    if http.is_none() && admin.is_none() {
        return Err(StartError::NoDoor);
    }
    Ok((http, admin))
}

fn announce<C: Clock>(shared: &Shared<C>, http: Option<SocketAddr>, admin: Option<SocketAddr>) {
    for (door, address) in [(Door::Http, http), (Door::Admin, admin)] {
        let Some(address) = address else { continue };
        shared.sink.emit(&Event::Listening { door, address });
        if !address.ip().to_canonical().is_loopback() {
            let guard = match door {
                Door::Http => "anyone who reaches it can spend the limits of others",
                Door::Admin => "calls need the admin token, which travels unencrypted",
            };
            let text = format!("the {door} door at {address} is open to the network: {guard}");
            shared.sink.emit(&Event::Notice(text));
        }
    }
}

/// Everything the main thread needs.
struct Run<C: Clock + 'static> {
    shared: Arc<Shared<C>>,
    http: Option<StdListener>,
    admin: Option<StdListener>,
    workers: Workers,
    signals: Option<Signals>,
    stopped: mpsc::Receiver<()>,
    watcher: Option<Watcher>,
}

impl<C: Clock + 'static> Run<C> {
    async fn run(mut self) {
        let (close_http, http_closes) = watch::channel(false);
        let (close_admin, admin_closes) = watch::channel(false);
        let http_slots = Arc::new(Semaphore::new(MAX_HTTP_CONNECTIONS as usize));
        let admin_slots = Arc::new(Semaphore::new(MAX_ADMIN_CONNECTIONS as usize));
        let here = Handle::current();
        let workers = Arc::new(self.workers);

        let mut http = None;
        if let Some(listener) = self.http.take().and_then(listen_on) {
            let door = Arc::new(HttpDoor(Arc::clone(&self.shared)));
            let (slots, workers) = (Arc::clone(&http_slots), Arc::clone(&workers));
            http = Some(tokio::spawn(async move {
                accept(listener, door, slots, || workers.next(), http_closes).await;
            }));
        }
        if let Some(listener) = self.admin.take().and_then(listen_on) {
            let door = Arc::new(AdminDoor(Arc::clone(&self.shared)));
            let (slots, here) = (Arc::clone(&admin_slots), here.clone());
            tokio::spawn(async move {
                accept(listener, door, slots, || &here, admin_closes).await;
            });
        }
        tokio::spawn(sweep(Arc::clone(&self.shared)));
        self.shared.set_ready(true);

        wait_for_the_end(&self.shared, &mut self.signals, &mut self.stopped).await;
        self.shared.set_ready(false);
        self.shared.sink.emit(&Event::Stopping);
        close_http.send_replace(true);
        if let Some(http) = http {
            let _ = http.await; // the listener is closed: nobody else is let in
        }
        let drained = async {
            let _ = http_slots.acquire_many(MAX_HTTP_CONNECTIONS).await;
        };
        let again = wait_for_the_end(&self.shared, &mut self.signals, &mut self.stopped);
        tokio::select! {
            _ = timeout(DRAIN, drained) => {}
            () = again => {} // told twice: no more patience
        }
        if let Some(watcher) = self.watcher.take() {
            watcher.stop();
        }
        close_admin.send_replace(true);
        let drained = admin_slots.acquire_many(MAX_ADMIN_CONNECTIONS);
        let _ = timeout(DRAIN, drained).await;
        if let Some(workers) = Arc::into_inner(workers) {
            workers.stop();
        }
        self.shared.sink.emit(&Event::Stopped);
    }
}

fn listen_on(listener: StdListener) -> Option<TcpListener> {
    let listener = TcpListener::from_std(listener);
    listener
        .inspect_err(|error| tracing::error!(event = "listen.failed", %error))
        .ok()
}

/// Forgets idle keys, a bounded step at a time.
async fn sweep<C: Clock>(shared: Arc<Shared<C>>) {
    let mut tick = interval(SWEEP);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let keeper = &shared.keeper;
        keeper.store().sweep(keeper.clock().now());
    }
}

/// Returns when the service must stop; reloads meanwhile when asked by signal.
async fn wait_for_the_end<C: Clock + 'static>(
    shared: &Arc<Shared<C>>,
    signals: &mut Option<Signals>,
    stopped: &mut mpsc::Receiver<()>,
) {
    loop {
        tokio::select! {
            _ = stopped.recv() => return,
            asked = Signals::next(signals) => match asked {
                Asked::Stop => return,
                Asked::Reload => {
                    let shared = Arc::clone(shared);
                    tokio::task::spawn_blocking(move || {
                        let _ = shared.reload(Trigger::Signal); // the event says how it went
                    });
                }
            }
        }
    }
}

/// What a signal asks for.
enum Asked {
    Stop,
    Reload,
}

/// SIGTERM, SIGINT, SIGHUP.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen(runtime: &Runtime) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let _context = runtime.enter();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(signals: &mut Option<Self>) -> Asked {
        let Some(signals) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = signals.terminate.recv() => Asked::Stop,
            _ = signals.interrupt.recv() => Asked::Stop,
            _ = signals.hangup.recv() => Asked::Reload,
        }
    }
}
