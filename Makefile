# make         build the library and the bridge
# make demo    a C host streams text from the bundled model
# make desktop a window to chat in, with GTK 4
# make test    build and run every test but the long ones, which make test-long runs
# make docs    build the documentation into build/site
# make install, make uninstall: PREFIX (/usr/local), LIBDIR, INCLUDEDIR, DESTDIR as usual
# make packages, or make wheel npm crates deb go java: what can be published, into DIST (dist)
# make lint gen abi bench calf calf-eyes clean
# V=1 shows every command; without it, a build prints a line for each group of files.

PYTHON ?= python3
ifeq ($(strip $(PYTHON)),)
override PYTHON := python3
endif
CC ?= cc
VENV := .venv
BIN := $(VENV)/bin
MODEL ?= models/calf
PROMPT ?= Tell me a story about a fox.

PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
PLACES = --prefix "$(PREFIX)" --libdir "$(LIBDIR)" --includedir "$(INCLUDEDIR)" \
  --destdir "$(DESTDIR)"

ifeq ($(shell uname -s),Darwin)
LIBRARY := cowmlx/lib/libcowmlx.1.dylib
else
LIBRARY := cowmlx/lib/libcowmlx.so.1
endif
DIST ?= dist
RPATH := -Wl,-rpath,$(CURDIR)/cowmlx/lib

HEADERS := $(shell $(PYTHON) tools/packaging/headers.py)
KERNELS := $(wildcard csrc/kernels/*.cpp csrc/kernels/*.h csrc/kernels/*/*.cpp csrc/kernels/*/*.h)
SOURCES := setup.py pyproject.toml $(wildcard tools/packaging/*.py) \
  $(wildcard tools/bindings/*.py cowmlx/bridge/*.p* csrc/*.h csrc/*/*.c csrc/*/*.h) $(HEADERS) $(KERNELS)

# All that was made here but packages: the environment, and what was built with it.
GENERATED := cowmlx/generated cowmlx/host/generated csrc/generated bindings/node/lib/generated \
  bindings/java/src/generated
BUILT = build cowmlx/lib cowmlx/include cowmlx/*.so cowmlx/*/*.so cowmlx/*.c cowmlx/__pycache__ cowmlx/*/__pycache__ \
  cowmlx/*/*/__pycache__ $(GENERATED) $(VENV)

# A failed build leaves no library that passes for a whole one.
.DELETE_ON_ERROR:

.PHONY: all demo desktop test test-long install uninstall packages wheel npm crates deb go java lint docs gen abi bench calf calf-eyes clean FORCE

all: $(LIBRARY) build/.compiled build/.generated

ifeq ($(filter-out 0,$(V)),)
Q := @
endif

PINS := tools/requirements
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What tells one Python from another.
IDENTITY := import sys, sysconfig as s; print(sys.version, sys.base_prefix, s.get_config_var("EXT_SUFFIX"))

# Made anew, with all that was built with it, for another Python that PYTHON names, and where its
# own has gone or been replaced.
$(VENV)/.python: FORCE
	@if [ -e $@ ] && $(BIN)/python -Ic 'import pip' 2>/dev/null; then \
	  $(if $(filter file,$(origin PYTHON)),exit 0;) \
	  [ "$$($(PYTHON) -Ic '$(IDENTITY)')" != "$$($(BIN)/python -Ic '$(IDENTITY)')" ] || exit 0; \
	fi; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "libcowmlx needs Python 3.11 or newer; name one with make PYTHON=..."; exit 1; }; \
	$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "libcowmlx needs a Python with venv (Debian: apt-get install python3-venv)"; exit 1; }; \
	[ ! -e $(VENV) ] || echo "$(VENV) is made anew with $$($(PYTHON) -c 'import sys; print(sys.executable)')"; \
	rm -rf $(BUILT) && $(PYTHON) -m venv $(VENV) && touch $@

# The .pth lets the environment's Python import the package from every folder; its path is relative,
# so that the tree can be moved.
$(VENV)/.runtime: $(PINS)/build.txt $(PINS)/runtime.txt $(PINS)/constraints.txt $(VENV)/.python
	@echo "install   Python packages of build.txt and runtime.txt"
	$(Q)$(INSTALL) -r $(PINS)/build.txt -r $(PINS)/runtime.txt -c $(PINS)/constraints.txt
	$(Q)echo ../../../.. > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/cowmlx.pth"
	@touch $@

$(VENV)/.tools: $(PINS)/tools.txt $(VENV)/.runtime
	@echo "install   Python packages of $(notdir $<)"
	$(Q)$(INSTALL) -r $(PINS)/tools.txt -c $(PINS)/constraints.txt
	@touch $@

$(VENV)/.docs: $(PINS)/docs.txt $(VENV)/.runtime
	@echo "install   Python packages of $(notdir $<)"
	$(Q)$(INSTALL) -r $(PINS)/docs.txt -c $(PINS)/constraints.txt
	@touch $@

$(LIBRARY): $(SOURCES) $(VENV)/.runtime
	$(Q)$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

# Hosts never write bytecode, so it is made here.
build/.compiled: $(LIBRARY) $(wildcard cowmlx/*.py cowmlx/*/*.py cowmlx/*/*/*.py)
	@mkdir -p build
	@echo "compile   bytecode of cowmlx"
	$(Q)$(BIN)/python -m compileall -q cowmlx
	@touch $@

# What the packages for Node.js and Java bring.
build/.generated: $(LIBRARY) $(wildcard tools/bindings/*.py cowmlx/programs/operations/*.py)
	@mkdir -p build
	$(Q)$(BIN)/python tools/bindings/generate.py --build >/dev/null
	@touch $@

build/generate: examples/c/generate.c $(HEADERS) $(LIBRARY)
	@mkdir -p build
	@echo "compile   $@"
	$(Q)$(CC) -std=c11 -O2 -Wall -Wextra -Iinclude $< -o $@ $(LIBRARY) $(RPATH)

DESKTOP := $(wildcard examples/desktop/*.c)
DESKTOP_NEEDS := gtk4 libcmark json-glib-1.0

build/desktop: $(DESKTOP) $(wildcard examples/desktop/*.h) $(HEADERS) $(LIBRARY)
	@pkg-config --exists $(DESKTOP_NEEDS) || \
	  { echo "The desktop app needs GTK 4, cmark and json-glib; examples/desktop/README.md tells how to get them"; exit 1; }
	@mkdir -p build
	@echo "compile   $@"
	$(Q)$(CC) -std=c11 -O2 -Wall -Wextra -Iinclude $$(pkg-config --cflags $(DESKTOP_NEEDS)) $(DESKTOP) -o $@ \
	  $$(pkg-config --libs $(DESKTOP_NEEDS)) $(LIBRARY) $(RPATH)

desktop: build/desktop build/.compiled
	build/desktop $(MODEL)

demo: build/generate build/.compiled
	build/generate $(MODEL) "$(PROMPT)"

test: all $(VENV)/.tools $(VENV)/.docs
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m "not long"

test-long: all $(VENV)/.tools $(VENV)/.docs
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m long

install: all
	$(BIN)/python tools/packaging/install.py install $(PLACES)

uninstall:
	$(PYTHON) tools/packaging/install.py uninstall $(PLACES)

# What lacks a tool is named, and the rest is made.
packages wheel npm crates deb go java: all $(VENV)/.tools
	$(BIN)/python tools/packaging/packages.py $@ "$(DIST)"

lint: all $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/cython-lint cowmlx/bridge/*.pyx cowmlx/bridge/*.pxi
	$(BIN)/clang-format --dry-run -Werror $(HEADERS) csrc/*.h csrc/*/*.c csrc/*/*.h $(KERNELS) examples/c/*.c \
	  examples/cpp/*.cpp examples/desktop/*.c examples/desktop/*.h
	$(BIN)/python tools/bindings/generate.py --check
	$(BIN)/python tools/abi/guard.py check

gen: $(VENV)/.tools
	$(BIN)/python tools/bindings/generate.py

# What hosts rely on, for `make lint` to compare: only for changes that docs/abi.md allows.
abi: all $(VENV)/.tools
	$(BIN)/python tools/abi/guard.py record

# With --quiet, mkdocs would not count the warnings that --strict forbids.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: all $(VENV)/.tools
	$(BIN)/python -m benchmarks

calf: $(VENV)/.tools
	$(BIN)/python tools/calf/train.py --out models/calf

# Its card asks the library about pictures.
calf-eyes: all $(VENV)/.tools
	$(BIN)/python tools/calf/train_eyes.py --out models/calf-eyes

clean:
	rm -rf $(BUILT) dist
