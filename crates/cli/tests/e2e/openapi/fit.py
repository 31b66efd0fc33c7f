"""Compares answers with docs/openapi.yaml, then asks the service by a client generated from it.

usage: fit.py DOCUMENT DIRECTORY URL; standard input: a line of JSON for each answer
"""

import json
import re
import subprocess
import sys

import yaml
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

document, directory, url = sys.argv[1:]
with open(document, encoding="utf-8") as text:
    api = yaml.safe_load(text)
validate(api)


def found(node):
    """Follows a reference."""
    while "$ref" in node:
        target = api
        for step in node["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        node = target
    return node


left = {(path, method) for path, item in api["paths"].items() for method in item if method != "parameters"}
for line in sys.stdin:
    answer = json.loads(line)
    target, method = answer["target"].split("?")[0], answer["method"].lower()
    same = [p for p in api["paths"] if re.fullmatch(re.sub(r"\\{\w+\\}|{\w+}", "[^/]+", p), target)]
    path = min(same, key=lambda p: "{" in p)
    left.discard((path, method))
    responses = api["paths"][path][method]["responses"]
    response = found(responses.get(str(answer["status"])) or responses["default"])
    place = f"{answer['method']} {answer['target']}: {answer['status']} {answer['body'][:300]}"
    content = response.get("content")
    if not content:
        assert not answer["body"], place
        continue
    kind = answer["type"].split(";")[0]
    if kind == "application/json" or kind.endswith("+json"):
        assert kind in content, f"{kind}: {place}"
        schema = {**found(content[kind]["schema"]), "components": api["components"]}
        for error in Draft202012Validator(schema).iter_errors(json.loads(answer["body"])):
            raise AssertionError(f"{error.message}: {place}")
assert not left, f"no answer of {sorted(left)}"

generator = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
made = subprocess.run(
    [*generator, "--path", document, "--output-path", f"{directory}/ratekeeper_api"],
    capture_output=True, text=True, check=True,
)
assert "Skipping" not in made.stdout.replace("Skipping Integration", ""), made.stdout
sys.path.insert(0, directory)
from ratekeeper_api import Client
from ratekeeper_api.api.check import check
from ratekeeper_api.models import Check, Request

client = Client(base_url=url)
asked = Check(request=Request(path="/login", ip="198.51.100.7"))
allowed = [check.sync(client=client, body=asked).allowed for _ in range(6)]
assert allowed == [True] * 5 + [False], allowed
