# The commands a person types. Each sees to its tools (tools/bootstrap), then
# hands over to CMake presets; see HACKING.md for what lies underneath.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
CXX_SOURCES = $(shell find include src cli bindings tests -name '*.[ch]pp' -o -name '*.[ch]' -o -name '*.hpp.in' \
                -o -name '*.cu' -o -name '*.cuh')

.DEFAULT_GOAL := help
.PHONY: help demo build test test-dev test-install test-ecosystem test-models test-sanitize \
        build-dev build-sanitize build-without-python need-python bench bench-gpu cross docs \
        fuzz lint format clean wheel

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: build  ## build, multiply a Monarch layer and a few patterns, check them, time them, draw them
	build/default/cli/kronsparse demo --out build/default

build:  ## the library and the command, optimised, in build/default
	@tools/bootstrap build
	cmake --preset default
	cmake --build --preset default --parallel $(JOBS) --target kronsparse_cli

test:  ## every test but those of test-install and test-ecosystem, optimised
	@tools/bootstrap build
	@# Packages for Python are fetched while what needs none of them is built.
	@$(MAKE) --no-print-directory -j 2 need-python build-without-python
	@$(MAKE) --no-print-directory test-dev

build-without-python:
	cmake --preset dev -DKRONSPARSE_PYTHON=OFF -DKRONSPARSE_TORCH=OFF
	cmake --build --preset dev --parallel $(JOBS)

build-dev: need-python  # its tests
build-dev build-sanitize: build-%:
	@tools/bootstrap build
	cmake --preset $*
	cmake --build --preset $* --parallel $(JOBS)

test-install: build-dev  ## installs the library and the package apart, and uses them; builds them anew
	ctest --preset dev-install --parallel $(JOBS) --output-junit junit-install.xml

test-models: build-dev  ## the benchmark with small models of transformers, which it installs into build/models-venv
	tools/test-models

test-ecosystem: build-dev  ## tests beside transformers and PEFT, and the cookbook; fetches those packages
	tools/test-ecosystem

wheel:  ## an sdist and a wheel in build/wheel, checked by auditwheel; tools/wheel says what can be chosen
	@tools/bootstrap build
	tools/wheel

# test-sanitize: those of the C++ library and the command once more, with ASan and UBSan; part of CI.
test-dev test-sanitize: test-%: build-%
	ctest --preset $* --parallel $(JOBS) --output-junit junit.xml

bench: build need-python  ## the CPU backend against PyTorch on 24 patterns (prepares .venv if torch is missing)
	python=.venv/bin/python3; [[ -x $$python ]] || python=python3; \
	  PYTHONPATH=python $$python -W ignore::RuntimeWarning -m kronsparse.bench run --suite cpu-targets --device cpu

bench-gpu: build  ## the CUDA backend against PyTorch, all its targets: 64 patterns in every dtype, then small batches
	tools/bench-gpu $(RESULTS)

need-python:
	@tools/bootstrap python

cross:  ## conformance tests of the other architecture, emulated
	@JOBS=$(JOBS) tools/cross-check

docs:  ## the site of the documentation in build/site; warnings are errors, links are checked
	@tools/bootstrap docs
	tools/docs

fuzz:  ## fuzz targets for FUZZ_SECONDS each (libFuzzer if clang++ is there)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) JOBS=$(JOBS) tools/fuzz

lint:  ## clang-format, clang-tidy, ruff, mypy
	@tools/bootstrap lint python
	cmake --preset dev
	JOBS=$(JOBS) tools/lint

format:  ## rewrite sources with clang-format and ruff
	@tools/bootstrap lint python
	clang-format -i $(CXX_SOURCES)
	python=.venv/bin/python3; [[ -x $$python ]] || python=python3; $$python -m ruff format .

clean:  ## remove everything built
	rm -rf build
