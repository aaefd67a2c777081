#!/usr/bin/env python3
"""gpuenv beside uv: the same work on the same files, in turns. See benches/README.md.

usage: run.py [--runs N] [--dir DIR] [--gpuenv EXE] [--json FILE] {small,detection,torch}
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Requirements as both tools read them, and overrides (for uv: a requirement; for gpuenv: TOML).
SETS = {
    "small": (["requests", "numpy", "pillow"], {}),
    "detection": (
        ["paddlepaddle==2.6.2", "paddledet==2.6.0", "setuptools<80"],
        {
            "sklearn": ("scikit-learn", ">=1"),
            "opencv-python": ("opencv-python-headless", "<4.9"),
        },
    ),
    "torch": (["torch==2.1.0", "numpy<2", "packaging"], {}),
}


def run(command, env=None, quiet=True):
    """Seconds that a command took; its output is shown if it fails."""
    start = time.perf_counter()
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    took = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout.decode()}")
    return took


class Bench:
    def __init__(self, options):
        self.options = options
        self.base = os.path.abspath(options.dir)
        self.set = options.set
        self.requirements, self.overrides = SETS[options.set]
        os.makedirs(self.base, exist_ok=True)
        tools = os.path.join(self.base, "tools")
        self.uv = os.path.join(tools, "bin", "uv")
        if not os.path.exists(self.uv):
            run([sys.executable, "-m", "venv", tools])
            run([os.path.join(tools, "bin", "python"), "-m", "pip", "install", "-q", "uv"])
        self.wheels = os.path.join(self.base, "wheels-" + self.set)
        self.uv_env = {
            "PATH": os.environ["PATH"], "HOME": self.base, "UV_NO_CONFIG": "1",
            "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1",
        }
        self.python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        self.fetch()
        self.runs = tempfile.mkdtemp(dir=self.base, prefix=f"runs-{self.set}-")

    def write(self, name, text):
        path = os.path.join(self.base, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def fetch(self):
        """Downloads the wheels once: uv picks the versions, pip brings the files."""
        self.input = self.write(f"{self.set}.in", "\n".join(self.requirements) + "\n")
        # An override that never holds drops the name; its replacement is asked for beside it.
        lines = [f"{name} ; sys_platform == 'never'" for name in self.overrides]
        self.override = self.write(f"{self.set}.override", "\n".join(lines) + "\n")
        extra = [name + spec for name, spec in self.overrides.values()]
        if extra:
            self.input = self.write(f"{self.set}.in", "\n".join(self.requirements + extra) + "\n")
        done = os.path.join(self.wheels, ".done")
        if os.path.exists(done):
            return
        os.makedirs(self.wheels, exist_ok=True)
        pins = os.path.join(self.base, f"{self.set}.pins")
        env = {**os.environ, "UV_NO_CONFIG": "1"}
        run([self.uv, "pip", "compile", "-q", "--only-binary", ":all:", "--override", self.override, "-p", sys.executable,
             "--no-header", "--no-annotate", self.input, "-o", pins], env)
        run([os.path.join(self.base, "tools", "bin", "python"), "-m", "pip", "download", "-q", "--no-deps",
             "--only-binary=:all:", "-d", self.wheels, "-r", pins])
        open(done, "w").close()

    def fresh(self, name):
        return tempfile.mkdtemp(dir=self.runs, prefix=name + "-")

    # ---- gpuenv

    def project(self, lock=None):
        path = self.fresh("project")
        lines = ["[env]", 'name = "bench"', 'platforms = ["linux-64"]', "", "[host]", f'python = "{self.python}"', "", "[pypi-options]", "pip = false", "", "[pypi-dependencies]"]
        for requirement in self.requirements:
            name, spec = re.fullmatch(r"([A-Za-z0-9._-]+)(.*)", requirement).groups()
            lines.append(f'{name} = "{spec or "*"}"')
        if self.overrides:
            lines += ["", "[pypi-options.dependency-overrides]"]
            lines += [f'{a} = {{ replace = "{b}", version = "{spec}" }}' for a, (b, spec) in self.overrides.items()]
        with open(os.path.join(path, "env.toml"), "w") as f:
            f.write("\n".join(lines) + "\n")
        if lock:
            shutil.copy(lock, os.path.join(path, "gpuenv.lock"))
        return path

    def gpuenv(self, project, store, cache, *arguments):
        env = {
            "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"], "HOME": self.base,
            "GPUENV_STORE": store, "GPUENV_CACHE": cache, "XDG_CACHE_HOME": cache, "GPUENV_CONFIG": self.config,
        }
        return run([self.options.gpuenv, "-q", "--project", project, *arguments], env)

    # ---- uv

    def compile(self, cache, out):
        return run([self.uv, "pip", "compile", "-q", "-p", sys.executable, "--generate-hashes", "--no-header", "--no-annotate",
                    "--only-binary", ":all:", "--override", self.override, "--cache-dir", cache, "--index-url", self.index,
                    self.input, "-o", out], self.uv_env)

    def install(self, cache, venv, lock):
        return run([self.uv, "pip", "install", "-q", "-p", venv, "--no-deps", "--require-hashes", "--cache-dir", cache,
                    "--index-url", self.index, "-r", lock], self.uv_env)

    def venv(self):
        path = self.fresh("venv")
        return path, run([self.uv, "venv", "-q", "--allow-existing", "-p", sys.executable, path], self.uv_env)

    # ---- the rows

    def measure(self):
        server = subprocess.Popen([sys.executable, os.path.join(ROOT, "benches", "index.py"), self.wheels],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.index = server.stdout.readline().strip()
            if not self.index:
                sys.exit("the index did not start")
            self.config = self.write("config.toml", f'[mirrors]\npypi = ["{self.index}"]\n')
            return self.rows()
        finally:
            server.stdin.close()
            server.wait()

    def rows(self):
        warm_cache, warm_uv, warm_store = self.fresh("cache"), self.fresh("uv-cache"), os.path.join(self.fresh("store"), "s")
        project = self.project()
        self.gpuenv(project, warm_store, warm_cache, "lock")
        lock = os.path.join(self.fresh("lock"), "gpuenv.lock")
        shutil.copy(os.path.join(project, "gpuenv.lock"), lock)
        uv_lock = os.path.join(self.runs, "uv.lock.txt")
        self.compile(warm_uv, uv_lock)
        self.same_packages(lock, uv_lock)
        self.gpuenv(self.project(lock), warm_store, warm_cache, "realize", "--locked", "--no-verify")
        self.install(warm_uv, self.venv()[0], uv_lock)
        times = {name: ([], []) for name in ("lock, cold", "lock, warm", "realize, cold", "realize, warm", "realize, no-op")}
        for _ in range(self.options.runs):
            ours, theirs = times["lock, cold"]
            ours.append(self.gpuenv(self.project(), warm_store, self.fresh("cache"), "lock"))
            theirs.append(self.compile(self.fresh("uv-cache"), os.path.join(self.fresh("out"), "o.txt")))

            ours, theirs = times["lock, warm"]
            ours.append(self.gpuenv(self.project(), warm_store, warm_cache, "lock"))
            theirs.append(self.compile(warm_uv, os.path.join(self.fresh("out"), "o.txt")))

            ours, theirs = times["realize, cold"]
            project, store = self.project(lock), os.path.join(self.fresh("store"), "s")
            ours.append(self.gpuenv(project, store, self.fresh("cache"), "realize", "--locked", "--no-verify"))
            venv, took = self.venv()
            theirs.append(took + self.install(self.fresh("uv-cache"), venv, uv_lock))

            # The packages are there and the view is not: a copy of the store without it would cost
            # more than what is measured, so the view is moved aside.
            ours, theirs = times["realize, warm"]
            aside = self.fresh("aside")
            for name in os.listdir(os.path.join(warm_store, "envs")):
                os.rename(os.path.join(warm_store, "envs", name), os.path.join(aside, name))
            project = self.project(lock)
            ours.append(self.gpuenv(project, warm_store, warm_cache, "realize", "--locked", "--no-verify"))
            venv, took = self.venv()
            theirs.append(took + self.install(warm_uv, venv, uv_lock))

            ours, theirs = times["realize, no-op"]
            ours.append(self.gpuenv(project, warm_store, warm_cache, "realize", "--locked", "--no-verify"))
            theirs.append(self.install(warm_uv, venv, uv_lock))
        return times

    def same_packages(self, lock, uv_lock):
        """Both must have chosen the same files, or the numbers compare different work."""
        with open(lock) as f:
            ours = set(re.findall(r"\b[0-9a-f]{64}\b", f.read()))
        with open(uv_lock) as f:
            text = f.read()
        pins = re.findall(r"^(\S+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", text, re.M)
        differ = [f"{name}=={version}" for name, version, hashes in pins if not ours & set(re.findall(r"[0-9a-f]{64}", hashes))]
        if differ or not pins:
            sys.exit(f"the two tools chose different packages: {', '.join(differ) or 'none pinned'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dir", default=os.path.join(ROOT, "target", "bench"))
    parser.add_argument("--gpuenv", default=os.path.join(ROOT, "target", "release", "gpuenv"))
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.runs < 5:
        parser.error("fewer than 5 runs say nothing")
    if not os.path.exists(options.gpuenv):
        parser.error(f"{options.gpuenv} is not there: cargo build --release --locked")
    times = Bench(options).measure()
    print(f"{options.set}: medians of {options.runs}, {os.cpu_count()} cores, Linux {platform.release()}\n")
    print(f"| {'':14} | gpuenv (s) | uv (s) | gpuenv / uv |\n|---|---|---|---|")
    for name, (ours, theirs) in times.items():
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"| {name:14} | {a:.3f} | {b:.3f} | {a / b:.2f} |")
    if options.json:
        with open(options.json, "w") as f:
            json.dump({name: {"gpuenv": ours, "uv": theirs} for name, (ours, theirs) in times.items()}, f, indent=1)


if __name__ == "__main__":
    main()
