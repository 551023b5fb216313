# nftproxy: `make help` lists the targets.

GO            ?= go
GOLANGCI_LINT ?= github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
VERSION       ?= $(shell git describe --tags --always --dirty 2>/dev/null)
BENCH         ?= .
BENCHTIME     ?= 3s
BENCHCOUNT    ?= 1
FUZZTIME      ?= 10s

# nft is often where only root looks.
export PATH := $(CURDIR)/bin:$(PATH):/usr/sbin:/sbin

# Tests make network namespaces: as root, or as root of a user namespace.
ifneq ($(shell id -u),0)
EXEC := -exec $(CURDIR)/deploy/rootless.sh
endif
# The race detector wants a C compiler.
RACE := $(if $(shell command -v $${CC:-cc}),-race)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

.PHONY: build
build: ## build bin/nftproxy
	$(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/nftproxy ./cmd/nftproxy

# Neither pulls nor pushes anything; deploy/Dockerfile is the way with Docker.
.PHONY: image
image: ## build bin/nftproxy-image.tar, an OCI image for amd64 and arm64, without Docker
	@for arch in amd64 arm64; do \
	  CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -buildvcs=false \
	    -ldflags '-s -w -X main.version=$(VERSION)' -o bin/nftproxy-linux-$$arch ./cmd/nftproxy || exit 1; \
	done
	cd e2e && $(GO) run ./cmd/image -tag '$(VERSION)' -out ../bin/nftproxy-image.tar \
	  amd64=../bin/nftproxy-linux-amd64 arm64=../bin/nftproxy-linux-arm64

.PHONY: demo
demo: nft build ## see it work: no root, no cluster, under a minute
	bin/nftproxy demo

.PHONY: test
test: nft iptables ## run all tests but those with an API server
	@$(if $(RACE),,echo "no C compiler: testing without the race detector")
	$(GO) test $(RACE) $(EXEC) ./...

.PHONY: lint
lint: ## check formatting, style and modules
	@unformatted=$$(gofmt -l cmd deploy e2e proxier rules syncer); \
	  if [ -n "$$unformatted" ]; then echo "not formatted, run gofmt -w on:" $$unformatted; exit 1; fi
	$(GO) mod tidy -diff
	cd e2e && $(GO) mod tidy -diff
	$(GO) vet ./...
	cd e2e && $(GO) vet ./...
	@echo "golangci-lint (building it takes some minutes the first time)"
	$(GO) run $(GOLANGCI_LINT) run --allow-parallel-runners ./...
	cd e2e && $(GO) run $(GOLANGCI_LINT) run --allow-parallel-runners -c ../.golangci.yml ./...

.PHONY: bench
bench: ## measure each step of an update on this machine's kernel; BENCHCOUNT=10 for benchstat
	$(GO) test $(EXEC) -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(BENCHCOUNT) -timeout 60m ./rules ./syncer ./proxier

# The sizes of the clusters, in Services of 10 endpoints.
COMPARE ?= 100,1000,10000

.PHONY: compare
compare: root nft build bin/kube-proxy ## measure nftproxy and kube-proxy beside each other, and draw the plots of README.md (as root)
	bin/nftproxy bench compare --peer 'bin/kube-proxy --config {config}' --services $(COMPARE) --report bin/compare
	mkdir -p deploy/figures && cp bin/compare/compare-costs.svg bin/compare/compare-growth-latency.svg deploy/figures/

SOAK ?= 5m

.PHONY: soak
soak: nft ## change endpoints and connect for SOAK (5m), with restarts and outages in between
	SOAK=$(SOAK) $(GO) test -count=1 $(RACE) $(EXEC) -v -timeout 60m -run '^TestSoak$$' ./cmd/nftproxy

.PHONY: fuzz
fuzz: ## run every fuzz test for FUZZTIME (10s)
	@for package in $$(grep -rl '^func Fuzz' --include='*_test.go' cmd proxier rules syncer | xargs -n1 dirname | sort -u); do \
	  package=./$$package; \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    echo "$$package $$target"; \
	    $(GO) test $$package -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x || exit 1; \
	  done; \
	done

# A real kube-apiserver and etcd, built from the nested module in e2e/.
K8S_VERSION := v1.37.2
K8S_LDFLAGS := -s -w -X k8s.io/component-base/version.gitVersion=$(K8S_VERSION) \
  -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37

bin/kube-apiserver bin/kube-controller-manager bin/kube-proxy bin/kubectl: e2e/go.mod
	@echo "building $(@F) (takes about 4 minutes the first time)"
	cd e2e && $(GO) build -ldflags '$(K8S_LDFLAGS)' -o ../$@ k8s.io/kubernetes/cmd/$(@F)
	@touch $@

bin/etcd: e2e/go.mod
	@echo "building $(@F)"
	cd e2e && $(GO) build -ldflags '-s -w' -o ../$@ ./cmd/etcd
	@touch $@

# Scenario cases: CASES is a folder of them, RUN a pattern of their names.
CASES     ?= e2e/testdata/cases
RUN       ?= .
E2E_CASES  = E2E_CASES='$(abspath $(CASES))' E2E_RUN='$(RUN)' NFTPROXY_BIN=$(CURDIR)/bin/nftproxy \
  KUBE_APISERVER_BIN=$(CURDIR)/bin/kube-apiserver KUBE_PROXY_BIN=$(CURDIR)/bin/kube-proxy
E2E_TEST   = $(GO) test -count=1 -timeout 20m -run '^TestCases$$'

# These make hosts out of network namespaces, and mount.
.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "this target has to run as root" >&2; exit 1; }

.PHONY: e2e
e2e: root nft build ## run scenario cases with real packets, objects from manifests (as root)
	cd e2e && $(E2E_CASES) E2E_DRIVER=manifests $(E2E_TEST)

.PHONY: e2e-peer
e2e-peer: root nft bin/etcd build bin/kube-apiserver bin/kube-proxy ## run scenario cases with kube-proxy too, and print a table (as root)
	cd e2e && $(E2E_CASES) E2E_PROXY=both $(E2E_TEST)

# The programs of tests with a real API server.
E2E_BINS  = bin/kube-apiserver bin/kube-controller-manager bin/kube-proxy bin/kubectl
E2E_PATHS = NFTPROXY_BIN=$(CURDIR)/bin/nftproxy KUBE_APISERVER_BIN=$(CURDIR)/bin/kube-apiserver \
  KUBE_CONTROLLER_MANAGER_BIN=$(CURDIR)/bin/kube-controller-manager \
  KUBE_PROXY_BIN=$(CURDIR)/bin/kube-proxy KUBECTL_BIN=$(CURDIR)/bin/kubectl

.PHONY: e2e-api
e2e-api: root nft bin/etcd build $(E2E_BINS) ## test against a real API server, then run scenario cases with it (as root)
	cd e2e && $(E2E_PATHS) $(GO) test -count=1 $(RACE) -v -timeout 20m -run '^Test(API|APIDeploy|ControlPlane|Figures)$$' .
	cd e2e && $(E2E_CASES) E2E_DRIVER=api E2E_SHUFFLE=$$(date +%s) $(E2E_TEST)

.PHONY: e2e-swap
e2e-swap: root nft iptables bin/etcd build $(E2E_BINS) ## replace kube-proxy by nftproxy and go back, under load (as root)
	cd e2e && $(E2E_PATHS) $(GO) test -count=1 $(RACE) -v -timeout 5m -run TestTakeOver .

FIGURES_SERVICES    ?= 10000
FIGURES_CHANGES     ?= 1000
FIGURES_ALL_CHANGES ?= 10000

.PHONY: e2e-figures
e2e-figures: root nft bin/etcd build $(E2E_BINS) ## measure nftproxy and kube-proxy with a large cluster, takes ten minutes (as root)
	cd e2e && $(E2E_PATHS) FIGURES_SERVICES=$(FIGURES_SERVICES) FIGURES_CHANGES=$(FIGURES_CHANGES) \
	  FIGURES_ALL_CHANGES=$(FIGURES_ALL_CHANGES) $(GO) test -count=1 -v -timeout 60m -run '^TestFigures$$' .

.PHONY: e2e-unit
e2e-unit: root bin/etcd bin/kube-apiserver ## test the e2e harness itself (as root)
	cd e2e && KUBE_APISERVER_BIN=$(CURDIR)/bin/kube-apiserver $(GO) test -count=1 $(RACE) ./internal/...

# What tests and the demo need beside Go is installed where this runs as root
# beside a package manager that is known; elsewhere the one command is printed.
.PHONY: nft
nft:
	@command -v nft >/dev/null || sh deploy/install.sh nft nftables nftables nftables

.PHONY: iptables
iptables:
	@command -v iptables-save >/dev/null || sh deploy/install.sh iptables-save iptables iptables-nft iptables
