#!/usr/bin/python3
"""Runs the core's benchmarks (Google Benchmark), prints a table and writes the documented figures (docs/benchmarks.md).

usage: figures.py core PROGRAM JSON [--quick]
"""
import json
import os
import re
import subprocess
import sys

# Documented name -> which benchmark's median it is.
CORE = {
    "core_take_release_ns": r"core_take_release(/real_time)?",
    "core_take_release_2threads_ns": r"core_take_release(/real_time)?/threads:2|core_take_release_2threads(/.*)?",
    "core_handover_ns_100": r"core_handover/100(/.*)?",
    "core_handover_ns_10k": r"core_handover/10000(/.*)?",
}
TO_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def main():
    kind, program, target = sys.argv[1:4]
    if kind != "core":
        sys.exit(f"figures.py knows no benchmark '{kind}'")
    quick = "--quick" in sys.argv[4:]
    raw = target + ".raw"
    subprocess.run([program, f"--benchmark_repetitions={5 if quick else 15}", f"--benchmark_min_time={0.05 if quick else 0.3}",
                    "--benchmark_enable_random_interleaving=true", "--benchmark_format=console", f"--benchmark_out={raw}",
                    "--benchmark_out_format=json"], check=True, stdout=subprocess.DEVNULL)
    with open(raw, encoding="utf-8") as file:
        runs = json.load(file)["benchmarks"]
    spread = {}
    for run in runs:
        if run.get("run_type") == "iteration":
            # One thread is measured by its CPU time, which other work on the machine disturbs less; several by the clock.
            measured = run["real_time"] if "/real_time" in run["run_name"] else run["cpu_time"]
            spread.setdefault(run["run_name"], []).append(measured * TO_NS[run["time_unit"]])
    figures = {}
    print(f"{'benchmark':<44} {'median ns':>10} {'least':>10} {'most':>10}")
    for name, times in spread.items():
        times.sort()
        median = times[len(times) // 2]
        print(f"{name:<44} {median:>10.1f} {times[0]:>10.1f} {times[-1]:>10.1f}")
        for figure, pattern in CORE.items():
            if re.fullmatch(pattern, name):
                figures[figure] = round(median, 1)
    missing = [name for name in CORE if name not in figures]
    with open(target, "w", encoding="utf-8") as file:
        json.dump({"figures": figures, "cores": os.cpu_count()}, file, indent=2)
        file.write("\n")
    if missing:
        sys.exit(f"no benchmark gave {', '.join(missing)}")


if __name__ == "__main__":
    main()
