"""Which problems the benchmark takes, and in which order."""

import argparse
import math
from collections import Counter

import pytest
from bench_helpers import CEILINGS
from kronsparse.bench.measuring.devices import CpuDevice
from kronsparse.bench.measuring.sweep import plan_problems
from kronsparse.bench.options import duration
from kronsparse.bench.problems import suites
from kronsparse.bench.problems.problem import Problem
from kronsparse.bench.problems.suites import SUITES, find_suite, representative
from kronsparse.chains import Pattern


def test_the_paper_s_grid_has_627_patterns():
    grid = SUITES["paper-time"].patterns
    assert len(grid) == len(set(grid)) == 627
    assert sum(pattern.a == 1 for pattern in grid) == 299
    assert all(25088 * max(one.rows, one.cols) < 2**31 and one.nnz < 2**31 for one in grid)
    assert all(one.b in (one.c, 4 * one.c) or one.c == 4 * one.b for one in grid)
    sparsities = sorted(1 - pattern.density for pattern in grid if pattern.density < 1)
    count = len(sparsities)
    assert sparsities[count // 2] == pytest.approx(0.979, abs=1e-3)  # the paper's median
    assert sparsities[count // 4] == pytest.approx(0.917, abs=1e-3)  # and its first quartile


def test_the_energy_grid():
    grid = SUITES["paper-energy"].patterns
    assert len(set(grid)) == len(grid) == 651
    assert {pattern.a for pattern in grid} == {1, 4, 16, 32, 64}
    assert not any((pattern.b, pattern.c) == (64, 256) for pattern in grid)


def test_the_sample_is_of_the_grid():
    sample = set(SUITES["sample"].patterns)
    assert len(sample) == 64 and sample <= set(SUITES["paper-time"].patterns)


def test_permutation_share_pairs_each_pattern_with_the_permuted_one():
    suite = SUITES["permutation-share"]
    assert all(pattern.a == 1 and pattern.d > 1 for pattern in suite.patterns)
    assert suite.companion(Pattern(3, 48, 64, 6)) == Pattern(18, 48, 64, 1)


def test_llm_factors_make_up_layers():
    patterns = SUITES["llm"].patterns
    assert Pattern(1, 172, 64, 64) in patterns and Pattern(64, 64, 64, 1) in patterns
    for size in (4096, 5120, 8192, 11008, 14336):
        chain = suites.block_butterfly(size, 4)
        assert set(chain) <= set(patterns)
        assert all((pattern.rows, pattern.cols) == (size, size) for pattern in chain)


def test_forms_of_patterns(tmp_path):
    expected = (Pattern(1, 2, 3, 4), Pattern(5, 6, 7, 8))
    for text in ("1x2x3x4,5x6x7x8", "(1,2,3,4) (5,6,7,8)", "1x2x3x4\n5x6x7x8"):
        assert find_suite(text).patterns == expected
    file = tmp_path / "mine.txt"
    file.write_text("# 9x9x9x9 is a remark\n1x2x3x4\n5x6x7x8\n")
    assert find_suite(str(file)).patterns == expected
    with pytest.raises(ValueError, match="'nothing' is no suite"):
        find_suite("nothing")


def test_a_file_of_problems(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("f16 batch_last B=7 1x2x3x4\nf32 ieee batch_first B=100 5x6x7x8\n")
    assert find_suite(str(file)).problems == (
        Problem("f16", "batch_last", Pattern(1, 2, 3, 4), 7, ("",)),
        Problem("f32", "batch_first", Pattern(5, 6, 7, 8), 100, ("ieee",)),
    )


@pytest.mark.parametrize(
    "text",
    [
        "batch_first f32 B=64 1x48x48x6",
        "  1x48x48x6\tB=64   f32 batch_first",
        "multiply f32 fp32 batch_first B=64 1x48x48x6",
    ],
)
def test_words_of_a_problem_come_in_any_order(text):
    suite = find_suite(text)
    assert suite.problems == (Problem("f32", "batch_first", Pattern(1, 48, 48, 6), 64, ("fp32",)),)
    assert not suite.patterns


REFUSED = {
    "f64 batch_first B=64 1x48x48x6": "'f64' in .* given; the benchmark times products of dtype",
    "transposed f32 batch_first B=64 1x48x48x6": "'transposed' in .* given",
    "gradient f16 batch_first B=64 1x48x48x6": "'gradient' in .* given",
    "f32 batch_first B=64 1x48x48x6 +bias +gelu": r"'\+bias' in .* given",
    "f32 batch_first B=64 1x48x48x6 cols_stride=512": "'cols_stride=512' in .* given",
    "f32 batch_first B=0 1x48x48x6": "'B=0' in .* given",
    "f32 f16 batch_first B=64 1x48x48x6": "'f16' in .* gives the dtype a second time",
    "f32 B=64 1x48x48x6": "lacks the layout",
    "f16 tf32 batch_first B=64 1x48x48x6": "mode tf32 in .* given with f16, allowed with f32 only",
    "1x48x48x6x7": "pattern: '1x48x48x6x7' given",
    "f32 batch_first B=64 1x48x48x6x7": "pattern: '1x48x48x6x7' given",
    "bad line": "'bad' in 'bad line' given",
    "1x48x48x0": "each at least 1",
}


@pytest.mark.parametrize(("line", "reason"), REFUSED.items())
def test_what_cannot_be_timed_is_refused_with_its_line(tmp_path, line, reason):
    file = tmp_path / "mine.txt"
    file.write_text(f"1x2x3x4\n\n{line}  # as it is\n")
    with pytest.raises(ValueError, match=f"mine.txt:3: .*{reason}"):
        find_suite(str(file))
    with pytest.raises(ValueError, match=f"is no suite .* and no file; .*{reason}"):
        find_suite(line)


def test_a_file_without_problems_says_so(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("# nothing yet\n")
    with pytest.raises(ValueError, match=r"mine\.txt: holds no problem and no pattern"):
        find_suite(str(file))
    with pytest.raises(ValueError, match="nothing given"):
        find_suite("")


def test_problems_and_patterns_in_one_file_are_all_taken(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("f16 batch_last B=7 1x2x3x4\n5x6x7x8\n")
    options = argparse.Namespace(dtypes=None, layouts=None, modes=["fp32"], batch=32, limit=None)
    planned = plan_problems(options, find_suite(str(file)), CpuDevice("cpu"), CEILINGS)
    assert [problem.text() for problem in planned] == [
        "f16 batch_last B=7 1x2x3x4",
        "f32 batch_first B=32 5x6x7x8",
        "f32 batch_last B=32 5x6x7x8",
    ]


def test_every_beginning_of_the_order_is_spread_over_the_whole():
    for count in (1, 2, 7, 64, 627):
        assert sorted(representative(range(count))) == list(range(count))
    order = representative(SUITES["paper-time"].patterns)
    for beginning in (40, 157):
        found = Counter(pattern.a == 1 for pattern in order[:beginning])
        assert found[True] / beginning == pytest.approx(299 / 627, abs=0.06)
        sparse = sum(pattern.density < 0.021 for pattern in order[:beginning]) / beginning
        assert sparse == pytest.approx(0.5, abs=0.15)


def test_numbers_of_a_problem():
    problem = Problem("f16", "batch_last", Pattern(2, 3, 4, 5), 10)
    fields = problem.fields()
    assert fields["problem"] == "f16 batch_last B=10 2x3x4x5"
    assert fields["flops"] == 2 * 10 * 120
    assert fields["bytes"] == 2 * (10 * 40 + 10 * 30 + 120)
    assert fields["sparsity"] == pytest.approx(0.9) and fields["h"] == pytest.approx(7 / 12)


def test_durations():
    assert [duration(text) for text in ("90", "90s", "8m", "1h30m", "0.5m")] == [90, 90, 480, 5400, 30]
    with pytest.raises(Exception, match="'soon' given, must be a duration"):
        duration("soon")
    assert not math.isnan(duration("1s"))
