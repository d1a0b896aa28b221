//! The page of tenants, and their metrics: the numbers that the cores count, added up.

use std::fmt;

use serde_json::{Value, json};
use shunt_admin::Encoder;

use crate::config::{OnExcess, TenantList};
use crate::tenants::shared::Counted;

/// Name of the page.
pub(super) const PAGE: &str = "tenants";

/// The tenants of a configuration, in its order.
pub(super) fn page(tenants: &TenantList) -> Value {
    let rows = tenants.0.iter().enumerate().map(|(place, tenant)| {
        let (limits, sums) = (tenant.limits, tenant.counted());
        json!({
            "place": place + 1,
            "name": &*tenant.name,
            "clients": sums.clients,
            "waiting": sums.waiting,
            "in_flight": sums.in_flight,
            "queries": sums.queries,
            "limited": sums.limited,
            "would_limit": sums.would_limit,
            "queries_per_s": limits.queries_per_s,
            "burst": limits.queries_per_s.map(|_| limits.burst()),
            "bytes_per_s": limits.bytes_per_s,
            "in_flight_max": limits.in_flight_max,
            "clients_max": limits.clients_max,
            "on_excess": match limits.on_excess {
                OnExcess::Wait => "wait",
                OnExcess::Overloaded => "overloaded",
            },
            "dry_run": limits.dry_run,
        })
    });
    json!({ "tenants": rows.collect::<Vec<_>>() })
}

/// Writes the metrics of the tenants, one series for each.
pub(super) fn metrics(tenants: &TenantList, encoder: &mut Encoder<'_>) -> fmt::Result {
    let counted: Vec<_> =
        tenants.0.iter().map(|tenant| (tenant.name.to_string(), tenant.counted())).collect();
    let series = |number: fn(&Counted) -> u64| {
        let one = counted
            .iter()
            .map(|(name, sums)| (vec![("tenant", name.clone())], number(sums) as f64));
        one.collect::<Vec<_>>()
    };
    let clients = series(|sums| sums.clients);
    encoder.gauge("shunt_tenant_clients", "Clients of a tenant.", None, &clients)?;
    let waiting = series(|sums| sums.waiting);
    let help = "Clients that are not read from until their tenant's limits have room.";
    encoder.gauge("shunt_tenant_clients_waiting", help, None, &waiting)?;
    let in_flight = series(|sums| sums.in_flight);
    encoder.gauge("shunt_tenant_in_flight", "Queries of a tenant at nodes.", None, &in_flight)?;
    let queries = series(|sums| sums.queries);
    encoder.counter(
        "shunt_tenant_queries",
        "Queries that a tenant's limits let pass.",
        None,
        &queries,
    )?;
    let limited = series(|sums| sums.limited);
    let help = "Times that a limit of a tenant refused a query or a client, or had a query wait.";
    encoder.counter("shunt_tenant_limited", help, None, &limited)?;
    let would_limit = series(|sums| sums.would_limit);
    let help = "Queries and clients beyond a limit that dry_run let pass.";
    encoder.counter("shunt_tenant_would_limit", help, None, &would_limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Matches, Tenant, TenantLimits};

    #[test]
    fn a_row_has_the_sums_of_all_cores_and_the_limits() {
        let limits = TenantLimits { queries_per_s: Some(7), dry_run: true, ..Default::default() };
        let tenant = Tenant::new("a", Matches::default(), limits);
        for core in 0..2 {
            let counts = tenant.shared.counts(core, 2).expect("the numbers of a core");
            counts.clients.add(2);
            counts.queries.add(3);
            counts.would_limit.add(1);
        }
        let page = page(&TenantList(vec![tenant]));
        let row = &page["tenants"][0];
        assert_eq!(
            (&row["clients"], &row["queries"], &row["would_limit"], &row["limited"]),
            (&json!(4), &json!(6), &json!(2), &json!(0))
        );
        assert_eq!(
            (&row["queries_per_s"], &row["burst"], &row["bytes_per_s"], &row["on_excess"]),
            (&json!(7), &json!(7), &json!(null), &json!("wait"))
        );
    }
}
