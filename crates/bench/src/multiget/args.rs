//! Arguments of `shunt bench multiget`.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};

use super::draw::{Size, key_bytes_min};
use crate::load::Distribution;

/// The place where a multiget is split and its answers are merged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Way {
    /// In the library's client, with datagrams.
    Cli,
    /// In a shim, at the request of the library's client.
    Coordinator,
    /// In the network; the library's client merges.
    Netmc,
    /// Without Shunt: an MGET to each server over TCP.
    Tcp,
}

/// `shunt bench multiget`: the multigets, the servers, and the processes to watch.
#[derive(Args, Clone, Debug)]
pub struct MultigetArgs {
    /// Place of split and merge: cli, coordinator and netmc are modes of `shunt multiget serve`,
    /// run by its library in this process; tcp sends an MGET to each server over TCP, one
    /// connection each, all at once
    #[arg(long, value_enum)]
    pub(super) way: Way,
    /// Redis servers, in the order that places the keys; with --way tcp a single one may be a proxy
    /// or a sidecar
    #[arg(long = "server", value_name = "ADDR,..", required = true, value_delimiter = ',', num_args = 1..)]
    pub(super) servers: Vec<SocketAddr>,
    /// The servers' shims, in the same order
    #[arg(long = "shim", value_name = "ADDR,..", value_delimiter = ',', num_args = 1..)]
    pub(super) shims: Vec<SocketAddr>,
    /// Destination of multigets that the network splits, with --way netmc
    #[arg(long, value_name = "ADDR")]
    pub(super) switch: Option<SocketAddr>,
    /// Source address of datagrams
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:0")]
    pub(super) from: SocketAddr,
    /// Most datagrams in one system call; 1 sends each in a separate call
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(usize))]
    pub(super) datagrams_at_once: usize,
    /// Datagrams of one size for one shim leave as one message, which the kernel or the network
    /// card cuts (GSO); not with --way netmc
    #[arg(long)]
    pub(super) gso: bool,
    /// Keys of a multiget, all different: a number, or heavy: 8.6 on average, most often one, at
    /// most 128
    #[arg(long, value_name = "KEYS", default_value = "heavy")]
    pub(super) size: Size,
    /// Number of distinct keys
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) keys: u32,
    /// Distribution of operations over keys, as in `shunt bench load`
    #[arg(long, default_value = "zipf")]
    pub(super) distribution: Distribution,
    /// Bytes of a key
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) key_bytes: u16,
    /// Bytes of a value
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(super) value_bytes: u32,
    /// Share of operations that are a SET of one key, over TCP
    #[arg(long, default_value_t = 0.05)]
    pub(super) writes: f64,
    /// Operations under way: constant in a closed loop, the maximum in an open one
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) outstanding: u32,
    /// Open loop: operations per second, Poisson arrivals, latency from the intended time
    #[arg(long, value_name = "PER_SECOND")]
    pub(super) rate: Option<f64>,
    /// Seconds of load before measuring
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    pub(super) warm_up: f64,
    /// Seconds measured per round
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(super) duration: f64,
    /// Consecutive rounds, each measured and reported separately
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) rounds: u32,
    /// Write every key once before the warm-up
    #[arg(long)]
    pub(super) populate: bool,
    /// Deadline of an operation
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    pub(super) timeout_ms: u64,
    /// Time without an answer after which keys are requested again
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pub(super) resend_ms: u64,
    /// Report CPU time per operation of this process; repeatable
    #[arg(long = "pid", value_name = "PID")]
    pub(super) pids: Vec<u32>,
    /// Report packets and bytes of this network interface
    #[arg(long, value_name = "NAME")]
    pub(super) interface: Option<String>,
    /// Run on this CPU only
    #[arg(long)]
    pub(super) cpu: Option<usize>,
    /// Seed of keys, sizes and arrival times
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
}

impl MultigetArgs {
    pub(super) fn is_by_datagrams(&self) -> bool {
        self.way != Way::Tcp
    }

    /// Refuses arguments that contradict each other.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.is_by_datagrams() && self.shims.len() != self.servers.len() {
            return Err(format!(
                "--shim: there are {} shims for {} servers; name one for each",
                self.shims.len(),
                self.servers.len()
            ));
        }
        if self.way == Way::Netmc && self.switch.is_none() {
            return Err(
                "--way netmc needs --switch, the address that multigets are sent to".to_owned()
            );
        }
        if self.gso && self.way == Way::Netmc {
            return Err("--gso does not work with --way netmc: the program of the network splits \
                requests, and leaves messages that are still to be cut as they are"
                .to_owned());
        }
        if !(0.0..=1.0).contains(&self.writes) {
            return Err(format!("--writes {} is no share from 0 to 1", self.writes));
        }
        if self.size.keys_max() as u64 > u64::from(self.keys) {
            return Err(format!(
                "--keys {}: a multiget has up to {} different keys; give at least that many",
                self.keys,
                self.size.keys_max()
            ));
        }
        if usize::from(self.key_bytes) < key_bytes_min(self.keys) {
            return Err(format!(
                "--key-bytes {} is too few for {} different keys",
                self.key_bytes, self.keys
            ));
        }
        let times = [self.warm_up, self.duration];
        if times.iter().any(|seconds| !(0.0..=1e6).contains(seconds)) || self.duration == 0.0 {
            return Err(
                "--warm-up and --duration are seconds up to a million, and the latter more than 0"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::MultigetArgs;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        multiget: MultigetArgs,
    }

    fn said(arguments: &str) -> Result<MultigetArgs, String> {
        let words = ["multiget"].into_iter().chain(arguments.split_whitespace());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        command.multiget.check().map(|()| command.multiget)
    }

    #[test]
    fn missing_and_contradicting_arguments_are_named() {
        assert!(said("--way tcp --server 127.0.0.1:1,127.0.0.1:2").is_ok());
        assert!(
            said("--way cli --server 127.0.0.1:1 --shim 127.0.0.1:2 --size 16 --keys 16").is_ok()
        );
        for (arguments, why) in [
            ("--way tcp", "--server"),
            ("--way cli --server 127.0.0.1:1", "0 shims for 1 servers"),
            ("--way netmc --server 127.0.0.1:1 --shim 127.0.0.1:2", "needs --switch"),
            ("--way tcp --server 127.0.0.1:1 --writes 2", "no share"),
            ("--way tcp --server 127.0.0.1:1 --keys 100", "up to 128 different keys"),
            ("--way tcp --server 127.0.0.1:1 --key-bytes 2", "too few for 100000"),
            ("--way tcp --server 127.0.0.1:1 --size 0", "'0' is neither"),
            ("--way tcp --server 127.0.0.1:1 --duration 0", "more than 0"),
        ] {
            let problem = said(arguments).expect_err(arguments);
            assert!(problem.contains(why), "{arguments}: {problem}");
        }
    }
}
