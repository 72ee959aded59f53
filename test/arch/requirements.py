#!/usr/bin/python3
"""Every delivered requirement has a test, and that test ran and passed in this check.

test/delivered.txt holds the ids, test/requirements.tsv their proofs: id, test, file. What "test" is depends on the file:
  *_test.cc         GoogleTest's Suite.Name
  sql/*.sql         the file's stem, as pg_regress prints it; specs/*.spec likewise
  anything else     the text of a TAP line, as it stands in the file
The logs of the suites (build/check/*.log) say what ran. Prints one TAP line an id.
"""
import argparse
import pathlib
import re
import sys


def read_logs(folder):
    """What passed and what failed, by the name a proof uses."""
    passed, failed = set(), set()
    for log in sorted(folder.glob("*.log")):
        if log.name == "requirements.log":
            continue
        for line in log.read_text(errors="replace").splitlines():
            match = re.match(r"\[       OK \] (\S+) \(", line)
            if match:
                passed.add(match.group(1))
                continue
            match = re.match(r"\[  FAILED  \] (\S+?),? .*\(\d+ ms\)$", line)
            if match:
                failed.add(match.group(1))
                continue
            match = re.match(r"test (\S+)\s+\.\.\. (ok|FAILED)", line)
            if match:
                (passed if match.group(2) == "ok" else failed).add(match.group(1))
                continue
            match = re.match(r"(not )?ok (?:\d+ +)?- (.*)$", line) or re.match(r"(not )?ok \d+ +([^-].*)$", line)
            if match:
                name = re.sub(r"\s+\d+ ms$", "", match.group(2).strip())
                (failed if match.group(1) else passed).add(name)
    return passed, failed


def occurs(test, path):
    """Does the named test stand in the file?"""
    text = path.read_text(errors="replace")
    if path.name.endswith("_test.cc"):
        parts = test.split("/")[-1].split(".") if test.count(".") == 1 else test.split(".")
        if len(parts) != 2:
            return False
        return re.search(rf"\bTEST(_F|_P)?\(\s*{re.escape(parts[0])}\s*,\s*{re.escape(parts[1])}\s*\)", text) is not None
    if path.suffix in (".sql", ".spec"):
        return path.stem == test
    if test in text:
        return True
    # Perl completes some names at run time: "login guard: $kind".
    for literal in re.findall(r'"([^"\n]*\$[^"\n]*)"', text):
        parts = re.split(r"\$\{?\w+\}?", literal)
        if any(part.strip() for part in parts) and re.fullmatch(".+".join(map(re.escape, parts)), test):
            return True
    return False


def problem(test, name, root, passed, failed):
    path = root / name
    if not path.is_file():
        return f"{name} does not exist"
    if not occurs(test, path):
        return f"{name} holds no test '{test}'"
    if test in failed:
        return f"'{test}' failed"
    # TAP descriptions may be completed at run time ("… (seed 7)"); a parametrized GoogleTest carries /0, /1, ….
    if test not in passed and not any(p.startswith((test + " ", test + "/")) for p in passed):
        return f"'{test}' did not run in this check"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--logs", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    delivered = [i.strip() for i in (arguments.source / "test/delivered.txt").read_text().splitlines() if i.strip()]
    proofs = {}
    broken = []
    for number, line in enumerate((arguments.source / "test/requirements.tsv").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 3:
            broken.append(f"line {number} has {len(fields)} fields instead of 3")
            continue
        proofs.setdefault(fields[0], []).append(fields[1:])
    passed, failed = read_logs(arguments.logs)
    count = good = 0
    for requirement in delivered:
        problems = [p for p in (problem(test, name, arguments.source, passed, failed)
                                for test, name in proofs.get(requirement, [])) if p]
        if requirement not in proofs:
            problems = ["no test is named for it"]
        count += 1
        good += not problems
        print(f"{'not ok' if problems else 'ok'} {count} - requirement {requirement} is covered by {len(proofs.get(requirement, []))} tests")
        for text in problems:
            print(f"#   {text}")
    broken += [f"{i} is not a delivered requirement" for i in proofs if i not in delivered]
    count += 1
    good += not broken
    print(f"{'not ok' if broken else 'ok'} {count} - test/requirements.tsv is well formed")
    for text in broken:
        print(f"#   {text}")
    print(f"1..{count}")
    return 0 if good == count else 1


if __name__ == "__main__":
    sys.exit(main())
