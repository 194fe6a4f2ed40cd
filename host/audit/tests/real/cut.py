"""Cuts a component down to what an audit reads: python3 cut.py worker.wasm worker.wasm.z

Every function of its core modules becomes `unreachable`, and their data goes, with all custom sections but `producers` and
`dylink.0`. Types, imports, exports and instances stay as they were. The outcome is valid, and compressed with zlib.
"""

import sys
import zlib

KEPT = {b"producers", b"dylink.0"}
CUSTOM, CODE, DATA, DATA_COUNT = 0, 10, 11, 12


def number(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def written(value):
    out = bytearray()
    while True:
        byte, value = value & 0x7F, value >> 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def cut(data):
    out = bytearray(data[:8])
    is_module = data[4:8] == b"\x01\0\0\0"
    at = 8
    while at < len(data):
        section = data[at]
        size, at = number(data, at + 1)
        body = data[at : at + size]
        at += size
        if section == CUSTOM:
            length, start = number(body, 0)
            if body[start : start + length] not in KEPT:
                continue
        elif is_module and section in (DATA, DATA_COUNT):
            continue
        elif is_module and section == CODE:
            count, _ = number(body, 0)
            body = written(count) + b"\x03\x00\x00\x0b" * count
        elif not is_module and section in (1, 4):
            # A core module, or a component, within this one.
            body = cut(body)
        out += bytes([section]) + written(len(body)) + body
    return bytes(out)


source, target = sys.argv[1:]
with open(source, "rb") as file:
    small = cut(file.read())
with open(target, "wb") as file:
    file.write(zlib.compress(small, 9))
print(f"{len(small)} bytes, {len(zlib.compress(small, 9))} compressed")
