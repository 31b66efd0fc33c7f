//! Logins: passwords that are changed while the store is in use.

use ratekeeper_store::{RedisLogin, RedisSentinels, RedisServers, RedisTls};
use redis::Connection;

use crate::server::{Program, Server, programs, wait_a_little};
use crate::tls::{decide, store_of, until_fails, until_ok};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    One,
    Cluster,
    Sentinel,
}

/// A server, and the sentinel that names it, if there is one.
struct Stage {
    server: Server,
    sentinel: Option<Server>,
}

impl Stage {
    fn open(kind: Kind, program: &Program) -> Self {
        let cluster = ["--cluster-enabled", "yes"];
        let options = if kind == Kind::Cluster {
            &cluster[..]
        } else {
            &[]
        };
        let server = Server::start(program, options);
        if kind == Kind::Cluster {
            run(&mut server.connect(), "CLUSTER ADDSLOTSRANGE 0 16383");
        }
        let monitor = format!("sentinel monitor mymaster 127.0.0.1 {} 1", server.port);
        let sentinel = (kind == Kind::Sentinel).then(|| Server::sentinel(program, &[monitor]));
        let stage = Self { server, sentinel };
        stage.all("ACL SETUSER ada on >old ~* &* +@all");
        stage
    }

    /// Servers as configured for a service with this password.
    fn servers(&self, kind: Kind, password: &str) -> RedisServers {
        let url = |server: &Server| format!("redis://ada:{password}@127.0.0.1:{}", server.port);
        match (kind, &self.sentinel) {
            (Kind::Cluster, _) => RedisServers::Cluster(vec![url(&self.server)]),
            (Kind::Sentinel, Some(sentinel)) => RedisServers::Sentinel(RedisSentinels {
                urls: vec![url(sentinel)],
                master: "mymaster".into(),
                login: RedisLogin {
                    username: Some("ada".into()),
                    password: Some(password.into()),
                    database: 0,
                },
            }),
            _ => RedisServers::One(url(&self.server)),
        }
    }

    fn all(&self, command: &str) {
        for server in [Some(&self.server), self.sentinel.as_ref()]
            .into_iter()
            .flatten()
        {
            run(&mut server.connect(), command);
        }
    }
}

fn run(connection: &mut Connection, command: &str) {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command.exec(connection).unwrap();
}

fn knows_ada(server: &Server) -> bool {
    let mut list = redis::cmd("CLIENT");
    let clients: String = list.arg("LIST").query(&mut server.connect()).unwrap();
    clients.contains("user=ada")
}

#[test]
fn passwords_are_renewed_while_the_store_is_in_use() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for program in programs() {
        for kind in [Kind::One, Kind::Cluster, Kind::Sentinel] {
            let context = format!("{} {kind:?}", program.name);
            let stage = Stage::open(kind, &program);
            let servers = |password| stage.servers(kind, password);
            let store = store_of(servers("old"), RedisTls::default()).unwrap();
            let decide = || decide(&runtime, &store);
            assert!(until_ok(decide), "{context}");

            stage.all("ACL SETUSER ada resetpass >new");
            assert_eq!(
                decide(),
                Ok(true),
                "{context}: open connections stay in use"
            );
            stage.all("CLIENT KILL USER ada");
            until_fails(&decide, "assword");
            store.renew_logins(&servers("new")).unwrap();
            assert!(
                until_ok(decide),
                "{context}: the next connection uses the new password"
            );
            if let Some(sentinel) = &stage.sentinel {
                let asked = (0..500).any(|_| {
                    wait_a_little();
                    assert_eq!(decide(), Ok(true), "{context}");
                    knows_ada(sentinel)
                });
                assert!(
                    asked,
                    "{context}: the store did not log in to the sentinel with the new password"
                );
            }

            let other = RedisServers::One("redis://127.0.0.1:1".into());
            let refused = store.renew_logins(&other).unwrap_err().to_string();
            assert!(refused.contains("other servers"), "{context}: {refused}");
        }
    }
}
