#!/usr/bin/env python3
"""Locking alone, on whole index pages: gpuenv beside `uv pip compile`, or beside py-rattler. See benches/README.md.

usage: lock.py [--runs N] [--dir DIR] [--gpuenv EXE] SET...
       SET: torch, paddle, scientific (wheels); conda-small, conda-torch, conda-science
"""

import argparse
import functools
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
import zipfile

from run import run

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from freeze import JSON, upstream  # noqa: E402

WHEELS = {
    "torch": ["torch==2.5.1", "torchvision", "torchaudio", "lightning", "timm"],
    "paddle": ["paddlepaddle==2.6.2", "numpy<2", "paddleocr", "opencv-python-headless", "pandas"],
    "scientific": ["numpy", "scipy", "pandas", "matplotlib", "scikit-learn", "scikit-image", "xarray", "jupyterlab", "seaborn", "statsmodels"],
}
CONDA = {
    "conda-small": ["python 3.11.*", "numpy", "requests"],
    "conda-torch": ["python 3.11.*", "pytorch", "torchvision", "numpy"],
    "conda-science": ["python 3.11.*", "numpy", "scipy", "pandas", "matplotlib", "scikit-learn"],
}


class Ranged(io.RawIOBase):
    """A file behind HTTP, read in ranges."""

    def __init__(self, url):
        self.url, self.at = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
            self.size = int(answer.headers["Content-Length"])

    def seekable(self):
        return True

    def readable(self):
        return True

    def seek(self, offset, whence=0):
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def tell(self):
        return self.at

    def read(self, size=-1):
        end = self.size if size < 0 else min(self.size, self.at + size)
        if end <= self.at:
            return b""
        headers = {"Range": f"bytes={self.at}-{end - 1}"}
        with urllib.request.urlopen(urllib.request.Request(self.url, headers=headers)) as answer:
            body = answer.read()
        self.at += len(body)
        return body


class Frozen:
    """What the index said, each page and each file's metadata, kept in a directory; asked for once."""

    def __init__(self, directory):
        self.index, self.directory = upstream(), directory
        os.makedirs(directory, exist_ok=True)
        self.known, self.lock, self.requests = {}, threading.Lock(), {}

    def get(self, path, make):
        with self.lock:
            if path in self.known:
                return self.known[path]
            file = os.path.join(self.directory, hashlib.sha256(path.encode()).hexdigest())
            if os.path.exists(file):
                with open(file, "rb") as f:
                    body = f.read() or None
            else:
                body = make()
                with open(file, "wb") as f:
                    f.write(body or b"")
            self.known[path] = body
            return body

    def fetch(self, url, accept="*/*"):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept})) as answer:
                return answer.read(), answer.geturl()
        except urllib.error.HTTPError as e:
            if e.code != 404:
                raise
            return None, url

    def project(self, name):
        body, url = self.fetch(urllib.parse.urljoin(self.index, name + "/"), JSON)
        if body is None:
            return None
        page = json.loads(body)
        for file in page["files"]:
            # Where it comes from goes along in the path, so that the metadata can be had later.
            place = urllib.parse.quote(urllib.parse.urljoin(url, file["url"]), safe="")
            file["url"] = f"../../files/{place}/{urllib.parse.quote(file['filename'])}"
            if file["filename"].endswith(".whl"):
                file["core-metadata"] = True
        return json.dumps(page).encode()

    def metadata(self, url):
        body = self.fetch(url + ".metadata")[0]
        if body is None:
            # The index keeps no metadata beside this file: take it from the file.
            archive = zipfile.ZipFile(Ranged(url))
            member = next(n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
            body = archive.read(member)
        return body

    def answer(self, path):
        if match := re.fullmatch(r"/simple/([^/]+)/", path):
            kind, make = "pages", lambda: self.project(match[1])
        elif match := re.fullmatch(r"/files/([^/]+)/[^/]+\.metadata", path):
            kind, make = "metadata", lambda: self.metadata(urllib.parse.unquote(match[1]))
        else:
            kind, make = "others", lambda: None
        with self.lock:
            self.requests[kind] = self.requests.get(kind, 0) + 1
        return self.get(path, make)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    frozen = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        body = self.frozen.answer(self.path)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", JSON if self.path.startswith("/simple/") else "application/octet-stream")
        # As large indexes do: pages for ten minutes, files for ever.
        self.send_header("Cache-Control", "max-age=600" if self.path.startswith("/simple/") else "max-age=365000000, immutable")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")


class Files(http.server.SimpleHTTPRequestHandler):
    """A channel: the directory, as `/conda-forge/`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def translate_path(self, path):
        return super().translate_path(path.removeprefix("/conda-forge"))


class Bench:
    def __init__(self, options, name):
        self.options, self.name = options, name
        self.base = os.path.abspath(options.dir)
        self.runs = tempfile.mkdtemp(dir=self.base, prefix=f"lock-{name}-")
        self.python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        tools = os.path.join(self.base, "tools")
        if not os.path.exists(os.path.join(tools, "bin", "uv")):
            run([sys.executable, "-m", "venv", tools])
            run([os.path.join(tools, "bin", "python"), "-m", "pip", "install", "-q", "uv"])
        self.tools = os.path.join(tools, "bin")

    def fresh(self, name):
        return tempfile.mkdtemp(dir=self.runs, prefix=name + "-")

    def lock(self, lines, cache, config):
        project = self.fresh("project")
        with open(os.path.join(project, "env.toml"), "w") as f:
            f.write("\n".join(lines) + "\n")
        env = {"PATH": os.environ["PATH"], "HOME": self.base, "GPUENV_STORE": os.path.join(self.runs, "store"),
               "GPUENV_CACHE": cache, "XDG_CACHE_HOME": cache, "GPUENV_CONFIG": config}
        return run([self.options.gpuenv, "-q", "--project", project, "lock"], env), os.path.join(project, "gpuenv.lock")

    def wheels(self):
        requirements = WHEELS[self.name]
        Handler.frozen = frozen = Frozen(os.path.join(self.base, "frozen-" + self.name))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_address[1]}/simple/"
        config = os.path.join(self.runs, "config.toml")
        with open(config, "w") as f:
            f.write(f'[mirrors]\npypi = ["{index}"]\n')
        given = os.path.join(self.runs, "requirements.in")
        with open(given, "w") as f:
            f.write("\n".join(requirements) + "\n")
        lines = ["[env]", 'name = "bench"', 'platforms = ["linux-64"]', "[host]", f'python = "{self.python}"',
                 "[pypi-options]", "pip = false", "[pypi-dependencies]"]
        for requirement in requirements:
            name, spec = re.fullmatch(r"([A-Za-z0-9._-]+)(.*)", requirement).groups()
            lines.append(f'{name} = "{spec or "*"}"')

        def ours(cache):
            return self.lock(lines, cache, config)

        def theirs(cache):
            out = os.path.join(self.fresh("out"), "o.txt")
            env = {"PATH": os.environ["PATH"], "HOME": self.base, "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
            took = run([os.path.join(self.tools, "uv"), "pip", "compile", "-q", "-p", sys.executable, "--python-platform", "x86_64-manylinux_2_28",
                        "--no-header", "--no-annotate", "--only-binary", ":all:", "--cache-dir", cache, "--index-url", index, given, "-o", out], env)
            return took, out

        # The first runs fill what is frozen, and are not measured.
        ours(self.fresh("cache")), theirs(self.fresh("cache"))
        counts = []
        for tool in (ours, theirs):
            frozen.requests = {}
            out = tool(self.fresh("cache"))[1]
            with open(out) as f:
                text = f.read()
            if tool is ours:
                chosen = {name: version for name, version in re.findall(r'^name = "(.+)"\nversion = "(.+)"', text, re.M)}
            else:
                others = dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.M))
            counts.append(dict(frozen.requests))
        differ = sorted(f"{n}: {chosen.get(n)} / {others.get(n)}" for n in chosen.keys() | others.keys() if chosen.get(n) != others.get(n))
        print(f"\n{self.name}: {len(chosen)} packages; cold requests: gpuenv {counts[0]}, uv {counts[1]}; "
              f"versions {'equal' if not differ else 'differ: ' + ', '.join(differ)}")
        self.rows(ours, theirs, "uv")
        server.shutdown()

    def conda(self):
        data = os.environ.get("GPUENV_TEST_DATA") or os.path.join(os.path.dirname(ROOT), "shared", "data")
        directory = os.path.join(data, "repodata", "conda-forge")
        if not os.path.isdir(directory):
            sys.exit(f"{directory} is not there: set GPUENV_TEST_DATA")
        files = functools.partial(Files, directory=directory)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), files)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        channel = f"http://127.0.0.1:{server.server_address[1]}/conda-forge/"
        python = os.path.join(self.tools, "python")
        if subprocess.run([python, "-c", "import rattler"], stderr=subprocess.DEVNULL).returncode:
            run([python, "-m", "pip", "install", "-q", "py-rattler"])
        specs = CONDA[self.name]
        lines = ["[env]", 'name = "bench"', 'platforms = ["linux-64"]', f'channels = ["{channel}"]', "[dependencies]"]
        for spec in specs:
            name, _, bound = spec.partition(" ")
            lines.append(f'{name} = "{bound or "*"}"')
        config = os.path.join(self.runs, "config.toml")
        open(config, "w").close()
        script = os.path.join(self.runs, "solve.py")
        with open(script, "w") as f:
            f.write(RATTLER)

        def theirs(cache):
            out = os.path.join(self.fresh("out"), "o.json")
            return run([python, script, channel, cache, out, *specs]), out

        def ours(cache):
            return self.lock(lines, cache, config)

        with open(ours(self.fresh("cache"))[1]) as f:
            chosen = set(re.findall(r'^file = "(.+)"', f.read(), re.M))
        with open(theirs(self.fresh("cache"))[1]) as f:
            others = set(json.load(f))
        print(f"\n{self.name}: {len(chosen)} packages; records {'equal' if chosen == others else 'differ: ' + ', '.join(sorted(chosen ^ others))}")
        self.rows(ours, theirs, "py-rattler")

    def rows(self, ours, theirs, peer):
        warm = self.fresh("cache"), self.fresh("cache")
        ours(warm[0]), theirs(warm[1])
        print(f"| {'':10} | gpuenv (s) | {peer} (s) | gpuenv / {peer} |\n|---|---|---|---|")
        for row in ("lock, cold", "lock, warm"):
            times = [], []
            for _ in range(self.options.runs):
                caches = warm if row.endswith("warm") else (self.fresh("cache"), self.fresh("cache"))
                times[0].append(ours(caches[0])[0])
                times[1].append(theirs(caches[1])[0])
            a, b = (statistics.median(all) for all in times)
            print(f"| {row:10} | {a:.3f} | {b:.3f} | {a / b:.2f} |", flush=True)


RATTLER = """
import asyncio, json, os, sys, rattler
channel, cache, out, *specs = sys.argv[1:]
async def main():
    virtual = [rattler.GenericVirtualPackage(rattler.PackageName(n), rattler.Version(v), rattler.BuildString(b))
               for n, v, b in [("__unix", "0", "0"), ("__linux", "4.18", "0"), ("__glibc", "2.28", "0"), ("__archspec", "1", "x86_64")]]
    gateway = rattler.Gateway(cache_dir=cache)
    records = await rattler.solve([channel], specs, gateway=gateway, platforms=["linux-64", "noarch"], virtual_packages=virtual)
    with open(out, "w") as f:
        json.dump([record.file_name for record in records], f)
asyncio.run(main())
# Its threads do not always survive the end of the interpreter.
os._exit(0)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", choices=[*WHEELS, *CONDA])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--dir", default=os.path.join(ROOT, "target", "bench"))
    parser.add_argument("--gpuenv", default=os.path.join(ROOT, "target", "release", "gpuenv"))
    options = parser.parse_args()
    if options.runs < 5:
        parser.error("fewer than 5 runs say nothing")
    if not os.path.exists(options.gpuenv):
        parser.error(f"{options.gpuenv} is not there: cargo build --release --locked")
    os.makedirs(options.dir, exist_ok=True)
    done = []
    for name in options.sets:
        bench = Bench(options, name)
        bench.wheels() if name in WHEELS else bench.conda()
        done.append(bench.runs)
    # Not between runs: making inodes is slow for minutes after a large removal.
    for directory in done:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
