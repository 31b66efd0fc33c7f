# Prints what Flask reads as the user: lines of a kind and a value, percent-encoded.
import json
import sys
from urllib.parse import quote

from flask import Flask, request

application = Flask(__name__)


def numbers(value):
    """What applications make of a number that a client wrote."""
    for number in (int, float):
        try:
            yield str(number(value))
        except (TypeError, ValueError):
            pass


@application.route("/<path:rest>", methods=["GET", "POST"])
def read(rest):
    user = request.headers.get("X-User")
    seen = request.authorization
    basic = seen is not None and seen.type == "basic"
    body = request.get_json(silent=True)
    lines = {
        "query": [request.args.get("user"), *request.args.getlist("user")],
        "cookie": [request.cookies.get("sid"), *request.cookies.getlist("sid")],
        "header": [user],
        "basic": [f"{seen.username}:{seen.password}"] if basic else [],
        "bearer": [seen.token] if seen is not None and seen.type == "bearer" else [],
        "form": request.form.getlist("user"),
        "params": [request.values.get("user"), *request.values.getlist("user")],
        "query-name": request.args.getlist("user_name"),
        "cookie-name": request.cookies.getlist("user_name"),
        "form-name": request.form.getlist("user_name"),
        "cost": numbers(body.get("n") if isinstance(body, dict) else None),
        "amount": [each for n in request.values.getlist("n") for each in numbers(n)],
        "json": [json.dumps(body["user"])] if isinstance(body, dict) and "user" in body else [],
    }
    pairs = [(kind, value) for kind, values in lines.items() for value in values]
    return "".join(f"{kind} {quote(value, safe='')}\n" for kind, value in pairs if value is not None)


application.run("127.0.0.1", int(sys.argv[1]))
