"""A real node for the tests: the program that the variable CELERIS_BINARY names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import celeris


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binary = os.environ.get("CELERIS_BINARY")
    if not binary:
        pytest.exit("CELERIS_BINARY must name the program celeris", returncode=2)
    folder: Path = tmp_path_factory.mktemp("node")
    command = [binary, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(folder / "data")]
    environment = {**os.environ, "CELERIS_TRAINING__AUTOMATIC": "false"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as node:
        assert node.stdout is not None
        ready = node.stdout.readline().split()
        assert ready[:1] == ["ready"], ready
        yield ready[1]
        node.terminate()


@pytest.fixture
def client(url: str) -> Iterator[celeris.Client]:
    with celeris.Client(url) as client:
        yield client


@pytest.fixture
def model(client: celeris.Client, request: pytest.FixtureRequest) -> celeris.Model:
    """A model of the test's own."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return client.create_model(name, dim=4, loss="logistic", policy="greedy", pool_share=0)
