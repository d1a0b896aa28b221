//! Servers that fail and come back, as the admin pages show them.

use shunt_admin::{Part, Snapshot};
use shunt_multiget::mode::Mode;
use shunt_multiget::{ServerState, SidecarAdmin};
use shunt_reactor::sim::{MICROSECOND, Options, SECOND};

use crate::script::Script;
use crate::{SERVERS, Scene, listen_address, server_address};

#[test]
fn pages_say_which_servers_have_failed_and_when_they_are_back() {
    let mut scene = Scene::new(1, Options::calm(), 0);
    let metrics = scene.world.host(scene.sidecar).metrics();
    let addresses = (0..SERVERS).map(|index| (server_address(index), server_address(index)));
    let pages = SidecarAdmin::new(vec![metrics.clone()], addresses.collect(), Mode::Tcp);
    let states =
        || metrics.servers.all().into_iter().map(|server| server.state).collect::<Vec<_>>();
    let script = scene.world.add("script", Script::new(listen_address()));
    let ask = |scene: &mut Scene| {
        for number in 0..20_u8 {
            let words: [&[u8]; 2] = [b"INCR", &[b'k', number]];
            scene.world.with(script, |script, io| script.send(io, &words));
        }
        scene.world.run_for(SECOND);
    };
    assert!(states().is_empty() && pages.not_ready().is_none(), "nobody has asked");
    ask(&mut scene);
    assert_eq!(states(), [ServerState::Up; SERVERS as usize]);
    // Each command is answered by one server, in the time of its way there and back.
    let times = metrics.servers.all().into_iter().map(|server| server.times.snapshot());
    let times: Vec<_> = times.collect();
    assert_eq!(times.iter().map(Snapshot::count).sum::<u64>(), 20);
    assert!(times.iter().all(|times| times.quantile(0.0).is_some_and(|ns| ns > MICROSECOND)));
    let reading = pages.reading().expect("a sidecar has a history");
    assert_eq!((reading.answered, reading.failed), (20, 0));
    let kept: Vec<_> = scene.servers.iter().map(|server| scene.world.kill(*server)).collect();
    scene.world.run_for(SECOND);
    // Their connections have ended, and nobody has asked since: a server that closes idle
    // connections has not failed, and pages nobody.
    assert_eq!(states(), [ServerState::Closed; SERVERS as usize]);
    ask(&mut scene);
    ask(&mut scene);
    assert_eq!(states(), [ServerState::Down; SERVERS as usize]);
    assert_eq!(pages.not_ready().as_deref(), Some("no server answers"));
    // Without commands nothing is known of them any more, and a balancer sends some.
    scene.world.run_for(11 * SECOND);
    assert_eq!(states(), [ServerState::Unknown; SERVERS as usize]);
    assert_eq!(pages.not_ready(), None);
    for (server, state) in scene.servers.clone().into_iter().zip(kept) {
        scene.world.restart(server, state.unwrap_or_default().restarted());
    }
    scene.world.run_for(SECOND);
    ask(&mut scene);
    assert_eq!((states(), pages.not_ready()), (vec![ServerState::Up; SERVERS as usize], None));
}
