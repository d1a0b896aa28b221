//! `shunt switch`: the kernel programs that steer packets of handed-over connections, and those
//! that split multigets.

mod balance;
mod multiget;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use shunt_steering::{
    Count, DEFAULT_PINS, Error, Gateway, Placed, Role, Splitter, State, Steering, clean, give_to,
    load, problems,
};

use self::balance::Balance;
use self::multiget::Servers;

use crate::exit::Exit;
use crate::print;

/// `shunt switch`.
#[derive(Args, Debug)]
pub(crate) struct Switch {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Attach the programs to an interface, where they outlive every process
    Load(Load),
    /// Show the connections, destinations or servers that the programs know, and their counters
    Status(Pins),
    /// Check dispatchers from a gateway, and send new connections to ready ones, until stopped
    Balance(Balance),
    /// Detach the programs and drop their entries; connections that were handed over end
    Clean(Pins),
}

#[derive(Args, Debug)]
struct Pins {
    /// Directory of pinned programs and tables, in a BPF file system; `load` creates it
    #[arg(long, value_name = "DIR", default_value = DEFAULT_PINS)]
    pins: PathBuf,
}

#[derive(Args, Debug)]
struct Load {
    /// Role of this host
    #[arg(long, value_enum)]
    role: RoleName,
    /// Interface on which clients' packets arrive; for multiget-client, the one on which multigets
    /// leave
    #[arg(long, value_name = "NAME")]
    interface: String,
    /// Virtual address and port of dispatchers, or the destination of multigets; repeatable. Every
    /// role but dispatcher needs it
    #[arg(long = "vip", value_name = "ADDR:PORT", required_if_eq_any([("role", "backend"), ("role", "gateway"), ("role", "multiget-client"), ("role", "multiget-gateway")]))]
    vips: Vec<SocketAddr>,
    #[command(flatten)]
    servers: Servers,
    /// User, by number or name, that runs the dispatcher or agent [default: root]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    #[command(flatten)]
    pins: Pins,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleName {
    /// Accepts the connections of clients
    Dispatcher,
    /// Takes connections for large answers
    Backend,
    /// Forwards packets of clients to one of several dispatchers
    Gateway,
    /// Splits multigets of local sidecars on their way out
    MultigetClient,
    /// Splits multigets of other hosts
    MultigetGateway,
}

/// Runs `shunt switch`.
pub(crate) fn run(command: &Switch) -> Exit {
    let done = match &command.action {
        Action::Load(load) => load.run(),
        Action::Status(pins) => status(pins),
        Action::Balance(balance) => balance.run(),
        Action::Clean(pins) => {
            clean(&pins.pins).map_err(|error| error.to_string()).map(|found| match found {
                true => format!("removed what was loaded at {}\n", pins.pins.display()),
                false => format!("nothing was loaded at {}\n", pins.pins.display()),
            })
        }
    };
    match done {
        Ok(text) => {
            print(&text);
            Exit::Done
        }
        Err(why) => {
            eprintln!("error: {why}");
            Exit::Configuration
        }
    }
}

impl Load {
    fn run(&self) -> Result<String, String> {
        let role = match self.role {
            RoleName::Dispatcher => Role::Dispatcher,
            RoleName::Backend => Role::Backend,
            RoleName::Gateway => Role::Gateway,
            RoleName::MultigetClient => Role::MultigetClient,
            RoleName::MultigetGateway => Role::MultigetGateway,
        };
        let idle = self.idle(role);
        if !idle.is_empty() {
            return Err(idle.join("\nerror: "));
        }
        let user = self.user.as_deref().map(user_id).transpose()?;
        let (certain, possible): (Vec<_>, Vec<_>) = problems(&self.interface, role, &self.vips)
            .into_iter()
            .partition(|problem| problem.is_certain);
        if !certain.is_empty() {
            return Err(certain
                .into_iter()
                .map(|problem| problem.text)
                .collect::<Vec<_>>()
                .join("\nerror: "));
        }
        let pins = &self.pins.pins;
        let told = |error: Error| error.to_string();
        match role {
            Role::MultigetClient | Role::MultigetGateway => {
                self.servers.load(&self.interface, role, &self.vips, pins)?;
            }
            Role::Dispatcher | Role::Backend | Role::Gateway => {
                load(&self.interface, role, &self.vips, pins).map_err(told)?;
            }
        }
        if let Some(user) = user
            && let Err(error) = give_to(pins, user)
        {
            clean(pins).map_err(told)?;
            return Err(error.to_string());
        }
        possible.iter().for_each(|problem| eprintln!("warning: {}", problem.text));
        Ok(format!("loaded on {}, pinned at {}\n", self.interface, pins.display()))
    }
}

impl Load {
    /// Returns the given options that have no effect in this role; the user expects an effect.
    fn idle(&self, role: Role) -> Vec<String> {
        let is_idle = |flag: &str| {
            format!("--{flag}: has no effect with this --role: remove it, or set another role")
        };
        let vips = (role == Role::Dispatcher && !self.vips.is_empty()).then_some("vip");
        vips.into_iter().chain(self.servers.idle(role)).map(is_idle).collect()
    }
}

/// Parses a user, as a number or as a name in /etc/passwd.
fn user_id(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let users = std::fs::read_to_string("/etc/passwd")
        .map_err(|error| format!("--user: /etc/passwd: {error}"))?;
    let found = users.lines().map(|line| line.split(':')).find_map(|mut parts| {
        let name = parts.next()?;
        (name == text).then(|| parts.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| format!("--user: /etc/passwd has no user {text}"))
}

fn status(pins: &Pins) -> Result<String, String> {
    if let Ok(gateway) = Gateway::open(&pins.pins) {
        return Ok(of_gateway(&gateway));
    }
    if let Ok(splitter) = Splitter::open(&pins.pins) {
        return Ok(multiget::status(&splitter));
    }
    let steering = Steering::open(&pins.pins).map_err(|error| error.to_string())?;
    let (steered, owned) = (steering.steered(), steering.owned());
    let mut text = format!(
        "pinned at {}\n{} elsewhere, {} here\n",
        steering.pins().display(),
        steered.len(),
        owned.len()
    );
    for (flows, place) in [(&steered, "elsewhere"), (&owned, "here")] {
        for flow in flows.iter().take(SHOWN_MAX) {
            let _ = writeln!(text, "  {place:10} {} <- {}", flow.local, flow.peer);
        }
        if flows.len() > SHOWN_MAX {
            let _ = writeln!(text, "  {place:10} and {} more", flows.len() - SHOWN_MAX);
        }
    }
    for (count, name) in Count::ALL {
        let _ = writeln!(text, "{name:18} {}", steering.count(count));
    }
    Ok(text)
}

fn of_gateway(gateway: &Gateway) -> String {
    let targets = gateway.targets();
    let mut text =
        format!("pinned at {}\n{} dispatchers\n", gateway.pins().display(), targets.len());
    for (_, target) in targets {
        let state = match target.state {
            State::TakesNew => "takes new",
            State::KeepsOld => "keeps old",
        };
        let _ = writeln!(text, "  {state:10} {}", target.mac);
    }
    for (count, name) in Placed::ALL {
        let _ = writeln!(text, "{name:18} {}", gateway.count(count));
    }
    text
}

/// Connections listed of each kind.
const SHOWN_MAX: usize = 20;
