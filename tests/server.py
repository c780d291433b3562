"""A web server on this machine that fails on request, to test downloads with."""

import contextlib
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, unquote

import numpy as np

RNG = np.random.default_rng(0)
#: What the data set consists of, in repositories below.
FILES = {
    "S001.mat": RNG.bytes(2000),
    "S002.mat": RNG.bytes(3000),
    "mit Lücke/S003 (neu).mat": RNG.bytes(1000),
    "Readme.txt": b"hello",
}


class Server:
    """A local server of files, which can break off, stall, send elsewhere, and refuse ranges.

    It notes every request, and how many bytes it sent. It has the files of a folder too, where there is one.
    """

    def __init__(self, folder=None):
        self.files, self.folder, self.ranges, self.requests, self.bytes_sent = {}, folder, True, [], 0
        self.elsewhere = {}  # paths of which it says that they are found at another address
        self.break_after = None  # bytes of the next answer; then the connection is closed
        self.go = threading.Event()  # while it is not set, answers stop half way
        self.go.set()
        self.half_way = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, request):
        wanted = request.headers.get("Range")
        self.requests.append((request.path, wanted))
        path = unquote(request.path)
        if path in self.elsewhere:
            request.send_response(302)
            request.send_header("Location", self.elsewhere[path])
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        content = self.files.get(path, self.files.get(path.partition("?")[0]))
        if content is None and self.folder and (file := self.folder / path.partition("?")[0][1:]).is_file():
            content = file.read_bytes()
        if content is None:
            request.send_error(404)
            return
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "") if self.ranges else None
        start, end = (int(part[1]), int(part[2] or len(content)) + 1) if part else (0, len(content))
        if start >= len(content) > 0:
            request.send_error(416)
            return
        rest = content[start:end]
        request.send_response(206 if part else 200)
        request.send_header("Content-Length", str(len(rest)))
        if part:
            described = f"bytes {start}-{start + len(rest) - 1}/{len(content)}"
            request.send_header("Content-Range", described)
        request.end_headers()
        if request.command == "HEAD":
            return
        self.bytes_sent += len(rest)
        sent, self.break_after = rest[: self.break_after], None
        half = len(sent) if self.go.is_set() else len(sent) // 2
        request.wfile.write(sent[:half])
        if half < len(sent):
            self.half_way.set()
            self.go.wait()
        with contextlib.suppress(OSError):  # whoever asked may be gone
            request.wfile.write(sent[half:])

    def close(self):
        self.go.set()
        self.http.shutdown()
        self.http.server_close()


def md5(content):
    return hashlib.md5(content).hexdigest()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def as_json(value):
    return json.dumps(value).encode()


def serve_files(server):
    for name, content in FILES.items():
        server.files[f"/files/{name}"] = content


def serve_osf(server):
    """Serve the files as the project osf:ab3de, of two pages, the second with a folder; return the API."""
    base = f"{server.url}/v2/nodes/ab3de/files/osfstorage/"
    related = {"links": {"related": {"href": f"{base}5f/"}}}
    folder = {"attributes": {"kind": "folder", "name": "mit Lücke"}, "relationships": {"files": related}}
    first = {"data": [_osf_file(server, n) for n in ("S002.mat", "S001.mat")]}
    second = {"data": [folder, _osf_file(server, "Readme.txt")], "links": {"next": None}}
    inside = {"data": [_osf_file(server, "mit Lücke/S003 (neu).mat")], "links": {"next": None}}
    server.files["/v2/nodes/ab3de/files/osfstorage/"] = as_json(
        first | {"links": {"next": f"{base}?page=2&page[size]=100"}}
    )
    server.files["/v2/nodes/ab3de/files/osfstorage/?page=2&page[size]=100"] = as_json(second)
    server.files["/v2/nodes/ab3de/files/osfstorage/5f/"] = as_json(inside)
    server.files["/v2/nodes/ab3de/children/"] = as_json({"data": [], "links": {"next": None}})
    serve_files(server)
    return f"{server.url}/v2"


def serve_osf_components(server, nodes):
    """Serve OSF projects by their ids, each a title, files by path, and ids of components; return the API.

    Every list comes in pages of one entry. Files are found at another address.
    """
    for node, (_, files, children) in nodes.items():
        root = f"/v2/nodes/{node}/files/osfstorage/"
        folders = sorted({path.rpartition("/")[0] for path in files})
        hrefs = [{"links": {"related": {"href": f"{server.url}{root}{i}/"}}} for i in range(len(folders))]
        entries = [{"attributes": {"kind": "folder"}, "relationships": {"files": href}} for href in hrefs]
        _serve_pages(server, root, entries)
        for i, folder in enumerate(folders):
            entries = []
            for path in (path for path in files if path.rpartition("/")[0] == folder):
                facts = {"kind": "file", "materialized_path": f"/{path}", "size": len(files[path])}
                facts["extra"] = {"hashes": {"sha256": sha256(files[path])}}
                address = f"/download/{node}/{path}"
                entries.append({"attributes": facts, "links": {"download": f"{server.url}{address}"}})
                server.elsewhere[address] = f"/files/{node}/{quote(path)}"
                server.files[f"/files/{node}/{path}"] = files[path]
            _serve_pages(server, f"{root}{i}/", entries)
        titles = [{"id": child, "attributes": {"title": nodes[child][0]}} for child in children]
        _serve_pages(server, f"/v2/nodes/{node}/children/", titles)
    return f"{server.url}/v2"


def _serve_pages(server, path, entries):
    """Serve a list as OSF does, with one entry a page."""
    for i, entry in enumerate(entries or [None]):
        follows = f"{server.url}{path}?page={i + 2}" if i + 1 < len(entries) else None
        page = as_json({"data": [] if entry is None else [entry], "links": {"next": follows}})
        server.files[path if i == 0 else f"{path}?page={i + 1}"] = page


def serve_figshare(server, files, article="13560281", version=4):
    """Serve files as a version of an article, at addresses that lead elsewhere; return the API."""
    entries = []
    for i, (name, content) in enumerate(files.items()):
        address = f"{server.url}/ndownloader/{i}"
        entries.append(
            {"name": name, "size": len(content), "computed_md5": md5(content), "download_url": address}
        )
        server.elsewhere[f"/ndownloader/{i}"] = f"/storage/{quote(name)}?signature=1"
        server.files[f"/storage/{name}"] = content
    server.files[f"/fs/articles/{article}/versions/{version}"] = as_json(
        {"version": version, "files": entries}
    )
    return f"{server.url}/fs"


def _osf_file(server, name):
    content = FILES[name]
    facts = {"kind": "file", "name": name, "materialized_path": f"/{name}", "size": len(content)}
    facts["extra"] = {"hashes": {"md5": md5(content), "sha256": sha256(content)}}
    return {"attributes": facts, "links": {"download": f"{server.url}/files/{name}"}}
