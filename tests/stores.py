"""Stores on this machine to test addresses with: S3 as moto speaks it, and a web server that counts."""

import os
import re
import threading
import uuid
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key-of-nobody",
    "AWS_SECRET_ACCESS_KEY": "secret-of-nobody",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_server():
    """Run an S3 server; yield the environment in which it is found."""
    for package in ("s3fs", "flask", "flask_cors"):
        pytest.importorskip(package)
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield CREDENTIALS | {"AWS_ENDPOINT_URL_S3": f"http://{host}:{port}"}
    finally:
        server.stop()


@contextmanager
def new_bucket(environment, monkeypatch):
    """Yield the address of a bucket of its own, in an environment that finds it, and forget both."""
    import s3fs

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"bucket-{uuid.uuid4().hex}"
    s3fs.S3FileSystem(use_listings_cache=False).mkdir(bucket)
    yield f"s3://{bucket}"
    s3fs.S3FileSystem.clear_instance_cache()


def store_of(address):
    """Return the file system of an address, and the path in it."""
    import fsspec

    store = fsspec.filesystem(address.partition("://")[0], use_listings_cache=False)
    return store, store._strip_protocol(address)


def names_at(address):
    """Return the names of all objects at an address."""
    store, root = store_of(address)
    return [name.removeprefix(root).lstrip("/") for name in store.find(root)]


def objects_at(address):
    """Return all objects at an address, by name, with their content."""
    store, root = store_of(address)
    return {name: store.cat_file(f"{root}/{name}" if name else root) for name in names_at(address)}


class WebServer:
    """Serves the files of a folder, in ranges unless told otherwise, and notes what it sent."""

    def __init__(self, folder):
        self.sent, self.ranges = [], True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                file = folder / urlsplit(self.path).path.lstrip("/")
                if not file.is_file():
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                content = file.read_bytes()
                wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                part = content
                if wanted and outer.ranges:
                    part = content[int(wanted[1]) : int(wanted[2] or len(content)) + 1]
                    described = f"bytes {wanted[1]}-{int(wanted[1]) + len(part) - 1}/{len(content)}"
                self.send_response(206 if wanted and outer.ranges else 200)
                if wanted and outer.ranges:
                    self.send_header("Content-Range", described)
                self.send_header("Content-Length", str(len(part)))
                self.end_headers()
                if self.command == "GET":
                    outer.sent.append((self.path, len(part)))
                    with suppress(OSError):  # whoever asked may be gone
                        self.wfile.write(part)

            do_HEAD = do_GET

            def handle(self):
                with suppress(ConnectionError):
                    super().handle()

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def bytes_sent(self):
        return sum(size for _, size in self.sent)

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def inherited(environment):
    """Return an environment for a process that shall find the store."""
    return os.environ | environment | {"OMP_NUM_THREADS": "1"}
