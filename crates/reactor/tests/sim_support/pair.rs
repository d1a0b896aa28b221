//! Two scripted hosts with one connection between them.

use super::checked::Checked;
use super::script::Script;
use shunt_reactor::sim::{HostId, Options, SECOND, World};
use shunt_reactor::{ConnId, Io};
use std::net::SocketAddr;

pub type Host = HostId<Checked<Script>>;

pub struct Pair {
    pub world: World,
    pub caller: Host,
    pub called: Host,
    pub address: SocketAddr,
    /// The connection as the caller names it.
    pub out: ConnId,
    /// The connection as the called host names it.
    pub inn: ConnId,
}

impl Pair {
    pub fn new(seed: u64, options: Options) -> Pair {
        let mut world = World::new(seed, options);
        let address = "10.9.9.9:7".parse().unwrap();
        let caller = world.add("caller", Checked::new(Script::new()));
        let called = world.add("called", Checked::new(Script::new()));
        world.listen(called, address);
        let out = world.with(caller, |_, io| io.connect(address, SECOND));
        let accepted = |world: &mut World| world.host(called).inner.accepted_conn().is_some();
        assert!(world.run_until(SECOND, accepted));
        world.run_for(SECOND / 10);
        let inn = world.host(called).inner.accepted_conn().unwrap();
        Pair { world, caller, called, address, out, inn }
    }

    pub fn caller_io<R>(&mut self, call: impl FnOnce(&mut Io, ConnId) -> R) -> R {
        let out = self.out;
        self.world.with(self.caller, |_, io| call(io, out))
    }

    pub fn called_io<R>(&mut self, call: impl FnOnce(&mut Io, ConnId) -> R) -> R {
        let inn = self.inn;
        self.world.with(self.called, |_, io| call(io, inn))
    }

    pub fn caller(&self) -> &Script {
        &self.world.host(self.caller).inner
    }

    pub fn called(&self) -> &Script {
        &self.world.host(self.called).inner
    }

    pub fn called_mut<R>(&mut self, call: impl FnOnce(&mut Script) -> R) -> R {
        self.world.with(self.called, |script, _| call(&mut script.inner))
    }

    pub fn settle(&mut self) {
        self.world.run_for(SECOND);
    }
}
