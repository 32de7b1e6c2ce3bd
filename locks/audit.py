"""Look at what this project is made of: ``make audit``, with the tools of ``audit.txt``.

All packages go into ``dist/sbom.json`` (CycloneDX). Known holes in them are looked up, and files
are searched for keys and passwords. The exit code is 1 if there is a hole or a secret. Where the
database of holes cannot be reached, it says so: nothing was looked up then.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOCKS = ("device.txt", "torch.txt", "server.txt", "dev.txt", "audit.txt")
# Long hexadecimal numbers are hashes here. The names of secrets in Kubernetes are none, nor is a
# word that stands for a key of a message.
_SCAN = ("--disable-plugin", "HexHighEntropyString", "--disable-plugin", "Base64HighEntropyString")
_SCAN += ("--exclude-files", r"locks/.*\.txt|.*\.svg|benchmarks/records/.*")
_SCAN += ("--exclude-lines", r"secretName|^def test_|ASK_|[A-Z_]+ = \"[a-z-]+\"")


def tool(module: str, *arguments: str) -> str:
    """Run one of the tools; return what it prints."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if done.returncode and not done.stdout.strip():
        sys.exit(f"{module} failed: {done.stderr.strip()[-1000:]}")
    return done.stdout


def list_packages(python: str) -> None:
    """Write the list of all packages of an environment."""
    place = HERE.parent / "dist" / "sbom.json"
    place.parent.mkdir(exist_ok=True)
    tool("cyclonedx_py", "environment", "--output-reproducible", "-o", str(place), python)
    count = len(json.loads(place.read_text(encoding="utf-8"))["components"])
    print(f"dist/sbom.json: {count} packages")


def holes() -> int:
    """Print the known holes of locked packages, and how many could not be looked up."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines((HERE / name).read_text(encoding="utf-8") for name in LOCKS)
        file.flush()
        options = ("--disable-pip", "--require-hashes", "--progress-spinner=off", "--format=json")
        found = json.loads(tool("pip_audit", *options, "-r", file.name))["dependencies"]
    unknown = [package["name"] for package in found if "skip_reason" in package]
    bad: list[dict[str, Any]] = [package for package in found if package.get("vulns")]
    for package in bad:
        names = ", ".join(hole["id"] for hole in package["vulns"])
        print(f"  {package['name']} {package['version']}: {names}")
    print(f"{len(found) - len(unknown)} packages looked up, {len(bad)} with known holes")
    if unknown:
        print(
            f"NOT looked up, since the database does not answer for them: {len(unknown)} packages"
        )
    return len(bad)


def secrets() -> int:
    """Print the files and lines that look as if they held a secret."""
    found = json.loads(tool("detect_secrets", "scan", *_SCAN))["results"]
    for file, places in found.items():
        for place in places:
            print(f"  {file}:{place['line_number']}: {place['type']}")
    print(f"{len(found)} files that seem to hold secrets")
    return len(found)


if __name__ == "__main__":
    list_packages(sys.argv[1])
    sys.exit(1 if holes() + secrets() else 0)
