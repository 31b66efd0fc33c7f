//! Service: opens the doors, runs until it is stopped, and leaves nothing half done.
//!
//! ```text
//!   start: policy -> keeper -> doors open -> ready
//!   stop:  not ready -> drain: http, grpc accept and answer -> grace: in flight finish
//!                    -> admin closes -> counters written, if there is a folder for them
//! ```

mod run;

use std::net::SocketAddr;
use std::sync::Arc;

use ratekeeper::{Clock, Keeper, SystemClock, Timer};
use ratekeeper_store::MemoryConfig;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::addresses::DoorListener;
use crate::admin::Streams;
use crate::background::exports::receivers;
use crate::background::memory::{self, StoreBudget};
use crate::capacity::Capacity;
use crate::clock::ServiceClock;
use crate::config::{Doors, proxy_settings};
use crate::context::ServiceContext;
use crate::doors::grpc::{self, GrpcDoor};
use crate::doors::proxy::ProxyListener;
use crate::doors::{Access, Token};
use crate::serve::tls::ListenerTls;
use crate::serve::workers::Workers;
use crate::source::PolicyOrigin;
use crate::source::envoy_files::ConfigSource;
use crate::source::reload;
use crate::source::watch::Watcher;
use crate::state::{SavedClock, StateFolder};
use crate::store::secrets::StoreSecrets;
use crate::{Config, Door, DoorAddress, StartError, StoreSettings, signals, state, store};
use run::ServiceRun;

/// A running service. Dropping it stops it.
///
/// # Examples
/// See the [crate](crate).
#[derive(Debug)]
pub struct Service {
    addresses: Doors<DoorAddress>,
    /// Doors with certificates.
    encrypted: Vec<Door>,
    stop: mpsc::Sender<()>,
    main: Option<std::thread::JoinHandle<()>>,
}

impl Service {
    /// Starts the service; when this returns, its doors are open and ready.
    ///
    /// # Errors
    /// When the policy has errors, an address is taken, or the system refuses something.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        Self::start_after(config, ServiceClock::new(SystemClock::new()), |saved| {
            let clock = SystemClock::continuing(saved.zero, saved.reading);
            Some(ServiceClock::new(clock))
        })
    }

    /// Starts the service on another clock: tests run in virtual time. Counters of a state folder
    /// are restored if the clock continues that of the process that wrote them: it has the same
    /// origin, and does not read an earlier time.
    ///
    /// # Errors
    /// As [`Service::start`].
    pub fn start_with<C: Timer + 'static>(config: &Config, clock: C) -> Result<Self, StartError> {
        Self::start_after(config, ServiceClock::new(clock), |_| None)
    }

    /// Starts the service; `continued` returns the clock that goes on with the one of the last
    /// process, if that has left its state.
    fn start_after(
        config: &Config,
        clock: ServiceClock,
        continued: impl FnOnce(SavedClock) -> Option<ServiceClock>,
    ) -> Result<Self, StartError> {
        let token = config.admin_token.as_deref().map(Token::new);
        let token = token.map(|it| it.ok_or(StartError::Token)).transpose()?;
        let (loaded, last_seen) = reload::load_first(config, &clock)?;
        let settings = &loaded.policy.settings;
        let home = config.home();
        let redis = StoreSettings::of(settings.redis.as_ref(), config.store.as_ref());
        let redis = redis.map(|redis| redis.at_home(home));
        let folder = StateFolder::open(settings, home)?;
        let mut notices = loaded.notices;
        let own = folder.as_deref().filter(|_| redis.is_none());
        let counters = own.and_then(|folder| folder.counters(&mut notices));
        let saved = counters.as_ref().map(|it| it.clock);
        let clock = saved.and_then(continued).unwrap_or(clock);
        let envoy_files = ConfigSource::new(config);
        let files = envoy_files.first(settings, clock.origin())?;
        let doors = Doors::chosen(config, settings)?;
        let access = Access {
            token,
            writes: config.admin_writes.unwrap_or(settings.listen.admin_writes),
            hosts: settings.listen.admin_hosts.clone(),
        };
        if let Some(&DoorAddress::Tcp(address)) = doors.of(Door::Admin)
            && !address.ip().to_canonical().is_loopback()
            && access.token.is_none()
        {
            return Err(StartError::AdminExposed(address));
        }
        let budget = config.memory_budget.or(settings.memory_budget);
        let StoreBudget { bytes, reason } = memory::budget(budget);
        let budget_bytes = bytes;
        let memory = MemoryConfig { budget_bytes };
        let certificates = grpc::certificates(config, &loaded.policy)?;
        let (store, store_secrets) = store::open(redis.as_ref(), memory, clock.origin())?;
        let doors = doors.bind(&config.sockets, settings.listen.port_use)?;
        let (instance, now) = (doors.addresses().instance(), clock.now());
        let unix_nanos = clock.origin().unix_nanos(now);
        let (alerts, otlp) = receivers(config, settings, &instance, unix_nanos)?;
        let proxy = proxy_settings(&config.upstream, settings);
        let proxy = proxy.filter(|_| doors.of(Door::Proxy).is_some());
        let upstreams = proxy.as_ref().map_or(0, |proxy| proxy.addresses().count());
        let capacity = Capacity::of(settings, upstreams);

        let shared = Arc::new(ServiceContext::new(
            config,
            Keeper::new(loaded.policy, store, clock),
            PolicyOrigin::new(config, envoy_files, last_seen),
            folder,
            alerts,
            access,
            Streams::beside(capacity.admin),
        ));
        let process = &shared.observers.metrics.process;
        let bodies = [&shared.bodies, &shared.responses].map(Arc::clone);
        let _ = process.bodies.set(bodies); // each is set once: it is new
        if let Some(otlp) = otlp {
            let _ = process.otlp.set(Arc::new(otlp));
        }
        if let Some(log) = &config.log {
            let _ = process.log.set(log.clone());
        }
        notices.extend(reason);
        notices.extend(capacity.notice());
        if let Some((files, warnings)) = files {
            shared.install_envoy(files);
            notices.extend(warnings);
        }
        state::saving::restore(&shared, counters, &mut notices);
        shared.sink.notices(notices);
        let proxy = doors.addresses().take(Door::Proxy);
        let proxy = proxy.map(|own| ProxyListener::open(&shared, own, config));
        let proxy = proxy.transpose()?.flatten();
        let open = Open {
            proxy,
            grpc: GrpcDoor {
                shared: Arc::clone(&shared),
                tls: certificates,
            },
            shared,
            store_secrets,
            doors,
            capacity,
        };
        Self::open(config, open)
    }

    fn open(config: &Config, open: Open) -> Result<Self, StartError> {
        let failed = |error: std::io::Error| StartError::Thread(error.to_string());
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let workers = Workers::start(config.workers)?;
        // Before a reader of the addresses can send one.
        let (stop, stopped) = mpsc::channel(1);
        if config.signals {
            let shared = Arc::clone(&open.shared);
            signals::obey(&runtime, shared, stop.clone()).map_err(failed)?;
        }
        let addresses = open.doors.addresses();
        addresses.announce(&open.shared.sink);
        let tls = open.tls();
        let encrypted = tls.iter().map(|tls| tls.door).collect();
        let _ = open.shared.observers.metrics.process.tls.set(tls); // it is new
        let watcher = config
            .watch
            .then(|| Watcher::start(Arc::clone(&open.shared)));
        let run = ServiceRun {
            open,
            workers,
            stopped,
            watcher,
        };
        let main = std::thread::Builder::new()
            .name("ratekeeper".into())
            .spawn(move || {
                runtime.block_on(run.run());
                // Not waiting for threads that still read a file: they may never end.
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(Self {
            addresses,
            encrypted,
            stop,
            main: Some(main),
        })
    }

    /// Returns the address that a door listens on; `None` if it is off, or has a Unix socket.
    pub fn address(&self, door: Door) -> Option<SocketAddr> {
        self.addresses.of(door).and_then(DoorAddress::tcp)
    }

    /// Returns true for a door that clients reach by TLS.
    pub fn is_encrypted(&self, door: Door) -> bool {
        self.encrypted.contains(&door)
    }

    /// Asks the service to stop, without waiting for it.
    pub fn stop(&self) {
        let _ = self.stop.try_send(()); // full: asked already; closed: ended already
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

/// A started service: its state and its doors.
struct Open {
    shared: Arc<ServiceContext>,
    store_secrets: Option<StoreSecrets>,
    doors: Doors<DoorListener>,
    capacity: Capacity,
    proxy: Option<Arc<ProxyListener>>,
    grpc: GrpcDoor,
}

impl Open {
    /// Returns TLS of the doors that have certificates.
    fn tls(&self) -> Vec<Arc<ListenerTls>> {
        let proxy = self.proxy.as_ref().and_then(|proxy| proxy.tls.clone());
        self.grpc.tls.clone().into_iter().chain(proxy).collect()
    }
}
