"""An application in gunicorn: a login that knows one password."""

import sys

from gunicorn.app.base import BaseApplication


def application(environ, start_response):
    length = int(environ.get("CONTENT_LENGTH") or 0)
    right = environ["wsgi.input"].read(length) == b"right"
    failed = environ["PATH_INFO"] == "/login" and not right
    start_response("401 Unauthorized" if failed else "200 OK", [("Content-Length", "8")])
    return [b"gunicorn"]


class Server(BaseApplication):
    def load_config(self):
        # A worker whose parent was killed ends within half of the timeout.
        bind = f"127.0.0.1:{sys.argv[1]}"
        settings = {"bind": bind, "timeout": 4, "control_socket_disable": True}
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self):
        return application


Server().run()
