//! Arguments of `shunt bench stub`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Args;

/// `shunt bench stub`: number and addresses of the nodes, and their answers.
#[derive(Args, Clone, Debug)]
pub struct StubArgs {
    /// CQL address of the first node; the others have the next IP addresses, or with --one-address
    /// the next ports
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9042")]
    pub listen: SocketAddr,
    /// Nodes of the ring, with evenly spread tokens
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: u16,
    /// Put all nodes on one IP address, with consecutive ports
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
    /// Bytes of the value that a SELECT finds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=16_777_216))]
    pub answer_bytes: u32,
    /// Keep inserted values, in one memory for all nodes, and return them
    #[arg(long)]
    pub remember: bool,
    /// Answer EXECUTE without reading it: the lowest cost of serving the clients' sockets
    #[arg(long)]
    pub echo: bool,
    /// Highest protocol version accepted
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=5))]
    pub protocol_max: u8,
    /// Misbehave: KIND=PROBABILITY with kinds unprepared, overloaded, unknown-stream, garbage,
    /// silence, close, delay; repeatable
    #[arg(long = "fault", value_name = "KIND=P")]
    pub faults: Vec<String>,
    /// Length of the fault `delay`, microseconds
    #[arg(long, default_value_t = 1000)]
    pub delay_us: u64,
    /// Address for statistics as JSON over HTTP GET
    #[arg(long, value_name = "ADDR")]
    pub statistics: Option<SocketAddr>,
    /// Certificate of all nodes (PEM); the nodes then accept only TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Event loop driver: auto, epoll or uring
    #[arg(long, default_value = "auto")]
    pub io: String,
    /// Stop when standard input closes, which happens when the process that started this one ends
    #[arg(long)]
    pub until_input_closes: bool,
}

impl StubArgs {
    /// Returns the address of every node, in ring order.
    ///
    /// # Errors
    /// The addresses exceed the IP range or the ports.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        (0..self.nodes).map(|node| self.address(node)).collect()
    }

    fn address(&self, node: u16) -> Result<SocketAddr, String> {
        let beyond = || format!("{} nodes do not fit after {}", self.nodes, self.listen);
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
