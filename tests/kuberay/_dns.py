"""A name server for the pods: usage _dns.py IP NAME=IP... Answers A of the given names; anything else of them is empty, others do
not exist. (gRPC's resolver asks a name server also for what /etc/hosts has: AAAA, TXT.)
"""
import socket
import struct
import sys


def question(packet):
    """(name, type, end of the question)"""
    labels, at = [], 12
    while packet[at]:
        labels.append(packet[at + 1 : at + 1 + packet[at]].decode("ascii", "replace").lower())
        at += 1 + packet[at]
    return ".".join(labels), struct.unpack("!H", packet[at + 1 : at + 3])[0], at + 5


def answer(packet, names):
    name, kind, end = question(packet)
    ips = [names[name]] if name in names and kind == 1 else []
    flags = 0x8580 | (0 if name in names else 3)
    records = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 5, 4) + socket.inet_aton(ip) for ip in ips)
    return packet[:2] + struct.pack("!HHHHH", flags, 1, len(ips), 0, 0) + packet[12:end] + records


def main(ip, *pairs):
    names = dict(pair.lower().split("=") for pair in pairs)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind((ip, 53))
        print("ready", flush=True)
        while True:
            packet, peer = s.recvfrom(4096)
            try:
                s.sendto(answer(packet, names), peer)
            except (IndexError, struct.error):
                pass  # no question


main(*sys.argv[1:])
