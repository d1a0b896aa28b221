"""The proxies of a fleet whose certificates have one name. On a node of its own: all members must have such a certificate."""

from harness.certificates import client_context

from tls.test_fleet import fleet, options, serves_all  # noqa: F401 (a fixture)


def test_members_share_a_name(start, fleet, authority, application, clients_ca):  # noqa: F811 (a fixture)
    """Certificates without addresses: in Kubernetes, the address of a pod is not known before it runs."""
    context = client_context(authority.ca, application)
    context.check_hostname = False
    pair = authority.member("shunt.db.svc", hosts=["DNS:shunt.db.svc"])
    named = [*clients_ca, *options(fleet, authority), "--fleet-tls-name"]
    first, second = (start("required", *named, "shunt.db.svc", pair=pair, client=context) for _ in range(2))
    for proxy in (first, second):
        serves_all(proxy, context, f"named-{proxy.port}")
