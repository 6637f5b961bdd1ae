# `make` lists what there is. Everything runs on a laptop without a GPU; nothing here needs Docker or a service.
SHELL := bash
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VERSION   := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS   := -s -w -X main.version=$(VERSION)
PLATFORMS := linux/amd64 linux/arm64 darwin/arm64
TOOL      := go tool -modfile=tools/go.mod
FUZZTIME  ?= 60s
# NVML is reached by cgo, and needs nothing of NVIDIA's to build. Without a C compiler gpupool serves fake GPUs only.
# go-nvml's own warnings about deprecated functions help nobody here, so cgo is quiet (-w).
NVML      ?= $(shell [ "$$(go env GOOS)" = linux ] && command -v "$$(go env CC)" >/dev/null && echo 1 || echo 0)
export CGO_CFLAGS ?= -O2 -g -w
# What make bench and make fuzz look at: make bench PKG=./internal/engine BENCH=Step
PKG       ?= ./...
BENCH     ?= .

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: setup ## build bin/gpupool
	@CGO_ENABLED=$(NVML) go build -trimpath -ldflags '$(LDFLAGS)' -o bin/gpupool ./cmd/gpupool
	@echo "built bin/gpupool $(VERSION)"

.PHONY: cross
cross: setup ## build bin/gpupool-OS-ARCH for every platform, without cgo
	@set -e; for platform in $(PLATFORMS); do \
		os=$${platform%/*} arch=$${platform#*/}; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -trimpath -ldflags '$(LDFLAGS)' -o bin/gpupool-$$os-$$arch ./cmd/gpupool; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build ./...; \
		echo "built bin/gpupool-$$os-$$arch"; \
	done

.PHONY: demo
demo: build ## replay a real trace, then run real processes on eight fake GPUs
	@./scripts/demo.sh

.PHONY: test
test: setup race mocks prometheus systemd redis podman browser ## run every test with the race detector, then 10,000 random histories and a storm without
	@CGO_ENABLED=1 $(TOOL) gotestsum --format pkgname -- -race -timeout 30m ./... ./testdata/nvml
	@$(TOOL) gotestsum --format pkgname -- -timeout 30m -run '^TestRandomHistories$$' ./internal/engine
	@$(TOOL) gotestsum --format pkgname -- -timeout 30m ./internal/storm
	@cd deploy/grafana && go vet ./... && go test ./...
	@cd tools/asynq && go vet ./...

.PHONY: storm-real
storm-real: setup redis ## 100 faults against three servers and a Redis with replicas, in network namespaces (a quarter of an hour)
	@GPUPOOL_STORM_FAULTS=100 go test -count 1 -timeout 60m -v -run '^TestRealStorm$$' ./cmd/gpupool

.PHONY: lint
lint: setup ## go vet, golangci-lint, and the architecture tests
	@go vet ./... ./testdata/nvml
	@$(TOOL) golangci-lint run --allow-parallel-runners ./... ./testdata/nvml
	@go test ./internal/archtest

.PHONY: bench
bench: setup ## run the benchmarks (PKG=./internal/engine BENCH=Step to choose)
	@go test -run '^$$' -bench '$(BENCH)' -benchmem $(PKG)

.PHONY: bench-load
bench-load: setup ## durable submissions a second beside asynq's on a real Redis
	@./scripts/bench-load.sh

.PHONY: fuzz
fuzz: setup ## fuzz every target in the tree for FUZZTIME (60s) each
	@FUZZTIME=$(FUZZTIME) ./scripts/fuzz.sh $(PKG)

.PHONY: clean
clean: ## remove what make built
	@rm -rf bin coverage* junit*.xml

.PHONY: mocks
mocks: race ## build bin/mock and bin/mock-cuda: libraries of NVIDIA's for machines without a GPU
	@if [ "$$(go env GOOS)" = linux ]; then ./testdata/nvml/build.sh bin/mock && ./testdata/cuda/build.sh bin/mock-cuda; fi

# What the others need first; quiet and quick when nothing is missing.
.PHONY: setup race browser
setup:
	@./scripts/setup.sh
race:
	@./scripts/setup.sh race
.PHONY: prometheus
prometheus:
	@./scripts/prometheus.sh
.PHONY: systemd
systemd:
	@./scripts/systemd.sh
.PHONY: redis
redis:
	@./scripts/redis.sh
.PHONY: podman
podman:
	@./scripts/podman.sh
browser:
	@./scripts/setup.sh browser
