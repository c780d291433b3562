"""A web server on this machine that fails on request, to test downloads with."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


class Server:
    """A local server of files, which can break off, stall, and refuse ranges; it notes every request."""

    def __init__(self):
        self.files, self.ranges, self.requests = {}, True, []
        self.break_after = None  # bytes of the next answer; then the connection is closed
        self.go = threading.Event()  # while it is not set, answers stop half way
        self.go.set()
        self.half_way = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

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
        content = self.files.get(path, self.files.get(path.partition("?")[0]))
        if content is None:
            request.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.ranges else 0
        if start >= len(content) > 0:
            request.send_error(416)
            return
        rest = content[start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(rest)))
        request.end_headers()
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
