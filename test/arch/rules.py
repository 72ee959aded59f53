#!/usr/bin/python3
"""The rules of the tree that a program can see: who includes whom, what the core may use, what the library exports.

Prints TAP lines, and under each failed rule every place that breaks it. Run by `./dev check arch`.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
CORE = ("policy", "ledger")
# Held to the core's rules. It is no part of the extension's library, so its objects are made for the check.
PURE = (*CORE, "wire")

# Which folders of src/ a folder may include; nothing else is known to it.
MAY_INCLUDE = {
    "policy": {"policy"},
    "ledger": {"policy", "ledger"},
    "wire": {"policy", "wire"},
    "extension": {"policy", "ledger", "extension"},
    "proxy": {"policy", "wire", "proxy"},
    "cli": {"policy", "proxy", "cli"},
}

# Standard headers that neither allocate nor know a clock. What they might still pull in is caught by the symbol rule.
CORE_HEADERS = {
    "algorithm", "array", "atomic", "bit", "charconv", "concepts", "cstddef", "cstdint", "cstring", "initializer_list",
    "iterator", "limits", "span", "string_view", "type_traits", "utility",
}

# What the core's objects may leave to the C library, besides each other.
CORE_SYMBOLS = {
    "memchr", "memcmp", "memcpy", "memmove", "memset", "strchr", "strcmp", "strcspn",
    "strlen", "strncmp", "strnlen", "strpbrk", "strrchr", "strspn", "strstr",
    "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail",
}

CORE_FORBIDDEN = re.compile(
    r"\bstd::(string|vector|deque|list|map|set|unordered_\w+|function|unique_ptr|shared_ptr|make_\w+|optional<std|"
    r"chrono|random_device|mt19937\w*|mutex|thread|cout|cerr|ostringstream|stringstream)\b"
    r"|\b(throw|try|catch|dynamic_cast|typeid|malloc|calloc|realloc|free)\b\s*[({]|\bnew\s+[A-Za-z_:]|\bgettimeofday\b")

# Files that may raise. errors.cc maps every Status. The others raise what no Status is: arguments and privileges of their own SQL
# functions, a document that does not fit, a table that could not be written, a server that must not start, a client that is gone.
MAY_RAISE = re.compile(r"^(errors|sql_\w+|settings|init|policy_store|publisher|change_log|shared|waiting)\.cc$")

EXPORTS = re.compile(r"^(_PG_init|Pg_magic_func|pg_finfo_\w+|sluice_\w+)$")

# The proxy's edge: what touches descriptors, threads, the loop or a library that does. Everything else in src/proxy decides without
# I/O: it includes neither these headers of the system nor, directly or through others, a header of an edge file.
PROXY_EDGE = {
    "address", "admin", "cancel_request", "channel", "client_connection", "config", "config_checks", "listener",
    "log", "loop", "metrics", "notify", "password_verifier", "proxy", "resolver", "server_connection", "setting_row", "setting_table",
    "setting_text", "stream", "tls_context", "tls_output", "verifier_source", "worker", "worker_login",
    "worker_pools",
}
# OpenSSL's digests, keys and wiping need no descriptor; everything else of it belongs to the edge.
EDGE_HEADERS = re.compile(
    r"^(uv\.h|httplib\.h|(sys|netinet|arpa|net|linux)/.*|(unistd|fcntl|poll|netdb|signal|pthread)\.h|spdlog/.*|prometheus/.*|"
    r"toml\+\+/.*|openssl/(?!(crypto|evp|hmac|rand|sha|x509)\.h$).*|"
    r"thread|mutex|shared_mutex|condition_variable|future|atomic|chrono|ctime|fstream|iostream|filesystem|cstdio)$")

MAX_FILE_LINES = 700
USUAL_FILE_LINES = 500
MAX_FUNCTION_LINES = 70

results = []


def rule(name, breaches):
    """Records one rule with the places that break it."""
    breaches = list(breaches)
    results.append(not breaches)
    print(f"{'not ok' if breaches else 'ok'} {len(results)} - {name}", flush=True)
    for breach in breaches[:40]:
        print(f"#   {breach}")


def sources(*folders, suffixes=(".h", ".cc")):
    found = []
    for folder in folders or [f.name for f in SRC.iterdir() if f.is_dir()]:
        found += [f for f in sorted((SRC / folder).glob("*")) if f.suffix in suffixes]
    return found


def where(path, number):
    return f"{path.relative_to(ROOT)}:{number}"


def without_comments(text):
    """The text with comments and the content of strings blanked, line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)

    def blank(match):
        piece = match.group(0)
        return '""' if piece.startswith('"') else "\n" * piece.count("\n")

    return pattern.sub(blank, text)


def code_lines(path):
    return enumerate(without_comments(path.read_text()).split("\n"), 1)


def includes(path):
    for number, line in enumerate(path.read_text().split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1), match.group(2)


def include_breaches():
    for path in sources():
        folder = path.parent.name
        if folder not in MAY_INCLUDE:
            yield f"{path.relative_to(ROOT)}: src/{folder} is not in the tree's rules"
            continue
        for number, kind, name in includes(path):
            owner = name.split("/")[0]
            ours = (SRC / name).exists() or owner in MAY_INCLUDE
            if ours and owner not in MAY_INCLUDE[folder]:
                yield f"{where(path, number)}: src/{folder} may not include {name}"
            elif kind == '"' and not ours and path.name != "pg.h":
                yield f"{where(path, number)}: {name} is not below src/ (PostgreSQL's headers come through extension/pg.h)"
            elif kind == "<" and folder in PURE and name not in CORE_HEADERS:
                yield f"{where(path, number)}: <{name}> is not among the core's standard headers"


def proxy_edge_breaches():
    """What decides in the proxy sees no descriptor, no clock, no thread: that is why it can be simulated."""
    known = {path.stem for path in sources("proxy")}
    for name in sorted(PROXY_EDGE - known):
        yield f"src/proxy/{name} is listed as an edge file and does not exist"
    for path in sources("proxy"):
        if path.stem in PROXY_EDGE:
            continue
        for number, kind, name in includes(path):
            if kind == "<" and EDGE_HEADERS.match(name):
                yield f"{where(path, number)}: <{name}> is for edge files; src/proxy/{path.stem} decides without I/O"
            elif name.startswith("proxy/") and pathlib.Path(name).stem in PROXY_EDGE:
                yield f"{where(path, number)}: {name} is the header of an edge file; src/proxy/{path.stem} decides without I/O"


def postgres_breaches():
    """PostgreSQL's server headers are seen by extension/pg.h alone; libpq's client header by the command line."""
    for path in sources():
        if path.name == "pg.h" and path.parent.name == "extension":
            continue
        for number, _, name in includes(path):
            if re.match(r"(postgres|c|fmgr|miscadmin|access/|catalog/|commands/|executor/|nodes/|storage/|tcop/|utils/|libpq/)", name) \
                    and not (SRC / name).exists() and name.endswith(".h"):
                yield f"{where(path, number)}: {name}"


def version_breaches():
    for path in sources("extension"):
        if path.name in ("pg.h", "compat.h"):
            continue
        for number, line in code_lines(path):
            if re.search(r"PG_VERSION_NUM|PG_MAJORVERSION_NUM", line) and re.match(r"\s*#\s*(if|elif)", line):
                yield where(path, number)


def raise_breaches():
    for path in sources("extension"):
        if path.suffix == ".cc" and MAY_RAISE.match(path.name):
            continue
        for number, line in code_lines(path):
            if re.search(r"\b(ereport|elog|ereport_domain)\s*\(\s*(ERROR|FATAL|PANIC)\b", line):
                yield f"{where(path, number)}: {line.strip()}"


def forbidden_breaches():
    for path in sources(*PURE):
        for number, line in code_lines(path):
            if CORE_FORBIDDEN.search(line):
                yield f"{where(path, number)}: {line.strip()}"


def signature_breaches():
    """In the core's headers every function is noexcept, and [[nodiscard]] unless it returns nothing or a length."""
    for path in sources(*PURE, suffixes=(".h",)):
        lines = without_comments(path.read_text()).split("\n")
        number = 0
        while number < len(lines):
            line = lines[number]
            start = number
            if re.match(r"(\[\[nodiscard\]\] )?(inline |constexpr )*[\w:]+[\w:<>,&*\s]* [&*]?\w+\(", line) and \
                    not re.match(r"(using|static_assert|return|namespace|struct|class|enum)\b", line):
                declaration = line
                while not re.search(r"[;{]\s*$|}\s*$", declaration) and number + 1 < len(lines):
                    number += 1
                    declaration += " " + lines[number].strip()
                if "noexcept" not in declaration and "(*" not in declaration:
                    yield f"{where(path, start + 1)}: not noexcept: {declaration.strip()[:90]}"
                if re.match(r"(inline |constexpr )*(policy::)?(Status|Outcome|bool)\b", declaration):
                    yield f"{where(path, start + 1)}: not [[nodiscard]]: {declaration.strip()[:90]}"
            number += 1


def length_breaches():
    long_files = []
    for path in sources():
        lines = path.read_text().count("\n")
        if lines > MAX_FILE_LINES:
            yield f"{path.relative_to(ROOT)} has {lines} lines, at most {MAX_FILE_LINES}"
        elif lines > USUAL_FILE_LINES:
            long_files.append(f"{path.relative_to(ROOT)} ({lines})")
    if len(long_files) * 10 > len(sources()):
        yield f"more than a tenth of the files is over {USUAL_FILE_LINES} lines: {', '.join(long_files)}"


def function_breaches():
    """Functions as clang-format lays them out: a line at the margin that opens a brace, to the brace at the margin."""
    for path in sources():
        start, header = None, ""
        for number, line in code_lines(path):
            if start is None:
                if line.startswith(("namespace", "extern", "struct", "class", "enum", "union", "#")):
                    header = ""
                elif re.match(r"[\w\[:~]", line) or (header and line.startswith("    ")):
                    header = header + line if line.startswith(" ") else line
                    if line.endswith("{") and "(" in header:
                        start = number
                    elif line.endswith((";", "}")):
                        header = ""
            elif line == "}":
                if number - start + 1 > MAX_FUNCTION_LINES:
                    yield f"{where(path, start)}: {number - start + 1} lines: {header.strip()[:80]}"
                start, header = None, ""


def core_objects(objects):
    return [o for folder in CORE for o in sorted((objects / folder).glob("*.o"))]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wire_objects(scratch):
    (scratch / "wire").mkdir()
    files = []
    for path in sources("wire", suffixes=(".cc",)):
        files.append(scratch / "wire" / f"{path.stem}.o")
        run("g++", "-std=c++20", "-O2", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", f"-I{SRC}", "-c", "-o",
            str(files[-1]), str(path))
    return files


def symbol_breaches(objects, wire):
    files = core_objects(objects) + wire
    missing = {s.stem for s in sources(*PURE, suffixes=(".cc",))} - {o.stem for o in files}
    for name in sorted(missing):
        yield f"{name}.cc has no object below {objects.name}"
    defined, undefined = set(), {}
    for path in files:
        for line in run("nm", str(path)).splitlines():
            kind, name = line.split()[-2:]
            if kind == "U":
                undefined.setdefault(name, set()).add(f"{path.parent.name}/{path.name}")
            else:
                defined.add(name)
    for name in sorted(set(undefined) - defined - CORE_SYMBOLS):
        yield f"{name} is used by {', '.join(sorted(undefined[name]))}"


def global_breaches(objects, wire):
    """No variable that outlives a call: constant tables only."""
    for path in core_objects(objects) + wire:
        for line in run("objdump", "-h", str(path)).splitlines():
            match = re.match(r"\s*\d+ (\.(?:data|bss|tdata|tbss)\S*)\s+([0-9a-f]+)", line)
            if match and not match.group(1).startswith(".data.rel.ro") and int(match.group(2), 16):
                yield f"{path.parent.name}/{path.name}: {int(match.group(2), 16)} bytes in {match.group(1)}"


def library_breaches(objects):
    library = objects / "pg_sluice.so"
    for line in run("readelf", "-d", str(library)).splitlines():
        match = re.search(r"NEEDED.*\[(.*)\]", line)
        if match and re.match(r"lib(stdc\+\+|gcc_s|m\.)", match.group(1)):
            yield f"needs {match.group(1)}"
    for line in run("nm", "-D", "--undefined-only", str(library)).splitlines():
        name = line.split()[-1]
        if re.match(r"(_Z|__cxa_(?!finalize)|__gxx|_Unwind)", name):
            yield f"leaves {name} to libstdc++"


def export_breaches(objects):
    names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", str(objects / "pg_sluice.so")).splitlines()]
    for name in names:
        if not EXPORTS.match(name):
            yield f"exports {name}"
    for name in ("_PG_init", "Pg_magic_func"):
        if name not in names:
            yield f"does not export {name}"


def tracked():
    if (ROOT / ".git").exists():
        names = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"], check=True,
                               capture_output=True).stdout.decode().split("\0")
        return [ROOT / name for name in names if name and (ROOT / name).is_file()]
    return [p for p in ROOT.rglob("*") if p.is_file() and "build" not in p.relative_to(ROOT).parts]


def text_breaches(pattern, skip=()):
    for path in tracked():
        # The fuzz targets' inputs are bytes of the protocol.
        if path.relative_to(ROOT).as_posix() in skip or path.is_relative_to(ROOT / "test/fuzz/corpus"):
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            yield f"{path.relative_to(ROOT)} is no text"
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if pattern.search(line):
                yield f"{where(path, number)}: {line.strip()[:100]}"


def tidy_breaches(compile_commands):
    """clang-tidy over the core, the protocol and the command line; the extension's view of PostgreSQL's macros is left out."""
    files = [str(f) for f in sources(*PURE, "cli", suffixes=(".cc",))]
    if not files:
        yield "no source was found"
        return
    workers = [subprocess.Popen(["clang-tidy", "--quiet", "-p", str(compile_commands.parent), *files[part::2]],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for part in range(2) if files[part::2]]
    for worker in workers:
        output, _ = worker.communicate()
        found = [line for line in output.splitlines() if re.search(r": (warning|error): ", line)]
        yield from (line.replace(f"{ROOT}/", "") for line in dict.fromkeys(found))
        if worker.returncode and not found:
            yield f"clang-tidy ended with status {worker.returncode}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--objects", type=pathlib.Path, required=True, help="where make put the extension's objects")
    parser.add_argument("--compile-commands", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    objects = arguments.objects.resolve()

    rule("each folder includes only what the design lets it see", include_breaches())
    rule("what decides in the proxy includes no I/O", proxy_edge_breaches())
    rule("PostgreSQL's headers are included by extension/pg.h alone", postgres_breaches())
    rule("PostgreSQL versions are told apart in extension/pg.h alone", version_breaches())
    rule("errors are raised by errors.cc and argument checks alone", raise_breaches())
    rule("the core names no type that allocates, throws or knows the time", forbidden_breaches())
    rule("the core's functions are noexcept and their answers are not to be dropped", signature_breaches())
    rule("files are short", length_breaches())
    rule("functions are short", function_breaches())
    with tempfile.TemporaryDirectory() as scratch:
        wire = wire_objects(pathlib.Path(scratch))
        rule("the core and the protocol leave only a few names of the C library undefined", symbol_breaches(objects, wire))
        rule("the core and the protocol have no global variable", global_breaches(objects, wire))
    rule("the library does not need libstdc++", library_breaches(objects))
    rule("the library exports only what PostgreSQL looks up", export_breaches(objects))
    rule("no tracked file names a path of some machine",
         text_breaches(re.compile(r"(?<![\w}])/" + r"(work|root|home/\w+)/")))
    rule("nothing is left to be done later",
         text_breaches(re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")))
    rule("every header is guarded", (f"{p.relative_to(ROOT)}" for p in sources(suffixes=(".h",)) if "#pragma once" not in p.read_text()))
    rule("clang-tidy finds nothing", tidy_breaches(arguments.compile_commands.resolve()))
    print(f"1..{len(results)}")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
