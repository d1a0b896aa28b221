//! A parked connection: it is elsewhere, and code that writes to it still uses its id.

#![allow(clippy::unwrap_used, reason = "a test may say what it expects and stop there")]

use shunt_reactor::moving::{Frozen, NotFrozen};
use shunt_reactor::sim::{HostId, Options, SECOND, World};
use shunt_reactor::{Accepted, CloseReason, ConnId, Io, Service};

/// Keeps the bytes that it reads, and parks frozen connections.
#[derive(Default)]
struct Parking {
    conn: Option<ConnId>,
    frozen: Option<Frozen>,
    restored: Vec<ConnId>,
    closed: Vec<CloseReason>,
    read: Vec<u8>,
}

impl Service for Parking {
    type Mail = ();

    fn accepted(&mut self, _io: &mut Io, conn: ConnId, _origin: &Accepted) {
        self.conn = Some(conn);
    }

    fn connected(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn received(&mut self, _io: &mut Io, _conn: ConnId, data: &[u8]) -> usize {
        self.read.extend_from_slice(data);
        data.len()
    }

    fn closed(&mut self, _io: &mut Io, _conn: ConnId, reason: CloseReason) {
        self.closed.push(reason);
    }

    fn drained(&mut self, _io: &mut Io, _conn: ConnId) {}

    fn frozen(&mut self, io: &mut Io, conn: ConnId, outcome: Result<Frozen, NotFrozen>) {
        self.frozen = outcome.ok();
        io.park(conn);
    }

    fn restored(&mut self, _io: &mut Io, conn: ConnId) {
        self.restored.push(conn);
    }

    fn timer(&mut self, _io: &mut Io, _key: u64) {}
    fn mail(&mut self, _io: &mut Io, (): ()) {}
    fn turn_ended(&mut self, _io: &mut Io) {}
}

struct Scene {
    world: World,
    client: HostId<Parking>,
    out: ConnId,
    here: HostId<Parking>,
    conn: ConnId,
    frozen: Frozen,
}

impl Scene {
    /// Makes a scene with a parked connection that was written to just before.
    fn new() -> Scene {
        let mut world = World::new(3, Options::calm());
        let address = "10.9.9.9:7".parse().unwrap();
        let here = world.add("here", Parking::default());
        world.listen(here, address);
        let client = world.add("client", Parking::default());
        let out = world.with(client, |_, io| io.connect(address, SECOND));
        world.run_for(SECOND);
        let conn = world.host(here).conn.unwrap();
        world.with(here, |_, io| io.freeze(conn));
        world.with(here, |_, io| io.output(conn).extend_from_slice(b"one "));
        world.run_for(SECOND);
        let frozen = world.with(here, |parking, _| parking.frozen.take()).unwrap();
        Scene { world, client, out, here, conn, frozen }
    }

    fn writes(&mut self, bytes: &[u8]) {
        let conn = self.conn;
        self.world.with(self.here, |_, io| io.output(conn).extend_from_slice(bytes));
        self.world.run_for(SECOND);
    }
}

#[test]
fn output_written_meanwhile_follows_the_unsent_bytes() {
    let mut scene = Scene::new();
    scene.writes(b"two ");
    scene.writes(b"three ");
    assert_eq!(scene.frozen.unsent, b"one ");
    assert_eq!(scene.world.io(scene.here).backlog(scene.conn), b"two three ".len());
    let (conn, out, mut frozen) = (scene.conn, scene.out, scene.frozen.clone());
    // Bytes that another host has put in meanwhile.
    frozen.unsent.extend_from_slice(b"the answer ");
    scene.world.with(scene.client, |_, io| io.output(out).extend_from_slice(b"sent meanwhile"));
    scene.world.run_for(SECOND);
    assert!(scene.world.with(scene.here, |_, io| io.restore_parked(conn, frozen)));
    scene.writes(b"four");
    assert_eq!(scene.world.host(scene.client).read, b"one the answer two three four");
    let here = scene.world.host(scene.here);
    assert_eq!((&*here.read, &*here.restored), (&b"sent meanwhile"[..], &[conn][..]));
    assert!(scene.world.io(scene.here).is_open(conn));
}

#[test]
fn closed_meanwhile_its_id_is_gone_and_its_peer_hears_nothing() {
    for is_aborted in [false, true] {
        let mut scene = Scene::new();
        let (conn, frozen) = (scene.conn, scene.frozen.clone());
        scene.writes(b"nobody reads that");
        scene
            .world
            .with(scene.here, |_, io| if is_aborted { io.abort(conn) } else { io.close(conn) });
        scene.world.run_for(SECOND);
        assert!(!scene.world.io(scene.here).is_open(conn));
        assert_eq!(scene.world.io(scene.here).connections(), 0);
        assert!(!scene.world.with(scene.here, |_, io| io.restore_parked(conn, frozen.clone())));
        assert_eq!(
            (&*scene.world.host(scene.client).closed, &*scene.world.host(scene.client).read),
            (&[][..], &b""[..])
        );
        // The connection can still come back under another id.
        let other = scene.world.with(scene.here, |_, io| io.restore(frozen));
        scene.world.run_for(SECOND);
        assert_eq!(scene.world.host(scene.here).restored, [other]);
        assert_eq!(scene.world.host(scene.client).read, b"one ");
    }
}

#[test]
fn only_frozen_connections_are_parked_and_only_parked_ones_are_restored() {
    let mut scene = Scene::new();
    let (conn, frozen) = (scene.conn, scene.frozen.clone());
    assert!(scene.world.with(scene.here, |_, io| io.restore_parked(conn, frozen.clone())));
    scene.world.run_for(SECOND);
    scene.world.with(scene.here, |_, io| io.park(conn));
    assert!(!scene.world.with(scene.here, |_, io| io.restore_parked(conn, frozen)));
    scene.writes(b"goes on");
    assert_eq!(scene.world.host(scene.client).read, b"one goes on");
}
