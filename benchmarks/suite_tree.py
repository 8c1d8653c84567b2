"""A public tree of system tests under ``tileyard test``, beside the tree's own runner.

    python benchmarks/suite_tree.py PTOAS [--jobs 2] [--pairs 3] [--every 1] [--take 0.2,0.3]
        [--python PYTHON]

PTOAS is a checkout of github.com/tonibohnlein/PTOAS. Its system tests need a compiler and a simulator that
cannot be had, so stand-ins take their places: a compilation takes the first number of ``--take`` in seconds,
a case on the simulator the second, and each case writes the expected output. Both sides run in turns, each
pair in new copies of ``test/tilelang_st`` with nothing built and nothing known, and then once more. ``--every
4`` leaves every fourth folder of testcases. PYTHON has NumPy, ml_dtypes and en_dtypes.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

STAND_IN = r"""
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void copy(const char *from, const char *to) {
    char data[1 << 16];
    size_t size;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    if (!in || !out) exit(1);
    while ((size = fread(data, 1, sizeof data, in))) fwrite(data, 1, size, out);
    fclose(in);
    if (fclose(out)) exit(1);
}

static int simulate(const char *name) {
    char from[4096], to[4096];
    struct dirent *file;
    int found = 0;
    DIR *files = opendir(name);
    if (!files) return 0;
    while ((file = readdir(files)))
        if (!strncmp(file->d_name, "golden", 6)) {
            const char *rest = file->d_name + 6;
            snprintf(from, sizeof from, "%s/%s", name, file->d_name);
            snprintf(to, sizeof to, "%s/%s%s", name, *rest == '_' ? "" : "output",
                     *rest == '_' ? rest + 1 : rest);
            copy(from, to);
            found = 1;
        }
    closedir(files);
    if (found) usleep(SIMULATE_US);
    return found;
}

int main(int count, char **given) {
    const char *base = strrchr(given[0], '/'), *out = 0, *deps = 0, *object = 0;
    base = base ? base + 1 : given[0];
    int is_bisheng = !strcmp(base, "bisheng"), compiles = !strcmp(base, "ptoas"), is_shared = 0;
    if (!is_bisheng && !compiles) {
        if (count > 1) return !simulate(given[1]);
        struct dirent *entry;
        DIR *here = opendir(".");
        while ((entry = readdir(here)))
            if (entry->d_name[0] != '.') simulate(entry->d_name);
        return 0;
    }
    for (int i = 1; i < count; i++) {
        if (!strcmp(given[i], "-c")) compiles = 1;
        if (!strcmp(given[i], "-shared")) is_shared = 1;
        if (i + 1 < count && !strcmp(given[i], "-o")) out = given[i + 1];
        if (i + 1 < count && !strcmp(given[i], "-MF")) deps = given[i + 1];
        if (i + 1 < count && !strcmp(given[i], "-MT")) object = given[i + 1];
    }
    if (!out) return 1;
    if (compiles) usleep(COMPILE_US);
    copy(compiles || is_shared ? "/proc/self/cmdline" : "/proc/self/exe", out);
    if (!compiles) chmod(out, 0755);
    if (deps) {
        FILE *file = fopen(deps, "w");
        fprintf(file, "%s: %s\n", object ? object : out, given[count - 1]);
        fclose(file);
    }
    return 0;
}
"""
SUITE = r"""
name = "tilelang_st"
python = PYTHON
env_from = "$ASCEND_HOME_PATH/bin/setenv.bash"
env = ["ASCEND_HOME_PATH", "PTO_ISA_ROOT", "PYTHONPATH={suite}/testcase", "PYTHONDONTWRITEBYTECODE=1"]
list = ["{python}", "-c", '''
import json, pathlib, runpy
for path in sorted(pathlib.Path("testcase").glob("*/cases.py")):
    for case in runpy.run_path(str(path))["CASES"]:
        row = dict((key, case[key]) for key in ("name", "shape", "valid_shape") if key in case)
        dtype = case.get("dtype") or ""
        row.update(testcase=path.parent.name, dtype=getattr(dtype, "__name__", str(dtype)))
        print(json.dumps(row))
''']

[build]
argv = ["sh", "-euc", '''
cache=$1; shift
cmake -G Ninja -S . -B "$cache" -DRUN_MODE=sim -DSOC_VERSION=Ascend950PR_9599 -DTEST_CASE=all \
    -DPTOAS_BIN="$(command -v ptoas)" -DPTO_ISA_ROOT="$PTO_ISA_ROOT"
ninja -C "$cache" -j JOBS -k 0 "$@"
''', "build", "{cache}", "{targets}"]
target = "{testcase}"
products = ["bin/{testcase}", "lib/lib{testcase}_kernel.so"]
runs = ["cmake", "ninja", "ptoas", "bisheng", "c++", "cc"]
inputs = ["CMakeLists.txt", "common/*.h", "testcase/CMakeLists.txt", "testcase/*.cmake"]
target_inputs = ["testcase/{testcase}/*.cpp", "testcase/{testcase}/*.pto",
                 "testcase/{testcase}/CMakeLists.txt"]

[golden]
argv = ["{python}", "{suite}/testcase/{testcase}/gen_data.py"]
part = "{case}"
cwd = "{out}"
inputs = ["testcase/st_common.py", "testcase/{testcase}/*.py"]

[run]
argv = ["{build}/bin/{testcase}", "{case}"]

[check]
argv = ["{python}", "{suite}/testcase/{testcase}/compare.py", "{case}"]
inputs = ["testcase/st_common.py", "testcase/{testcase}/*.py"]

[check.hot]
argv = ["{python}", "-c", '''
import os, runpy, sys
script, *rest = sys.argv[1:]
half = len(rest) // 2
for case, work in zip(rest[:half], rest[half:]):
    print("begin", case, flush=True)
    os.chdir(work)
    sys.argv = [script, case]
    try:
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code or 0
    print("end", case, status, flush=True)
''', "{suite}/testcase/{testcase}/compare.py", "{cases}", "{works}"]
began = '^begin (?P<case>\S+)'
ended = '^end (?P<case>\S+) (?P<verdict>\S+)'
verdicts = { 0 = "passed", 2 = "mismatch" }
env = { PYTHONPATH = "{suite}/testcase:{suite}/testcase/{testcase}" }
inputs = ["testcase/st_common.py", "testcase/{testcase}/*.py"]

[[testcase]]
name = "softmax"
golden.argv = ["{python}", "{suite}/testcase/{testcase}/gen_data.py"]
golden.part = "{case}"
golden.link = false  # its program writes into its inputs
golden.cwd = "{out}"
golden.inputs = ["testcase/st_common.py", "testcase/{testcase}/*.py"]
"""
SUITE_FOLDER = Path("npu", "a5", "src", "st")
LEFT_OUT = ("tquant_mx_dn", "trandom", "tstore_acc2gm")
"""Testcases whose expected output is not a file that the stand-in can copy."""


def main() -> None:
    """Time pairs, and print the ratios of the first and of the second run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--take", default="0.2,0.3")
    parser.add_argument("--python", default=sys.executable)
    asked = parser.parse_args()
    ratios: dict[str, list[float]] = {"first run": [], "second run": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = make_tools(folder / "tools", *map(float, asked.take.split(",")))
        for pair in range(asked.pairs):
            sides = {}
            for side, command in (("own", command_of_own), ("ours", command_of_ours)):
                tree = folder / f"{pair}.{side}"
                copy_tree(asked.tree, tree, asked.every)
                sides[side] = command(tree, asked.python, asked.jobs)
            env = {**tools, "TILEYARD_HOME": f"{folder}/{pair}.home"}
            for which, found in ratios.items():
                turns = sorted(sides, reverse=pair % 2 == 0)
                took_s = {side: run(sides[side], env)[0] for side in turns}
                found.append(took_s["ours"] / took_s["own"])
                print(
                    f"{which:10}  own runner {took_s['own']:6.1f} s   tileyard "
                    f"{took_s['ours']:6.1f} s   {found[-1]:.2f}",
                    flush=True,
                )
        smoke = run([*sides["ours"], "--policy", "smoke"], env)[1]
    for which, found in ratios.items():
        print(
            f"{which}, tileyard / own runner: {statistics.median(found):.2f} ({min(found):.2f} "
            f"to {max(found):.2f})"
        )
    print(f"a smoke run, all passed, printed {smoke.count(chr(10))} lines")


def make_tools(folder: Path, compile_s: float, simulate_s: float) -> dict[str, str]:
    """Put the stand-ins into a folder; return the environment in which both sides find them."""
    for part in ("bin", "ascend/bin", "isa/include/pto"):
        (folder / part).mkdir(parents=True)
    source = folder / "stand_in.c"
    source.write_text(STAND_IN)
    took = (f"-DCOMPILE_US={compile_s * 1e6:.0f}", f"-DSIMULATE_US={simulate_s * 1e6:.0f}")
    for tool in ("bisheng", "ptoas"):
        subprocess.run(["cc", "-O2", *took, source, "-o", folder / "bin" / tool], check=True)
    (folder / "ascend/bin/setenv.bash").write_text("export ASCEND_OPP_PATH=$ASCEND_HOME_PATH/opp\n")
    (folder / "isa/include/pto/pto-inst.hpp").touch()
    # Python keeps the modules that it has compiled, as it does for users.
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **env,
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "ASCEND_HOME_PATH": f"{folder}/ascend",
        "PTO_ISA_ROOT": f"{folder}/isa",
        "TILEYARD_LOCK_DIR": f"{folder}/locks",
    }


def copy_tree(tree: Path, to: Path, every: int) -> None:
    """Copy the system tests, with each ``every``-th folder of testcases."""
    shutil.copytree(tree / "test" / "tilelang_st", to)
    testcases = to / SUITE_FOLDER / "testcase"
    folders = sorted(path.parent for path in testcases.glob("*/cases.py"))
    left_out = {one.name for number, one in enumerate(folders) if number % every} | {*LEFT_OUT}
    for name in left_out:
        shutil.rmtree(testcases / name)
    listed = testcases / "CMakeLists.txt"
    lines = listed.read_text().splitlines(keepends=True)
    listed.write_text("".join(line for line in lines if line.strip() not in left_out))


def command_of_own(tree: Path, python: str, jobs: int) -> list[str]:
    """The tree's own runner."""
    script = tree / "script" / "run_all_st.py"
    return [python, str(script), "--jobs", str(jobs), "--build-jobs", str(jobs)]


def command_of_ours(tree: Path, python: str, jobs: int) -> list[str]:
    """``tileyard test``, and the file that it needs."""
    suite = tree / SUITE_FOLDER / "suite.toml"
    suite.write_text(SUITE.replace("PYTHON", json.dumps(python), 1).replace("JOBS", str(jobs)))
    return [sys.executable, "-m", "tileyard", "test", str(suite), "--slots", str(jobs)]


def run(argv: Sequence[str], env: dict[str, str]) -> tuple[float, str]:
    """Run it, with all cases passed; the seconds that it took, and what it printed."""
    began_s = time.perf_counter()
    done = subprocess.run(
        argv, check=False, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    took_s = time.perf_counter() - began_s
    if done.returncode:
        sys.exit(f"{argv} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return took_s, done.stdout


if __name__ == "__main__":
    main()
