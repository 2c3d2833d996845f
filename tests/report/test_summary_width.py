"""Lines within a width: broken between words, never between a number and its percent sign."""

from planner.report.summary import HANG, INDENT, fitted

LINE = "LAYOUT     used 40.2 %, attention 16.1 %, pipeline bubble 9.1 %, context parallel 6.5 %, recompute 12.7 %"


def test_lines_are_broken_between_words() -> None:
    """Every width keeps all words in their order, set in below the section's name, and numbers by their unit."""
    for width in range(40, 110):
        lines = fitted(LINE, width).split("\n")
        assert max(map(len, lines)) <= width
        assert " ".join(lines).split() == LINE.split(), width
        started = [line.startswith(" " * (INDENT + HANG)) and not line.lstrip().startswith("%") for line in lines[1:]]
        assert all(started), width


def test_a_pipe_has_whole_lines() -> None:
    assert fitted(LINE, None) == LINE
