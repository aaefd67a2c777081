#!/usr/bin/env python3
"""Locks the examples anew and freezes what the default wheel index said meanwhile.

usage: freeze.py [--gpuenv EXE] [EXAMPLE...]      (default: all of lock-examples/)

Each example is locked from nothing through a recording proxy on loopback. What the index
answered is written to tests/frozen/index.json.bz2, the locks to their examples; the test
`real::examples_lock_again` then locks from the frozen data alone and compares. Files of
platforms that no example targets are left out; so are the long descriptions in METADATA.
The index is the one that pip is configured to use.
"""

import argparse
import bz2
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JSON = "application/vnd.pypi.simple.v1+json"
KEEP = ("filename", "hashes", "requires-python", "size", "yanked")


def upstream():
    """The simple index that pip uses: configured, else pip's own default."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True)
    if done.returncode == 0 and done.stdout.strip():
        return done.stdout.strip().rstrip("/") + "/"
    from pip._internal.models.index import PyPI

    return PyPI.simple_url.rstrip("/") + "/"


def relevant(name):
    """Sources, and wheels that CPython on Linux x86_64 might take."""
    if not name.endswith(".whl"):
        return name.endswith((".tar.gz", ".zip"))
    python, abi, platform = name[:-4].split("-")[-3:]
    right = platform == "any" or ("linux" in platform and "x86_64" in platform)
    return right and (abi == "abi3" or re.search(r"py3|cp31[01]\b|cp311", python) is not None)


class Recorder:
    def __init__(self, index):
        self.index = index
        self.lock = threading.Lock()
        self.projects, self.metadata, self.urls = {}, {}, {}

    def fetch(self, url, accept="*/*"):
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept})) as answer:
            return answer.read(), answer.geturl()

    def project(self, name):
        if name not in self.projects:
            try:
                body, url = self.fetch(urllib.parse.urljoin(self.index, name + "/"), JSON)
            except urllib.error.HTTPError as e:
                if e.code != 404:
                    raise
                with self.lock:
                    self.projects[name] = None
                return None
            page = json.loads(body)
            files = []
            for file in page["files"]:
                if not relevant(file["filename"]):
                    continue
                self.urls[file["filename"]] = urllib.parse.urljoin(url, file["url"])
                kept = {key: file[key] for key in KEEP if file.get(key) not in (None, False)}
                if file["filename"].endswith(".whl"):
                    kept["core-metadata"] = True
                files.append(kept)
            with self.lock:
                self.projects[name] = files
        return self.projects[name]

    def metadata_of(self, file):
        if file not in self.metadata:
            url = self.urls[file]
            try:
                text = self.fetch(url + ".metadata")[0]
            except urllib.error.HTTPError:
                # The index keeps no metadata beside this file: take it from the file.
                with tempfile.TemporaryFile() as whole:
                    with urllib.request.urlopen(url) as answer:
                        shutil.copyfileobj(answer, whole)
                    archive = zipfile.ZipFile(whole)
                    member = next(n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
                    text = archive.read(member)
            text = text.decode().replace("\r\n", "\n")
            fields = [l for l in re.sub(r"\n[ \t]+", " ", text.split("\n\n", 1)[0]).split("\n")
                      if l.startswith(("Metadata-Version:", "Name:", "Version:", "Requires-Dist:", "Requires-Python:", "Provides-Extra:"))]
            with self.lock:
                self.metadata[file] = "\n".join(fields) + "\n"
        return self.metadata[file]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorder = None

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        status, kind, body = 404, "text/plain", b"not found\n"
        match = re.fullmatch(r"/simple/([^/]+)/|/files/([^/]+)\.metadata", self.path)
        if match and match[1]:
            files = self.recorder.project(match[1])
            if files is not None:
                page = {"meta": {"api-version": "1.1"}, "name": match[1],
                        "files": [{**f, "url": "../../files/" + urllib.parse.quote(f["filename"])} for f in files]}
                status, kind, body = 200, JSON, json.dumps(page).encode()
        elif match:
            status, kind, body = 200, "application/octet-stream", self.recorder.metadata_of(urllib.parse.unquote(match[2])).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def unrealized(path):
    """A lock without what only realizing knows."""
    with open(path) as f:
        body = f.read().split("[[verification]]")[0].rstrip()
    return [l for l in body.split("\n") if not l.startswith(("nar = ", "view-hash = "))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpuenv", default=os.path.join(ROOT, "target", "debug", "gpuenv"))
    parser.add_argument("example", nargs="*")
    options = parser.parse_args()
    examples = os.path.join(ROOT, "lock-examples")
    names = options.example or sorted(n for n in os.listdir(examples) if os.path.exists(os.path.join(examples, n, "env.toml")))
    Handler.recorder = Recorder(upstream())
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/simple/"
    with tempfile.TemporaryDirectory() as work:
        config = os.path.join(work, "config.toml")
        with open(config, "w") as f:
            f.write(f'[mirrors]\npypi = ["{url}"]\n')
        env = {"PATH": os.environ["PATH"], "HOME": work, "GPUENV_CONFIG": config,
               "GPUENV_STORE": os.path.join(work, "store"), "GPUENV_CACHE": os.path.join(work, "cache")}
        for name in names:
            project = os.path.join(work, name)
            shutil.copytree(os.path.join(examples, name), project, ignore=shutil.ignore_patterns("gpuenv.lock", ".gpuenv"))
            subprocess.run([options.gpuenv, "--project", project, "lock"], env=env, check=True)
            old, new = os.path.join(examples, name, "gpuenv.lock"), os.path.join(project, "gpuenv.lock")
            # What realizing has added is kept where the lock says the same otherwise.
            if not os.path.exists(old) or unrealized(old) != unrealized(new):
                shutil.copy(new, old)
    recorder = Handler.recorder
    frozen = {"projects": recorder.projects, "metadata": recorder.metadata}
    out = os.path.join(ROOT, "tests", "frozen", "index.json.bz2")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    with open(out, "wb") as f:
        f.write(bz2.compress(json.dumps(frozen, sort_keys=True, separators=(",", ":")).encode()))
    print(f"{len(recorder.projects)} projects, {len(recorder.metadata)} metadata files, {os.path.getsize(out) // 1024} KiB in {out}")


if __name__ == "__main__":
    main()
