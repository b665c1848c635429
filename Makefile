# make         build the library and the bridge
# make demo    a C host streams text from the bundled model
# make desktop a window to chat in, with GTK 4
# make test    build and run every test
# make docs    build the documentation into build/site
# make install, make uninstall: PREFIX (/usr/local), LIBDIR, INCLUDEDIR, DESTDIR as usual
# make lint gen abi bench calf clean

PYTHON ?= python3
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
RPATH := -Wl,-rpath,$(CURDIR)/cowmlx/lib

SOURCES := setup.py pyproject.toml cowmlx/_cow_mlx.pxd \
  $(wildcard cowmlx/*.pyx cowmlx/*.pxi csrc/*.c csrc/*.h csrc/*/*.c include/*)

.PHONY: all demo desktop test install uninstall lint docs gen abi bench calf clean

all: $(LIBRARY) build/.compiled

$(VENV)/.runtime: requirements/runtime.txt requirements/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "libcowmlx needs Python 3.11 or newer; name one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/runtime.txt -c requirements/constraints.txt
	@touch $@

$(VENV)/.tools: requirements/tools.txt $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/tools.txt -c requirements/constraints.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/docs.txt -c requirements/constraints.txt
	@touch $@

$(LIBRARY): $(SOURCES) $(VENV)/.runtime
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

# Hosts never write bytecode, so it is made here.
build/.compiled: $(LIBRARY) $(wildcard cowmlx/*.py cowmlx/*/*.py)
	@mkdir -p build
	$(BIN)/python -m compileall -q cowmlx
	@touch $@

build/generate: examples/c/generate.c include/cow_mlx.h $(LIBRARY)
	@mkdir -p build
	$(CC) -std=c11 -O2 -Wall -Wextra -Iinclude $< -o $@ $(LIBRARY) $(RPATH)

DESKTOP := $(wildcard examples/desktop/*.c)

build/desktop: $(DESKTOP) $(wildcard examples/desktop/*.h) include/cow_mlx.h $(LIBRARY)
	@pkg-config --exists gtk4 || \
	  { echo "The desktop app needs GTK 4. Debian: libgtk-4-dev; macOS: brew install gtk4 pkgconf"; exit 1; }
	@mkdir -p build
	$(CC) -std=c11 -O2 -Wall -Wextra -Iinclude $$(pkg-config --cflags gtk4) $(DESKTOP) -o $@ \
	  $$(pkg-config --libs gtk4) $(LIBRARY) $(RPATH)

desktop: build/desktop build/.compiled
	build/desktop $(MODEL)

demo: build/generate build/.compiled
	build/generate $(MODEL) "$(PROMPT)"

test: all $(VENV)/.tools $(VENV)/.docs
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup

install: all
	$(BIN)/python packaging/install.py install $(PLACES)

uninstall:
	$(PYTHON) packaging/install.py uninstall $(PLACES)

lint: all $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/cython-lint cowmlx/*.pyx cowmlx/*.pxi
	$(BIN)/clang-format --dry-run -Werror include/*.h include/*.hpp csrc/*.c csrc/*.h csrc/*/*.c examples/c/*.c \
	  examples/cpp/*.cpp examples/desktop/*.c examples/desktop/*.h
	$(BIN)/python tools/gen_bindings.py --check
	$(BIN)/python tools/abi.py check

gen: $(VENV)/.tools
	$(BIN)/python tools/gen_bindings.py

# What hosts rely on, for `make lint` to compare: only for changes that docs/abi.md allows.
abi: all $(VENV)/.tools
	$(BIN)/python tools/abi.py record

# With --quiet, mkdocs would not count the warnings that --strict forbids.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: all $(VENV)/.tools
	$(BIN)/python -m benchmarks

calf: $(VENV)/.tools
	$(BIN)/python tools/train_calf.py --out models/calf

clean:
	rm -rf build cowmlx/lib cowmlx/*.so cowmlx/*.c $(VENV)
