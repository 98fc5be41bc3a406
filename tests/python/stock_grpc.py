"""A client made with nothing but stock grpcio: the proto files say all that is needed.

Generates stubs from proto/, starts a cluster of three nodes with the trefoild that cargo has built, and goes through
health, reflection, schema, unary writes and reads, values of every kind of type and their elements, the Pipe, and an
error whose details are decoded. Ends with exit code 0 if all of it holds; whatever is missing (Python packages, trefoild)
ends it with another.
"""

import contextlib
import importlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import grpc
import grpc_tools
from google.protobuf import any_pb2, descriptor_pb2
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S = 60
ZONES = ("a", "b", "c")

# Not part of stock grpcio-tools: the two services that every gRPC server may have beside its own, and the standard's
# error details. They are written out here as far as they are used.
STANDARD_PROTOS = {
    "grpc/health/v1/health.proto": """
        syntax = "proto3";
        package grpc.health.v1;
        message HealthCheckRequest { string service = 1; }
        message HealthCheckResponse {
          enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
          ServingStatus status = 1;
        }
        service Health { rpc Check(HealthCheckRequest) returns (HealthCheckResponse); }
    """,
    "grpc/reflection/v1alpha/reflection.proto": """
        syntax = "proto3";
        package grpc.reflection.v1alpha;
        message ServerReflectionRequest {
          string host = 1;
          oneof message_request { string file_containing_symbol = 4; string list_services = 7; }
        }
        message ServerReflectionResponse {
          oneof message_response {
            FileDescriptorResponse file_descriptor_response = 4;
            ListServiceResponse list_services_response = 6;
            ErrorResponse error_response = 7;
          }
        }
        message FileDescriptorResponse { repeated bytes file_descriptor_proto = 1; }
        message ListServiceResponse { repeated ServiceResponse service = 1; }
        message ServiceResponse { string name = 1; }
        message ErrorResponse { int32 error_code = 1; string error_message = 2; }
        service ServerReflection {
          rpc ServerReflectionInfo(stream ServerReflectionRequest) returns (stream ServerReflectionResponse);
        }
    """,
    "google/rpc/status.proto": """
        syntax = "proto3";
        package google.rpc;
        import "google/protobuf/any.proto";
        message Status { int32 code = 1; string message = 2; repeated google.protobuf.Any details = 3; }
    """,
}


def generate(into):
    """Stubs of all that is spoken here, as modules."""
    standard = into / "protos"
    for name, text in STANDARD_PROTOS.items():
        path = standard / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ours = sorted(path.relative_to(ROOT / "proto").as_posix() for path in (ROOT / "proto/trefoil/v1").glob("*.proto"))
    well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    stubs = into / "stubs"
    stubs.mkdir()
    arguments = ["protoc", f"-I{ROOT / 'proto'}", f"-I{standard}", f"-I{well_known}"]
    arguments += [f"--python_out={stubs}", f"--grpc_python_out={stubs}", *ours, *STANDARD_PROTOS]
    assert protoc.main(arguments) == 0, "protoc refused the proto files"
    # The packages grpc and google exist already: the generated modules in them are found beside the installed ones.
    sys.path.insert(0, str(stubs))
    for package in ("grpc", "google"):
        module = importlib.import_module(package)
        module.__path__ = [*module.__path__, str(stubs / package)]


def trefoild():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    candidates = [target / profile / "trefoild" for profile in ("debug", "release")]
    built = [path for path in candidates if path.exists()]
    assert built, f"none of {', '.join(map(str, candidates))} is there: build it first (cargo build)"
    return max(built, key=lambda path: path.stat().st_mtime)


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


class Cluster:
    """Three nodes, one in each zone, as child processes."""

    def __init__(self, directory):
        ports = free_ports(9)
        self.nodes = [ports[3 * node : 3 * node + 3] for node in range(3)]
        self.directory = directory
        self.children = []

    def __enter__(self):
        members = ", ".join(
            f'{{ address = "127.0.0.1:{peer}", region = "local", zone = "{zone}" }}'
            for zone, (_, peer, _) in zip(ZONES, self.nodes)
        )
        for zone, (client, peer, http) in zip(ZONES, self.nodes):
            home = self.directory / f"node-{zone}"
            home.mkdir()
            (home / "node.toml").write_text(
                f'[cluster]\nname = "python"\nvnodes = 64\ninitial_members = [{members}]\n'
                f'[node]\ndata_dir = "data"\nregion = "local"\nzone = "{zone}"\n'
                f'client_address = "127.0.0.1:{client}"\npeer_address = "127.0.0.1:{peer}"\n'
                f'http_address = "127.0.0.1:{http}"\n'
                f"[storage]\nsegment_mib = 48\nmemtable_mib = 32\ncache_mib = 8\n"
            )
            with open(home / "log.txt", "wb") as log:
                # With its input at an end a node stops: none outlives this script, however that ends.
                command = [trefoild(), "serve", "--until-input-ends", "--config", home / "node.toml"]
                self.children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log))
        for child, (_, _, http) in zip(self.children, self.nodes):
            wait_until(f"the node on port {http} serves", lambda: self.serves(child, http))
        return self

    @staticmethod
    def serves(child, http):
        assert child.poll() is None, f"trefoild ended with {child.returncode}"
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{http}/healthz", timeout=5).status == 200
        except (urllib.error.URLError, OSError):
            return False

    def __exit__(self, kind, error, trace):
        if kind is not None:
            for log in sorted(self.directory.glob("node-*/log.txt")):
                print(f"-- {log.parent.name}:", *log.read_text().splitlines()[-40:], sep="\n", file=sys.stderr)
        for child in self.children:
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            try:
                code = child.wait(timeout=PATIENCE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                raise
            assert kind is not None or code == 0, f"a node ended with {code}"


def wait_until(what, holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s until {what}"
        time.sleep(0.02)


def check_health(channel):
    from grpc.health.v1 import health_pb2, health_pb2_grpc

    stub = health_pb2_grpc.HealthStub(channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service="trefoil.v1.Data"), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING, answer


def check_reflection(channel):
    from grpc.reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="trefoil.v1.Data"),
    ]
    listed, described = stub.ServerReflectionInfo(iter(asked), timeout=10)
    names = {service.name for service in listed.list_services_response.service}
    assert {"trefoil.v1.Data", "trefoil.v1.Schema", "trefoil.v1.Cluster"} <= names, names
    files = [descriptor_pb2.FileDescriptorProto.FromString(file)
             for file in described.file_descriptor_response.file_descriptor_proto]
    data = next(file for file in files if file.name == "trefoil/v1/data.proto")
    methods = [method.name for service in data.service for method in service.method]
    assert methods == ["Pipe", "Read", "ReadStream", "Mutate", "Batch", "IncrementCounters"], methods


def make_schema(channel):
    from trefoil.v1 import schema_pb2, schema_pb2_grpc, types_pb2

    def column(name, kind, scalar):
        return schema_pb2.Column(name=name, kind=kind, type=types_pb2.Type(scalar=scalar))

    keyspace = schema_pb2.CreateKeyspace(keyspace=schema_pb2.Keyspace(name="py"))
    table = schema_pb2.Table(
        keyspace="py",
        name="readings",
        columns=[
            column("sensor", schema_pb2.COLUMN_KIND_PARTITION_KEY, types_pb2.SCALAR_TEXT),
            column("at", schema_pb2.COLUMN_KIND_CLUSTERING, types_pb2.SCALAR_TIMESTAMP),
            column("celsius", schema_pb2.COLUMN_KIND_REGULAR, types_pb2.SCALAR_DOUBLE),
            column("note", schema_pb2.COLUMN_KIND_REGULAR, types_pb2.SCALAR_TEXT),
        ],
    )
    stub = schema_pb2_grpc.SchemaStub(channel)
    for ddl in (
        schema_pb2.Ddl(create_keyspace=keyspace),
        schema_pb2.Ddl(create_table=schema_pb2.CreateTable(table=table)),
    ):
        answer = stub.Apply(schema_pb2.ApplyRequest(ddl=ddl), timeout=20)
        assert answer.applied and not answer.nodes_behind, answer
    described = stub.Describe(schema_pb2.DescribeRequest(keyspace="py", table="readings"), timeout=10)
    assert [column.name for column in described.tables[0].columns] == ["sensor", "at", "celsius", "note"], described


def text(value):
    from trefoil.v1 import types_pb2

    return types_pb2.Value(text=value)


def integer(value):
    from trefoil.v1 import types_pb2

    return types_pb2.Value(integer=value)


def options():
    from trefoil.v1 import data_pb2, types_pb2

    return data_pb2.Options(consistency=types_pb2.CONSISTENCY_QUORUM)


def table():
    from trefoil.v1 import types_pb2

    return types_pb2.TableRef(keyspace="py", name="readings")


def write(sensor, at, celsius):
    from trefoil.v1 import data_pb2, types_pb2

    cells = [data_pb2.CellWrite(column="celsius", value=types_pb2.Value(double=celsius))]
    row = data_pb2.RowWrite(clustering=[integer(at)], cells=cells)
    mutation = data_pb2.Mutation(table=table(), partition=[text(sensor)], changes=[data_pb2.Change(insert=row)])
    return data_pb2.MutateRequest(options=options(), mutation=mutation)


def read(sensor, **more):
    from trefoil.v1 import data_pb2

    return data_pb2.ReadRequest(options=options(), table=table(), slice=data_pb2.Slice(partition=[text(sensor)]), **more)


def values(page):
    names = [column.name for column in page.columns]
    celsius, note = names.index("celsius"), names.index("note")
    for row in page.rows:
        assert not row.cells[note].HasField("value"), "what was never written is null"
        yield row.clustering[0].integer, row.cells[celsius].value.double


def check_unary(writer, reader):
    """Written through one node, read through another, page by page and as a stream."""
    from trefoil.v1 import data_pb2_grpc

    written = [(at, at / 2) for at in range(25)]
    stub = data_pb2_grpc.DataStub(writer)
    for at, celsius in written:
        assert stub.Mutate(write("unary", at, celsius), timeout=10).stamp > 0
    stub = data_pb2_grpc.DataStub(reader)
    rows, state = [], b""
    while True:
        page = stub.Read(read("unary", page_rows=10, paging_state=state), timeout=10)
        rows += values(page)
        state = page.paging_state
        if not state:
            break
    assert rows == written, rows
    streamed = [row for page in stub.ReadStream(read("unary", page_rows=10), timeout=10) for row in values(page)]
    assert streamed == written, streamed


def check_pipe(channel):
    """Many operations on one stream, answered by id in any order."""
    from trefoil.v1 import data_pb2, data_pb2_grpc

    count = 200
    answered = threading.Event()

    def requests():
        for first in range(0, count, 50):
            numbers = range(first, first + 50)
            operations = [data_pb2.PipeOperation(id=n, mutate=write("pipe", n, float(n))) for n in numbers]
            yield data_pb2.PipeRequest(operations=operations)
        assert answered.wait(PATIENCE_S)
        yield data_pb2.PipeRequest(operations=[data_pb2.PipeOperation(id=count, read=read("pipe"))])

    missing = set(range(count))
    for response in data_pb2_grpc.DataStub(channel).Pipe(requests(), timeout=PATIENCE_S):
        for answer in response.answers:
            if answer.id == count:
                assert list(values(answer.page)) == [(n, float(n)) for n in range(count)], answer
                return
            assert answer.WhichOneof("result") == "write", answer
            missing.remove(answer.id)
        if not missing:
            answered.set()
    raise AssertionError("the stream ended before the read was answered")


def make_types(channel):
    """A table with a column of every kind of type. Answers what is written to it, by column."""
    from trefoil.v1 import schema_pb2, schema_pb2_grpc, types_pb2
    from trefoil.v1.types_pb2 import Type, Value

    def scalar(name):
        return Type(scalar=getattr(types_pb2, f"SCALAR_{name}"))

    def items(*values):
        return Value.Items(items=values)

    place = types_pb2.UserType(
        keyspace="py",
        name="place",
        fields=[
            types_pb2.UserType.Field(name="street", type=scalar("TEXT")),
            types_pb2.UserType.Field(name="number", type=scalar("INT")),
        ],
    )
    columns = {
        "list": (Type(list=scalar("TEXT")), Value(list=items(text("b"), text("a")))),
        "set": (Type(set=scalar("INT")), Value(set=items(integer(-1), integer(7)))),
        "map": (
            Type(map=Type.Map(key=scalar("TEXT"), value=scalar("BIG_INT"))),
            Value(map=Value.Entries(keys=[text("x")], values=[integer(1 << 40)])),
        ),
        "home": (Type(udt="place"), Value(tuple=items(text("Bahnhof"), integer(7)))),
        "whole": (Type(set=scalar("INT"), frozen=True), Value(set=items(integer(1), integer(2)))),
        "pair": (
            Type(tuple=Type.Tuple(elements=[scalar("INT"), scalar("TEXT")])),
            Value(tuple=items(integer(1), Value(null=Value.Null()))),
        ),
        "vector": (
            Type(vector=Type.Vector(element=scalar("FLOAT"), dimension=2)),
            Value(tuple=items(Value(float=0.5), Value(float=-0.5))),
        ),
        "decimal": (scalar("DECIMAL"), Value(decimal=Value.Decimal(scale=2, unscaled=b"\x04\xd2"))),
        "duration": (scalar("DURATION"), Value(duration=Value.Duration(months=1, days=2, nanos=3))),
        "uuid": (scalar("UUID"), Value(uuid=bytes(range(16)))),
        "inet": (scalar("INET"), Value(inet=bytes([127, 0, 0, 1]))),
        "blob": (scalar("BLOB"), Value(blob=b"\x00\xff")),
        "flag": (scalar("BOOLEAN"), Value(boolean=True)),
        "day": (scalar("DATE"), integer(-1)),
        "large": (scalar("VAR_INT"), Value(varint=b"\x01" + bytes(20))),
    }
    key = schema_pb2.Column(name="k", kind=schema_pb2.COLUMN_KIND_PARTITION_KEY, type=scalar("INT"))
    regular = [
        schema_pb2.Column(name=name, kind=schema_pb2.COLUMN_KIND_REGULAR, type=kind)
        for name, (kind, _) in columns.items()
    ]
    made = schema_pb2.Table(keyspace="py", name="things", columns=[key, *regular])
    stub = schema_pb2_grpc.SchemaStub(channel)
    for ddl in (
        schema_pb2.Ddl(create_type=schema_pb2.CreateType(type=place)),
        schema_pb2.Ddl(create_table=schema_pb2.CreateTable(table=made)),
    ):
        answer = stub.Apply(schema_pb2.ApplyRequest(ddl=ddl), timeout=20)
        assert answer.applied and not answer.nodes_behind, answer
    return {name: value for name, (_, value) in columns.items()}


def check_types(writer, reader):
    """A value of every kind of type, then single elements, written through one node and read through another."""
    from trefoil.v1 import data_pb2, data_pb2_grpc, types_pb2

    things = types_pb2.TableRef(keyspace="py", name="things")
    written = make_types(writer)

    def update(*cells, ttl_s=None):
        change = data_pb2.Change(update=data_pb2.RowWrite(cells=cells), ttl_s=ttl_s)
        mutation = data_pb2.Mutation(table=things, partition=[integer(1)], changes=[change])
        request = data_pb2.MutateRequest(options=options(), mutation=mutation)
        data_pb2_grpc.DataStub(writer).Mutate(request, timeout=10)

    def row():
        projection = data_pb2.Projection(with_elements=True)
        one = data_pb2.Slice(partition=[integer(1)])
        request = data_pb2.ReadRequest(options=options(), table=things, slice=one, projection=projection)
        page = data_pb2_grpc.DataStub(reader).Read(request, timeout=10)
        return {column.name: cell for column, cell in zip(page.columns, page.rows[0].cells)}

    def element(column, path, value):
        return data_pb2.CellWrite(column=column, set_element=data_pb2.CellWrite.Element(path=path, value=value))

    update(*(data_pb2.CellWrite(column=name, value=value) for name, value in written.items()))
    for name, cell in row().items():
        assert cell.value == written[name], (name, cell)
    more = types_pb2.Value.Items(items=[text("c")])
    update(data_pb2.CellWrite(column="list", append=types_pb2.Value(list=more)))
    update(element("map", text("y"), integer(2)), ttl_s=3600)
    update(element("home", text("number"), integer(8)))
    update(data_pb2.CellWrite(column="set", delete_element=integer(-1)))
    changed = row()
    assert [item.text for item in changed["list"].value.list.items] == ["b", "a", "c"], changed["list"]
    pairs = zip(changed["map"].value.map.keys, changed["map"].value.map.values)
    assert {key.text: value.integer for key, value in pairs} == {"x": 1 << 40, "y": 2}, changed["map"]
    assert [found.ttl_s for found in changed["map"].elements] == [0, 3600], changed["map"]
    assert changed["home"].value.tuple.items[1].integer == 8, changed["home"]
    assert [item.integer for item in changed["set"].value.set.items] == [7], changed["set"]
    # An element of a list is named by its id, which only the answer tells.
    update(element("list", changed["list"].elements[1].path, text("A")))
    assert [item.text for item in row()["list"].value.list.items] == ["b", "A", "c"]


def check_error(channel):
    """An error's status, and what its details say to a program."""
    from google.rpc import status_pb2
    from trefoil.v1 import data_pb2_grpc, errors_pb2, types_pb2

    request = write("error", 1, 1.0)
    request.mutation.changes[0].insert.cells[0].value.CopyFrom(types_pb2.Value(text="warm"))
    try:
        data_pb2_grpc.DataStub(channel).Mutate(request, timeout=10)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
        trailers = dict(error.trailing_metadata())
        status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
        detail = errors_pb2.ErrorDetail()
        assert isinstance(status.details[0], any_pb2.Any) and status.details[0].Unpack(detail), status
        assert detail.outcome == errors_pb2.OUTCOME_NOT_APPLIED, detail
        named = (detail.invalid.keyspace, detail.invalid.table, detail.invalid.column, detail.invalid.op_index)
        assert named == ("py", "readings", "celsius", 0), detail
        assert status.message == error.details() and "celsius" in status.message, status
    else:
        raise AssertionError("text was taken for a double")


def main():
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        generate(directory)
        with Cluster(directory) as cluster:
            channels = [grpc.insecure_channel(f"127.0.0.1:{client}") for client, _, _ in cluster.nodes]
            for channel in channels:
                check_health(channel)
            check_reflection(channels[1])
            make_schema(channels[0])
            check_unary(channels[1], channels[2])
            check_pipe(channels[2])
            check_types(channels[0], channels[1])
            check_error(channels[0])
            for channel in channels:
                channel.close()
    print(json.dumps({"stock grpcio": grpc.__version__, "checks": "passed"}))


if __name__ == "__main__":
    main()
