# The extension, built with PGXS. Nothing is written beside the sources: objects and the library go to build/.
#
#   make PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config
#   make install PG_CONFIG=…
#   make installcheck PG_CONFIG=…     against a running server that preloads pg_sluice
#
# `sluice`, unit tests, simulator, stress and benchmarks are built by CMakeLists.txt; ./dev drives both.

EXTENSION = pg_sluice
DATA = $(wildcard pg_sluice--*.sql)
REGRESS = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
ISOLATION = $(patsubst specs/%.spec,%,$(sort $(wildcard specs/*.spec)))

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
# The bitcode rule of PGXS knows nothing of C++ flags.
override with_llvm = no
include $(PGXS)

BUILD ?= build
OBJECTS = $(BUILD)/objects-$(MAJORVERSION)
LIBRARY = $(OBJECTS)/pg_sluice.so

CORE_SOURCES = $(sort $(wildcard src/policy/*.cc src/ledger/*.cc))
EXTENSION_SOURCES = $(sort $(wildcard src/extension/*.cc))
CORE_OBJECTS = $(CORE_SOURCES:src/%.cc=$(OBJECTS)/%.o)
EXTENSION_OBJECTS = $(EXTENSION_SOURCES:src/%.cc=$(OBJECTS)/%.o)

# -fno-strict-aliasing and -fwrapv are what PostgreSQL's own inline functions were written for. -isystem keeps its headers'
# warnings out of ours.
SLUICE_OPTIMIZE ?= -O2 -g
# Link-time optimization lets the few calls of the hot path be inlined across files; the objects stay complete, so that their
# symbols can be checked (test/arch).
SLUICE_LTO ?= -flto=auto -ffat-lto-objects
SLUICE_FLAGS = $(SLUICE_OPTIMIZE) $(SLUICE_LTO) -fPIC -fno-exceptions -fno-rtti -fno-threadsafe-statics \
  -fno-strict-aliasing -fwrapv -ffunction-sections -Wall -Wextra -Werror -Isrc
CORE_FLAGS = -std=c++20 $(SLUICE_FLAGS)
EXTENSION_FLAGS = -std=gnu++20 $(SLUICE_FLAGS) -Wno-register -Wno-volatile -D_GNU_SOURCE \
  -isystem $(includedir_server) -isystem $(includedir_internal)

# make V=1 shows the commands.
Q = $(if $(V),,@)

all: $(LIBRARY)

# Linked by the C driver, so that the library cannot need libstdc++.
$(LIBRARY): $(CORE_OBJECTS) $(EXTENSION_OBJECTS) pg_sluice.map
	@echo "link $@"
	$(Q)$(CC) -shared -o $@ $(CORE_OBJECTS) $(EXTENSION_OBJECTS) -Wl,--version-script=pg_sluice.map \
	  -Wl,-z,relro -Wl,-z,now -Wl,--as-needed -Wl,--gc-sections

$(CORE_OBJECTS): $(OBJECTS)/%.o: src/%.cc Makefile
	@$(MKDIR_P) $(@D)
	@echo "compile $<"
	$(Q)$(CXX) $(CORE_FLAGS) -MMD -MP -c -o $@ $<

$(EXTENSION_OBJECTS): $(OBJECTS)/%.o: src/%.cc Makefile
	@$(MKDIR_P) $(@D)
	@echo "compile $<"
	$(Q)$(CXX) $(EXTENSION_FLAGS) -MMD -MP -c -o $@ $<

-include $(CORE_OBJECTS:.o=.d) $(EXTENSION_OBJECTS:.o=.d)

install: install-library
install-library: $(LIBRARY)
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)'
	$(INSTALL_SHLIB) $(LIBRARY) '$(DESTDIR)$(pkglibdir)/pg_sluice.so'

uninstall: uninstall-library
uninstall-library:
	rm -f '$(DESTDIR)$(pkglibdir)/pg_sluice.so'

clean: clean-library
clean-library:
	rm -rf $(OBJECTS)

.PHONY: install-library uninstall-library clean-library
