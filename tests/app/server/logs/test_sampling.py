"""Sampling of log lines that a client can cause."""

from app.server.logs.sampling import LogSampler


def test_sampler_passes_ten_lines_and_counts_the_dropped_ones() -> None:
    now = [0.0]
    sampler = LogSampler(lambda: now[0])
    assert [sampler.sample() for _ in range(13)] == [{}] * 10 + [None] * 3
    now[0] = 1.0
    assert [sampler.sample() for _ in range(2)] == [{"not_logged": 3}, None]
