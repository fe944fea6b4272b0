"""A batch script is read as sbatch reads it, and what keeps its job from coming back is found."""

from collections.abc import Mapping, Sequence

import pytest

from nodeheal.parsers.sbatch import all_options, doubts_of, parse_script, refuses_requeue
from stacks.settings import REPOSITORY

GOOD = """#!/bin/bash
#SBATCH --job-name=llama   # as people know it

   # what follows is read as well
#SBATCH --requeue
#SBATCH --open-mode=append
srun --kill-on-bad-exit=1 python3 train.py
"""


def doubts(text: str, options: Sequence[str] = (), variables: Mapping[str, str] | None = None) -> list[str]:
    script = parse_script(text)
    return doubts_of(script, all_options(script, options, variables or {}), variables or {})


def test_options_stand_before_the_first_command() -> None:
    script = parse_script(GOOD)

    assert script.options == ("--job-name=llama", "--requeue", "--open-mode=append")
    assert doubts(GOOD) == []


def test_the_example_comes_back() -> None:
    assert doubts((REPOSITORY / "examples" / "slurm" / "train.sbatch").read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (GOOD.replace("#SBATCH --requeue\n", ""), "no `#SBATCH --requeue`: it is added now"),
        (GOOD.replace("--requeue", "--no-requeue"), "--no-requeue: its owner does not allow a restart"),
        (GOOD.replace("=append", "=truncate"), "no --open-mode=append"),
        (GOOD.replace("=append", "=append\n#SBATCH --open-mode truncate"), "no --open-mode=append"),
        (GOOD.replace("#SBATCH --open-mode=append\n", ""), "no --open-mode=append"),
        (GOOD.replace("--kill-on-bad-exit=1 ", ""), "srun without --kill-on-bad-exit"),
        (GOOD + "#SBATCH --nodes=4\n", "line 8: sbatch ignores #SBATCH after the first command"),
        (GOOD + "cat <<END\n#SBATCH -N2\nEND\n#SBATCH -N4\n", "line 11: sbatch ignores #SBATCH"),
        (GOOD + "cat <<<END\n#SBATCH -N4\nEND\n", "line 9: sbatch ignores #SBATCH"),
        (GOOD + "[ $? = 0 ] || scontrol requeue $SLURM_JOB_ID\n", "without checking SLURM_RESTART_COUNT"),
    ],
)
def test_what_keeps_a_job_from_coming_back_is_named(text: str, told: str) -> None:
    [doubt] = doubts(text)

    assert told in doubt


@pytest.mark.parametrize(
    "command",
    [
        "srun python3 train.py",
        "OMP_NUM_THREADS=8 FOO= srun python3 train.py",
        "exec srun -n 4 train",
        "cd /data && srun train",
        "if srun train; then true; fi",
        "srun \\\n  -n 4 train",
        "(srun train)",
        "srun --kill-on-bad-exit=1 a; srun b",
        "srun -K a || { srun b; }",
        "srun --kill-on-bad-exit=0 train",
        "srun -K0 train",
        "train() { srun train; }",
        "nohup srun train &",
        "cat >hosts <<END\ngpu1\nEND\nsrun train",
        "x=$((1<<n))\nsrun train",
    ],
)
def test_an_srun_is_seen_where_a_shell_runs_it(command: str) -> None:
    [doubt] = doubts(GOOD.replace("srun --kill-on-bad-exit=1 python3 train.py", command))

    assert doubt.startswith("srun without")


@pytest.mark.parametrize(
    "command",
    [
        "python3 train.py",
        "# srun train",
        "echo see srun(1)",
        "mysrun train",
        "srun -K train",
        "srun -n4 -K1 train",
        "srun \\\n  --kill-on-bad-exit train",
        "srun --kill-on-bad=1 train",
        "export SLURM_KILL_BAD_EXIT=1\nsrun train",
        "cat >other.sbatch <<'END'\n#!/bin/bash\n#SBATCH --nodes=4\nsrun train\nEND\nbash other.sbatch",
        "cat <<-END\n#SBATCH -N2\n\tEND",
        "cat <<-END >one; cat >two <<LAST\n#SBATCH -N2\n\tEND\n\tLAST\n#SBATCH -N2\nLAST",
        "scontrol requeue $SLURM_JOB_ID  # at most 3: $SLURM_RESTART_COUNT",
    ],
)
def test_a_command_that_is_none_or_ends_with_its_ranks_raises_no_doubt(command: str) -> None:
    assert doubts(GOOD.replace("srun --kill-on-bad-exit=1 python3 train.py", command)) == []


def test_a_script_of_another_language_is_not_searched_for_srun() -> None:
    assert doubts(GOOD.replace("/bin/bash", "/usr/bin/python3").replace("srun --kill-on-bad-exit=1", "srun")) == []


@pytest.mark.parametrize(
    ("options", "variables", "refuses"),
    [
        ((), {}, False),
        (("--no-requeue",), {}, True),
        (("--no-req",), {}, True),  # sbatch takes it so, too
        (("--no-requeue", "--requeue"), {}, False),
        ((), {"SBATCH_NO_REQUEUE": "1"}, True),
        (("--requeue",), {"SBATCH_NO_REQUEUE": "1"}, False),
    ],
)
def test_the_last_word_of_an_owner_counts(options: Sequence[str], variables: Mapping[str, str], refuses: bool) -> None:
    assert refuses_requeue(all_options(parse_script(GOOD), options, variables)) is refuses


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (("--open-mode=append", "--requeue"), {}),
        (("--open-mode", "append", "--req"), {}),
        ((), {"SBATCH_OPEN_MODE": "append", "SBATCH_REQUEUE": ""}),
    ],
)
def test_what_the_script_does_not_say_may_be_given_beside_it(
    options: Sequence[str], variables: Mapping[str, str]
) -> None:
    assert doubts("#!/bin/sh\ntrue\n", options, variables) == []
    assert doubts("#!/bin/sh\nsrun true\n", options, {**variables, "SLURM_KILL_BAD_EXIT": "1"}) == []


def test_an_option_that_no_shell_can_read_is_left_to_sbatch() -> None:
    assert parse_script(GOOD + "").options == parse_script(GOOD.replace("\n\n", '\n#SBATCH --comment="\n\n')).options


@pytest.mark.parametrize("text", ["", "echo hi\n", "\n#!/bin/sh\n", "name: llama\npool: demo\n"])
def test_what_is_no_script_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="its first line must begin with #!"):
        parse_script(text)
