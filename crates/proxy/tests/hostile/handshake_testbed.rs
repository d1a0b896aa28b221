//! A proxy in front of nodes for tests of the handshake.

use shunt_proxy::config::Config;
use shunt_reactor::Io;
use shunt_reactor::sim::{HostId, SECOND};
use shunt_testing::{bytes, simulated};
use shunt_wire::cql::envelope::opcode;

use super::handshake_node::HandshakeNode;
use super::support::scene::SceneOptions;
use super::testbed::Testbed;

/// The token of a login that the nodes accept by default.
pub const TOKEN: &[u8] = b"\0ann\0secret";

/// The proxy, without bystanders, and its nodes, which ask for a login or not.
pub struct HandshakeTestbed {
    pub testbed: Testbed,
    pub nodes: Vec<HostId<HandshakeNode>>,
}

impl HandshakeTestbed {
    pub fn new(nodes: usize, asks: bool) -> HandshakeTestbed {
        Self::with(nodes, asks, |_| {})
    }

    /// Makes a testbed with another configuration.
    pub fn with(nodes: usize, asks: bool, change: impl FnOnce(&mut Config)) -> HandshakeTestbed {
        Self::with_options(nodes, asks, |options| change(&mut options.config))
    }

    /// Makes a testbed with other options.
    pub fn with_options(
        nodes: usize,
        asks: bool,
        change: impl FnOnce(&mut SceneOptions),
    ) -> HandshakeTestbed {
        let mut testbed = Testbed::bare(|options| {
            change(options);
            options.nodes = nodes;
            options.protocol_max = 4;
            if asks {
                options.credentials = vec![("ann".into(), "secret".into())];
            }
        });
        let nodes = (0..nodes)
            .map(|index| {
                let address = testbed.scene.ring.nodes[index].address;
                testbed.scene.world.kill(testbed.scene.nodes[index]);
                testbed.scene.world.stop_listening(testbed.scene.nodes[index], address);
                let identity = (
                    testbed.scene.ring.nodes[index].host_id,
                    testbed.scene.ring.cluster_name.clone(),
                );
                let node = testbed.scene.world.add("node", HandshakeNode::new(asks, identity));
                testbed.scene.world.listen(node, address);
                node
            })
            .collect();
        HandshakeTestbed { testbed, nodes }
    }

    /// Lets a client log in, and waits until the pool's links are open.
    pub fn with_client(nodes: usize) -> (HandshakeTestbed, HostId<simulated::Client>) {
        let mut setup = HandshakeTestbed::new(nodes, true);
        let client = setup.log_in(TOKEN);
        assert_eq!(setup.next_opcode(client), opcode::AUTH_SUCCESS);
        setup.testbed.run_for(3 * SECOND);
        (setup, client)
    }

    pub fn node(&self, index: usize) -> &HandshakeNode {
        self.testbed.scene.world.host(self.nodes[index])
    }

    pub fn with_node<R>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut HandshakeNode, &mut Io) -> R,
    ) -> R {
        self.testbed.scene.world.with(self.nodes[index], act)
    }

    pub fn all(&mut self, mut change: impl FnMut(&mut HandshakeNode)) {
        for node in self.nodes.clone() {
            self.testbed.scene.world.with(node, |node, _| change(node));
        }
    }

    pub fn count(&self, of: impl Fn(&HandshakeNode) -> u64) -> u64 {
        self.nodes.iter().map(|node| of(self.testbed.scene.world.host(*node))).sum()
    }

    /// Resets the nodes' connections with this keyspace.
    pub fn reset_links(&mut self, keyspace: Option<&str>) {
        for node in self.nodes.clone() {
            self.testbed.scene.world.with(node, |node, io| node.reset_connections(io, keyspace));
        }
    }

    /// A client that has sent this token, and whose answer is on its way.
    pub fn log_in(&mut self, token: &[u8]) -> HostId<simulated::Client> {
        let client = self.testbed.offender();
        self.testbed.send(client, &bytes::startup(4, None));
        self.testbed.answered(client, 1);
        assert_eq!(self.testbed.take_answers(client)[0].header.opcode, opcode::AUTHENTICATE);
        self.testbed.send(client, &bytes::auth_response(4, token));
        client
    }

    /// The opcode of the next answer.
    pub fn next_opcode(&mut self, client: HostId<simulated::Client>) -> u8 {
        self.testbed.answered(client, 1);
        self.testbed.take_answers(client)[0].header.opcode
    }

    pub fn ask(&mut self, client: HostId<simulated::Client>, text: &str) -> u8 {
        self.testbed.send(client, &bytes::query(4, 1, text));
        self.next_opcode(client)
    }
}
