//! Hosts as network namespaces on a bridge, with helpers for all tests.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use shunt_steering::{Error, Role, Steering, clean, load};

pub(crate) const VIP: &str = "10.98.0.100:8080";
pub(crate) const VIP6: &str = "[fd00:98::100]:8080";
const WAIT: Duration = Duration::from_secs(180);

/// A client, a dispatcher and a backend on one bridge, and a file system for pins.
pub(crate) struct Network {
    name: String,
    pins: PathBuf,
}

pub(crate) fn run(command: &str) -> Result<(), String> {
    let done =
        Command::new("sh").args(["-c", command]).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    done.status.success().then_some(()).ok_or_else(|| format!("{command}: {said}"))
}

impl Network {
    /// `None`, with the reason on standard output, if the network cannot be made.
    pub(crate) fn new(test: &str) -> Option<Network> {
        sweep();
        let name = format!("{PREFIX}{}-{test}", std::process::id());
        let pins = std::env::temp_dir().join(&name);
        let network = Network { name, pins };
        // Needs privileges and iproute2. A failure of any later step fails the test.
        let (name, pins) = (&network.name, network.pins.display());
        if let Err(why) =
            run(&format!("mkdir -p {pins} && mount -t bpf bpf {pins} && ip netns add {name}-sw"))
        {
            println!("skipped: {why}");
            return None;
        }
        network.make().expect("hosts");
        Some(network)
    }

    fn make(&self) -> Result<(), String> {
        let name = &self.name;
        run(&format!(
            "ip -n {name}-sw link add br0 type bridge && ip -n {name}-sw link set br0 up"
        ))?;
        for (host, last) in [("c", 11), ("d", 20), ("b", 31)] {
            let of = format!("{name}-{host}");
            run(&format!(
                "ip netns add {of} && ip -n {name}-sw link add p-{host} type veth peer name eth0 netns {of} address {mac} && \
                 ip -n {name}-sw link set p-{host} master br0 up && ip -n {of} link set lo up && ip -n {of} link set eth0 up && \
                 ip -n {of} addr add 10.98.0.{last}/24 dev eth0 && ip -n {of} addr add fd00:98::{last}/64 dev eth0 nodad",
                mac = mac_of(last),
            ))?;
        }
        run(&format!(
            "ip -n {name}-d addr add 10.98.0.100/32 dev eth0 && ip -n {name}-d addr add fd00:98::100/128 dev eth0 nodad && \
             nsenter --net=/run/netns/{name}-b sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 && \
             ip -n {name}-b addr add 10.98.0.100/32 dev lo && ip -n {name}-b addr add fd00:98::100/128 dev lo nodad"
        ))
    }

    /// Runs a closure on one of the hosts.
    pub(crate) fn on<T: Send>(&self, host: &str, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}-{host}", self.name);
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let space = File::open(path).expect("a namespace");
                move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&space),
                    Some(LinkNameSpaceType::Network),
                )
                .expect("entered");
                work()
            });
            inside.join().expect("the host's thread ends")
        })
    }

    pub(crate) fn pins(&self, host: &str) -> PathBuf {
        self.pins.join(host)
    }

    pub(crate) fn load(&self, host: &str, role: Role) -> Option<Steering> {
        let pins = self.pins(host);
        let vips = [VIP, VIP6].map(|vip| vip.parse().expect("address"));
        unless_skipped(
            self.on(host, || load("eth0", role, &vips, &pins).and_then(|()| Steering::open(&pins))),
        )
    }
}

/// Unwraps the result of a load; `None`, with the reason on standard output, if this host cannot
/// load programs.
pub(crate) fn unless_skipped<T>(loaded: Result<T, Error>) -> Option<T> {
    match loaded {
        Ok(loaded) => Some(loaded),
        Err(error @ (Error::NoPrograms | Error::NotAllowed(_) | Error::OldKernel(_))) => {
            let is_built = !matches!(error, Error::NoPrograms);
            assert!(
                is_built || run("command -v clang").is_err(),
                "clang is there, and the build has no programs"
            );
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const PREFIX: &str = "shunt-st-";

/// Removes the remains of killed processes.
fn sweep() {
    let Ok(spaces) = std::fs::read_dir("/run/netns") else { return };
    for name in spaces.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let mut parts = rest.split('-');
        let (Some(process), Some(test)) = (parts.next(), parts.next()) else { continue };
        if !Path::new("/proc").join(process).exists() {
            drop(Network {
                name: format!("{PREFIX}{process}-{test}"),
                pins: std::env::temp_dir().join(format!("{PREFIX}{process}-{test}")),
            });
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in ["c", "d", "b"] {
            let _ = clean(&self.pins(host));
        }
        for host in ["c", "d", "b", "sw"] {
            let _ = run(&format!("ip netns del {}-{host}", self.name));
        }
        let _ = run(&format!("umount {0} && rmdir {0}", self.pins.display()));
    }
}

pub(crate) fn mac_of(last: u8) -> String {
    format!("02:00:00:00:00:{last}")
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + WAIT;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
