"""A service of gRPC with a method of each kind; messages are bytes."""

import sys
from concurrent import futures

import grpc


def up(messages, context):
    context.set_trailing_metadata((("x-trailer", "up"),))
    return b"+".join(messages)


def missing(message, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")


methods = {
    "Unary": grpc.unary_unary_rpc_method_handler(lambda message, context: message),
    "Few": grpc.unary_unary_rpc_method_handler(lambda message, context: message),
    "Missing": grpc.unary_unary_rpc_method_handler(missing),
    "Down": grpc.unary_stream_rpc_method_handler(
        lambda message, context: (message + b"%d" % number for number in range(3))
    ),
    "Up": grpc.stream_unary_rpc_method_handler(up),
    "Chat": grpc.stream_stream_rpc_method_handler(lambda messages, context: messages),
}
server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("demo.Echo", methods),))
server.add_insecure_port("127.0.0.1:" + sys.argv[1])
server.start()
server.wait_for_termination()
