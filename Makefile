# The tasks of the project. `make` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Where the shared data sets lie, for make, pytest and CI alike.
export SHARED ?= $(abspath ../shared)
# `make demo`: a Criteo-format file, generated when empty; STORE=redis keeps rows in a Redis of its own.
DATA ?=
STORE ?=
# `make demo ONLINE=1`: a trainer that learns from a stream, and publishes to two servers.
ONLINE ?=

# Processes of `make test`; a file's tests run in one of them, and start others that keep cores busy.
JOBS ?= $(shell n=$$((($$(nproc) * 3 + 1) / 2)); echo $$((n < 8 ? n : 8)))
# A process that crashes ends the run: pytest-xdist starts another one, and may then wait forever.
PARALLEL := -n $(JOBS) --dist loadfile --max-worker-restart 0

# How long `make fuzz` runs each target.
SECONDS ?= 600

.PHONY: help setup format lint build-tests test test-all native-test sanitize fuzz demo bench protos cuda-check gpu-bundle gpu-check clean

help: ## list the tasks
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## Debian packages, virtual environment, Python packages, native build
	@.ci/setup "$(PYTHON)" "$(VENV)"

format: setup ## rewrite the sources in the house style
	$(BIN)/ruff check --fix-only -q .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(git ls-files '*.cc' '*.h' '*.cu' '*.cuh')

lint: setup ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files '*.cc' '*.h' '*.cu' '*.cuh')
	$(BIN)/mypy
	$(BIN)/hadolint docker/*.Dockerfile

build-tests: setup ## the C++ tests, the readers for tests and the emulated GPU, for pytest
	@.ci/build-tests $(BIN)/python

test: build-tests ## the tests but those marked slow
	$(BIN)/python -m pytest -q $(PARALLEL) --durations=40 --durations-min=10

test-all: build-tests ## every test, before an issue is closed
	$(BIN)/python -m pytest -q $(PARALLEL) -m "slow or not slow"

native-test: setup ## the C++ tests of the core and the server (part of `make test`, too)
	@.ci/core-tests $(BIN)/python plain
	@.ci/core-tests $(BIN)/python server

sanitize: setup ## the same under ASan with UBSan, and under TSan
	@.ci/core-tests $(BIN)/python address
	@.ci/core-tests $(BIN)/python thread

fuzz: setup ## random input for the core (clang, libFuzzer) and for checkpoints; SECONDS=600 each
	@.ci/fuzz $(BIN)/python $(SECONDS)

demo: setup ## data -> train -> export -> serve -> predict -> evaluate, with a report
	$(BIN)/python -m hotrow.cli.demo --to demo $(if $(DATA),--data "$(DATA)") $(if $(STORE),--store "$(STORE)") $(if $(ONLINE),--online)

bench: setup ## the benchmarks; prints tables
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

protos: setup ## regenerate the modules of protos/*.proto
	@.ci/protos $(BIN)/python platform

cuda-check: setup ## compile the CUDA half for A100, H100 and B200 (`.ci/run`: for H100 alone)
	@.ci/cuda-build $(BIN)/python "80;90;100"

gpu-bundle: ## gather what a GPU machine without Debian's packages lacks, in build/gpu-bundle
	@.ci/gpu-bundle

gpu-check: ## on a GPU machine without TensorFlow: build, test and measure (STEP=build: one step)
	@"$(PYTHON)" .ci/gpu-check $(STEP)

clean: ## remove what was built
	rm -rf build .setup-stamp demo platform/hotrow/*.so platform/hotrow/hotrow-server platform/*.egg-info
