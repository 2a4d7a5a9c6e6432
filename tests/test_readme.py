"""The README's Python runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_python_examples_run(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 2
    script = tmp_path / "readme.py"
    script.write_text("\n".join(blocks))
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "distance" in done.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_linked_pages_exist():
    for target in re.findall(r"\]\((docs/[^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
