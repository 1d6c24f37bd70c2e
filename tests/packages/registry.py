"""A registry of npm on loopback that has these packages and no other: PORT PACKAGE.TGZ…"""
import base64, hashlib, http.server, json, os, sys, tarfile, urllib.parse

port, *files = sys.argv[1:]
documents, packed = {}, {}
for file in files:
    with tarfile.open(file) as package:
        manifest = json.load(package.extractfile("package/package.json"))
    name, version, path = manifest["name"], manifest["version"], "/-/" + os.path.basename(file)
    packed[path] = open(file, "rb").read()
    digest = base64.b64encode(hashlib.sha512(packed[path]).digest()).decode()
    manifest["dist"] = {"tarball": f"http://127.0.0.1:{port}{path}", "integrity": f"sha512-{digest}"}
    documents["/" + name] = json.dumps(
        {"name": name, "dist-tags": {"latest": version}, "versions": {version: manifest}}
    ).encode()


class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = urllib.parse.unquote(self.path)
        found = packed.get(path) or documents.get(path)
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(found or b"{}")


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Registry)
print("ready", flush=True)
server.serve_forever()
