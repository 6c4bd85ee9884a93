"""The examples of the README run as they are shown."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run(url: str) -> None:
    pytest.importorskip("pandas")
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        block = block.replace('"http://127.0.0.1:7117"', repr(url)).replace("AsyncClient()", f"AsyncClient({url!r})")
        exec(compile(block, str(README), "exec"), names)  # noqa: S102


def test_the_example_of_a_frame_ends_in_an_evaluation(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    example = Path(__file__).parents[3] / "docs" / "examples" / "frame_to_model.py"
    monkeypatch.setattr(sys, "argv", [str(example), url])
    runpy.run_path(str(example), run_name="__main__")
    said = capsys.readouterr().out
    assert "20000 observations, succeeded" in said
    greedy, uniform = (float(value) for value in re.findall(r": (0\.\d+) clicks a request", said))
    assert greedy > uniform + 0.1
