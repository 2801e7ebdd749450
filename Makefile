# Everything one can do here. `make demo` and `make test` need Python >= 3.11, pip and make, nothing else.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
# Two more than cores: tests wait for processes, so that on two cores `make test` takes 259 s with four workers, 287 s
# with three.
JOBS   ?= $(shell $(PYTHON) -c 'import os; print(2 + (os.cpu_count() or 1))')

# Kerf's programs start hundreds of times in tests: each start would compile them anew where an environment has this.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint types tests quick test-long gpu soak oracle kernel-dfl mutants fuzz bench e2e e2e-all bench-e2e view-test docs lock generate image sbom audit clean
.DEFAULT_GOAL := help

help:
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The environment is made anew when a lock of these changes. Hashes are checked; only Kerf itself is built from source.
$(VENV)/.runs: requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "kerf needs Python >= 3.11, %s is %d.%d; set PYTHON=/path/to/python3.11" % (sys.executable, v[0], v[1]))'
	@echo "setting up $(VENV): what Kerf needs (half a minute)"
	@$(PYTHON) tools/environment.py --new $(VENV) requirements.lock requirements-build.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.runs requirements-dev.lock
	@echo "setting up $(VENV): what its developers need (half a minute)"
	@$(PYTHON) tools/environment.py $(VENV) requirements-dev.lock
	@touch $@

demo: $(VENV)/.runs ## a walk through Kerf on an embedded cluster, about 20 seconds
	@$(BIN)/kerf demo $(ARGS)

# mypy keeps one core busy, and the tests leave as much of two.
test: lint ## everything that must hold before a commit
	@$(MAKE) --no-print-directory -j2 types tests

lint: $(VENV)/.installed ## ruff and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache | tail -n 4

types: $(VENV)/.installed ## mypy --strict, tests too
	@$(BIN)/mypy

# All tests in these folders have the mark realcluster: importing them takes a sixth of the time of collecting.
REALCLUSTER = tests/e2e tests/installation tests/cdi/runtimes
FAST = not long and not realcluster and not oracle and not gpu and not browser
tests: $(VENV)/.installed ## unit, property and flow tests
	@# A first time, compile all modules: each process would, at the same time as the others. A module that cannot be
	@# imported is told by the tests.
	@test -d tests/__pycache__ || $(BIN)/pytest -q --collect-only $(REALCLUSTER:%=--ignore=%) >/dev/null || true
	@$(BIN)/pytest -q -n $(JOBS) --dist worksteal $(REALCLUSTER:%=--ignore=%) -m "$(FAST)" $(ARGS)

# PROFILE=all: with more cases, for hours. The end of a run prints the seed of its choices; KERF_SEED is that of a run
# that is to be the same.
PROFILE ?= long
# BASE: the revision that the change is compared with.
BASE ?= HEAD
quick: lint types ## what a change can break: lint, types, and the tests that import what it changes
	@tests=$$($(BIN)/python -m tools.affected_tests $(BASE)) && \
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal $(REALCLUSTER:%=--ignore=%) -m "$(FAST)" $$tests $(ARGS)

# KUBELET_CYCLES: claims that the kubelet's DRA manager takes from allocation to deletion, in four tests. It needs Go: no
# Go is an error, and 0 leaves it out.
KUBELET_CYCLES ?= 100000
test-long: $(VENV)/.installed ## the same properties with many more generated cases (40 minutes on two cores, with Go 1.5 hours more)
	@KERF_HYPOTHESIS_PROFILE=$(PROFILE) $(BIN)/pytest -q -n $(JOBS) --dist worksteal -m "(long or property) and not realcluster and not oracle and not gpu and not browser" $(ARGS)
	@test -n "$(ARGS)" -o "$(KUBELET_CYCLES)" = 0 || $(BIN)/python -m tests.oracle kubelet-dra --cases $$(($(KUBELET_CYCLES) / 4))

# One process: it loads the driver's own library. KERF_GPU_DRIVER_ROOT is where the driver has its files, if not in /.
gpu: $(VENV)/.installed ## Kerf on the NVIDIA cards of this machine (root), of which nothing is changed
	@$(BIN)/pytest -q -rs -m gpu $(ARGS) tests/gpu

# CHURN_S=3600: after it, pods with claims and with limits come and go on a real Kubernetes for so many seconds.
CHURN_S ?=
soak: $(VENV)/.installed ## a million claims of simulated time, under faults (an hour or two on two cores)
	@$(BIN)/python -m tests.soak --claims 1000000 $(ARGS)
	@test -z "$(CHURN_S)" || KERF_E2E_VERSION=$(KUBERNETES) KERF_CHURN_S=$(CHURN_S) $(BIN)/pytest -q -s -m realcluster tests/e2e/test_both_kinds.py

oracle: $(VENV)/.installed ## generated cases, judged by the Go libraries of others (needs Go; ARGS=--short: few cases)
	@$(BIN)/python -m tests.oracle $(ARGS)

kernel-dfl: $(VENV)/.installed ## the FPGA backend on the kernel's own DFL drivers, in an emulated guest (Debian's packages; cc)
	@$(BIN)/python -m tests.kernel_dfl $(ARGS)

mutants: $(VENV)/.installed ## small changes of Kerf, one at a time, that its tests should notice
	@$(BIN)/python -m tools.mutants $(ARGS)

# KINDS: those of tests/fuzz, such as cdi, fpga and gbs.
KINDS      ?= all
EXECUTIONS ?= 1000000
fuzz: $(VENV)/.installed ## a million inputs for each reader of files; guided, if atheris is installed
	@$(BIN)/python -m tests.fuzz $(KINDS) --executions $(EXECUTIONS) $(ARGS)

bench: $(VENV)/.installed ## measurements, printed beside a baseline
	@$(BIN)/python -m tests.bench $(ARGS)

# A real Kubernetes. Each process of pytest has a cluster, of some 1 GB; they wait most of the time, so there are more of
# them than cores.
KUBERNETES ?= 1.37
CLUSTERS   ?= 4
# All tests with the mark realcluster: looking for them everywhere takes longer than some of them.
E2E         = tests/e2e tests/installation tests/contract tests/cdi/runtimes
# A release in which drivers allocate: tests/e2e/classic. There is 1.31 too.
CLASSIC ?= 1.30

e2e: $(VENV)/.installed ## Kerf on a real Kubernetes (Linux, root, Go; builds it once, some 45 minutes)
	@$(BIN)/python -m tools.realcluster build --kueue --helm $(KUBERNETES) $(CLASSIC)
	@KERF_E2E_VERSION=$(KUBERNETES) KERF_E2E_CLASSIC=$(CLASSIC) $(BIN)/pytest -q -n $(CLUSTERS) --dist loadfile -m realcluster $(ARGS) $(E2E)

# The other releases, each with the tests that docs/compatibility.md names; it says what fails there, and why.
e2e-all: $(VENV)/.installed ## Kerf on the other releases of docs/compatibility.md (hours; builds each once)
	@failed=0; \
	KERF_E2E_ORDERS=all $(MAKE) e2e E2E=tests/e2e/test_restart_orders.py || failed=1; \
	$(MAKE) e2e KUBERNETES=1.36 CLASSIC=1.31 E2E=tests/e2e || failed=1; \
	$(MAKE) e2e KUBERNETES=1.34 E2E="tests/e2e/test_one_card.py tests/e2e/test_node_choice.py tests/e2e/test_restarts.py tests/e2e/test_permissions.py" || failed=1; \
	$(MAKE) e2e KUBERNETES=1.32 E2E=tests/e2e/test_whole_cards.py || failed=1; \
	exit $$failed

bench-e2e: $(VENV)/.installed ## measurements on a real Kubernetes (needs what e2e needs)
	@$(BIN)/python -m tools.realcluster build 1.37 1.30
	@$(BIN)/python -m tests.bench realcluster $(ARGS)

# The packages of 165 MB that drive a browser are no part of what `make test` needs.
$(VENV)/.browser: $(VENV)/.installed requirements-browser.lock
	@echo "setting up $(VENV): what drives a browser"
	@$(PYTHON) tools/environment.py $(VENV) requirements-browser.lock
	@touch $@

view-test: $(VENV)/.browser ## the pages of `kerf view` in Chromium (root: installs Debian's where there is none)
	@$(BIN)/python -m tools.browser
	@$(BIN)/pytest -q -m browser $(ARGS) tests/view/browser

generate: $(VENV)/.installed ## protobuf modules, CRDs and the picture of the packages, from their sources
	@$(BIN)/python -m tools.generate

# An environment of its own: the site's packages are none of Kerf's.
$(VENV)-docs/.installed: requirements-docs.lock
	@$(PYTHON) -m venv --clear $(VENV)-docs
	@$(VENV)-docs/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

docs: $(VENV)-docs/.installed ## the documentation as a site, in build/site (links are checked; `make tests` checks them, too)
	@NO_MKDOCS_2_WARNING=1 $(VENV)-docs/bin/mkdocs build --quiet --strict $(ARGS)

COMPILE = uv pip compile -q --universal --no-strip-extras --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate

# The image has no kubernetes, which only credential plugins of a kubeconfig and manifests of the demo need.
lock: ## the lock files, from pyproject.toml (needs uv)
	$(COMPILE) -o requirements.lock pyproject.toml
	$(COMPILE) --extra dev --constraint requirements.lock -o requirements-dev.lock pyproject.toml
	$(COMPILE) --group build --constraint requirements-dev.lock -o requirements-build.lock
	$(COMPILE) --extra browser --constraint requirements-dev.lock -o requirements-browser.lock pyproject.toml
	$(COMPILE) --extra docs --constraint requirements-dev.lock -o requirements-docs.lock pyproject.toml
	@$(PYTHON) -c 'import pathlib, tomllib; print(*(need for need in tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]["dependencies"] if not need.startswith(("kubernetes", "pydantic"))), sep="\n")' | \
		$(COMPILE) --constraint requirements.lock -o deploy/image/kerf.lock -
	@sed -n '/^nvidia-ml-py==/,/[^\\]$$/p' requirements-dev.lock >deploy/image/nvidia.lock
	@sed -n -E '/^(cffi|cryptography|pycparser)==/,/[^\\]$$/p' requirements-dev.lock >deploy/image/fpga.lock

image: $(VENV)/.installed ## the container image, dist/kerf-image.tar (mmdebstrap, Go; ARGS=--without-cdi-hook: no Go; ARGS=--with-simulated)
	@$(BIN)/python -m tools.image $(ARGS)

sbom: $(VENV)/.installed ## the bill of materials (CycloneDX), on standard output
	@$(BIN)/python -m tools.supply_chain sbom

# Not among the locked tools: it is about the world of today, not about this version.
audit: ## known vulnerabilities of the locked packages (needs pip-audit, and the network for its database)
	@command -v pip-audit >/dev/null || { echo "make audit: there is no pip-audit (pipx install pip-audit): nothing was checked" >&2; exit 1; }
	pip-audit --strict --require-hashes --disable-pip -r requirements.lock

clean: ## the environment and every cache
	rm -rf $(VENV) $(VENV)-docs .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
