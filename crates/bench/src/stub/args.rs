//! Arguments of `shunt bench stub`.

use std::net::{IpAddr, SocketAddr};

use clap::Args;

/// `shunt bench stub`: how many nodes, where, and what they answer.
#[derive(Args, Clone, Debug)]
pub struct StubArgs {
    /// First node's CQL address; the others have the next IP addresses, or with --one-address the
    /// next ports
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9042")]
    pub listen: SocketAddr,
    /// Nodes of the ring, tokens spread evenly
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
    /// All nodes on one IP address with consecutive ports
    #[arg(long)]
    pub one_address: bool,
    /// Threads; connections are spread over them
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub cores: u16,
    /// Run on this CPU only
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Offer and execute aggregated frames
    #[arg(long)]
    pub aggregate: bool,
    /// Bytes of the value a SELECT finds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=16_777_216))]
    pub answer_bytes: u32,
    /// Keep what is inserted, in one memory for all nodes, and return that
    #[arg(long)]
    pub remember: bool,
    /// Answer EXECUTE without looking at it: the floor of what serving the clients' sockets costs
    #[arg(long)]
    pub echo: bool,
    /// Highest protocol version accepted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=5))]
    pub protocol_max: u8,
    /// Misbehave: KIND=PROBABILITY with kinds unprepared, overloaded, unknown-stream, garbage,
    /// silence, close, delay; repeatable
    #[arg(long = "fault", value_name = "KIND=P")]
    pub faults: Vec<String>,
    /// Delay of the fault of that name, microseconds
    #[arg(long, default_value_t = 1000)]
    pub delay_us: u64,
    /// Answer HTTP GET with statistics as JSON here
    #[arg(long, value_name = "ADDR")]
    pub statistics: Option<SocketAddr>,
    /// Event loop driver: auto, epoll or uring
    #[arg(long, default_value = "auto")]
    pub io: String,
    /// Stop when standard input is closed, that is when the process that started this one ends
    #[arg(long)]
    pub until_input_closes: bool,
}

impl StubArgs {
    /// The address of every node, in ring order.
    ///
    /// # Errors
    /// The addresses run over the end of the IP range or of the ports.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        (0..self.nodes).map(|node| self.address(node)).collect()
    }

    fn address(&self, node: u16) -> Result<SocketAddr, String> {
        let beyond = || format!("{} nodes do not fit behind {}", self.nodes, self.listen);
        if self.one_address {
            let port = self.listen.port().checked_add(node).ok_or_else(beyond)?;
            return Ok(SocketAddr::new(self.listen.ip(), port));
        }
        let ip = match self.listen.ip() {
            IpAddr::V4(ip) => {
                IpAddr::V4(u32::from(ip).checked_add(u32::from(node)).ok_or_else(beyond)?.into())
            }
            IpAddr::V6(ip) => {
                IpAddr::V6(u128::from(ip).checked_add(u128::from(node)).ok_or_else(beyond)?.into())
            }
        };
        Ok(SocketAddr::new(ip, self.listen.port()))
    }
}
