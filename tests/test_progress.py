"""What is shown while a run goes on, and that nothing is shown where nobody looks."""

from __future__ import annotations

import io
import re
import sys
import threading

import pytest
from rich.console import Console

from consilience.progress import Progress, is_shown, tell


def terminal(width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def shown_on(console: Console) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


def test_one_line_for_the_whole_and_one_per_worker():
    console = terminal()
    with Progress(console=console) as progress:
        progress.stage("sample", 25)
        progress.advance(3)
        progress.advance()
        progress.worker("1", "shard 7")
        progress.worker("2", "shard 8")
        progress._display.live.refresh()
    shown = shown_on(console)
    assert re.search(r"sample .*4/25 0:00:0\d left: \S+", shown)
    assert "  1  shard 7" in shown
    assert "  2  shard 8" in shown
    assert re.search(r"sample 4/25 in \d+\.\d s\n", shown)


def test_a_stage_leaves_a_line_and_takes_its_workers_along():
    console = terminal()
    with Progress(console=console) as progress:
        progress.stage("sample", 2)
        progress.worker("1", "shard 7")
        progress.advance(2)
        progress.stage("combine")
        before = len(console.file.getvalue())
        progress._display.live.refresh()
        after = console.file.getvalue()[before:]
    assert "combine" in after
    assert "shard 7" not in after
    assert re.search(r"sample 2/2 in", shown_on(console))
    assert re.search(r"combine in", shown_on(console))


def test_a_worker_that_does_nothing_is_not_shown():
    console = terminal()
    with Progress(console=console) as progress:
        progress.worker("1", "shard 7")
        progress.worker("1", "")
        progress.worker("never seen", "")
        progress._display.live.refresh()
    assert "shard 7" not in shown_on(console)


def test_many_workers_do_not_fill_the_screen():
    console = terminal()
    with Progress(console=console) as progress:
        for number in range(100):
            progress.worker(f"{number:03}", "shard")
        progress._display.live.refresh()
    shown = shown_on(console)
    assert "011  shard" in shown
    assert "012  shard" not in shown
    assert "and 88 more workers" in shown


def test_names_from_the_data_are_shown_as_they_are():
    console = terminal()
    with Progress(console=console) as progress:
        progress.stage("read [bold]x[/bold]", 1)
        progress.worker("[red]w[/red]", "shard [link=http://x]y[/link] [/]")
        progress.note("[a] note [/b]")
        progress.warn("[c] \x1b[31mwarning")
        progress._display.live.refresh()
    shown = shown_on(console)
    for text in (
        "read [bold]x[/bold]",
        "[red]w[/red]",
        "[link=http://x]y[/link] [/]",
        "[a] note [/b]",
        "Warning: [c] ",
    ):
        assert text in shown


def test_an_error_passes_and_the_terminal_is_left_in_order():
    console = terminal()
    before = set(threading.enumerate())
    progress = Progress(console=console)

    def fail() -> None:
        with progress:
            progress.stage("sample", 2)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    raw = console.file.getvalue()
    assert raw.rindex("\x1b[?25h") > raw.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "interrupted" in shown_on(console)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()
    progress.advance()  # after the end it is quiet, not broken


def exercise(progress: Progress) -> None:
    with progress:
        progress.stage("sample", 2)
        progress.advance()
        progress.worker("1", "shard 7")
        progress.note("note")
        progress.warn("warning")


def test_quiet_when_not_wanted_or_not_a_terminal(capfd, monkeypatch):
    console = terminal()
    exercise(Progress(False, console=console))
    plain = Console(file=io.StringIO(), force_terminal=False)
    exercise(Progress(console=plain))
    exercise(Progress())
    monkeypatch.setattr(sys, "stderr", None)
    exercise(Progress())
    assert (console.file.getvalue(), plain.file.getvalue()) == ("", "")
    assert capfd.readouterr() == ("", "")


def test_it_goes_to_stderr(monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    with Progress() as progress:
        progress.stage("sample", 2)
        print("a result")
        sys.stderr.write("written meanwhile\n")
    assert capsys.readouterr().out == "a result\n"
    assert "sample 0/2" in stderr.getvalue()
    assert "written meanwhile" in stderr.getvalue()


def test_from_several_threads_at_once():
    console = terminal()
    with Progress(console=console) as progress:
        progress.stage("sample", 800)

        def work(name: str) -> None:
            for number in range(200):
                progress.worker(name, f"shard {number}")
                progress.advance()

        threads = [threading.Thread(target=work, args=(str(name),)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "sample 800/800 in" in shown_on(console)


def test_deep_work_is_told_to_whoever_shows_and_to_nobody_else():
    tell("pairs", 1, 9)
    console = terminal()
    with Progress(console=console) as progress:
        progress.stage("combine")
        tell("pairs", 4, 1_200)
        progress._display.live.refresh()
        assert "pairs  4 of 1,200" in shown_on(console)
        before = len(console.file.getvalue())
        tell("pairs", 1_200, 1_200)
        progress._display.live.refresh()
        assert "pairs" not in console.file.getvalue()[before:]
    assert not is_shown()


def test_patience_shows_only_what_takes_longer():
    quick, slow = terminal(), terminal()
    with Progress(console=quick, patience=60.0) as progress:
        progress.stage("combine")
        tell("pairs", 1, 9)
    assert shown_on(quick) == ""
    with Progress(console=slow, patience=1e-9) as progress:
        progress.stage("combine")
        tell("pairs", 1, 9)
        progress._display.live.refresh()
    assert "combine" in shown_on(slow)
    assert "pairs  1 of 9" in shown_on(slow)
