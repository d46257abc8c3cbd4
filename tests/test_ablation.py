"""Each kind of derived evidence can be switched off, and is what a folder of the corpus needs."""

import pytest

from tests.bench.ablation import KINDS, Kind, ablated, replaced
from tests.bench.answers import Case


@pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])
def test_a_kind_names_a_function_of_the_engine(kind: Kind) -> None:
    with replaced(kind, kind.nothing):
        assert kind.what


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("unknown_launcher_saw_one_rank_end_first", "ended_first"),
        ("unknown_who_lost_a_peer_is_not_the_silent_one", "lost_a_peer"),
        ("unknown_timeout_long_after_a_server_that_nobody_missed", "trained_on"),
        ("unknown_silent_rank_beside_the_gpu_of_a_spare_node", "outside"),
        ("unknown_three_timeouts_at_one_minute_of_the_hour", "recurs"),
        ("res_old_kernel_sacrifices_a_child_of_the_rank", "kills"),
        ("res_nameless_dmesg_host_oom_of_one_rank", "processes"),
        ("sw_cuda_oom_of_the_gpu_that_holds_most", "outliers"),
        ("hw_gsp_heartbeat_lost_then_reset_required", "silent_firmware"),
        ("hw_one_gpu_lost_in_two_jobs", "related"),
        ("st_two_jobs_hang_on_one_file_server", "one_element"),
        ("quiet_gpu_pulled_from_a_drained_node", "spans"),
    ],
)
def test_without_a_kind_a_folder_is_told_wrong(case: str, kind: str) -> None:
    base, changes = ablated(Case("corpus", case))
    assert (base["right"], changes[kind]["right"]) == (1, -1)
