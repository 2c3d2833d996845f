"""Scripts are divided into words as the shell divides them."""

import random
import shlex

import pytest

from planner.formats.shell_script import read_script

PIECES = ("a", "7", "/", ".", "-", "\\ ", "\\a", "\\\\", "\\'", '\\"', "'b c'", '"d e"', '"f\\"g"', '"h\\i"', "'j\\k'")


@pytest.mark.parametrize("seed", range(8))
def test_quotes_and_backslashes_are_taken_off_as_the_shell_does(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        word = "".join(["v", *rng.choices(PIECES, k=rng.randint(1, 6)), "w"])
        (value,) = shlex.split(word)
        assert read_script(f"run --data-path {word} --bf16\n", "own.sh").flags == {"data-path": value, "bf16": None}


def test_a_comment_ends_with_its_line() -> None:
    text = "run --bf16 # 7\n  --lr 3 # of 5\n# --seed 1\n--data-path a#b #"
    assert read_script(text, "own.sh").flags == {"bf16": None, "lr": "3", "data-path": "a#b"}
