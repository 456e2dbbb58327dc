# Everything is installed into .venv and nothing outside it. Needed: make, and Python 3.11 or later
# with its venv module. `make install PYTHON=python3.12` takes another interpreter.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m
# Pinned is also what builds the package, in an environment of pip's own: older versions of pip pass
# the first variable on to it, later ones the second.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
       $(RUN) pip --disable-pip-version-check
DECLARED := pyproject.toml constraints.txt src/headway/_version.py
# The kernels are compiled when the package is installed, also from a checkout.
NATIVE := CMakeLists.txt $(shell find native -type f)

# A stamp is the date of an installation, so that nothing is done twice.
CREATED := $(VENV)/.created
CAN_SERVE := $(VENV)/.can-serve
CAN_TEST := $(VENV)/.can-test

.PHONY: help install serve test check format docs lab sanitize bench-peers clean
.DEFAULT_GOAL := help

help:
	@echo "make install             what serving, testing and checking need, into $(VENV)"
	@echo "make serve ARGS=...      install what serving needs (no torch), then: headway serve ARGS"
	@echo "make test ARGS=...       all tests, or those that ARGS names to pytest"
	@echo "make check               format, lint, types, import contracts"
	@echo "make format              format the code and sort its imports"
	@echo "make docs                renew the generated tables in docs/"
	@echo "make lab                 run the experiments of docs/lab and write its pages anew (ARGS=...)"
	@echo "make sanitize            the tests of the kernels under the sanitizers"
	@echo "make bench-peers         Headway beside other engines: docs/benchmarks.md (PEERS=, MODELS=, ROUNDS=, QUICK=1)"
	@echo "make clean               remove $(VENV), the other engines and all caches"

install: $(CAN_TEST)

serve: $(CAN_SERVE)
	$(VENV)/bin/headway serve $(ARGS)

test: $(CAN_TEST)
	$(RUN) pytest $(ARGS)

check: $(CAN_TEST)
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(VENV)/bin/lint-imports

format: $(CAN_TEST)
	$(RUN) ruff check --select I --fix .
	$(RUN) ruff format .

docs: $(CAN_TEST)
	$(VENV)/bin/python scripts/reference_docs.py

lab: $(CAN_SERVE)
	$(RUN) benchmarks.lab --write docs/lab $(ARGS)

# The kernels' tests under the sanitizers of gcc.
sanitize: $(CAN_TEST)
	scripts/sanitize.sh $(VENV)

# PEERS=llama.cpp,openvino and MODELS=smollm2-135m choose; QUICK=1 only shows that it works.
bench-peers: $(CAN_TEST)
	$(RUN) benchmarks.peers $(if $(PEERS),--peers $(PEERS)) $(if $(MODELS),--models $(MODELS)) \
	    $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(QUICK),--quick) $(ARGS)

clean:
	rm -rf $(VENV) .venv-peers build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Headway needs Python 3.11 or later; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." \
	         "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	    echo "'$(PYTHON)' has no venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(CAN_SERVE): $(DECLARED) $(NATIVE) $(CREATED)
	$(PIP) install --editable '.[hub]'
	@touch $@

# Whoever can test can serve.
$(CAN_TEST): $(DECLARED) $(NATIVE) $(CREATED)
	$(PIP) install --editable '.[torch,hub,dev]'
	@touch $(CAN_SERVE) $@
