"""Writes the files that are made of others: `types.py` of the description of a node, `_client.py` of `_async_client.py`.

    python generate.py [--check] OPENAPI.JSON

With `--check` nothing is written, and a file that is not as it should be is an error.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).parent / "src" / "celeris"

#: What differs between the two clients.
WORDS = [
    (r'"""The client, asynchronous\. `_client\.py` is made of it by `generate\.py`\."""', '"""The client. Made of `_async_client.py` by `generate.py`; do not edit."""'),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsync(Client|Model|Decision)\b", r"\1"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"httpx\.AsyncBaseTransport", "httpx.BaseTransport"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"^import asyncio$", "import time"),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"\baclose\b", "close"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
]


def types(description: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "types.py"
        command = [sys.executable, "-m", "datamodel_code_generator", "--input", str(description), "--output", str(output)]
        command += ["--input-file-type", "openapi", "--output-model-type", "typing.TypedDict", "--disable-timestamp"]
        command += ["--target-python-version", "3.10", "--use-standard-collections", "--use-union-operator"]
        command += ["--use-schema-description", "--disable-warnings", "--formatters", "builtin"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        text = re.sub(r"\A(#.*\n)+", "", output.read_text())
        return f'"""Types of the API. Made of its description by `generate.py`; do not edit."""\n{text}'


def client() -> str:
    text = (PACKAGE / "_async_client.py").read_text()
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    imports = re.search(r"^from collections\.abc import (.*)$", text, flags=re.MULTILINE)
    assert imports is not None
    names = ", ".join(sorted(imports[1].split(", ")))
    return text.replace(imports[0], f"from collections.abc import {names}").replace("import time\nfrom coll", "import time\nfrom coll")


def main() -> int:
    arguments = sys.argv[1:]
    check = "--check" in arguments
    description = Path(next(argument for argument in arguments if argument != "--check"))
    stale = []
    for name, text in [("types.py", types(description)), ("_client.py", client())]:
        path = PACKAGE / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text)
    if check and stale:
        print(f"stale: {', '.join(stale)}; run python clients/python/generate.py with the description of a node", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
