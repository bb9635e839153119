# Verbs only. `make help` lists them. MODEL names a folder of tasks/.
MODEL ?= qwen2.5vl-32b
# A CPU wheel where the index offers one; TORCH='torch' takes the index's default build.
TORCH ?= torch==2.13.0
PYTHON ?= python3
# The MindSpeed-MM checkout into which tasks/ was copied.
CHECKOUT ?= .
# More options of docker/build.sh or docker/run.sh.
ARGS ?=
SHELL := bash

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SHELL_SOURCES = $(shell find templates/lib tasks tests/golden tests/shell $(wildcard docker) .ci -name '*.sh' -o -name '*.sbatch' -o -name '*.bash' -o -path .ci/run)

.DEFAULT_GOAL := help
CHECKOUT_TARGETS := convert finetune merge export
.PHONY: help setup render plan $(CHECKOUT_TARGETS) rehearse docker-build docker-run format lint test test-container bench bench-data check golden

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY) ## make .venv with everything (TORCH=... chooses the torch wheel)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

render: $(READY) ## write the files of tasks/MODEL from its profile
	$(BIN)/taskpack render $(MODEL)

plan: $(READY) ## check a profile and show what it amounts to
	$(BIN)/taskpack plan $(MODEL)

convert: ## cut the HF weights for the task (CHECKOUT=... names the MindSpeed-MM checkout)
	bash $(CHECKOUT)/tasks/$(MODEL)/convert_hf_to_mm.sh

finetune: ## start the task on this node (CHECKOUT=... names the MindSpeed-MM checkout)
	bash $(CHECKOUT)/tasks/finetune.sh $(MODEL)

merge: ## merge the trained adapter into the base weights
	bash $(CHECKOUT)/tasks/$(MODEL)/merge_lora.sh

export: ## write the trained weights as an HF folder
	bash $(CHECKOUT)/tasks/$(MODEL)/convert_mm_to_hf.sh

rehearse: $(READY) ## run the whole task on this CPU with a narrow model
	$(BIN)/taskpack rehearse $(MODEL)

docker-build: ## build the image of MODEL's release and chip (ARGS='--src DIR' takes local sources)
	bash docker/build.sh --model $(MODEL) $(ARGS)

docker-run: ## start MODEL in its image (CHECKOUT=... as for finetune, ARGS='--npus 0-3')
	bash docker/run.sh --model $(MODEL) --checkout $(CHECKOUT) $(ARGS)

format: $(READY) ## format Python and shell
	$(BIN)/ruff format tools tests
	$(BIN)/ruff check --fix tools tests
	$(BIN)/shfmt -w -i 2 -ci -bn $(SHELL_SOURCES)

lint: $(READY) ## ruff, mypy, shellcheck, shfmt, hadolint
	$(BIN)/ruff check tools tests
	$(BIN)/ruff format --check tools tests
	$(BIN)/mypy
	$(BIN)/shellcheck $(SHELL_SOURCES)
	$(BIN)/shfmt -d -i 2 -ci -bn $(SHELL_SOURCES)
	$(BIN)/hadolint docker/Dockerfile

check: lint ## lint, and tasks/ is what the profiles render to
	$(BIN)/taskpack render --all --check

test: $(READY) ## everything but containers
	$(BIN)/pytest -n 2
	$(BIN)/bats tests/shell

test-container: $(READY) ## build the image and run it (root, with buildah, podman and debootstrap)
	$(BIN)/pytest tests/container

golden: $(READY) ## rewrite what the tests compare rendered tasks with; read the difference
	rm -rf tests/golden/render
	trees=$$(mktemp -d) && bash tests/golden/render.sh "$$trees" tests/golden/render && rm -r "$$trees"

bench: $(READY) ## time conversions against a plain copy (needs 30 GB of disk)
	$(BIN)/python tests/bench/bench_weights.py
	$(BIN)/python tests/bench/bench_lora.py

bench-data: $(READY) ## time a conversion of rows against json.load and json.dump (needs 6 GB of disk)
	$(BIN)/python tests/bench/bench_data.py
