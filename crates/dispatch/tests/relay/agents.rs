//! Agents that are lost again and again.

use shunt_reactor::sim::{MILLISECOND, Options, SECOND};

use crate::scene::Scene;

/// True once as many agents are connected as this.
fn are_up(scene: &mut Scene, agents: usize, limit_ns: u64) -> bool {
    let dispatcher = scene.dispatcher;
    scene.world.run_until(limit_ns, move |world| world.host(dispatcher).backends_up() == agents)
}

/// An agent that breaks, or that does not mean well, may prove the key and then end the connection.
#[test]
fn an_agent_that_ends_each_connection_is_tried_as_seldom_as_one_that_cannot_be_reached() {
    let mut scene = Scene::new(1, Options::calm(), 1, Vec::new());
    scene.wait_for_backends();
    let end_ns = scene.world.now_ns() + 60 * SECOND;
    let mut connections = 0;
    while scene.world.now_ns() < end_ns {
        scene.restart_agent(0);
        assert!(are_up(&mut scene, 0, SECOND));
        assert!(are_up(&mut scene, 1, 10 * SECOND));
        connections += 1;
    }
    assert!(connections < 80, "{connections} connections in a minute");
    // One that has been there for a while comes back at once.
    scene.world.run_for(20 * SECOND);
    scene.restart_agent(0);
    assert!(are_up(&mut scene, 0, SECOND));
    assert!(are_up(&mut scene, 1, 500 * MILLISECOND));
}
