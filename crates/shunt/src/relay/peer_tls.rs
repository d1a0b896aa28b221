//! TLS of the connections to agents: the options of dispatchers and of agents. Those of proxies are
//! in their configuration.

use std::path::PathBuf;

use clap::Args;
use shunt_dispatch::AgentTls;
use shunt_proxy::config::Switch;
use shunt_reactor::{Session, SessionInfo};
use shunt_tls::{ClientOptions, OptionNames, Server, ServerNames, ServerOptions, Verify};
use shunt_tls_upkeep::{ListenerOptions, Refusal, Servers, server_options};

use super::outgoing::{self, Outgoing, host, switch};
use super::tls::{fault, file_warnings};
use crate::faults::{Fault, Faults};

/// A dispatcher's options of TLS with agents.
#[derive(Args, Clone, Debug)]
pub(super) struct DispatcherTls {
    /// TLS with agents, all of which must have it: on or off
    #[arg(long, value_name = "WHEN", default_value = "off", value_parser = switch, help_heading = "TLS to agents")]
    agent_tls: Switch,
    /// Certificates of the authorities that sign the agents' certificates (PEM) [default: those of
    /// the system]
    #[arg(long, value_name = "FILE", help_heading = "TLS to agents")]
    agent_tls_ca: Option<PathBuf>,
    /// Client certificate for agents that require one, and its intermediate certificates (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS to agents")]
    agent_tls_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS to agents")]
    agent_tls_key: Option<PathBuf>,
    /// Name that the certificate of each agent has [default: the host in --backend]
    #[arg(long, value_name = "NAME", help_heading = "TLS to agents")]
    agent_tls_name: Option<String>,
}

impl DispatcherTls {
    /// The options of TLS, if it is on.
    fn options(&self) -> Option<ClientOptions> {
        (self.agent_tls == Switch::On).then(|| ClientOptions {
            names: OptionNames::AGENT_FLAGS,
            ca: self.agent_tls_ca.clone(),
            certificate: self.agent_tls_certificate.clone(),
            key: self.agent_tls_key.clone(),
            verify: Verify::Full,
            name: self.agent_tls_name.clone(),
        })
    }

    /// Finds faults in these options and their files.
    pub(super) fn check(&self, faults: &mut Faults) {
        let Some(options) = self.options() else {
            let on = "--agent-tls on";
            faults.refuse_idle("agent-tls-ca", self.agent_tls_ca.is_none(), on);
            faults.refuse_idle("agent-tls-certificate", self.agent_tls_certificate.is_none(), on);
            faults.refuse_idle("agent-tls-key", self.agent_tls_key.is_none(), on);
            faults.refuse_idle("agent-tls-name", self.agent_tls_name.is_none(), on);
            return;
        };
        faults.take(outgoing::check(options));
    }

    /// Warnings about these files.
    pub(super) fn warnings(&self) -> Vec<String> {
        outgoing::warnings(self.options())
    }

    /// Reads the files; `None` without TLS.
    pub(super) fn open(&self) -> Result<Option<Outgoing>, Fault> {
        self.options().map(|options| Outgoing::open(Servers::Agents, options)).transpose()
    }
}

/// TLS with the agents at these addresses, each `HOST:PORT`.
pub(super) fn to_agents(tls: &Outgoing, backends: &[String]) -> Box<dyn AgentTls> {
    let hosts = backends.iter().map(|text| host(text).to_owned()).collect();
    Box::new(ToAgents { tls: tls.clone(), hosts })
}

/// TLS of one event loop with its agents.
struct ToAgents {
    tls: Outgoing,
    /// Host of each agent, as its certificate names it.
    hosts: Vec<String>,
}

impl AgentTls for ToAgents {
    fn session(&self, agent: usize) -> Box<dyn Session> {
        self.tls.session(&self.hosts[agent])
    }

    fn handshake_ended(&self, session: Option<&SessionInfo>) {
        self.tls.count(session);
    }
}

/// An agent's options of TLS with dispatchers and proxies.
#[derive(Args, Clone, Debug)]
pub(super) struct AgentServerTls {
    /// Certificate that the agent presents to dispatchers and proxies, and its intermediate
    /// certificates (PEM); each dispatcher then needs --agent-tls on, each proxy --handover-tls on
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    tls_certificate: Option<PathBuf>,
    /// Private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    tls_key: Option<PathBuf>,
    /// Certificates of the authorities that sign the certificates of dispatchers and proxies (PEM);
    /// each of them then needs one
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    tls_client_ca: Option<PathBuf>,
}

impl AgentServerTls {
    /// The options of TLS, if it is on.
    fn options(&self) -> Option<ServerOptions> {
        let files = [&self.tls_certificate, &self.tls_key, &self.tls_client_ca];
        server_options(ServerNames::CLIENT_FLAGS, files)
    }

    /// Finds faults in these options and their files.
    pub(super) fn check(&self, faults: &mut Faults) {
        match (&self.tls_certificate, &self.tls_key) {
            (Some(_), None) => {
                faults.add("tls-certificate", "needs its private key; set --tls-key")
            }
            (None, Some(_)) => {
                faults.add("tls-key", "needs its certificate; set --tls-certificate")
            }
            (None, None) if self.tls_client_ca.is_some() => {
                faults.add("tls-client-ca", "needs TLS; set --tls-certificate and --tls-key")
            }
            _ => {
                if let Some(options) = self.options() {
                    faults.take(Server::open(options).map_err(fault));
                }
            }
        }
    }

    /// Warnings about these files.
    pub(super) fn warnings(&self) -> Vec<String> {
        let clients = self.options();
        file_warnings(ListenerOptions { clients, ..ListenerOptions::default() })
    }

    /// The options of TLS, if it is on, and the answer to connections without it.
    pub(super) fn listener(&self) -> Option<(ServerOptions, Option<Refusal>)> {
        // A dispatcher or a proxy in clear text waits for the agent's first bytes and sends none.
        self.options().map(|options| (options, Some((|_: &[u8]| Vec::new()) as Refusal)))
    }
}
