# Shunt's front door. `make` alone lists what there is.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# RocksDB from source, with its compressors, where ROCKSDB_COMPILE says so.
BUNDLED := $(if $(ROCKSDB_COMPILE),--features shunt-storage/bundled)

.DEFAULT_GOAL := help
.PHONY: help run run-cassandra test test-long lint unit e2e ring ring-stop ring-cost extension-cost store-speed row-cache bench report deny fuzz-corpus build module packages clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## build Shunt, run three embedded nodes and the proxy on 127.0.0.1:9042; needs nothing else; Ctrl-C stops it
	@scripts/run

run-cassandra: ## build Shunt, start a one-node Cassandra and the proxy in front of it on 127.0.0.1:9042
	@scripts/run-cassandra

test: ## everything CI runs; about 20 minutes on two idle processors
	@scripts/test

test-long: ## beside `make test`: larger forms of it, every driver with every store, a soak; takes an afternoon
	@scripts/test long

lint: ## formatting, clippy, house rules
	@scripts/test lint

unit: ## unit, property, simulation and fuzz tests, for use all day: less than 5 minutes after a first build
	@scripts/test unit

e2e: ## drivers, cqlsh and faults against a real three-node ring
	@scripts/test e2e

ring: ## start a three-node Cassandra ring on 127.0.0.1 to 127.0.0.3, CQL on port 19042
	@scripts/prerequisites ring
	@scripts/ring start

ring-stop: ## stop every ring that was started here; data stays in target/ring
	@scripts/ring stop

ring-cost: build ## what a query costs the ring's nodes: round robin, token aware, through Shunt, with the extension
	@experiments/run ring_cost $(RING_COST)

extension-cost: build ## what a query costs a Cassandra node with and without the extension
	@experiments/run extension_cost --optimise $(EXTENSION_COST)

store-speed: build ## what reads and writes cost the embedded node, Cassandra and redis-server
	@experiments/run store_speed $(STORE_SPEED)

row-cache: ## Cassandra's row cache on a slow disk; root and cgroup v1; ROW_CACHE="--cache DIRECTORY" on a fast disk
	@experiments/run row_cache $(ROW_CACHE)

bench: build ## the papers' experiments and the peers, side by side, and a report of them: about an hour; BENCH="NAME..." for some
	@scripts/prerequisites ring python || echo "what needs these is left out"
	@status=0; $(TARGET)/release/shunt bench run $(BENCH) --out target/bench/results.jsonl || status=$$?; \
	  experiments/report/build target/bench/results.jsonl --out target/bench/report && exit $$status

report: ## a page with plots of the last `make bench`, or of docs/results; RESULTS=FILE for another, REPORT=--keep to keep it there
	@scripts/prerequisites python
	@experiments/report/build $(RESULTS) $(REPORT)

build: ## the release binary, target/release/shunt
	@scripts/prerequisites rust
	@$(CARGO) build --release --locked -p shunt $(BUNDLED)

module: ## the module for Redis and Valkey that answers multigets in datagrams, target/modules/shunt-multiget.so
	@$(MAKE) -s -C modules/redis OUT=$(abspath $(TARGET))/modules

packages: ## .deb and .rpm of the proxy and of the embedded node, in target/packages
	@scripts/prerequisites rust packages
	@packaging/build

deny: ## licences, advisories and sources of all dependencies (installs cargo-deny if it is missing; not part of `test`)
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	@$(CARGO) deny check

clean: ring-stop ## stop the rings and delete target: what was built, the data of `make run` and of rings, results of `make bench`
	@$(CARGO) clean
