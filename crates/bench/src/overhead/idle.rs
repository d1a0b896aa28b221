//! `overhead --idle`: resident memory of the proxy per client that is connected and does nothing.

use std::io;

use crate::{
    load::LoadOptions,
    measure::{ProcessSample, Watch},
    overhead::{Arm, OverheadArgs, arms, rig::Rig, template_options},
};

/// Connects the clients and prints what they cost.
pub(super) fn run(args: &OverheadArgs, clients: u32, rig: &Rig, places: arms::Places) -> io::Result<()> {
    let Some(proxy) = arms::start(Arm::Proxy, args, places)? else {
        return Err(io::Error::other("no proxy to measure"));
    };
    // A few clients first: what the first ones make the proxy allocate is not the price of a client.
    let options = |connections| LoadOptions {
        connections,
        idle: true,
        targets: proxy.targets.clone(),
        warm_up_ns: 0,
        duration_ns: 1_500_000_000,
        ..template_options(args)
    };
    rig.run(options(16), Watch::default(), Box::new(|_| {}))?;
    let before = ProcessSample::take(proxy.process.pid())?.resident_bytes;
    let mut watch = Watch::default();
    watch.pids = vec![proxy.process.pid()];
    let report = rig.run(options(clients), watch, Box::new(|_| {}))?;
    let during = report.processes.first().map_or(0, |process| process.resident_bytes);
    let each = during.saturating_sub(before) as f64 / f64::from(clients);
    if args.json {
        let line = serde_json::json!({
            "idle_clients": clients,
            "resident_bytes_before": before,
            "resident_bytes": during,
            "bytes_per_client": each,
        });
        println!("{line}");
    } else {
        println!(
            "{clients} idle clients: the proxy is resident with {:.1} MB, before with {:.1} MB: {each:.0} bytes per client",
            during as f64 / 1e6,
            before as f64 / 1e6
        );
    }
    Ok(())
}
