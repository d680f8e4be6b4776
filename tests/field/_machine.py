"""Machines made up from the descriptions in raylet-c/doctor/test/data, for RC_DOCTOR_ROOT (raylet-c/doctor/test/tree.h tells the lines)."""
import os
import struct

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../raylet-c/doctor/test/data")


def _library(exports, looks, texts):
    """An ELF file that exports ncclNetPlugin_vN and has constants."""
    names = b"\0.shstrtab\0.dynstr\0.dynsym\0.rodata\0"
    strings, symbols = b"\0", bytes(24)
    for version in filter(None, exports.split(",")):
        symbols += struct.pack("<IBBHQQ", len(strings), 0, 0, 4, 0, 0)
        strings += b"ncclNetPlugin_v%s\0" % version.encode()
    constants = b"\0".join([b"", *(b"ncclNetPlugin_v" + v.encode() for v in looks.split(",") if v), *(t.encode() for t in texts), b""])
    parts, at = b"", 64 + 5 * 64
    table = bytes(64)
    for name, kind, link, data in ((1, 3, 0, names), (11, 3, 0, strings), (19, 11, 2, symbols), (27, 1, 0, constants)):
        table += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at + len(parts), len(data), link, 0, 0, 24 if kind == 11 else 0)
        parts += data
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 5, 1)
    return head + table + parts


def _write(root, path, data):
    path = root + path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def make(root, name, extra=""):
    """A folder that stands for the machine `name`, changed by further lines."""
    with open(os.path.join(DATA, name)) as f:
        lines = iter((f.read() + "\n" + extra).splitlines())
    for line in lines:
        word, _, rest = line.partition(" ")
        words = rest.split()
        if word == "probe":
            _write(root, "/probe/" + rest, "".join(told + "\n" for told in iter(lines.__next__, "end")))
        elif word == "file":
            path, _, text = rest.partition(" ")
            _write(root, path, text + "\n")
        elif word == "net":
            for path, text in (("operstate", "up"), ("speed", words[1]), ("device/uevent", "")):
                _write(root, f"/sys/class/net/{words[0]}/{path}", text + "\n")
        elif word == "efa":
            device, pci, firmware, number = words
            for path, text in (("device/vendor", "0x1d0f"), ("device/device", pci), ("device/gdr", "1"), ("fw_ver", firmware)):
                _write(root, f"/sys/class/infiniband/{device}/{path}", text + "\n")
            _write(root, f"/sys/class/infiniband_verbs/uverbs{number}/ibdev", device + "\n")
            _write(root, f"/dev/infiniband/uverbs{number}", "")
        elif word == "library":
            path, exports, looks, text = rest.split(" ", 3)
            _write(root, path, _library(exports[8:], looks[6:], text[5:].split("|")))
    return root
