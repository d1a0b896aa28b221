// Connects the Node.js driver, unmodified, to a proxy with mutual TLS. SHUNT_SECURED is the proxy's address,
// SHUNT_SECURED_CA, SHUNT_SECURED_CERTIFICATE and SHUNT_SECURED_KEY are files in PEM, SHUNT_SECURED_DATACENTRE is the nodes'
// datacentre; tests/tls/test_other_drivers.py makes them. The programs of the other drivers do the same.
'use strict';

const assert = require('node:assert/strict');
const { readFileSync } = require('node:fs');
const test = require('node:test');
const cassandra = require('cassandra-driver');

// Milliseconds of each wait.
const PATIENCE = 120_000;
// An answer of many records.
const LARGE = 1 << 20;

function environment(name) {
  const value = process.env[name];
  assert.ok(value, `${name} is missing: tests/tls/test_other_drivers.py starts the proxy`);
  return value;
}

async function work(client, keyspace) {
  const replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
  await client.execute(`CREATE KEYSPACE IF NOT EXISTS ${keyspace} WITH replication = ${replication}`);
  await client.execute(`CREATE TABLE IF NOT EXISTS ${keyspace}.items (k int PRIMARY KEY, v blob)`);
  for (const [key, size] of [1, 100, LARGE].entries()) {
    const written = Buffer.from(Uint8Array.from({ length: size }, (_, index) => index ^ (index >> 8)));
    await client.execute(`INSERT INTO ${keyspace}.items (k, v) VALUES (?, ?)`, [key, written], { prepare: true });
    const found = await client.execute(`SELECT v FROM ${keyspace}.items WHERE k = ?`, [key], { prepare: true });
    assert.ok(found.first().v.equals(written), `of ${size} bytes others came back`);
  }
  const select = `SELECT k FROM ${keyspace}.items`;
  const first = await client.execute(select, [], { prepare: true, fetchSize: 2 });
  assert.equal(first.rows.length, 2);
  const rest = await client.execute(select, [], { prepare: true, fetchSize: 2, pageState: first.pageState });
  assert.equal(rest.rows.length, 1);
}

// The driver speaks v4 at most.
for (const version of [3, 4]) {
  test(`mutual TLS, v${version}`, async () => {
    const client = new cassandra.Client({
      contactPoints: [environment('SHUNT_SECURED')],
      localDataCenter: environment('SHUNT_SECURED_DATACENTRE'),
      protocolOptions: { maxVersion: version },
      socketOptions: { connectTimeout: PATIENCE, readTimeout: PATIENCE },
      sslOptions: {
        ca: [readFileSync(environment('SHUNT_SECURED_CA'))],
        cert: readFileSync(environment('SHUNT_SECURED_CERTIFICATE')),
        key: readFileSync(environment('SHUNT_SECURED_KEY')),
        rejectUnauthorized: true,
        // The driver disables this check by default.
        checkServerIdentity: require('node:tls').checkServerIdentity,
      },
    });
    try {
      await client.connect();
      assert.equal(client.controlConnection.protocolVersion, version);
      await work(client, `secured_node_${version}`);
    } finally {
      await client.shutdown();
    }
  });
}
