"""Log lines that a client can cause."""

from app.server.log_sampling import LogSampler


def test_sampler_drops_lines_beyond_ten_and_counts_them() -> None:
    now = [0.0]
    sampler = LogSampler(lambda: now[0])
    assert [sampler.sample() for _ in range(13)] == [{}] * 10 + [None] * 3
    now[0] = 1.0
    assert [sampler.sample() for _ in range(2)] == [{"not_logged": 3}, None]
