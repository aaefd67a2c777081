#!/usr/bin/env python3
"""A loopback wheel index of the wheels in DIR: PEP 503 HTML, PEP 691 JSON, PEP 658 metadata, byte ranges, keep-alive.

usage: index.py DIR    prints its URL and serves until its standard input ends
"""

import email.parser
import hashlib
import html
import http.server
import json
import os
import re
import sys
import threading
import zipfile

JSON = "application/vnd.pypi.simple.v1+json"


def normalize(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def read(directory):
    """Bodies by path, and files by path."""
    pages, files, projects = {}, {}, {}
    for name in sorted(os.listdir(directory)):
        if not name.endswith(".whl"):
            continue
        path = os.path.join(directory, name)
        with open(path, "rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
        with zipfile.ZipFile(path) as z:
            member = next(n for n in z.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
            metadata = z.read(member)
        python = email.parser.HeaderParser().parsestr(metadata.decode("utf-8", "replace"))["Requires-Python"]
        files["/files/" + name] = path
        pages["/files/" + name + ".metadata"] = ("application/octet-stream", metadata)
        entry = dict(filename=name, url="../../files/" + name, size=os.path.getsize(path), hashes={"sha256": digest})
        entry["core-metadata"] = {"sha256": hashlib.sha256(metadata).hexdigest()}
        if python:
            entry["requires-python"] = python
        projects.setdefault(normalize(name.split("-")[0]), []).append(entry)
    for project, entries in projects.items():
        body = json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": entries})
        pages[f"/simple/{project}/", JSON] = (JSON, body.encode())
        lines = [
            f'<a href="{e["url"]}#sha256={e["hashes"]["sha256"]}"'
            + (f' data-requires-python="{html.escape(e["requires-python"])}"' if "requires-python" in e else "")
            + f' data-core-metadata="sha256={e["core-metadata"]["sha256"]}">{e["filename"]}</a>'
            for e in entries
        ]
        pages[f"/simple/{project}/"] = ("text/html", ("<!DOCTYPE html><html><body>" + "<br>".join(lines) + "</body></html>").encode())
    return pages, files


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    pages, files = {}, {}

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        path = self.path.split("?")[0]
        if path in self.files:
            return self.file(self.files[path], body)
        page = self.pages.get((path, JSON)) if JSON in self.headers.get("Accept", "") else None
        page = page or self.pages.get(path)
        kind, data = page or ("text/plain", b"not found\n")
        self.send_response(200 if page else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "max-age=600, public")
        self.send_header("Vary", "Accept")
        self.end_headers()
        if body:
            self.wfile.write(data)

    def file(self, path, body):
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            first, last, status = 0, size - 1, 200
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if match and any(match.groups()):
                status = 206
                if match[1]:
                    first, last = int(match[1]), min(int(match[2] or last), last)
                else:
                    first = max(0, size - int(match[2]))
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(last + 1 - first))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", f'"{size:x}-{os.fstat(f.fileno()).st_mtime_ns:x}"')
            self.end_headers()
            self.wfile.flush()
            if not body:
                return
            at = first
            try:
                while at <= last:
                    sent = os.sendfile(self.connection.fileno(), f.fileno(), at, last + 1 - at)
                    if not sent:
                        break
                    at += sent
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_):
        pass


def main():
    Handler.pages, Handler.files = read(sys.argv[1])
    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}/simple/", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
