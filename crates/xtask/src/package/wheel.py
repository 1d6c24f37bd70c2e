"""Packs a wheel (PEP 427) whose only file is the command: VERSION MCP-NAME WHEEL BINARY NOTICES ROOT."""
import base64, hashlib, os, sys, zipfile

version, mcp_name, wheel, binary, notices, root = sys.argv[1:]
tags = os.path.basename(wheel)[: -len(".whl")].split("-", 2)[2]
python, abi, platforms = tags.split("-")
info = f"peerbus-{version}.dist-info"
readme = open(os.path.join(root, "README.md"), encoding="utf-8").read()
files = {
    f"peerbus-{version}.data/scripts/peerbus": open(binary, "rb").read(),
    f"{info}/licenses/LICENSE": open(os.path.join(root, "LICENSE"), "rb").read(),
    f"{info}/licenses/THIRD-PARTY.txt": open(notices, "rb").read(),
    f"{info}/METADATA": (
        f"Metadata-Version: 2.4\nName: peerbus\nVersion: {version}\n"
        "Summary: Durable, signed message bus for AI coding agents\nLicense-Expression: MIT\n"
        "License-File: LICENSE\nLicense-File: THIRD-PARTY.txt\n"
        "Project-URL: Source, https://github.com/peerbus/peerbus\n"
        f"Description-Content-Type: text/markdown\n\n{readme}\n<!-- mcp-name: {mcp_name} -->\n"
    ).encode(),
    f"{info}/WHEEL": (
        "Wheel-Version: 1.0\nGenerator: peerbus\nRoot-Is-Purelib: false\n"
        + "".join(f"Tag: {python}-{abi}-{platform}\n" for platform in platforms.split("."))
    ).encode(),
}
record = f"{info}/RECORD"
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
    lines = []
    for name, data in files.items():
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
        packed.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    packed.writestr(zipfile.ZipInfo(record, (1980, 1, 1, 0, 0, 0)), "".join(lines) + f"{record},,\n")
