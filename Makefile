# Firn's house. `make` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOL    := go tool -modfile=internal/tools
BUF     := $(TOOL)/proto/go.mod buf
LINT    := $(TOOL)/lint/go.mod golangci-lint
TESTSUM := $(TOOL)/test/go.mod gotestsum

PKGS      ?= ./...
TESTFLAGS ?=
SEEDS     ?= 200
BENCHTIME ?= 1s
FUZZTIME  ?= 10s
SIMTIMEOUT ?= 0
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X main.version=$(VERSION)
# gRPC's tracing pages, which Firn never serves. Their templates keep the linker from
# dropping unused methods: without them the binary is a quarter smaller.
TAGS      := grpcnotrace

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/firn, stripped
	CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/firn ./cmd/firn

.PHONY: demo
demo: ## Run the demo: an agent, real data, results explained
	go run ./cmd/firn demo

.PHONY: lint
lint: lint-words lint-generated ## Check form: gofmt, vet, linters, imports, words, generated code
	$(LINT) run $(PKGS)

.PHONY: lint-words
lint-words: ## Check that no machine path, host or unfinished note is in the tree
	.ci/words

.PHONY: lint-generated
lint-generated: ## Check the protobuf files, and that their generated code is not stale
	$(BUF) lint
	rm -rf .tools/generated
	$(BUF) generate -o .tools/generated
	@cd .tools/generated && find . -name '*.go' | while read -r f; do \
	  cmp -s "$$f" "../../$$f" || { echo "$$f is stale: run make generate" >&2; exit 1; }; done

.PHONY: generate
generate: ## Rebuild the generated code
	$(BUF) generate

.PHONY: test
test: ## Run the tests with the race detector
	$(TESTSUM) --format standard-quiet -- -race -timeout 15m $(TESTFLAGS) $(PKGS)

.PHONY: interop
interop: ## Read Firn's lake with other engines (PyIceberg, DuckDB, ClickHouse)
	internal/interop/run.sh

.PHONY: sim
sim: ## Run the seeded simulations: make sim SEEDS=10000, or one room: PKGS=./wal
	GOGC=400 GOMEMLIMIT=1GiB FIRN_SIM_SEEDS=$(SEEDS) go test -count=1 -timeout $(SIMTIMEOUT) -parallel 8 -run '(?i)simulat|ExactlyOnce' $(PKGS)

.PHONY: bench
bench: ## Run the Go benchmarks: make bench PKGS=./wal BENCHTIME=3s
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(PKGS)

.PHONY: fuzz
fuzz: ## Fuzz every decoder for FUZZTIME each
	.ci/fuzz $(FUZZTIME) $(PKGS)

.PHONY: cover
cover: ## Report test coverage by package and in total
	mkdir -p .tools
	go test -coverprofile .tools/cover.out $(PKGS)
	go tool cover -func .tools/cover.out | tail -1

.PHONY: clean
clean: ## Remove what the targets made
	rm -rf bin .tools .interop
