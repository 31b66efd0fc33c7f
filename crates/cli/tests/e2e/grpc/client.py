"""Calls a method of each kind, and one more often than its limit allows."""

import queue
import sys

import grpc

port, authority = sys.argv[1:]
with open(authority, "rb") as file:
    credentials = grpc.ssl_channel_credentials(file.read())
wait = {"timeout": 20}
with grpc.secure_channel("localhost:" + port, credentials) as channel:
    unary = channel.unary_unary("/demo.Echo/Unary")
    assert unary(b"hello", **wait) == b"hello"
    large = bytes(range(256)) * 4096  # 1 MiB
    assert unary(large, **wait) == large

    assert list(channel.unary_stream("/demo.Echo/Down")(b"n", **wait)) == [b"n0", b"n1", b"n2"]

    whole, call = channel.stream_unary("/demo.Echo/Up").with_call(iter([b"a", b"b"]), **wait)
    assert whole == b"a+b"
    assert ("x-trailer", "up") in call.trailing_metadata(), call.trailing_metadata()

    # Each message is sent after the answer to the one before.
    messages = queue.Queue()
    answers = channel.stream_stream("/demo.Echo/Chat")(iter(messages.get, None), **wait)
    for number in range(5):
        messages.put(b"%d" % number)
        assert next(answers) == b"%d" % number
    messages.put(None)
    assert list(answers) == []

    def failure(method):
        try:
            channel.unary_unary("/demo.Echo/" + method)(b"", **wait)
        except grpc.RpcError as error:
            return error

    assert failure("Missing").code() == grpc.StatusCode.NOT_FOUND
    assert failure("Missing").details() == "no such thing"

    assert failure("Few") is None
    refused = failure("Few")
    assert refused.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, refused
    names = [name for name, _ in refused.trailing_metadata()]
    assert "grpc-retry-pushback-ms" in names, names
    assert "grpc-status-details-bin" in names, names
print("done")
