//! Checks of a host's network before programs are loaded.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;

use rustix::fs::statfs;

use crate::load::Role;

/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FILE_SYSTEM: u64 = 0xcafe_4a11;

/// A property of this host that prevents, or may prevent, steering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// True if steering certainly fails.
    pub is_certain: bool,
    /// Description of the problem and its remedy.
    pub text: String,
}

/// True if programs and maps can be pinned in this directory.
pub(crate) fn holds_pins(directory: &Path) -> bool {
    // The type of this number differs between architectures.
    statfs(directory).is_ok_and(|found| found.f_type as u64 & 0xffff_ffff == BPF_FILE_SYSTEM)
}

/// Finds the problems of this host for this role.
#[must_use]
pub fn problems(interface: &str, role: Role, vips: &[SocketAddr]) -> Vec<Problem> {
    let mut found = Vec::new();
    match role {
        Role::MultigetClient => {
            return vips.iter().filter_map(|vip| not_on_the_way(*vip)).collect();
        }
        // A gateway lets other packets through, and needs none of these settings.
        Role::MultigetGateway => return found,
        Role::Dispatcher | Role::Backend | Role::Gateway => {}
    }
    if role == Role::Backend {
        found.extend(vips.iter().filter_map(|vip| not_here(vip.ip())));
        if vips.iter().any(SocketAddr::is_ipv4)
            && setting("ipv4", interface, "arp_ignore").is_some_and(|value| value < 1)
        {
            found.push(Problem {
                is_certain: true,
                text: "this host would answer for the virtual address when clients ask who has it (arp_ignore is 0): `sysctl -w \
                       net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2`"
                    .to_owned(),
            });
        }
    }
    if setting("ipv4", interface, "rp_filter") == Some(1) {
        found.push(Problem {
            is_certain: false,
            text: format!(
                "rp_filter is strict (1): clients' packets are dropped unless the way back to them is by {interface} as well; if it is not, `sysctl -w \
                 net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{interface}.rp_filter=2`"
            ),
        });
    }
    let liberal = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal");
    if liberal.is_ok_and(|text| text.trim() == "0") {
        found.push(Problem {
            is_certain: false,
            text: "connection tracking takes packets of moved connections for invalid, which a firewall may drop: `sysctl -w \
                   net.netfilter.nf_conntrack_tcp_be_liberal=1`, or exempt the virtual address (`notrack`)"
                .to_owned(),
        });
    }
    found
}

/// Sockets can be bound to this address only if the host has it.
fn not_here(vip: IpAddr) -> Option<Problem> {
    // The kernel would use an IPv6 address without this lifetime for its own connections to agents.
    let prefix = if vip.is_ipv4() { "32 dev lo" } else { "128 dev lo preferred_lft 0" };
    TcpListener::bind((vip, 0)).is_err().then(|| Problem {
        is_certain: true,
        text: format!("{vip} is no address of this host: `ip addr add {vip}/{prefix}`"),
    })
}

/// The kernel sends nothing to an address without a route, so the program would see no packets.
fn not_on_the_way(vip: SocketAddr) -> Option<Problem> {
    let from = if vip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let way = UdpSocket::bind(from).and_then(|socket| socket.connect(vip));
    way.err().map(|error| Problem {
        is_certain: true,
        text: format!(
            "this host knows no way to {} ({error}): it needs a route by this interface, and a hardware address, which may be any for the program puts in \
             another: `ip neigh replace {0} lladdr 02:00:00:00:00:01 dev INTERFACE nud permanent`",
            vip.ip(),
        ),
    })
}

/// Effective setting: the greater of the values for all interfaces and for this one.
fn setting(family: &str, interface: &str, name: &str) -> Option<u8> {
    let read = |of: &str| -> Option<u8> {
        fs::read_to_string(format!("/proc/sys/net/{family}/conf/{of}/{name}"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    read("all").into_iter().chain(read(interface)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_the_host_does_not_have_is_named_with_what_to_do() {
        let vips =
            ["192.0.2.77:80".parse().expect("address"), "127.0.0.1:80".parse().expect("address")];
        let found = problems("lo", Role::Backend, &vips);
        let certain: Vec<_> =
            found.iter().filter(|problem| problem.text.contains("ip addr add")).collect();
        assert!(
            certain.len() == 1
                && certain[0].is_certain
                && certain[0].text.contains("ip addr add 192.0.2.77/32 dev lo")
        );
        assert!(!problems("lo", Role::Dispatcher, &vips).iter().any(|problem| problem.is_certain));
    }

    #[test]
    fn pins_go_into_a_bpf_file_system_alone() {
        assert!(!holds_pins(Path::new("/proc")) && !holds_pins(Path::new("/nowhere")));
    }
}
