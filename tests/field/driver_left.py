#!/usr/bin/env python3
"""A driver on the node leaves while the node ends.

The head ends the jobs of a node that unregisters, and one that is ended a second time crashes the head of Ray 2.35.0. A stock
node is gone by then; ours waits for its helper processes, one of which (the dashboard agent) is such a driver once a job was
submitted through it.
"""
import os
import signal

import _field
from _field import expect, wait_for

DRIVER = """
print("node", ray.get_runtime_context().get_node_id(), flush=True)
def leave(*_):
    print("leaving", flush=True)
    time.sleep(0.5) # the node is unregistered by then
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
time.sleep(600)
"""


def while_the_node_ends(field):
    field.start_head()
    node = field.start_node()
    head = field.address
    gcs = field.gcs
    code = DRIVER
    driver = field.driver(code, init=f"_node_ip_address={node.ip!r}")
    wait_for(lambda: f"node {node.node_id}" in _field.read(driver.log), 30, "a driver is connected through the node")
    os.kill(node.raylet, signal.SIGSTOP)  # so that both signals are there before it goes on
    os.kill(node.raylet, signal.SIGTERM)
    os.kill(driver.pid, signal.SIGKILL)
    os.kill(node.raylet, signal.SIGCONT)
    daemon = _field._proc.look(node.raylet)
    wait_for(lambda: not _field._proc.look(node.raylet), 30, "the node ends")
    expect(daemon is not None, "the node's daemon was gone before it was told to end")
    expect(_field._proc.look(gcs), f"the head's GCS died:\n{_field.read(os.path.join(field.session_logs(), 'gcs_server.out'))[-800:]}")
    field.address = head
    field.start_node()  # and it takes new nodes


if __name__ == "__main__":
    _field.run(while_the_node_ends)
