"""Receives OTLP over HTTP, and prints each message as a line of JSON.

Decodes with the classes of the package opentelemetry-proto, which are generated from the protos of
the standard. Arguments: the port, then the statuses of the first answers, each with the seconds of
its `Retry-After` if it has one, as `503:1`; all others are 200.
"""

import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from google.protobuf.json_format import MessageToDict
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

KINDS = {
    "/base/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "/base/v1/logs": logs_service_pb2.ExportLogsServiceRequest,
}
STATUSES = [status.split(":") for status in sys.argv[2:]]


def unknown_fields(message):
    """Returns the number of fields that the standard does not have, at any depth."""
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                count += unknown_fields(part)
    return count


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status, *wait = STATUSES.pop(0) if STATUSES else ["200"]
        status = int(status)
        shown = {
            "path": self.path,
            "status": status,
            "type": self.headers["content-type"],
            "authorization": self.headers["authorization"],
        }
        if status == 200:
            assert self.headers["content-encoding"] == "gzip"
            message = KINDS[self.path]()
            message.ParseFromString(gzip.decompress(body))
            shown["unknown"] = unknown_fields(message)
            shown["message"] = MessageToDict(message, preserving_proto_field_name=True)
        print(json.dumps(shown), flush=True)
        self.send_response(status)
        self.send_header("content-length", "0")
        for seconds in wait:
            self.send_header("retry-after", seconds)
        self.end_headers()

    def log_message(self, *_):
        pass


HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
