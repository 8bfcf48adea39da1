# The targets are for people and for CI alike; "make help" lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Targets share the files of bin/, and none may disturb what another one measures.
.NOTPARALLEL:

GO ?= go
FUZZTIME ?= 30s
BENCHTIME ?= 0.5s
BENCHCOUNT ?= 6

# The modules: Vicinity, the lab that it is tried in, the tests of dashboards and rules, and what
# makes releases.
MODULES := . lab monitoring hack/release

# The packages whose tests can write what they would compare, of the module in the
# working directory. Some modules have none.
GOLDEN = { grep -rlE --include='*_test.go' 'vicinity/test/golden"|^var update = flag.Bool' $$([ "$$module" = . ] && printf -- '--exclude-dir=%s ' lab release) . || :; } | xargs -rn 1 dirname | sort -u

# All is compiled as the programs of images are, which have nothing of a machine's files and link
# none of its libraries: what is compiled for one is there for the others.
export CGO_ENABLED := 0
# An account that is not that of an administrator may lack the folders of nft and iptables.
export PATH := $(PATH):/usr/sbin:/sbin
export GOAMD64 := v1
export GOARM64 := v8.0
export GOFIPS140 := off
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)

# A binary says which revision it was built from, whatever GOFLAGS says. Where git
# does not know or does not trust the tree, the go command would refuse to build.
BUILDVCS := $(if $(shell git rev-parse --quiet --verify HEAD 2>/dev/null),auto,false)

# Tools are pinned in hack/tools and built once for each content of it.
TOOLS := bin/tools/$(shell { cat hack/tools/go.mod hack/tools/go.sum; $(GO) env GOVERSION; } | cksum | cut -d ' ' -f 1)

# The release of the lab's Kubernetes: newest, or oldest, which is the oldest one that
# still gets patches. Both are the program in lab/kubernetes, by a module file each. The
# lab runs the one that make was last asked for.
KUBERNETES ?= newest
KUBERNETES_MODULE := $(if $(filter newest,$(KUBERNETES)),go,$(if $(filter oldest,$(KUBERNETES)),oldest,\
	$(error KUBERNETES is "$(KUBERNETES)": it must be newest or oldest)))

# It takes minutes to build, so it is built once for each content of lab/kubernetes,
# version of Go and choice of flags. The go command does not know which release its
# modules are, so the linker writes it where the components look for it.
KUBERNETES_FILES := $(wildcard lab/kubernetes/*.go) $(addprefix lab/kubernetes/$(KUBERNETES_MODULE),.mod .sum)
KUBERNETES_VERSION := $(shell sed -nE 's|^\tk8s.io/kubernetes (v[0-9.]+)$$|\1|p' lab/kubernetes/$(KUBERNETES_MODULE).mod)
KUBERNETES_LDFLAGS := -s -w -X k8s.io/client-go/pkg/version.gitVersion=$(KUBERNETES_VERSION) \
	-X k8s.io/component-base/version.gitVersion=$(KUBERNETES_VERSION) \
	-X k8s.io/component-base/version.gitMajor=$(patsubst v%,%,$(word 1,$(subst ., ,$(KUBERNETES_VERSION)))) \
	-X k8s.io/component-base/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION))) \
	-X k8s.io/component-base/version.gitCommit= -X k8s.io/component-base/version.gitTreeState=clean
KUBERNETES_PROGRAM := bin/kubernetes-$(shell { cat $(KUBERNETES_FILES); $(GO) env GOVERSION GOOS GOARCH; echo '$(CGO_ENABLED) $(GOFLAGS) $(KUBERNETES_LDFLAGS)'; } | cksum | cut -d ' ' -f 1)

# The Prometheus that scrapes a lab, without what finds targets elsewhere than in Kubernetes and
# in files, and without the files of its web pages.
PROMETHEUS := github.com/prometheus/prometheus/cmd/prometheus
PROMETHEUS_TAGS := remove_all_sd,enable_kubernetes_sd
PROMETHEUS_PROGRAM := bin/prometheus-$(shell { cat monitoring/go.mod monitoring/go.sum; $(GO) env GOVERSION GOOS GOARCH; echo '$(CGO_ENABLED) $(GOFLAGS) $(PROMETHEUS_TAGS)'; } | cksum | cut -d ' ' -f 1)

# Kubernetes' own end-to-end tests and the programs of their pods, of the same release: tools of lab/kubernetes.
SUITE_IMAGES := lab/test/conformance/images.yaml
CONFORMANCE_SUITE := bin/suite-$(shell { cat lab/kubernetes/$(KUBERNETES_MODULE).mod lab/kubernetes/$(KUBERNETES_MODULE).sum $(SUITE_IMAGES); $(GO) env GOVERSION GOOS GOARCH; echo '$(CGO_ENABLED) $(GOFLAGS) $(KUBERNETES_LDFLAGS)'; } | cksum | cut -d ' ' -f 1)

# The areas of promises unless AREA says otherwise: with the oldest Kubernetes, those
# about what runs in clusters of users.
AREAS := $(if $(filter oldest,$(KUBERNETES)),routing proxy,all)

# The tier of the promises that run, empty for all. Only make test sets it.
TIER :=

# A stage says what it does, how far it is and the time so far, and shows its output if it fails. A target with
# several names them in STAGES. packages lists what is compiled: of a module, and there the arguments of go list.
STAGE := hack/stage
export STAGES_BEGUN := $(or $(STAGES_BEGUN),$(shell date +%s))
packages = (cd $(1) && $(GO) list -deps $(2));

.PHONY: help
help: ## List the targets
	@sed -nE 's/^([a-z][a-z0-9-]*):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do \
		printf '  make %-17s %s\n' "$$target" "$$text"; done

.PHONY: build
build: ## Build bin/vicinity and bin/vicinity-controller, -proxy, -dns and -lab
	@$(STAGE) --packages '$(call packages,hack/release,.) $(call packages,.,./cmd/...) $(call packages,lab,./cmd/...)' \
		build "Vicinity: command line, controller, proxy, DNS server, lab" $(MAKE) compile

# Images have the programs of bin/.
.PHONY: compile release-maker
compile: release-maker
	@GO='$(GO)' bin/release-maker programs --out bin --version '$(VERSION)'
	@cd lab && $(GO) build -v -buildvcs=$(BUILDVCS) -ldflags '-s -w' -o ../bin/ ./cmd/...
	@for name in kubectl-vicinity kubectl_complete-vicinity; do ln -sfn vicinity bin/$$name; done

release-maker:
	@cd hack/release && $(GO) build -v -buildvcs=false -o ../../bin/release-maker .

.PHONY: kubernetes
kubernetes: ## Build bin/vicinity-kubernetes and bin/kubectl for the lab, once (minutes when cold)
	@$(STAGE) --packages '$(call packages,lab/kubernetes,-modfile $(KUBERNETES_MODULE).mod .)' \
		kubernetes 'Kubernetes $(KUBERNETES_VERSION) and its etcd' $(MAKE) $(KUBERNETES_PROGRAM)
	@for name in vicinity-kubernetes kubectl; do ln -sfn $(notdir $(KUBERNETES_PROGRAM)) bin/$$name; done

# An interrupted build leaves nothing that looks built.
$(KUBERNETES_PROGRAM):
	@mkdir -p bin
	cd lab/kubernetes && $(GO) build -v -modfile $(KUBERNETES_MODULE).mod -buildvcs=false -ldflags '$(KUBERNETES_LDFLAGS)' -o '$(CURDIR)/$@.new' .
	@mv '$@.new' '$@'

.PHONY: prometheus
prometheus: ## Build bin/vicinity-prometheus for the lab, once (minutes when cold)
	@$(STAGE) --packages '$(call packages,monitoring,-tags $(PROMETHEUS_TAGS) $(PROMETHEUS))' prometheus Prometheus $(MAKE) $(PROMETHEUS_PROGRAM)
	@ln -sfn $(notdir $(PROMETHEUS_PROGRAM)) bin/vicinity-prometheus

$(PROMETHEUS_PROGRAM):
	@mkdir -p bin
	cd monitoring && $(GO) build -v -tags '$(PROMETHEUS_TAGS)' -buildvcs=false -ldflags '-s -w' -o '$(CURDIR)/$@.new' $(PROMETHEUS)
	@mv '$@.new' '$@'

# A folder has the tests, the programs of their pods, and what maps images to them.
.PHONY: suite
suite: conformance-programs ## Build Kubernetes' own end-to-end tests, once (minutes when cold)
	@$(STAGE) --packages '$(call packages,lab/kubernetes,-test -modfile $(KUBERNETES_MODULE).mod k8s.io/kubernetes/test/e2e)' \
		suite 'the end-to-end tests of Kubernetes $(KUBERNETES_VERSION)' $(MAKE) $(CONFORMANCE_SUITE)

$(CONFORMANCE_SUITE):
	@rm -rf '$@.new' && mkdir -p '$@.new/agnhost-root'
	cd lab/kubernetes && $(GO) test -c -vet=off -modfile $(KUBERNETES_MODULE).mod -buildvcs=false -ldflags '$(KUBERNETES_LDFLAGS)' -o '$(CURDIR)/$@.new/e2e.test' k8s.io/kubernetes/test/e2e
	cd lab/kubernetes && $(GO) build -v -modfile $(KUBERNETES_MODULE).mod -buildvcs=false -ldflags '$(KUBERNETES_LDFLAGS)' -o '$(CURDIR)/$@.new/' \
		k8s.io/kubernetes/test/images/agnhost k8s.io/kubernetes/test/images/regression-issue-74839
	@cp "$$(cd lab/kubernetes && $(GO) list -modfile $(KUBERNETES_MODULE).mod -m -f '{{.Dir}}' k8s.io/kubernetes)"/test/images/agnhost/porter/localhost.* '$@.new/agnhost-root/'
	@cp "$$(command -v busybox)" $(SUITE_IMAGES) '$@.new/' && touch '$@.new/agnhost-root/index.html'
	@mv '$@.new' '$@'

# tests runs tests of all modules with some flags: of all packages, or of those whose imports pass a grep. The longest
# are in the lab. The go command ends an interrupt as a failure, so the trap is what stops the loop, also in the background.
tests = (trap 'exit 130' INT TERM; failed=; \
	for module in lab $(filter-out lab,$(MODULES)); do (cd "$$module" && \
		$(GO) list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | { grep $(or $(2),.) || :; } | cut -d ' ' -f 1 | \
		xargs -r $(GO) test -vet=off -json $$([ "$$module" = . ] || echo -count=1) $(1)) || failed=1; done; \
	test -z "$$failed")

# RESULTS reads the events of "go test -json". It prints a line for each package, the output of failed tests, the skipped
# tests with their reasons, and counts. SKIPS_ARE_LISTED fails for a skipped test without a reason in test/skips.txt, and if no test passed.
ENDED := bin/tests.json
RESULTS = $(TOOLS)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --ignore-non-json-output-lines --jsonfile-timing-events $(ENDED) --raw-command -- cat
SKIPS_ARE_LISTED = awk 'function member(name) { return match($$0, "\"" name "\":\"[^\"]*\"") ? substr($$0, RSTART + length(name) + 4, RLENGTH - length(name) - 5) : "" } \
	NR == FNR { if (NF > 1) listed[$$1]; next } \
	member("Action") == "skip" && member("Test") && !((member("Package") "." member("Test")) in listed) { \
		print "skipped without a reason in test/skips.txt: " member("Package") "." member("Test"); missing = 1 } \
	member("Action") == "pass" && member("Test") { passed++ } \
	END { if (!passed) print "no test passed"; exit missing || !passed }' test/skips.txt $(ENDED)

# Tests that share a control plane import this. Each has it alone.
SHARES := 'vicinity/test/rig[] ]'

.PHONY: check
check: export STAGES := build vet unit
check: build vet ## Before each commit: build, vet, unit tests
	@$(STAGE) --show unit 'unit tests' $(MAKE) unit

.PHONY: unit
unit: $(TOOLS)/gotestsum
	@$(call tests,-short) | $(RESULTS)

.PHONY: vet
vet:
	@$(STAGE) vet 'go vet of all modules' bash -ec 'for module in $(MODULES); do (cd "$$module" && $(GO) vet ./...); done'

# A stage that fails does not keep the next ones from saying what they find.
.PHONY: test
test: export STAGES := build package kubernetes promises vet live e2e
test: root programs build package kubernetes e2e-program vet ## All tests, and the promises that show every part in a cluster: RETRIES=1
	$(if $(filter oldest,$(KUBERNETES)),$(error make test is for the newest Kubernetes: make e2e KUBERNETES=oldest shows what holds on the oldest))
	@trap 'exit 130' INT TERM; failed=; \
	$(STAGE) --show live 'unit tests, and tests on one control plane' $(MAKE) live || failed=1; \
	$(STAGE) --show e2e 'promises, one lab at a time' $(MAKE) promises AREA=all TIER=test || failed=1; \
	test -z "$$failed"

# Tests that need a control plane share one, of the shape that test/rig expects, and have it one after the other: while
# one runs, the next is linked. They wait more than they work, so all other tests run beside them: behind a pipe that
# carries nothing, since Ctrl-C does not end jobs in the background.
CONTROL_PLANE := $(CURDIR)/bin/control-plane

.PHONY: live
live: export VICINITY_LAB_DIR := $(CONTROL_PLANE)
live: export VICINITY_CONTROL_PLANE := $(CONTROL_PLANE)/shared/kubeconfig
live: $(TOOLS)/gotestsum
	@bin/vicinity-lab down --name shared >/dev/null 2>&1 || :
	@bin/vicinity-lab up --name shared --control-plane-only --vicinity=false --nodes-per-zone=1 --fake-nodes=9 --eviction-requests
	@trap 'bin/vicinity-lab down --name shared' EXIT; \
	{ failed=; $(call tests,-p 2 -timeout 60m,$(SHARES)) >'$(CONTROL_PLANE)/tests.json' | $(call tests,-p 3 -timeout 60m,-v $(SHARES)) || failed=1; \
		cat '$(CONTROL_PLANE)/tests.json'; test -z "$$failed"; } | $(RESULTS)
	@$(SKIPS_ARE_LISTED)

.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "labs make network namespaces, so run this as root; make check needs no root" >&2; exit 1; }

.PHONY: up
up: export STAGES := build package kubernetes up
up: nft build package kubernetes ## Bring a lab up with the packaged chart and its images, and see what traffic between zones costs before and after
	@$(STAGE) --show up 'a cluster of three zones, and its traffic' bin/vicinity lab demo --release bin/package

.PHONY: down
down: build ## Remove all labs
	bin/vicinity lab down --all
	@VICINITY_LAB_DIR='$(CONTROL_PLANE)' bin/vicinity lab down --all

.PHONY: e2e-program
e2e-program:
	@$(STAGE) promises 'the program that shows promises' bash -c 'cd lab && $(GO) test -c -vet=off -o ../bin/e2e ./test/e2e'

# Promises about metrics ask Prometheus, and those about the console open its pages in a browser.
.PHONY: e2e
e2e: root nft build package kubernetes e2e-program $(if $(filter metrics all,$(or $(AREA),$(AREAS))),prometheus) $(if $(filter console all,$(or $(AREA),$(AREAS))),chromium) ## Show what the project promises, one lab at a time: all but what only make soak shows, or AREA=lab, or AREA='all -lab'; PROMISE=; KUBERNETES=oldest
	@$(MAKE) promises

.PHONY: promises
promises:
	@cd lab/test/e2e && E2E_AREA='$(or $(AREA),$(AREAS))' E2E_TIER='$(TIER)' E2E_PROMISE='$(PROMISE)' E2E_RETRIES='$(RETRIES)' \
		'$(CURDIR)/bin/e2e' -test.timeout $(if $(E2E_SOAK),6h,150m)

.PHONY: screenshots
screenshots: ## Take the pictures of the console in docs/images, of a lab with traffic
	@mkdir -p docs/images
	@E2E_SCREENSHOTS='$(CURDIR)/docs/images' $(MAKE) e2e AREA=console PROMISE='^screenshots$$'

.PHONY: conformance
conformance: nft build kubernetes suite ## Run Kubernetes' own tests in a lab: SUITE=network, apps, scheduling or all; PROXY=kube-proxy, vicinity or both; PREFER=1; FOCUS=; SLOW=1; KUBERNETES=oldest
	cd lab && $(GO) build -buildvcs=$(BUILDVCS) -o ../bin/conformance ./test/conformance
	bin/conformance -tests '$(CONFORMANCE_SUITE)' -suite '$(or $(SUITE),all)' -proxy '$(or $(PROXY),kube-proxy)' -focus '$(FOCUS)' $(if $(SLOW),-slow) $(if $(PREFER),-prefer) $(CONFORMANCEFLAGS)

.PHONY: soak
soak: root programs $(TOOLS)/gotestsum ## Run the longest tests, and keep the promises in their long forms: at full scale, for hours (AREA, PROMISE as for e2e)
	@$(if $(AREA)$(PROMISE),,E2E_SOAK=1 $(GO) test -vet=off -json -p 1 -timeout 3h ./test/acceptance ./internal/allocate ./internal/proxy/kernel | $(RESULTS) && $(SKIPS_ARE_LISTED))
	@$(if $(AREA)$(PROMISE),,$(MAKE) consumers)
	@E2E_SOAK=1 $(MAKE) e2e
	@$(if $(AREA)$(PROMISE),,$(if $(filter newest,$(KUBERNETES)),$(MAKE) e2e KUBERNETES=oldest))
	@$(if $(AREA)$(PROMISE),,$(MAKE) conformance-all)

.PHONY: consumers
consumers: ## Let kube-proxy, Cilium and Calico choose from slices with our hints, by their own code: UPDATE=1 writes the answers to docs/consumers.md
	@E2E_SOAK=1 $(GO) test -vet=off -count=1 ./test/consumers $(if $(UPDATE),-update)

.PHONY: conformance-all
conformance-all: ## Run all of Kubernetes' tests with each proxy, and with the newest and the oldest Kubernetes
	@$(MAKE) conformance SLOW=1
	@for proxy in vicinity both; do $(MAKE) conformance SUITE=network PROXY=$$proxy SLOW=1; done
	@$(MAKE) conformance SUITE=network PROXY=vicinity PREFER=1
	@$(if $(filter newest,$(KUBERNETES)),$(MAKE) conformance-all KUBERNETES=oldest)

.PHONY: simulate
simulate: build ## Score the algorithms on the published data set of 39,273,145 cases
	bin/vicinity simulate --dataset published --algorithm balanced,auto,local,local-shared,optimal

.PHONY: bench
bench: $(TOOLS)/benchstat ## Measure the core: time, memory and cases per second
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -count $(BENCHCOUNT) ./internal/simulate | tee bin/bench.txt
	$(TOOLS)/benchstat bin/bench.txt

.PHONY: bench-routing
bench-routing: build kubernetes ## Measure the routing controller in a lab: SIZE=short (500 nodes) or full (5,000)
	cd lab && $(GO) build -buildvcs=$(BUILDVCS) -o ../bin/bench-routing ./test/bench/routing
	bin/bench-routing -size '$(or $(SIZE),short)' $(BENCHFLAGS)

.PHONY: bench-proxy
bench-proxy: nft build kubernetes ## Measure kube-proxy and vicinity-proxy in turns in a lab: SIZES=1000,5000,10000
	cd lab && $(GO) build -buildvcs=$(BUILDVCS) -o ../bin/bench-proxy ./test/bench/proxy
	bin/bench-proxy $(if $(SIZES),-sizes '$(SIZES)') $(BENCHFLAGS)

.PHONY: bench-names
bench-names: build kubernetes dnsperf ## Measure vicinity-dns and CoreDNS in turns in a lab: SIZE=short (10,000 pods) or full (100,000)
	$(GO) build -buildvcs=$(BUILDVCS) -o bin/bench-coredns ./test/coredns
	cd lab && $(GO) build -buildvcs=$(BUILDVCS) -o ../bin/bench-names ./test/bench/names
	bin/bench-names -size '$(or $(SIZE),short)' $(BENCHFLAGS)

.PHONY: bench-disruption
bench-disruption: nft build kubernetes ## Measure evictions under budgets and updates by domain in a lab: SIZE=short (2,000 evictions) or full (10,000)
	cd lab && $(GO) build -buildvcs=$(BUILDVCS) -o ../bin/bench-disruption ./test/bench/disruption
	bin/bench-disruption -size '$(or $(SIZE),short)' $(BENCHFLAGS)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@$(MAKE) fuzz-targets | while read -r dir target; do \
		echo "$$dir $$target"; \
		(cd "$$dir" && $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .) </dev/null; \
	done

# All fuzz targets of the tree, each with its directory.
.PHONY: fuzz-targets
fuzz-targets:
	@{ grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . || true; } | sed -E 's|/[^/]+:func | |' | sort

# What is published is made by the program in hack/release, for the platforms of PLATFORMS
# and with the registry of REGISTRY in the names of images, if there is one. Without VERSION
# it is a version of development.
RELEASE = GO='$(GO)' bin/release-maker $(1) --out '$(2)' --version '$(VERSION)' --registry '$(REGISTRY)' --platforms '$(or $(PLATFORMS),linux/amd64$(comma)linux/arm64)'
comma := ,

.PHONY: images
images: release-maker ## Make the images of all programs without a container engine: VERSION, REGISTRY, PLATFORMS
	@$(call RELEASE,images,bin/images)

.PHONY: package
package: ## Make the images of this machine's platform and the chart that names them, which the lab runs
	@$(STAGE) --packages '$(call packages,hack/release,.) $(call packages,.,./cmd/...)' package "images of Vicinity's programs and the packaged chart" $(MAKE) packaged

.PHONY: packaged
packaged: release-maker
	@$(call RELEASE,package,bin/package) --platforms "linux/$$($(GO) env GOARCH)"

.PHONY: release
release: release-maker ## Make all of a release: VERSION, and REGISTRY, DOWNLOADS as docs/release.md says
	@$(call RELEASE,all,bin/release/$(or $(VERSION),none)) --address '$(DOWNLOADS)'

# All analyzers of go vet are among the linters.
.PHONY: lint
lint: $(TOOLS)/golangci-lint ## Lint, vet included
	@for module in $(MODULES); do (cd "$$module" && '$(CURDIR)/$(TOOLS)/golangci-lint' run --allow-parallel-runners); done

# It fails where the database cannot be reached. GOVULNDB names another one, such as file:///srv/vulndb. SCAN=symbol
# looks for calls, which takes minutes.
.PHONY: vulncheck
vulncheck: $(TOOLS)/govulncheck ## Look for known vulnerabilities in what is linked: GOVULNDB=, SCAN=symbol
	$(TOOLS)/govulncheck $(if $(GOVULNDB),-db '$(GOVULNDB)') -scan '$(or $(SCAN),package)' ./cmd/... | tee bin/vulnerabilities.txt
	@grep -q 'No vulnerabilities found' bin/vulnerabilities.txt

.PHONY: notices
notices: release-maker ## Write the licences and notices of all that is linked to bin/THIRD_PARTY_NOTICES, which goes where the programs go
	bin/release-maker notices >bin/THIRD_PARTY_NOTICES.new
	@mv bin/THIRD_PARTY_NOTICES.new bin/THIRD_PARTY_NOTICES

.PHONY: generate
generate: $(TOOLS)/controller-gen ## Write the API's generated files, the references of flags, licences, and golden files anew
	$(TOOLS)/controller-gen object crd paths=./api/... output:crd:dir=charts/vicinity/crds
	@for module in $(MODULES); do (cd "$$module" && packages=$$($(GOLDEN)) && { [ -z "$$packages" ] || $(GO) test $$packages -update; }) || exit; done

.PHONY: weight
weight: ## Print lines of Go by room
	@hack/weight

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint ## Format
	@for module in $(MODULES); do (cd "$$module" && '$(CURDIR)/$(TOOLS)/golangci-lint' fmt); done

.PHONY: clean
clean: ## Remove what was built, tools included
	rm -rf bin

$(TOOLS)/%:
	@echo "building $* (pinned in hack/tools)"
	@cd hack/tools && $(GO) build -buildvcs=false -o '$(CURDIR)/$@' "$$($(GO) list tool | grep '/$*$$')"

# Tests list the rules of the kernel by nft, and try the probe beside rules of iptables.
.PHONY: programs
programs:
	@missing=(); \
	command -v nft >/dev/null || missing+=(nftables); \
	command -v iptables-nft >/dev/null && command -v iptables-legacy >/dev/null || missing+=(iptables); \
	$(call install_missing,make test,; make check does without)

# What kube-proxy and labs with a network run.
.PHONY: nft
nft:
	@missing=(); \
	command -v nft >/dev/null || missing+=(nftables); \
	$(call install_missing,make up)

# Promises about the console open its pages in a real browser.
.PHONY: chromium
chromium:
	@missing=(); \
	command -v chromium >/dev/null || missing+=(chromium); \
	$(call install_missing,make e2e AREA=console)

# What asks DNS servers in benchmarks.
.PHONY: dnsperf
dnsperf:
	@missing=(); \
	command -v dnsperf >/dev/null || missing+=(dnsperf); \
	$(call install_missing,make bench-names)

# What Kubernetes' own tests run in containers.
.PHONY: conformance-programs
conformance-programs:
	@missing=(); \
	command -v busybox >/dev/null || missing+=(busybox-static); \
	command -v dig >/dev/null || missing+=(bind9-dnsutils); \
	command -v nc >/dev/null || missing+=(netcat-openbsd); \
	command -v conntrack >/dev/null || missing+=(conntrack); \
	$(call install_missing,make conformance)

# install_missing ends a recipe whose array "missing" has the packages of programs that are not
# there: what needs them, and what there is to say to those for whom they cannot be installed.
define install_missing
if [ "$${#missing[@]}" = 0 ]; then \
		:; \
	elif [ "$$(id -u)" = 0 ] && grep -qx 'ID=debian' /etc/os-release 2>/dev/null; then \
		echo "installing by apt-get what $(1) needs: $${missing[*]}"; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -qq -y --no-install-recommends "$${missing[@]}" >/dev/null; \
	else \
		echo "$(1) needs programs that are not there: as root on Debian, apt-get install --no-install-recommends $${missing[*]}$(2)" >&2; \
		exit 1; \
	fi
endef
