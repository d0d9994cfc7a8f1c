# The commands of the house. `make` alone says what there is.

.PHONY: help deps build libcairn libcairn-fio install-libcairn run check test bench bench-cluster fuzz soak model sim sim-mutants
.DEFAULT_GOAL := help

help:
	@echo "make deps    install from Debian what build and tests need; run, test and bench do it themselves"
	@echo "make run     build, serve a cluster of one node until Ctrl-C (ARGS='--dir D --volume data:10G': see 'cairn demo --help')"
	@echo "make libcairn      the client for C programs: libcairn.so, libcairn.a, cairn.h, cairn.pc in target/release (docs/libcairn.md)"
	@echo "make libcairn-fio  that, and fio's engine over it; make install-libcairn PREFIX=/usr/local"
	@echo "make check   format, clippy with warnings denied, unit tests: before each commit"
	@echo "make test    every test, each stage within its time; the last line is the total"
	@echo "make soak    a device overwritten ten times and verified, many seeds of the simulator, Linux 6.12: 40 minutes"
	@echo "make model   the replication protocol under a model checker, MINUTES=20"
	@echo "make sim     simulated clusters and stores until one fails, SEEDS=n at most, FIRST_SEED=s"
	@echo "make sim-mutants  every deliberate bug, until a model, the simulator or a test catches it; ONLY=replication: some minutes"
	@echo "make fuzz    every decoder against libFuzzer, SECONDS=60 each (needs a nightly compiler)"
	@echo "make bench   the figures of docs/performance.md, measured here"
	@echo "make bench-cluster  those of three processes, of fail-over, beside Ceph; PARTS='failover throughput cairn goals equal flat budget recovery map', SECONDS=5, REPEATS=3, ROUNDS=20"

deps:
	@tools/deps.sh

build:
	cargo build --release

libcairn:
	@tools/libcairn.sh

libcairn-fio:
	@tools/libcairn.sh engine

install-libcairn:
	@PREFIX=$(or $(PREFIX),/usr/local) tools/libcairn.sh install

run:
	@tools/deps.sh build
	cargo build --release --package cairn
	@echo >&2
	@echo "Cairn serves volumes over NVMe/TCP and NBD until Ctrl-C. From another terminal, in this directory:" >&2
	@echo "  target/release/cairn volume ls                    which volumes there are" >&2
	@echo "  target/release/cairn volume info demo             how to reach one" >&2
	@echo "  nbdinfo nbd://127.0.0.1:10809/demo                by NBD: nbdcopy, qemu-img, fio, nbd-client, ..." >&2
	@echo "  nvme discover -t tcp -a 127.0.0.1 -s 4420         by NVMe/TCP: then the 'nvme connect' line of 'volume info'" >&2
	@echo >&2
	@exec "$${CARGO_TARGET_DIR:-target}/release/cairn" demo $(ARGS)

check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --workspace --lib --bins

test: deps
	@tools/test.sh

bench: deps
	@tools/bench.sh

bench-cluster: deps
	@SECONDS_PER_POINT=$(or $(SECONDS),5) REPEATS=$(or $(REPEATS),3) ROUNDS=$(or $(ROUNDS),20) tools/bench-cluster.sh $(PARTS)

soak: deps
	cargo build --release --workspace
	@tools/soak.sh $(SIZE_MIB) $(SEEDS)

fuzz:
	@tools/fuzz.sh $(or $(SECONDS),60) $(TARGETS)

model:
	cargo run --release --package cairn-model -- $(or $(MINUTES),20) $(SEED)

sim:
	cargo run --release --package cairn-sim -- soak $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST_SEED),--first-seed $(FIRST_SEED))

sim-mutants:
	@tools/mutants.sh $(ONLY)
