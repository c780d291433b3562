"""Stores on this machine to test addresses with: S3 as moto speaks it, and memory."""

import uuid
from contextlib import contextmanager

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
