"""The official Python client against the server that ALLOT_KUBECONFIG names: objects, watches, exec, port-forward.

Run by ../run; by hand: ALLOT_KUBECONFIG=... python -m unittest -v
"""

import json
import os
import threading
import unittest
import uuid

from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import portforward, stream

# How long anything may take before a test fails, in seconds.
PATIENCE = 60

ECHO = """import socketserver
class H(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"echo " + line)
s = socketserver.ThreadingTCPServer(("127.0.0.1", 0), H)
print(s.server_address[1], flush=True)
s.serve_forever()"""


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = config.new_client_from_config(os.environ["ALLOT_KUBECONFIG"])
        cls.core = client.CoreV1Api(cls.api)
        cls.ns = "python-" + uuid.uuid4().hex[:8]
        cls.core.create_namespace({"metadata": {"name": cls.ns}})

    @classmethod
    def tearDownClass(cls):
        cls.core.delete_namespace(cls.ns)
        cls.api.close()

    def launch(self, name, command):
        """Starts a pod and waits until it runs."""
        self.core.create_namespaced_pod(self.ns, {
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "host", "command": command}],
            },
        })
        watcher = watch.Watch()
        events = watcher.stream(
            self.core.list_namespaced_pod, self.ns, field_selector=f"metadata.name={name}", timeout_seconds=PATIENCE)
        for event in events:
            if event["object"].status.phase == "Running":
                return
        self.fail(f"{name} does not run")

    def test_objects(self):
        made = self.core.create_namespaced_config_map(self.ns, client.V1ConfigMap(
            metadata=client.V1ObjectMeta(name="one"), data={"k": "ü"}))
        self.assertEqual(made.data, {"k": "ü"})
        with self.assertRaises(ApiException) as caught:
            self.core.create_namespaced_config_map(self.ns, {"metadata": {"name": "one"}})
        self.assertEqual((caught.exception.status, caught.exception.reason), (409, "Conflict"))
        self.assertEqual(json.loads(caught.exception.body)["reason"], "AlreadyExists")
        patched = self.core.patch_namespaced_config_map("one", self.ns, {"data": {"n": "1"}})
        self.assertEqual(patched.data, {"k": "ü", "n": "1"})
        page = self.core.list_namespaced_config_map(self.ns, limit=1)
        self.assertEqual(len(page.items), 1)
        rest = self.core.list_namespaced_config_map(self.ns, _continue=page.metadata._continue)
        self.assertEqual(len(rest.items), page.metadata.remaining_item_count)
        self.core.delete_namespaced_config_map("one", self.ns)
        with self.assertRaises(ApiException) as caught:
            self.core.read_namespaced_config_map("one", self.ns)
        self.assertEqual(caught.exception.status, 404)

    def test_claims_and_slices(self):
        claims = client.ResourceV1Api(self.api)
        body = {
            "metadata": {"name": "c"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        }
        claims.create_namespaced_resource_claim(self.ns, body)
        claim = claims.read_namespaced_resource_claim("c", self.ns)
        self.assertEqual(claim.spec.devices.requests[0].exactly.count, 1)
        self.assertEqual(len(claims.list_resource_slice().items[0].spec.devices), 8)
        claims.delete_namespaced_resource_claim("c", self.ns)

    def test_watch(self):
        seen = []
        start = self.core.list_namespaced_config_map(self.ns).metadata.resource_version
        watcher = watch.Watch()

        def work():
            for name in ["a", "b"]:
                self.core.create_namespaced_config_map(self.ns, {"metadata": {"name": name, "labels": {"watch": "me"}}})
            self.core.delete_namespaced_config_map("a", self.ns)

        worker = threading.Thread(target=work)
        worker.start()
        for event in watcher.stream(
            self.core.list_namespaced_config_map, self.ns, label_selector="watch=me", resource_version=start,
            timeout_seconds=PATIENCE,
        ):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 3:
                watcher.stop()
        worker.join()
        self.assertEqual(seen, [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")])

    def test_exec(self):
        self.launch("exec", ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"])
        session = stream(
            self.core.connect_get_namespaced_pod_exec, "exec", self.ns,
            command=["sh", "-c", "read line; echo got $line; echo bad >&2; exit 4"],
            stdin=True, stdout=True, stderr=True, tty=False, _preload_content=False)
        session.write_stdin("typed\n")
        session.run_forever(timeout=PATIENCE)
        self.assertEqual((session.read_stdout(), session.read_stderr()), ("got typed\n", "bad\n"))
        self.assertEqual(session.returncode, 4)
        session.close()
        text = stream(
            self.core.connect_get_namespaced_pod_exec, "exec", self.ns, command=["echo", "one", "two"],
            stdin=False, stdout=True, stderr=True, tty=False)
        self.assertEqual(text, "one two\n")

    def test_port_forward_and_logs(self):
        self.launch("echo", ["python3", "-c", ECHO])
        lines = watch.Watch().stream(self.core.read_namespaced_pod_log, "echo", self.ns)
        port = int(next(lines))
        session = portforward(self.core.connect_get_namespaced_pod_portforward, "echo", self.ns, ports=str(port))
        conn = session.socket(port)
        conn.settimeout(PATIENCE)
        conn.sendall(b"hello\n")
        self.assertEqual(conn.recv(100), b"echo hello\n")
        conn.close()
        self.assertIsNone(session.error(port))

    def test_dynamic_client_and_yaml(self):
        utils.create_from_dict(self.api, {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dyn", "namespace": self.ns}})
        maps = dynamic.DynamicClient(self.api).resources.get(api_version="v1", kind="ConfigMap")
        applied = maps.server_side_apply(
            body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dyn"}, "data": {"a": "1"}},
            name="dyn", namespace=self.ns, field_manager="python")
        self.assertEqual(applied.data.to_dict(), {"a": "1"})
        self.assertEqual(maps.get(name="dyn", namespace=self.ns).data.a, "1")


if __name__ == "__main__":
    unittest.main()
