//! Service: opens the doors, runs until told to stop, and leaves nothing half done.
//!
//! ```text
//!   start: policy -> keeper -> doors open -> ready
//!   stop:  not ready -> http, grpc accept no more -> in flight finish (10 s) -> admin closes
//! ```

use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::{Clock, Keeper, SystemClock};
use ratekeeper_core::Nanos;
use ratekeeper_store::MemoryConfig;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::addresses::Doors;
use crate::admin::AdminDoor;
#[cfg(feature = "grpc")]
use crate::doors::envoy::{self, EnvoyDoor};
use crate::doors::hold::{DEFAULT_MAX_HELD, Hold};
use crate::doors::{Access, HttpDoor, needs_no_token};
use crate::envoy_files::Source;
use crate::listener::{Http, LINGER, Serve, accept};
use crate::memory::{self, DefaultBudget};
use crate::reload;
use crate::shared::{Shared, Token};
use crate::store_secrets::StoreSecrets;
use crate::tasks::keep;
use crate::watch::Watcher;
use crate::workers::Workers;
use crate::{Config, Door, Event, StartError, StoreSettings, Trigger};
use crate::{store, store_secrets};

/// Connections at the http door; further ones wait in the kernel's queue.
const MAX_HTTP_CONNECTIONS: u32 = 10_000;
/// Connections at the gRPC door.
#[cfg(feature = "grpc")]
const MAX_GRPC_CONNECTIONS: u32 = 2_000;
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
    addresses: Doors<SocketAddr>,
    stop: mpsc::Sender<()>,
    main: Option<std::thread::JoinHandle<()>>,
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
        let envoy_files = Source::new(
            config.envoy_config.clone(),
            policy.as_deref(),
            config.shadow,
        );
        let files = envoy_files.first(settings, clock.origin())?;
        let doors = Doors::chosen(config, settings)?;
        let access = Access {
            token,
            writes: config.admin_writes.unwrap_or(settings.listen.admin_writes),
            hosts: settings.listen.admin_hosts.clone(),
        };
        let hold = Hold::new(settings.listen.max_held.unwrap_or(DEFAULT_MAX_HELD));
        if let Some(address) = doors.admin
            && !needs_no_token(address)
            && access.token.is_none()
        {
            return Err(StartError::AdminExposed(address));
        }
        let budget = config.memory_budget.or(settings.memory_budget);
        let DefaultBudget { bytes, reason } = memory::default_budget();
        let memory = MemoryConfig {
            budget_bytes: budget.unwrap_or(bytes),
        };
        let fitted = reason.filter(|_| budget.is_none());
        #[cfg(feature = "grpc")]
        let certificates = envoy::certificates(config, &loaded.policy)?;
        let home = policy.as_deref().and_then(Path::parent);
        let home = home.unwrap_or(Path::new(""));
        let redis = StoreSettings::of(settings.redis.as_ref(), config.store.as_ref());
        let redis = redis.map(|redis| redis.at_home(home));
        let (store, store_secrets) = store::open(redis.as_ref(), memory, clock.origin())?;
        let doors = doors.bind()?;

        let shared = Arc::new(Shared::new(
            Keeper::new(loaded.policy, store, clock),
            (policy, envoy_files),
            last_seen,
            (access, hold),
            config.sink.clone(),
        ));
        if let Some(log) = &config.log {
            let _ = shared.metrics.process.log.set(log.clone()); // set once: it is new
        }
        let mut notices = loaded.notices;
        notices.extend(fitted);
        if let Some((files, warnings)) = files {
            shared.install_envoy(files);
            notices.extend(warnings);
        }
        for warning in notices {
            shared.sink.emit(&Event::Notice(warning));
        }
        let open = Open {
            #[cfg(feature = "grpc")]
            envoy: EnvoyDoor::new(Arc::clone(&shared), certificates),
            shared,
            store_secrets,
            doors,
        };
        Self::open(config, open)
    }

    fn open<C: Clock + 'static>(config: &Config, open: Open<C>) -> Result<Self, StartError> {
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
        let addresses = open.doors.addresses();
        addresses.announce(&open.shared);
        let watcher = config
            .watch
            .then(|| Watcher::start(Arc::clone(&open.shared)));
        let (stop, stopped) = mpsc::channel(1);
        let run = Run {
            open,
            workers,
            signals,
            stopped,
            watcher,
        };
        let main = std::thread::Builder::new()
            .name("ratekeeper".into())
            .spawn(move || {
                runtime.block_on(run.run());
                // Not waiting for what still reads a file: that may never end.
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(Self {
            addresses,
            stop,
            main: Some(main),
        })
    }

    /// Where a door listens; none if it is off.
    pub fn address(&self, door: Door) -> Option<SocketAddr> {
        self.addresses.of(door).copied()
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

/// What is open.
struct Open<C: Clock + 'static> {
    shared: Arc<Shared<C>>,
    store_secrets: Option<StoreSecrets>,
    doors: Doors<StdListener>,
    #[cfg(feature = "grpc")]
    envoy: EnvoyDoor<C>,
}

/// Everything the main thread needs.
struct Run<C: Clock + 'static> {
    open: Open<C>,
    workers: Workers,
    signals: Option<Signals>,
    stopped: mpsc::Receiver<()>,
    watcher: Option<Watcher>,
}

impl<C: Clock + 'static> Run<C> {
    async fn run(mut self) {
        let (close, closes) = watch::channel(false);
        let (close_admin, admin_closes) = watch::channel(false);
        let here = Arc::new(Place::Here(Handle::current()));
        let workers = Arc::new(Place::Workers(self.workers));
        let shared = self.open.shared;
        let doors = self.open.doors;

        let door = Http(HttpDoor(Arc::clone(&shared)));
        let opening = |door| Opening {
            shared: Arc::clone(&shared),
            door,
        };
        let http = opening(Door::Http);
        let http = http.start(doors.http, MAX_HTTP_CONNECTIONS, door, &workers, &closes);
        #[cfg(feature = "grpc")]
        let grpc = {
            let door = self.open.envoy;
            tokio::spawn(door.keep_fresh());
            let grpc = opening(Door::Grpc);
            grpc.start(doors.grpc, MAX_GRPC_CONNECTIONS, door, &workers, &closes)
        };
        let door = Http(AdminDoor(Arc::clone(&shared)));
        let most = MAX_ADMIN_CONNECTIONS;
        let admin = opening(Door::Admin).start(doors.admin, most, door, &here, &admin_closes);
        let again = || Arc::clone(&shared);
        let kept = again();
        keep(&shared, "sweep", move || sweep(Arc::clone(&kept)));
        let kept = again();
        keep(&shared, "memory", move || memory::watch(Arc::clone(&kept)));
        store::tend_once(&shared).await; // whether it is there decides whether this is ready
        let kept = again();
        keep(&shared, "store", move || store::tend(Arc::clone(&kept)));
        let kept = again();
        keep(&shared, "clocks", move || {
            store::compare_clocks(Arc::clone(&kept))
        });
        let secrets = self.open.store_secrets;
        tokio::spawn(store_secrets::keep_fresh(Arc::clone(&shared), secrets));
        shared.set_ready(true);

        wait_for_the_end(&shared, &mut self.signals, &mut self.stopped).await;
        shared.set_ready(false);
        let drain = Nanos::from_nanos(u64::try_from(DRAIN.as_nanos()).unwrap_or(u64::MAX));
        shared.hold.close(shared.keeper.clock().now() + drain);
        close.send_replace(true);
        shared.sink.emit(&Event::Stopping);
        let drained = async {
            http.drained().await;
            #[cfg(feature = "grpc")]
            grpc.drained().await;
        };
        let again = wait_for_the_end(&shared, &mut self.signals, &mut self.stopped);
        tokio::select! {
            _ = timeout(LINGER + DRAIN, drained) => {}
            () = again => {} // told twice: no more patience
        }
        if let Some(watcher) = self.watcher.take() {
            watcher.stop();
        }
        close_admin.send_replace(true);
        let _ = timeout(LINGER + DRAIN, admin.drained()).await;
        if let Some(Place::Workers(workers)) = Arc::into_inner(workers) {
            workers.stop();
        }
        shared.sink.emit(&Event::Stopped);
    }
}

/// Where connections are served.
enum Place {
    /// By the thread that accepts them.
    Here(Handle),
    /// By one worker each, in turn.
    Workers(Workers),
}

/// A door that accepts connections.
struct Opened {
    most: u32,
    slots: Arc<Semaphore>,
    accepting: Option<JoinHandle<()>>,
}

/// A door that is about to accept connections.
struct Opening<C> {
    shared: Arc<Shared<C>>,
    door: Door,
}

impl<C: Clock + 'static> Opening<C> {
    fn start<D: Serve>(
        self,
        listener: Option<StdListener>,
        most: u32,
        serve: D,
        place: &Arc<Place>,
        stop: &watch::Receiver<bool>,
    ) -> Opened {
        let slots = Arc::new(Semaphore::new(most as usize));
        let accepting = listener.and_then(listen_on).map(|listener| {
            let Self { shared, door } = self;
            let (listener, serve) = (Arc::new(listener), Arc::new(serve));
            let (slots, place, stop) = (Arc::clone(&slots), Arc::clone(place), stop.clone());
            let accepts = Arc::clone(&shared);
            keep(&shared, "accept", move || {
                let (listener, serve) = (Arc::clone(&listener), Arc::clone(&serve));
                let (slots, place, stop) = (Arc::clone(&slots), Arc::clone(&place), stop.clone());
                let shared = Arc::clone(&accepts);
                async move {
                    let next = || match &*place {
                        Place::Here(here) => here,
                        Place::Workers(workers) => workers.next(),
                    };
                    let failed = |error: &std::io::Error| {
                        let now = shared.keeper.clock().now();
                        shared.metrics.process.accept_failed(door, error, now);
                    };
                    accept(&listener, serve, slots, next, failed, stop).await;
                }
            })
        });
        Opened {
            most,
            slots,
            accepting,
        }
    }
}

impl Opened {
    /// Returns when nobody else is let in and all connections have ended.
    async fn drained(self) {
        if let Some(accepting) = self.accepting {
            let _ = accepting.await; // an error: it ended by a panic, printed already
        }
        let _ = self.slots.acquire_many(self.most).await;
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
        keeper.store().local().sweep(keeper.clock().now());
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

/// SIGTERM, SIGINT, SIGHUP; SIGUSR1 and SIGUSR2, which would end the process, do nothing.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen(runtime: &Runtime) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let _context = runtime.enter();
        // Taken once, they stay harmless for the life of the process.
        for harmless in [SignalKind::user_defined1(), SignalKind::user_defined2()] {
            drop(signal(harmless)?);
        }
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
