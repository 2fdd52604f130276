# One Makefile for everything. Start with `make help`. Q= shows the commands.
Q      ?= @echo '  $@';
V      ?= debug
B      := build/$(V)
CC     ?= gcc
CC     := $(if $(filter cc,$(CC)),gcc,$(CC))
ifeq ($(V),fuzz)
CC     := clang
endif
MUSL   ?= musl-gcc
AR     := $(if $(findstring clang,$(CC)),llvm-ar,gcc-ar)
AR     := $(if $(shell command -v $(AR)),$(AR),ar)

PKGS   := libcjson libcjose libcurl sqlite3 libcrypto libsystemd
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS_COMMON := -lcjson -lsqlite3 -lcrypto -lm
LIBS_fcgi   := -lfcgi -lcjose
LIBS_runner := -lcurl -lsystemd -lpthread

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wold-style-definition \
  -Wmissing-prototypes -Wredundant-decls -Wpointer-arith -Wcast-align -Wcast-qual \
  -Wwrite-strings -Wformat=2 -Wformat-signedness -Wundef -Wvla -Walloca -Wnull-dereference \
  -Wimplicit-fallthrough -Wswitch-enum -Wconversion -Wno-sign-conversion \
  -Wframe-larger-than=24576
WARN_GCC := -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wjump-misses-init \
  -Wimplicit-fallthrough=5
WARN += $(if $(findstring clang,$(CC)),-Wno-unknown-warning-option -Wno-format-signedness,$(WARN_GCC))
WERROR ?= $(if $(CI),-Werror)

BASE_FLAGS := -std=gnu17 -D_GNU_SOURCE -g -I. -fno-common -fno-strict-aliasing -fno-strict-overflow \
  -fno-delete-null-pointer-checks -fvisibility=hidden \
  $(if $(findstring clang,$(CC)),,-ftrivial-auto-var-init=zero) -ffunction-sections -fdata-sections -fPIE
HARDEN := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection \
  -fcf-protection=full
LINK   := -pie -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code -Wl,--as-needed -Wl,--gc-sections
SAN    := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

FLAGS_debug   := -O1 $(HARDEN)
FLAGS_release := -O2 $(HARDEN)
FLAGS_asan    := -O1 $(SAN)
FLAGS_tsan    := -O1 -fsanitize=thread
FLAGS_cov     := -O0 --coverage
FLAGS_fuzz    := -O1 $(SAN) -fsanitize=fuzzer-no-link
LINK_asan     := $(SAN)
LINK_tsan     := -fsanitize=thread
LINK_cov      := --coverage
LINK_fuzz     := $(SAN) -fsanitize=fuzzer
$(if $(FLAGS_$(V)),,$(error V=$(V) is not one of debug release asan tsan cov fuzz))

VERSION := $(shell cat VERSION)
ALL_CFLAGS := $(BASE_FLAGS) $(FLAGS_$(V)) $(WARN) $(WERROR) $(PKG_CFLAGS) \
  -DSMCP_VERSION='"$(VERSION)"' $(CFLAGS)
ALL_LDFLAGS := $(LINK) $(LINK_$(V)) $(LDFLAGS)
AGENT_CFLAGS := -std=gnu17 -Os -g -I. -static -ffunction-sections -fdata-sections \
  -fno-asynchronous-unwind-tables -fvisibility=hidden $(filter-out -Wframe%,$(WARN)) \
  -Wno-unknown-warning-option $(WERROR) -DSMCP_VERSION='"$(VERSION)"'

SRC_common := $(sort $(wildcard common/*.c))
SRC_fcgi   := $(sort $(wildcard fcgi/*.c))
SRC_runner := $(sort $(wildcard jobs-runner/*.c))
SRC_agent  := $(sort $(wildcard images/agent/*.c)) common/wire.c
SRC_tests  := $(sort $(wildcard tests/unit/test_*.c))
SRC_fixtures := $(sort $(wildcard tests/clients/fixtures/*.c))
SRC_fuzz   := $(sort $(wildcard tests/fuzz/fuzz_*.c))
EMBEDDED   := $(wildcard common/sql/*.sql fcgi/tools/*.json fcgi/*.txt)

obj = $(patsubst %.c,$(B)/obj/%.o,$(1))
OBJ_common := $(call obj,$(SRC_common))
OBJ_fcgi   := $(call obj,$(SRC_fcgi))
OBJ_runner := $(call obj,$(SRC_runner))
lib = $(if $(filter test_fcgi_% fuzz_fcgi_%,$(1)),fcgi,$(if $(filter test_runner_% fuzz_runner_%,$(1)),runner,none))

PROGRAMS := $(B)/sandbox-mcp $(B)/jobs-runner $(B)/sandbox-agent
TESTS    := $(patsubst tests/unit/%.c,$(B)/tests/%,$(SRC_tests))
FUZZERS  := $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(SRC_fuzz))

.PHONY: all unit-tests check-unit test test-clients bench fuzz fuzz-smoke lint fmt hdr-check sizes \
  up down status token url docs install clean help
.SECONDARY:

all: $(PROGRAMS) ## Build the three programs (V=debug|release|asan|tsan|cov|fuzz)

# A change of flags rebuilds everything.
$(B)/.flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(subst ','\'',$(ALL_CFLAGS) $(ALL_LDFLAGS) $(AGENT_CFLAGS))' | cmp -s - $@ || \
	  echo '$(CC) $(subst ','\'',$(ALL_CFLAGS) $(ALL_LDFLAGS) $(AGENT_CFLAGS))' > $@
FORCE:

$(B)/obj/%.o: %.c $(B)/.flags
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@
$(B)/obj/common/db.o $(OBJ_fcgi): $(EMBEDDED)

$(B)/libcommon.a: $(OBJ_common)
	@rm -f $@; $(AR) rcs $@ $^
$(B)/libfcgi.a: $(filter-out $(B)/obj/fcgi/main.o,$(OBJ_fcgi))
	@rm -f $@; $(AR) rcs $@ $^
$(B)/librunner.a: $(filter-out $(B)/obj/jobs-runner/main.o,$(OBJ_runner))
	@rm -f $@; $(AR) rcs $@ $^
$(B)/libnone.a:
	@rm -f $@; $(AR) rcs $@

$(B)/sandbox-mcp: $(B)/obj/fcgi/main.o $(B)/libfcgi.a $(B)/libcommon.a
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_COMMON) $(LIBS_fcgi)
# The responder with what the conformance suite asks for: its own objects, another table "extra".
$(B)/sandbox-mcp-conformance: $(B)/obj/fcgi/main.o $(call obj,$(SRC_fixtures)) $(B)/libfcgi.a $(B)/libcommon.a
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_COMMON) $(LIBS_fcgi)
$(B)/jobs-runner: $(B)/obj/jobs-runner/main.o $(B)/librunner.a $(B)/libcommon.a
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_COMMON) $(LIBS_runner)
$(B)/sandbox-agent: $(SRC_agent) $(wildcard images/agent/*.h) common/wire.h $(B)/.flags
	$(Q)$(MUSL) $(AGENT_CFLAGS) -Wl,--gc-sections -o $@.new $(SRC_agent)
	@strip $@.new
	@mv -f $@.new $@

unit-tests: $(TESTS) ## Build the unit tests
.SECONDEXPANSION:
$(B)/tests/%: $(B)/obj/tests/unit/%.o $(B)/lib$$(call lib,$$*).a $(B)/libcommon.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ -lcmocka $(LIBS_$(call lib,$*)) $(LIBS_COMMON)
$(B)/fuzz/%: $(B)/obj/tests/fuzz/%.o $(B)/lib$$(call lib,$$*).a $(B)/libcommon.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_$(call lib,$*)) $(LIBS_COMMON)

check-unit: $(TESTS) $(B)/sandbox-agent ## Run the unit tests (V=asan for sanitizers)
	@tests/unit/run $(B)

test: ## Run everything against a real lighttpd, SQLite and Docker (installs what it needs)
	@tests/run

test-clients: ## Run the official MCP clients and the conformance suite
	@tests/clients/run

bench: ## Measure; prints one table with ratios
	@tests/bench/run

fuzz: ## Build the fuzzers (clang)
	@$(MAKE) --no-print-directory V=fuzz fuzzers
.PHONY: fuzzers
fuzzers: $(FUZZERS)
fuzz-smoke: fuzz ## Run each fuzzer for FUZZ_SECONDS (default 20)
	@tests/fuzz/run build/fuzz $(or $(FUZZ_SECONDS),20)

lint: ## Formatting, layering, forbidden calls, static analysis
	@tests/lint

fmt: ## Format the C code
	@clang-format -i $(wildcard common/*.[ch] fcgi/*.[ch] jobs-runner/*.[ch] images/agent/*.[ch] tests/unit/*.[ch] tests/fuzz/*.[ch] tests/clients/fixtures/*.[ch])

hdr-check: ## Each header compiles alone
	@for h in $(wildcard common/*.h fcgi/*.h jobs-runner/*.h); do \
	  $(CC) $(ALL_CFLAGS) -fsyntax-only -x c -include common/base.h $$h || exit 1; done

sizes: ## The largest files and programs
	@wc -l $(SRC_common) $(SRC_fcgi) $(SRC_runner) $(SRC_agent) | sort -rn | head -11
	@ls -l $(PROGRAMS) 2>/dev/null | awk '{print $$5, $$9}'

up: ## Install what is missing, build, start, prove it works, print the address
	@deploy/up
down: ## Stop what up started
	@deploy/down
status: ## What runs; exit 0 only when all of it is up
	@deploy/status
token: ## Print the bearer token
	@deploy/token
url: ## Print the address for clients
	@deploy/url

docs: $(B)/sandbox-mcp ## Write .env.example and docs/ from the tables in the code
	$(B)/sandbox-mcp --env-example > .env.example
	mkdir -p docs
	$(B)/sandbox-mcp --config-docs > docs/configuration.md
	$(B)/sandbox-mcp --tools-docs > docs/tools.md

PREFIX ?= /usr/local
install: all ## Copy the programs to $(DESTDIR)$(PREFIX)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/sandbox-mcp
	install -m 755 $(B)/sandbox-mcp $(DESTDIR)$(PREFIX)/lib/sandbox-mcp/
	install -m 755 $(B)/jobs-runner $(B)/sandbox-agent $(DESTDIR)$(PREFIX)/lib/sandbox-mcp/
	ln -sf ../lib/sandbox-mcp/sandbox-mcp $(DESTDIR)$(PREFIX)/bin/sandbox-mcp

clean: ## Remove build/
	rm -rf build

help: ## This list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' Makefile

-include $(patsubst %.o,%.d,$(OBJ_common) $(OBJ_fcgi) $(OBJ_runner)) \
  $(patsubst %.c,$(B)/obj/%.d,$(SRC_tests) $(SRC_fuzz) $(SRC_fixtures))
